"""A backbone as a part: its settings, its names and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from torch import nn

from hero.config import Derived, Facts, Settings, setting
from hero.config.settings import Words, words

UNKNOWN = ("unknown",)
"""Invariants before the training data were looked at."""


def given_residual(facts: Facts, given: Mapping[str, Any]) -> bool:
    """Whether the residual form was asked for; `auto` is decided by the training data."""
    return str(given.get("residual", "")).lower() == "true"


def given_keep(facts: Facts, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The invariants that were asked for; unknown where the training data have something to decide."""
    asked = words(given.get("keep", ("none",)))
    undecided = {"auto", "limit"} & set(asked) or given.get("residual") == "auto"
    return UNKNOWN if undecided else asked_for(asked)


def asked_for(keep: tuple[str, ...]) -> tuple[str, ...]:
    """The invariants that `backbone.keep` names itself."""
    return tuple(word for word in keep if word not in ("none", "auto", "limit"))


class BackboneSettings(Settings):
    """The operator that learns one step; every backbone has these settings and its own."""

    name: str = setting(
        "fno", "Backbone: fno, transolver, unet, or your own nn.Module as package.module:Class.", code=True
    )
    residual: Literal["auto", "true", "false"] = setting(
        "false", "The operator predicts the change, u + G(u); auto: where a state changes little per step."
    )
    keep: Words = setting(
        ("none",),
        "Invariants that the operator keeps: none, auto (as the training data keep them), or mean, norm, norm_cap, "
        "limit, low=0, high=1, total, of all channels, or of one as in mean:density.",
    )
    predicts_change: Annotated[bool, Derived(given_residual, "by residual")] = setting(
        "Found: whether the operator predicts the change.", identity=False, found=True, stated=False
    )
    kept: Annotated[Words, Derived(given_keep, "by keep")] = setting(
        "Found: the invariants that the operator keeps.", identity=False, found=True, stated=False
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "bfloat16 computes matrix products under autocast; transforms, weights and states stay in float32."
    )

    compile_seconds: ClassVar[float] = 50
    """Approximate time to compile one block on a CPU."""
    compiled_saves: ClassVar[float] = 0.5
    """At least this share of the time of an uncompiled update on a CPU."""

    @property
    def blocks(self) -> int:
        """Blocks of the network, each of which takes its time to compile."""
        return getattr(self, "depth", 1)

    @property
    def reach(self) -> tuple[int, ...] | None:
        """The modes per axis that the network acts on one by one; None for all."""
        return getattr(self, "modes", None)

    @property
    def is_found(self) -> bool:
        """Whether everything that is left to the training data is decided."""
        return self.kept != UNKNOWN

    def own(self) -> dict[str, Any]:
        """The settings of this backbone alone, which are the arguments of its class."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in SHARED}


SHARED = BackboneSettings.model_fields.keys()


class SizedSettings(BackboneSettings):
    """A backbone whose numbers follow from one word, as far as they are not set."""

    size: str = setting("base", "Defaults of the settings below.")

    def own(self) -> dict[str, Any]:
        """The arguments of the class: a size is only the defaults of the others."""
        return {name: value for name, value in super().own().items() if name != "size"}


@dataclass(frozen=True)
class Backbone:
    """An entry of the registry. `build(settings, dims, in_channels, out_channels)` returns the module."""

    title: str
    """Display name."""
    short: str
    """Display name in the labels of strategies, as in Trans.-HERO."""
    Settings: type[BackboneSettings]
    build: Callable[..., nn.Module]
    takes_boundary: bool = False
    """Whether `build` takes a fifth argument, for each axis whether it is periodic."""
    takes_points: bool = False
    """Whether it also maps scattered points, (batch, channel, points), which it gets with dims=None."""
