"""How settings are declared and checked. It knows no section: each part of hero declares its own.

    class RampSettings(Settings):
        start: Annotated[int, share(0.4)] = setting("First update of the relative term.", ge=0)
        top: float = setting(0.02, "Largest weight.", ge=0)

A value that depends on others is declared with its rule in the annotation (`share`, `per_dims`, `per_size`,
`per_source`, `from_strategy`) and is computed on construction, so a Settings object holds every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from hero.errors import HeroError, unknown_name

LARGEST_INT = 2**63 - 1  # the largest seed, tensor size and TOML integer


@dataclass(frozen=True)
class Facts:
    """Values from other sections that derived settings depend on; the defaults are the paper's."""

    steps: int = 10_000  # updates of the run
    dims: int = 1  # space dimensions of the data
    strategy: object = None  # the class of the strategy
    periodic: tuple[bool, ...] = ()  # whether each axis of space is periodic; empty: all are
    space: tuple[int, ...] = ()  # grid points per axis; empty: enough for every default
    channels: int = 1
    conditioned: bool = False  # whether the operator sees quantities besides the states
    from_files: bool = False  # whether the data are a user's files instead of a benchmark
    train_steps: int = 0  # steps of a training trajectory of a file; 0: enough for every default


@dataclass(frozen=True)
class Derived:
    """The rule of a value that is computed unless it is set, and its default in words."""

    value: Callable[[Facts, Mapping[str, Any]], Any]  # from the facts and the given values of the same section
    text: str


def share(part: float, least: int = 1) -> Derived:
    """A number of updates: part · updates, at least `least` and at most all."""
    text = f"{part:g} of train.steps" + (f", at least {least}" if least > 1 else "")
    return Derived(lambda facts, given: min(max(1, facts.steps), max(least, round(part * facts.steps))), text)


def per_dims(values: Mapping[int, Any]) -> Derived:
    """A value for each number of space dimensions."""
    return Derived(lambda facts, given: values[facts.dims], in_words(values))


def per_size(values: Mapping[str, Any]) -> Derived:
    """A value for each size of a network, or one for each of its sizes and number of space dimensions."""

    def value(facts: Facts, given: Mapping[str, Any]) -> Any:
        found = values.get(str(given.get("size")), values["base"])  # an unknown name is refused elsewhere
        return found[facts.dims] if isinstance(found, Mapping) else found

    shown = {size: in_words(found) if isinstance(found, Mapping) else found for size, found in values.items()}
    return Derived(value, "; ".join(f"{size}: {found}" for size, found in shown.items()))


def in_words(values: Mapping[int, Any]) -> str:
    """28 in 1D, 20 in 2D, 4 in 3D."""
    return ", ".join(f"{value} in {dims}D" for dims, value in values.items())


def per_source(files: Any, benchmarks: Any) -> Derived:
    """One value for users' files, another for benchmarks."""
    text = f"{files} for files, {benchmarks} for benchmarks"
    return Derived(lambda facts, given: files if facts.from_files else benchmarks, text)


def from_strategy(attribute: str) -> Derived:
    """A value that each strategy class has as an attribute."""
    return Derived(lambda facts, given: getattr(facts.strategy, attribute, 0), "by strategy")


@dataclass(frozen=True)
class Flags:
    """What a setting means for the rest of hero, declared where the setting is."""

    identity: bool = True  # whether it decides a number of a run, so that its value is part of the run's id
    rounding: bool = False  # whether it changes numbers by rounding at most
    found: bool = False  # whether it is found in a file or in the training data, again where other settings change
    stated: bool = True  # whether the paper gives one value for it
    inherited: bool = False  # whether a fine-tuned run takes it from the run that it starts from
    carried: bool = False  # whether it holds for other files that a run is evaluated on
    code: bool = False  # whether it may name a class as package.module:Class


def setting(default: Any, doc: str = "", **more: Any) -> Any:
    """A documented field: `setting(default, doc, ge=, gt=, lt=, le=, identity=, ..)`, or `setting(doc)` if derived.

    The keywords are bounds of the value, and `Flags`.
    """
    flags = {name: more.pop(name) for name in vars(Flags()) if name in more}
    if not doc:
        default, doc = None, default
    return Field(default=default, description=doc, json_schema_extra=flags, **more)


@cache
def flagged(settings: type[Settings], flag: str, value: bool = True) -> tuple[str, ...]:
    """The names of the settings of a section whose flag has this value."""
    flags = {name: field.json_schema_extra or {} for name, field in settings.model_fields.items()}
    return tuple(name for name, given in flags.items() if getattr(Flags(**given), flag) == value)  # type: ignore[arg-type]


class Settings(BaseModel):
    """Base of all sections: frozen, unknown names and wrong types refused, derived values filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: Any, info: ValidationInfo) -> Any:
        values = {name: _plain_type(cls.model_fields.get(name), value) for name, value in dict(given).items()}
        for name, field in cls.model_fields.items():
            rule = derivation(field)
            if rule is not None and values.get(name) is None:
                values[name] = rule.value(facts_of(info), values)
        return values

    @classmethod
    def from_values(cls, section: str, values: Mapping[str, Any], facts: Facts) -> Self:
        """The section from plain values; HeroError names the dotted key, the value and the remedy."""
        try:
            return cls.model_validate(dict(values), context=facts)
        except ValidationError as error:
            raise HeroError(_sentence(cls, section, error)) from None

    def check(self, space: tuple[int, ...]) -> None:
        """Refuse values that do not fit the grid `space` of the data."""

    def identity(self, facts: Facts) -> dict[str, Any]:
        """The values that decide a number and are not their defaults, so that a new setting changes no id."""
        values, found = self.model_dump(), {}
        for name in flagged(type(self), "identity"):
            field = type(self).model_fields[name]
            rule = derivation(field)
            default = field.get_default(call_default_factory=True) if rule is None else rule.value(facts, values)
            if values[name] != default:
                found[name] = values[name]
        return found


def facts_of(info: ValidationInfo) -> Facts:
    return info.context if isinstance(info.context, Facts) else Facts()


def derivation(field: FieldInfo) -> Derived | None:
    return next((item for item in field.metadata if isinstance(item, Derived)), None)


def default_text(field: FieldInfo) -> str:
    rule = derivation(field)
    return str(field.get_default(call_default_factory=True)) if rule is None else rule.text


def known(names: Iterable[str]) -> Callable[[str], str]:
    """A validator for one known word; `names` is read late."""

    def checked(value: str) -> str:
        if value not in names:
            raise ValueError(f"is not possible; choose one of: {', '.join(names)}.")
        return value

    return checked


def one_of(names: Iterable[str]) -> Callable[[Any], tuple[str, ...]]:
    """A validator for a list of known words, or the same separated by commas; in the order of `names`, read late."""

    def checked(value: Any) -> tuple[str, ...]:
        given = words(value)
        if not given or any(word not in list(names) for word in given):
            raise ValueError(f"is not a list of known words; choose from: {', '.join(names)}.")
        return tuple(word for word in names if word in given)

    return checked


def words(value: Any) -> tuple[Any, ...]:
    """A tuple from a list, from one text with commas, or of one value."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Words = Annotated[tuple[str, ...], BeforeValidator(words)]  # a list of words, or the same separated by commas


def numbers(value: Any, kind: type, low: float, high: float = math.inf) -> tuple[Any, ...]:
    """One number of this type from `low` to `high`, a list of them, or the same separated by commas."""
    try:
        found = tuple(kind(one) if isinstance(one, str) else one for one in words(value))
    except ValueError:
        found = ()
    types = (int,) if kind is int else (int, float)
    if not found or not all(type(one) in types and low <= one <= high for one in found):
        name = "whole number" if kind is int else "number"
        raise ValueError(f"must be one {name} from {low:g} to {high:g} or a list of them.")
    return tuple(map(kind, found))


def factors(words: Iterable[str]) -> dict[str, float]:
    """Numbers of at least 0 by name or pattern, from words such as head.*:10; ValueError for others."""
    try:
        found = {name: float(number) for name, _, number in (str(word).rpartition(":") for word in words)}
    except ValueError:
        found = {"": 0.0}
    if not all(name and 0 <= number < math.inf for name, number in found.items()):
        raise ValueError("is not PATTERN:FACTOR for each; write it as in head.*:10,encoder.*:0.1.")
    return found


def _plain_type(field: FieldInfo | None, value: Any) -> Any:
    """`value` where its type loses nothing: 1e4 as an integer, true as the word that a choice has."""
    kind = field.annotation if field else None
    if isinstance(value, bool) and "'true'" in str(kind):
        return str(value).lower()
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INT
    return int(value) if kind is int and is_whole else value


def _sentence(cls: type[Settings], section: str, error: ValidationError) -> str:
    """The first error of pydantic as one sentence."""
    found = error.errors(include_url=False)[0]
    name = str(found["loc"][0]) if found["loc"] else ""
    prefix = f"{section}." if section else ""
    if found["type"] == "extra_forbidden":
        return str(unknown_name("setting", prefix + name, [f"{prefix}{known}" for known in cls.model_fields]))
    start = f"{prefix}{name}={found['input']!r}"
    if found["type"] == "value_error":
        text = str(found["ctx"]["error"])
        return text if prefix and text.startswith(prefix) else f"{start} {text}"
    doc = cls.model_fields[name].description if name in cls.model_fields else "correct it."
    return f"{start} {found['msg'].removeprefix('Input ')}; {doc}"
