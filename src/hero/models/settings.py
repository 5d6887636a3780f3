"""Section `backbone`: the settings that every backbone has, and those of each, whose defaults follow from a size.

Apart from the networks, which need torch alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ValidationInfo, field_validator

from hero.config import Derived, Facts, Settings, per_dims, per_size, per_source, setting
from hero.config.settings import Words, facts_of, in_words, numbers, words
from hero.data.invariants import KEEPABLE
from hero.models.fno import added_points
from hero.models.spectral import check_modes, most_modes
from hero.models.unet import check_levels, most_levels
from hero.parts import BACKBONES

UNKNOWN = ("unknown",)  # invariants before the training data were looked at


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
        "fno", f"Backbone: {', '.join(BACKBONES)}, or your own nn.Module as package.module:Class.", code=True
    )
    residual: Literal["auto", "true", "false"] = setting(
        "false", "The operator predicts the change, u + G(u); auto: where a state changes little per step."
    )
    keep: Words = setting(
        ("none",),
        "Invariants that the operator keeps: none, auto (as the training data keep them), or "
        f"{', '.join(KEEPABLE)}, of all channels, or of one as in mean:density and low:density=0.",
    )
    predicts_change: Annotated[
        bool, Derived(lambda facts, given: str(given.get("residual", "")).lower() == "true", "by residual")
    ] = setting("Found: whether the operator predicts the change.", identity=False, found=True, stated=False)
    kept: Annotated[Words, Derived(given_keep, "by keep")] = setting(
        "Found: the invariants that the operator keeps.", identity=False, found=True, stated=False
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "bfloat16 computes matrix products under autocast; transforms, weights and states stay in float32."
    )

    compile_seconds: ClassVar[float] = 50  # approximate time to compile one block on a CPU
    compiled_saves: ClassVar[float] = 0.5  # at least this share of the time of an uncompiled update on a CPU

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
        """The arguments of the class: the settings of this backbone alone, but for a size, which is their defaults."""
        shared = {*BackboneSettings.model_fields, "size"}
        return {name: getattr(self, name) for name in type(self).model_fields if name not in shared}


APEBENCH: dict[int, dict[str, Any]] = {
    1: {"width": 28, "depth": 1, "modes": 28},
    2: {"width": 20, "depth": 1, "modes": 8},
    3: {"width": 4, "depth": 5, "modes": 8},
}
"""The paper's table of backbones in APEBench's layout: as many modes each way; 102,881 parameters in 2D."""
PAPER_COUNT: dict[str, Any] = {"width": 20, "depth": 1, "modes": 4, "lifting": 128, "projection": 64}
PAPER_COUNT |= {"coordinates": True, "spectral_bias": True}
"""The 30,541 parameters of the paper's table of costs, in 2D: as many modes in all. See docs/method/paper.md."""
PLAIN = {"lifting": 0, "projection": 0, "coordinates": False, "spectral_bias": False}  # settings that no other size has
SIZES: dict[str, dict[int, dict[str, Any]]] = {
    "small": APEBENCH,
    "base": {
        1: {"width": 32, "depth": 2, "modes": 32},
        2: {"width": 20, "depth": 2, "modes": 8},
        3: {"width": 8, "depth": 4, "modes": 8},
    },
    "large": {
        1: {"width": 64, "depth": 4, "modes": 48},
        2: {"width": 40, "depth": 4, "modes": 12},
        3: {"width": 16, "depth": 4, "modes": 8},
    },
    "apebench": APEBENCH,
    "paper_count": {2: PAPER_COUNT},
}
"""Settings of each size by space dimensions. `base` and `large` are for people's data, where a second block helps most
(docs/reference/backbones.md) and channels ask for width."""


def by_size(name: str) -> Derived:
    """The value of a setting in the chosen size."""

    def value(facts: Facts, given: Mapping[str, Any]) -> Any:
        size = str(given.get("size"))
        numbers = SIZES.get(size, APEBENCH).get(facts.dims)  # an unknown name is refused elsewhere
        if numbers is None:
            raise ValueError(f"backbone.size={size} exists in 2D only; leave it out for {facts.dims}D data.")
        found = (PLAIN | numbers)[name]
        if name == "modes":  # or as many as a smaller grid has
            modes = (found,) * facts.dims
            return tuple(map(min, modes, most_modes(facts.space) or modes))
        return max(found, 2 * facts.channels) if name == "width" and size in ("base", "large") else found

    if name in PLAIN:
        return Derived(value, str(PLAIN[name]))
    return Derived(value, f"by size; apebench: {in_words({dims: size[name] for dims, size in APEBENCH.items()})}")


Share = TypeVar("Share", int, float)


def per_axis(values: tuple[Share, ...], dims: int) -> tuple[Share, ...]:
    """One value for each axis; ValueError where there are more or fewer."""
    values = values * dims if len(values) == 1 else values
    if len(values) != dims:
        raise ValueError(f"has {len(values)} numbers for {dims} axes; use one or {dims}.")
    return values


PADDING = 0.25


def by_boundary(facts: Facts, given: Mapping[str, Any]) -> tuple[float, ...]:
    """The padding of each axis, a share of its points."""
    return tuple(0.0 if wraps else PADDING for wraps in facts.periodic or (True,) * facts.dims)


class FNOSettings(BackboneSettings):
    """Fourier neural operator."""

    size: Annotated[Literal["small", "base", "large", "apebench", "paper_count"], per_source("base", "apebench")] = (
        setting("Defaults of the settings below, for your data or (apebench, paper_count) the paper's.")
    )
    width: Annotated[int, by_size("width")] = setting("Channels inside.", ge=1)
    depth: Annotated[int, by_size("depth")] = setting("Blocks.", ge=1, le=1000)
    modes: Annotated[tuple[int, ...], by_size("modes")] = setting("Fourier modes kept, one number or one per axis.")
    lifting: Annotated[int, by_size("lifting")] = setting("Hidden channels of the lifting; 0 makes it linear.", ge=0)
    projection: Annotated[int, by_size("projection")] = setting(
        "Hidden channels of the projection; 0 makes it linear.", ge=0
    )
    coordinates: Annotated[bool, by_size("coordinates")] = setting(
        "Add the coordinates, from 0 to 1, as further input channels."
    )
    spectral_bias: Annotated[bool, by_size("spectral_bias")] = setting(
        "A bias of the spectral convolution next to the bias of the bypass, as in neuralop."
    )
    padding: Annotated[tuple[float, ...], Derived(by_boundary, f"{PADDING} on axes that are not periodic, else 0")] = (
        setting(
            "Zeros at the end of axes, as a share of their points: one number for those with ends, or one per axis."
        )
    )
    final_activation: bool = setting(True, "GELU after the last block as well, as in APEBench; neuralop has none.")

    @field_validator("modes", mode="before")
    @classmethod
    def _one_per_axis(cls, value: Any, info: ValidationInfo) -> tuple[int, ...]:
        return per_axis(numbers(value, int, low=1), facts_of(info).dims)

    @field_validator("padding", mode="before")
    @classmethod
    def _one_share_per_axis(cls, value: Any, info: ValidationInfo) -> tuple[float, ...]:
        padding, facts = numbers(value, float, low=0, high=1), facts_of(info)
        if len(padding) == 1 and not all(facts.periodic):
            return tuple(0.0 if wraps else padding[0] for wraps in facts.periodic)
        return per_axis(padding, facts.dims)

    @property
    def reach(self) -> tuple[int, ...]:
        """The modes in waves per box; the box of the transform is longer by the padding."""
        return tuple(max(1, round(m / (1 + share))) for m, share in zip(self.modes, self.padding, strict=True))

    def check(self, space: tuple[int, ...]) -> None:
        added = added_points(self.padding, space)
        check_modes(self.modes, tuple(n + more for n, more in zip(space, added, strict=True)))


PAPER_WIDTH = {1: 224, 2: 256, 3: 512}  # of a Transolver, by dimensions


class TransolverSettings(BackboneSettings):
    """Transolver."""

    # Its time is in matrix products, which a compiler leaves as they are, and its many heads make much code.
    compile_seconds: ClassVar[float] = 250
    compiled_saves: ClassVar[float] = 0.1

    size: Literal["small", "base", "large"] = setting("base", "Defaults of width and depth below.")
    width: Annotated[int, per_size({"small": {1: 112, 2: 128, 3: 256}, "base": PAPER_WIDTH, "large": PAPER_WIDTH})] = (
        setting("Channels inside.", ge=1)
    )
    depth: Annotated[
        int, per_size({"small": {1: 2, 2: 2, 3: 2}, "base": {1: 2, 2: 4, 3: 3}, "large": {1: 6, 2: 8, 3: 6}})
    ] = setting("Blocks.", ge=1, le=1000)
    heads: Annotated[int, per_dims({1: 4, 2: 8, 3: 8})] = setting("Attention heads.", ge=1)
    slices: Annotated[int, per_dims({1: 64, 2: 128, 3: 256})] = setting("Slices.", ge=1)
    mlp_ratio: int = setting(1, "Hidden over outer channels in the feed-forward part.", ge=1)
    periodic: Annotated[bool, Derived(lambda facts, given: all(facts.periodic), "whether every axis is")] = setting(
        "Convolutions wrap around; false pads with zeros as upstream does."
    )


def fitting_levels(facts: Facts, given: Mapping[str, Any]) -> int:
    """3 in 1D and 2D, 2 in 3D, or as many as a smaller grid has."""
    usual = {1: 3, 2: 3, 3: 2}[facts.dims]
    return min(usual, most_levels(facts.space)) if facts.space else usual


class UNetSettings(BackboneSettings):
    """U-Net."""

    size: Literal["small", "base", "large"] = setting("base", "Default of the width below.")
    width: Annotated[int, per_size({"small": 8, "base": 16, "large": 32})] = setting(
        "Channels on the finest grid; each coarser grid has twice as many.", ge=1
    )
    levels: Annotated[int, Derived(fitting_levels, "3 in 1D, 3 in 2D, 2 in 3D, fewer on a small grid")] = setting(
        "How often the grid is halved.", ge=1
    )
    depth: int = setting(1, "Residual blocks per grid, on the way down and on the way up.", ge=1, le=1000)

    @property
    def blocks(self) -> int:
        """Residual blocks in all."""
        return (2 * self.levels + 1) * self.depth

    def check(self, space: tuple[int, ...]) -> None:
        check_levels(self.levels, space)


class UserModuleSettings(BackboneSettings):
    """Your own module."""

    kwargs: Mapping[str, Any] = setting({}, "Arguments of the class, as backbone.kwargs.NAME=VALUE.")
