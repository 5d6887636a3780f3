"""All settings there are, section by section, and the refusal of names and values that none of them has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from hero.config import Facts, Settings, setting
from hero.config.settings import LARGEST_INT, flagged
from hero.data import DataSettings, FileSettings
from hero.errors import HeroError
from hero.method.losses import LOSSES
from hero.models import BACKBONES, BackboneSettings
from hero.optimizers import OPTIMIZERS, get_optimizer
from hero.strategies import STRATEGIES, Strategy, TrainSettings


class TopSettings(Settings):
    """Settings without a section."""

    strategy: str = setting("hero", "How a window becomes a loss.", code=True)
    seed: int = setting(0, "Initial weights and batch order; never the data.", ge=0, stated=False)


CODE = tuple(
    f"{section}.{name}".lstrip(".")
    for section, part in (("", TopSettings), ("backbone", BackboneSettings), ("train", TrainSettings))
    for name in flagged(part, "code")
)
"""Settings that may name a class as package.module:Class."""
OTHER_WORDS = {"batch_size": "train.batch", "epochs": "train.steps", "learning_rate": "train.lr"}
"""What other libraries call our settings."""


def sections() -> Iterator[tuple[str, type[Settings]]]:
    """Every section with each registered class that may read it; SGD stands for the optimizers of torch."""
    yield from (("", TopSettings), ("data", DataSettings), ("data", FileSettings))
    yield from (("backbone", part.Settings) for part in BACKBONES.values())
    yield "train", TrainSettings
    yield from ((part.section, part.Settings) for part in STRATEGIES.values())
    yield from (("loss", part.Settings) for part in LOSSES.values())
    yield from (("optimizer", part.Settings) for part in (*OPTIMIZERS.values(), get_optimizer("SGD")))


def all_settings() -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key with its field, once."""
    found: dict[str, FieldInfo] = {}
    for section, settings in sections():
        for name, declared in settings.model_fields.items():
            found.setdefault(f"{section}.{name}".lstrip("."), declared)
    yield from found.items()


def by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Dotted keys by section; the section of a key without a dot is empty."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            raise HeroError(f"{key} is too large; use a number below 2^63.")
        if value is None:  # as if it were not given
            continue
        section, dot, name = key.partition(".")
        given = sections.setdefault(section if dot else "", {})
        if dot and name.startswith("kwargs."):  # arguments of a user's own backbone
            table = given.get("kwargs", {})
            if not isinstance(table, Mapping):
                raise HeroError(f"{section}.kwargs={table!r} is not a table of values; leave it out next to {key}.")
            given["kwargs"] = {**table, name.removeprefix("kwargs."): value}
        else:
            given[name if dot else key] = value
    return sections


def check_names(values: Mapping[str, Any], strategy: type[Strategy[Any]], backbone: type[BackboneSettings]) -> None:
    """Refuse unknown settings, naming the nearest, and settings of another backbone."""
    known = {"task.name", *(key for key, _ in all_settings())}
    known |= {f"{strategy.section}.{name}" for name in strategy.Settings.model_fields}
    own = {f"backbone.{name}" for name in backbone.model_fields}
    for key in values:
        section, _, name = key.partition(".")
        whole = f"{section}.{name.partition('.')[0]}" if section in ("backbone", "optimizer") else key
        if whole in known and section == "backbone" and whole not in own:
            raise HeroError(
                f"{key} does not apply to the backbone {values.get('backbone.name', 'fno')} (its settings: "
                f"{', '.join(sorted(backbone.model_fields))}); remove it."
            )
        if section != "task" and whole not in known | own:
            near = [repr(one) for one in near_settings(key, sorted(known | own))]
            hint = f"did you mean {' or '.join(near)}?" if near else "`hero settings` lists all."
            raise HeroError(f"unknown setting {key!r}; {hint}")


def check_unread(section: str, given: Mapping[str, Any], facts: Facts) -> None:
    """Check settings that no chosen part reads, so that a slip is found whatever is chosen."""
    for name, part in sections():
        known = {key: value for key, value in given.items() if key in part.model_fields}
        if name == section and known:
            part.from_values(section, known, facts)


def near_settings(key: str, known: Iterable[str]) -> list[str]:
    """The settings of `known` that `key` is likely to mean, the best first; none where it is like no other."""
    names = {one: last_word(one) for one in known}
    word = last_word(key)
    if near := difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.9):
        return near
    if word not in names.values():
        other = difflib.get_close_matches(word, OTHER_WORDS, n=1, cutoff=0.85)
        if other and OTHER_WORDS[other[0]] in names:
            return [OTHER_WORDS[other[0]]]
        word = next(iter(difflib.get_close_matches(word, names.values(), n=1, cutoff=0.75)), word)
    same = [one for one in names if names[one] == word]  # in another section, or without one
    return sorted(same, key=lambda one: not one.startswith("train."))[:3]


def last_word(key: str) -> str:
    """The name without its section, in small letters, with _ for - and with American endings."""
    name = key.lower().replace("-", "_").rpartition(".")[2]
    return re.sub(r"is(e|ed|er|ation)$", r"iz\1", name)
