"""How settings are declared and checked. It knows no section: each part of hero declares its own.

    class RampSettings(Settings):
        start: Annotated[int, share(0.4)] = setting("First update of the relative term.", ge=0)
        top: float = setting(0.02, "Largest weight.", ge=0)

A value that depends on others is declared with its rule in the annotation (`share`, `per_dims`, `per_size`,
`from_strategy`) and is computed on construction, so a Settings object holds every number and nothing is None
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from hero.errors import HeroError, unknown_name

LARGEST_INT = 2**63 - 1
"""The largest seed, tensor size and TOML integer."""


@dataclass(frozen=True)
class Facts:
    """Values from other sections that derived settings depend on; the defaults are the paper's."""

    steps: int = 10_000
    """Updates of the run."""
    dims: int = 1
    """Space dimensions of the data."""
    strategy: object = None
    """The class of the strategy."""
    periodic: tuple[bool, ...] = ()
    """Whether each axis of space is periodic; empty: all are."""
    cloud: bool = False
    """Whether the data lie on scattered points instead of a grid."""
    space: tuple[int, ...] = ()
    """Grid points per axis; empty: enough for every default."""
    normalise: bool = False
    """Whether channels come in different scales, as in files and in conditioning."""
    norm: str = "joint"
    """How errors are measured unless set: `channels` for files."""
    size: str = "apebench"
    """Size of the FNO unless set: `base` for files."""
    channels: int = 1
    """Channels of a state."""
    states: int = 0
    """States to train on, of all trajectories together; 0: enough for every default."""
    train_steps: int = 0
    """Steps of a training trajectory of a file; 0: enough for every default."""


@dataclass(frozen=True)
class Derived:
    """The rule of a value that is computed unless it is set, and its default in words."""

    value: Callable[[Facts, Mapping[str, Any]], Any]
    """A function of the facts and of the given values of the same section."""
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


def from_strategy(attribute: str) -> Derived:
    """A value that each strategy class has as an attribute."""
    return Derived(lambda facts, given: getattr(facts.strategy, attribute, 0), "by strategy")


@dataclass(frozen=True)
class Flags:
    """What a setting means for the rest of hero, declared where the setting is."""

    identity: bool = True
    """Whether it decides a number of a run, so that its value is part of the run's id."""
    rounding: bool = False
    """Whether it changes numbers by rounding at most."""
    found: bool = False
    """Whether it is found in a file or in the training data, again where other settings change."""
    stated: bool = True
    """Whether the paper gives one value for it."""
    inherited: bool = False
    """Whether a fine-tuned run takes it from the run that it starts from."""
    carried: bool = False
    """Whether it holds for other files that a run is evaluated on."""
    code: bool = False
    """Whether it may name a class as package.module:Class."""


FLAGS = tuple(Flags.__dataclass_fields__)


def setting(default: Any, doc: str = "", **more: Any) -> Any:
    """A documented field: `setting(default, doc, ge=, gt=, lt=, le=, identity=, ..)`, or `setting(doc)` if derived.

    The keywords are bounds of the value, and `Flags`.
    """
    flags = {name: more.pop(name) for name in FLAGS if name in more}
    if flags:
        more["json_schema_extra"] = {"flags": flags}
    if not doc:
        default, doc = None, default
    return Field(default=default, description=doc, **more)


def flags_of(field: FieldInfo) -> Flags:
    """The flags of a field."""
    extra = field.json_schema_extra
    return Flags(**extra.get("flags", {})) if isinstance(extra, dict) else Flags()  # type: ignore[arg-type]


@cache
def flagged(settings: type[Settings], flag: str, value: bool = True) -> tuple[str, ...]:
    """The names of the settings of a section whose flag has this value."""
    return tuple(name for name, field in settings.model_fields.items() if getattr(flags_of(field), flag) == value)


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

    def plain(self) -> dict[str, Any]:
        """Nested plain values, ready for TOML."""
        return self.model_dump(mode="python")

    def identity(self, facts: Facts) -> dict[str, Any]:
        """The values that decide a number and are not their defaults, so that a new setting changes no id."""
        values, found = self.plain(), {}
        for name, field in type(self).model_fields.items():
            rule = derivation(field)
            default = field.get_default(call_default_factory=True) if rule is None else rule.value(facts, values)
            if flags_of(field).identity and values[name] != default:
                found[name] = values[name]
        return found


def facts_of(info: ValidationInfo) -> Facts:
    """The facts that a section is validated with."""
    return info.context if isinstance(info.context, Facts) else Facts()


def derivation(field: FieldInfo) -> Derived | None:
    """The rule of a derived field, None for others."""
    return next((item for item in field.metadata if isinstance(item, Derived)), None)


def default_text(field: FieldInfo) -> str:
    """The default of a field in words."""
    rule = derivation(field)
    return str(field.get_default(call_default_factory=True)) if rule is None else rule.text


def one_of(names: Iterable[str]) -> Callable[[Any], tuple[str, ...]]:
    """A validator for a list of known words, or the same separated by commas; in the order of `names`, read late."""

    def checked(value: Any) -> tuple[str, ...]:
        given, choices = words(value), ", ".join(names)
        if not isinstance(value, str | list | tuple) or not given:
            raise ValueError(f"is not a list of words; choose from: {choices}.")
        for word in given:
            if not isinstance(word, str) or word not in names:
                raise ValueError(f"contains {word!r}; choose from: {choices}.")
        return tuple(word for word in names if word in given)

    return checked


def known(names: Iterable[str]) -> Callable[[str], str]:
    """A validator for one known word; `names` is read late."""

    def checked(value: str) -> str:
        if value not in names:
            raise ValueError(f"is not possible; choose one of: {', '.join(names)}.")
        return value

    return checked


def words(value: Any) -> tuple[Any, ...]:
    """A tuple from a list, from one text with commas, or of one value."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Words = Annotated[tuple[str, ...], BeforeValidator(words)]
"""A list of words, or the same separated by commas."""


def positive_numbers(value: Any) -> tuple[int, ...]:
    """One positive whole number, a list of them, or the same separated by commas."""
    numbers = tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in words(value))
    if not numbers or any(type(number) is not int or number < 1 for number in numbers):
        raise ValueError("must be one positive whole number or a list of them.")
    return numbers


def shares(value: Any) -> tuple[float, ...]:
    """One number from 0 to 1, a list of them, or the same separated by commas."""
    numbers = words(value)
    try:
        found = tuple(map(float, numbers))
    except (TypeError, ValueError):
        found = ()
    if not found or any(isinstance(n, bool) for n in numbers) or not all(0 <= n <= 1 for n in found):
        raise ValueError("must be one number from 0 to 1 or a list of them.")
    return found


def _plain_type(field: FieldInfo | None, value: Any) -> Any:
    """`value` where its type loses nothing: 1e4 as an integer, 1 as a float, true as the word that a choice has."""
    if field is None or (isinstance(value, bool) and field.annotation is bool):
        return value
    if isinstance(value, bool):
        return str(value).lower() if "'true'" in str(field.annotation) else value
    if field.annotation is int and isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INT:
        return int(value)
    return float(value) if field.annotation is float and isinstance(value, int) else value


KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a word",
    "bool_type": "true or false",
    "mapping_type": "a table of values",
    "dict_type": "a table of values",
}


def _sentence(cls: type[Settings], section: str, error: ValidationError) -> str:
    """The first error of pydantic as one sentence."""
    found = error.errors(include_url=False)[0]
    name = str(found["loc"][0]) if found["loc"] else ""
    key = f"{section}.{name}" if section else name
    value, kind, limits = found["input"], found["type"], found.get("ctx", {})
    start = f"{key}={value!r}"
    if kind == "extra_forbidden":
        prefix = f"{section}." if section else ""
        return str(unknown_name("setting", key, [f"{prefix}{known}" for known in cls.model_fields]))
    if kind == "value_error":
        text = str(limits["error"])
        return text if text.startswith(section) and section else f"{start} {text}"
    if kind == "greater_than_equal":
        return f"{start} is too small; it must be at least {limits['ge']:g}."
    if kind == "greater_than":
        return f"{start} is too small; it must be above {limits['gt']:g}."
    if kind == "less_than":
        return f"{start} is too large; it must be below {limits['lt']:g}."
    if kind == "less_than_equal":
        return f"{start} is too large; it must be at most {limits['le']:g}."
    if kind == "finite_number":
        return f"{start} must be finite."
    if kind == "literal_error":
        choices = limits["expected"].replace("'", "").replace(" or ", ", ")
        return f"{start} is not possible; choose one of: {choices}."
    doc = cls.model_fields[name].description if name in cls.model_fields else found["msg"]
    return f"{start} is not {KINDS.get(kind, 'possible')}; {doc}"
