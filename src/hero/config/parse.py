"""Settings as people write them: TOML files and dotted overrides such as `train.steps=2000`."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hero.errors import HeroError

LARGEST_FILE = 10 * 2**20  # bytes of a configuration: a real configuration has a few thousand


def parse_override(text: str) -> tuple[str, Any]:
    """`train.steps=2000` -> ("train.steps", 2000); the value is read as TOML, else as a plain word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise HeroError(f"a setting is written as KEY=VALUE, not {text!r}; for example train.steps=2000.")
    try:
        return key.strip(), tomllib.loads(f"v = {value.strip()}")["v"]
    except RecursionError:
        raise HeroError(f"the value of {key.strip()} has too many brackets; write a plain value.") from None
    except ValueError:  # not TOML, or a number of thousands of digits
        if value.isascii():  # Python reads the digits of every script, TOML and people do not
            with contextlib.suppress(ValueError):
                return key.strip(), float(value)  # such as .5, which TOML lacks
        word = value.strip()
        return key.strip(), {"True": True, "False": False}.get(word, word)  # as Python prints them


def read_toml(path: Path) -> dict[str, Any]:
    """A configuration file as dotted keys."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise HeroError(f"no configuration file {path}; check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HeroError(f"cannot read the configuration {path} ({reason}); check the path and permissions.") from None
    if len(content) > LARGEST_FILE:
        raise HeroError(f"{path} has more than {LARGEST_FILE >> 20} MB, which no configuration needs; name another.")
    try:
        tree = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, numbers or brackets by the thousand
        raise HeroError(f"{path} is not a TOML file ({error}); correct it or leave it out.") from None
    return dotted(tree)


def dotted(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration and of its sections by dotted keys; tables inside of a section stay tables."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found
