"""Settings as people write them: TOML files and dotted overrides such as `train.steps=2000`."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import Any

from hero.errors import HeroError


def parse_override(text: str) -> tuple[str, Any]:
    """`train.steps=2000` -> ("train.steps", 2000); the value is read as TOML, else as a plain word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise HeroError(f"a setting is written as KEY=VALUE, not {text!r}; for example train.steps=2000.")
    try:
        return key.strip(), tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        with contextlib.suppress(ValueError):
            return key.strip(), float(value)  # such as .5, which TOML lacks
        word = value.strip()
        return key.strip(), {"True": True, "False": False}.get(word, word)  # as Python prints them


def read_toml(path: Path) -> dict[str, Any]:
    """A configuration file as dotted keys."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeroError(f"no configuration file {path}; check the path.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HeroError(f"{path} is not a TOML file ({error}); correct it or leave it out.") from None
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": v for name, v in value.items()})
        else:
            flat[key] = value
    return flat
