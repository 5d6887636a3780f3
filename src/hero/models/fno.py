"""The Fourier neural operator in the layout of APEBench (pdequinox): the paper's first backbone, in 1D, 2D and 3D."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import ValidationInfo, field_validator
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from hero.config import Facts, setting
from hero.config.settings import Derived, facts_of, in_words, positive_numbers, shares
from hero.models.base import SizedSettings
from hero.models.once import once
from hero.models.spectral import SpectralConv, autocasting, check_modes, full_precision, fusing, most_modes


def pointwise(u: Tensor, weight: Tensor, plus: Tensor) -> Tensor:
    """A u(x) + plus(x) at every grid point: (batch, in, *space) -> (batch, out, *space); `plus` may be constant."""
    out_channels, in_channels = weight.shape
    if fusing() and (in_channels <= 4 or out_channels == 1):
        # Written without a matrix product, a thin map fuses with the activation next to it: one pass over memory.
        per_channel = (u.shape[0], -1, *(1,) * (u.dim() - 2))
        weight = weight.expand(u.shape[0], -1, -1)  # a gradient per sample, summed later, fuses as well
        if out_channels == 1:
            return plus + (u * weight[:, 0].reshape(per_channel)).sum(dim=1, keepdim=True)
        return sum((u[:, i : i + 1] * weight[:, :, i].reshape(per_channel) for i in range(in_channels)), plus)
    space, u, plus = u.shape[2:], u.flatten(2), plus.flatten(2)
    if autocasting(u):  # the sum stays in full precision
        return (plus + weight @ u).unflatten(2, space)
    return torch.baddbmm(plus, weight.expand(u.shape[0], -1, -1), u).unflatten(2, space)


def activation(v: Tensor) -> Tensor:
    """GELU(v) ≈ ½ v (1 + tanh y) = v σ(2y), y = √(2/π) (v + 0.044715 v³): what JAX, and so APEBench, means by GELU."""
    if fusing():  # an exponential costs half of a hyperbolic tangent, once it is fused
        return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v))
    return gelu(v, approximate="tanh")


class Pointwise(nn.Module):
    """A linear map of the channels, the same at every grid point, with bias: a 1x1 convolution on any dimension."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        bound = in_channels**-0.5
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound))

    def forward(self, u: Tensor) -> Tensor:
        return pointwise(u, self.weight, self.bias.reshape(1, -1, *(1,) * (u.dim() - 2)))


class FNOBlock(nn.Module):
    """v ← GELU(K v + W v + b): spectral convolution plus pointwise bypass; linear if not `activated`.

    With `spectral_bias` b is the sum of two vectors, as in neuralop, whose spectral convolution has its own.
    """

    def __init__(self, width: int, modes: tuple[int, ...], activated: bool = True, spectral_bias: bool = False) -> None:
        super().__init__()
        self.activated = activated
        self.spectral = SpectralConv(width, width, modes)
        self.bypass = Pointwise(width, width)
        self.spectral_bias = nn.Parameter(torch.zeros(width)) if spectral_bias else None

    @property
    def bias(self) -> Tensor:
        """b."""
        return self.bypass.bias if self.spectral_bias is None else self.bypass.bias + self.spectral_bias

    def forward(self, v: Tensor) -> Tensor:
        return self.activate(pointwise(v, self.bypass.weight, plus=self.spectral(v, self.bias)))

    def activate(self, v: Tensor) -> Tensor:
        return activation(v) if self.activated else v

    def lifted(self, u: Tensor, lifting: Pointwise) -> Tensor:
        """self(lifting(u)) without ever making the lifted field: lifting is linear, so it commutes with the transform.

        K(A u + a) = (K A) u + Re(W_0) a, so the few input channels are transformed instead of `width`, and lifting,
        spectral weight and bypass fold into one small tensor each. Exact up to rounding.
        """
        spectral, constant, weight = once((self, "lifted"), lambda: self.fold(lifting))
        return self.activate(pointwise(u, weight, plus=self.spectral(u, constant, spectral)))

    def fold(self, lifting: Pointwise) -> tuple[Tensor, Tensor, Tensor]:
        """Spectral weight, constant and bypass weight of `lifted`."""
        with full_precision(lifting.weight):
            spectral = torch.einsum("ci,rco...->rio...", lifting.weight, self.spectral.weight)
            mean = self.spectral.weight[0].flatten(2)[:, :, 0]  # Re W_0, (in, out)
            constant = mean.T @ lifting.bias + self.bypass.weight @ lifting.bias + self.bias
            return spectral, constant, self.bypass.weight @ lifting.weight


class ChannelMLP(nn.Module):
    """Two pointwise maps with an activation between them: a hidden lifting or projection."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = Pointwise(in_channels, hidden)
        self.second = Pointwise(hidden, out_channels)

    def forward(self, u: Tensor) -> Tensor:
        return self.second(activation(self.first(u)))


def channel_map(in_channels: int, hidden: int, out_channels: int) -> Pointwise | ChannelMLP:
    """Linear if there are no hidden channels."""
    return ChannelMLP(in_channels, hidden, out_channels) if hidden else Pointwise(in_channels, out_channels)


PLAIN: dict[str, Any] = {"lifting": 0, "projection": 0, "coordinates": False, "spectral_bias": False}
APEBENCH: dict[int, dict[str, Any]] = {
    1: {"width": 28, "depth": 1, "modes": 28, **PLAIN},
    2: {"width": 20, "depth": 1, "modes": 8, **PLAIN},
    3: {"width": 4, "depth": 5, "modes": 8, **PLAIN},
}
PAPER_COUNT: dict[str, Any] = {"width": 20, "depth": 1, "modes": 4, "lifting": 128, "projection": 64}
PAPER_COUNT |= {"coordinates": True, "spectral_bias": True}


def apebench(facts: Facts) -> dict[str, Any]:
    """The paper's table of backbones in APEBench's layout: as many modes each way; 102,881 parameters in 2D."""
    return APEBENCH[facts.dims]


def paper_count(facts: Facts) -> dict[str, Any]:
    """The 30,541 parameters of the paper's table of costs, in 2D: as many modes in all. See docs/method/paper.md."""
    if facts.dims != 2:
        raise ValueError(f"backbone.size=paper_count exists in 2D only; leave it out for {facts.dims}D data.")
    return PAPER_COUNT


FOR_FILES: dict[str, dict[int, dict[str, Any]]] = {
    "base": {
        1: {"width": 32, "depth": 2, "modes": 32, **PLAIN},
        2: {"width": 20, "depth": 2, "modes": 8, **PLAIN},
        3: {"width": 8, "depth": 4, "modes": 8, **PLAIN},
    },
    "large": {
        1: {"width": 64, "depth": 4, "modes": 48, **PLAIN},
        2: {"width": 40, "depth": 4, "modes": 12, **PLAIN},
        3: {"width": 16, "depth": 4, "modes": 8, **PLAIN},
    },
}


def for_files(size: str, facts: Facts) -> dict[str, Any]:
    """A network for people's data: a second block helps most (docs/reference/backbones.md), channels ask for width."""
    found = FOR_FILES[size][facts.dims]
    return {**found, "width": max(found["width"], 2 * facts.channels)}


SIZES: dict[str, Callable[[Facts], dict[str, Any]]] = {
    "small": apebench,
    "base": partial(for_files, "base"),
    "large": partial(for_files, "large"),
    "apebench": apebench,
    "paper_count": paper_count,
}
"""Settings of each size by name; `small` is the paper's network on anybody's data."""


def by_size(name: str) -> Derived:
    """The value of a setting in the chosen size."""

    def value(facts: Facts, given: Mapping[str, Any]) -> Any:
        return SIZES.get(str(given.get("size")), apebench)(facts)[name]  # an unknown name is refused elsewhere

    values = {dims: size[name] for dims, size in APEBENCH.items()}
    same = len(set(values.values())) == 1
    return Derived(value, f"{values[1]}" if same else f"by size; apebench: {in_words(values)}")


def fitting_modes() -> Derived:
    """The modes of the chosen size, or as many as a smaller grid has."""
    rule = by_size("modes")

    def value(facts: Facts, given: Mapping[str, Any]) -> tuple[int, ...]:
        modes = rule.value(facts, given)
        modes = modes if isinstance(modes, tuple) else (modes,) * facts.dims
        largest = most_modes(facts.space) or modes
        return tuple(map(min, modes, largest))

    return Derived(value, rule.text)


PADDING = 0.25
"""Share of an axis with ends that is added to it."""


def by_boundary(facts: Facts, given: Mapping[str, Any]) -> tuple[float, ...]:
    """The padding of each axis."""
    return tuple(0.0 if wraps else PADDING for wraps in facts.periodic or (True,) * facts.dims)


class FNOSettings(SizedSettings):
    """Fourier neural operator."""

    size: Annotated[
        Literal["small", "base", "large", "apebench", "paper_count"],
        Derived(lambda facts, given: facts.size, "base for files, apebench for benchmarks"),
    ] = setting(
        "Defaults of the settings below: for your data (small, base, large), or the paper's (apebench, and "
        "paper_count, which has its 30,541 parameters in 2D)."
    )
    width: Annotated[int, by_size("width")] = setting("Channels inside.", ge=1)
    depth: Annotated[int, by_size("depth")] = setting("Blocks.", ge=1, le=1000)
    modes: Annotated[tuple[int, ...], fitting_modes()] = setting("Fourier modes kept, one number or one per axis.")
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
            "Zeros added at the end of each axis, as a share of its points; one number for the axes that are not "
            "periodic (for all where every axis is), or one per axis."
        )
    )
    final_activation: bool = setting(True, "GELU after the last block as well, as in APEBench; neuralop has none.")

    @field_validator("modes", mode="before")
    @classmethod
    def _one_per_axis(cls, value: Any, info: ValidationInfo) -> tuple[int, ...]:
        modes, dims = positive_numbers(value), facts_of(info).dims
        modes = modes * dims if len(modes) == 1 else modes
        if len(modes) != dims:
            raise ValueError(f"has {len(modes)} numbers for {dims} axes; use one or {dims}.")
        return modes

    @field_validator("padding", mode="before")
    @classmethod
    def _one_share_per_axis(cls, value: Any, info: ValidationInfo) -> tuple[float, ...]:
        padding, facts = shares(value), facts_of(info)
        if len(padding) == 1 and not all(facts.periodic):
            return tuple(0.0 if wraps else padding[0] for wraps in facts.periodic)
        padding = padding * facts.dims if len(padding) == 1 else padding
        if len(padding) != facts.dims:
            raise ValueError(f"has {len(padding)} numbers for {facts.dims} axes; use one or {facts.dims}.")
        return padding

    @property
    def reach(self) -> tuple[int, ...]:
        """The modes in waves per box; the box of the transform is longer by the padding."""
        return tuple(max(1, round(m / (1 + share))) for m, share in zip(self.modes, self.padding, strict=True))

    def check(self, space: tuple[int, ...]) -> None:
        added = added_points(self.padding, space)
        check_modes(self.modes, tuple(n + more for n, more in zip(space, added, strict=True)))


class FNO(nn.Module):
    """Lifting, `depth` blocks with an activation after each, projection; both maps are linear unless hidden channels
    are given.

    Maps (batch, in_channels, *space) to (batch, out_channels, *space) on any grid that carries `modes`. A Fourier
    transform joins both ends of an axis; on an axis that is not periodic `padding` puts zeros between them, a share of
    its points, which the output leaves out again. The modes are then waves in the longer box. With `coordinates` the
    position in [0, 1) along each axis is a further input channel. `final_activation` is APEBench's layout; Li's and
    neuralop's FNO have no activation after the last block.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int,
        modes: tuple[int, ...],
        depth: int,
        lifting: int = 0,
        projection: int = 0,
        coordinates: bool = False,
        final_activation: bool = True,
        spectral_bias: bool = False,
        padding: tuple[float, ...] = (),
    ) -> None:
        super().__init__()
        self.coordinates, self.padding = coordinates, padding or (0.0,) * len(modes)
        self.lifting = channel_map(in_channels + (len(modes) if coordinates else 0), lifting, width)
        last = depth - 1 if not final_activation else depth
        self.blocks = nn.ModuleList(FNOBlock(width, modes, i < last, spectral_bias) for i in range(depth))
        self.projection = channel_map(width, projection, out_channels)

    def forward(self, u: Tensor) -> Tensor:
        if self.coordinates:
            u = torch.cat([u, grid(tuple(u.shape[2:]), u).expand(u.shape[0], *(-1,) * (u.dim() - 1))], dim=1)
        space = tuple(u.shape[2:])
        added = added_points(self.padding, space)
        first, *others = self.blocks
        assert isinstance(first, FNOBlock)  # for the type checker
        if any(added):
            # After the lifting, whose bias so ends at the wall as well: that shows the network where the wall is.
            v = first(pad(self.lifting(u), [side for more in reversed(added) for side in (0, more)]))
        else:
            v = first.lifted(u, self.lifting) if isinstance(self.lifting, Pointwise) else first(self.lifting(u))
        for block in others:
            v = block(v)
        if any(added):
            v = v[(slice(None), slice(None), *map(slice, space))]
        return self.projection(v)


def added_points(padding: tuple[float, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """Shares of the axes as whole numbers of points, rounded up (but for the rounding of the product itself)."""
    return tuple(math.ceil(share * n - 1e-9) for share, n in zip(padding, space, strict=True))


def grid(space: tuple[int, ...], like: Tensor) -> Tensor:
    """The coordinates x_i = i / N of a periodic grid: (1, D, *space)."""
    axes = [torch.arange(n, dtype=like.dtype, device=like.device) / n for n in space]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]
