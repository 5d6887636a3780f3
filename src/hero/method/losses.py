"""Absolute losses by name: how far a rollout is from the truth. `LOSSES["mine"] = Mine` adds one, for every strategy.

`balanced` weighs the error by wavenumber. Most of the power of a one-step error can sit in modes that make next to
nothing of the error after a hundred steps, and a mean square sees little else. With the relative error e,

    P_k(e) = |e_k|²                                          S_k = mean of P_k over batch and steps, detached
    w_k = (S_k + 10⁻³ mean S)^-½ g_k                         scaled to min 1 and cut off at w_max
    loss = mean of √(c Σ_k w_k P_k(e)),                      c = Σ S / Σ w S

in effect an L1 norm over the modes. c makes the present error as large with weights as without them, so that they only
turn the gradient. g is 1, or what a strategy measures (examples/foresight.py). Modes outside of the basis, as a rule
those that the backbone does not keep, have weight 1, the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from hero.config.given import found
from hero.config.registry import Placed, Registry
from hero.data.trajectories import masked_trajectories
from hero.errors import HeroError, shown
from hero.method.distance import EPS, norm, trajectory_distance
from hero.method.domain import Box, Geometry, Modes
from hero.method.domain.modes import Tables
from hero.method.norm import Norm
from hero.parallel import batch_mean

if TYPE_CHECKING:
    from hero.config.settings import Settings
    from hero.method.loss_settings import BalancedSettings

FLOOR = 1e-3  # share of the mean that is added to the spectrum, so that an empty mode is not lifted without bound
TINY = 1e-24  # smallest squared relative error; below it the gradient is 0, where the square root has none


class AbsoluteLoss(Protocol):
    """(τ, τ_*), both (batch, time, channel, *space) -> the loss, a mean over the batch.

    Ours call the truth `y` and take further keywords, since trainers such as neuralop's hand over a whole sample.
    """

    Settings: ClassVar[type[Settings]]

    @classmethod
    def of(cls, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> AbsoluteLoss: ...

    def __call__(self, tau: Tensor, truth: Tensor, /) -> Tensor: ...


class Relative:
    """D(τ, τ_*), the normalised distance."""

    Settings: ClassVar[Any] = Placed("hero.config.settings:Settings")
    is_relative: ClassVar[bool] = True  # whether the error of a state counts in proportion to the size of the state

    def __init__(self, norm: Norm | None = None) -> None:
        self.norm = norm or Norm()

    @classmethod
    def of(cls, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> Relative:
        return cls(geometry.norm)

    def __call__(self, out: Tensor, y: Tensor, **_: Any) -> Tensor:
        return trajectory_distance(self.norm.scaled(out), self.norm.scaled(y), self.norm.weights).mean()


class MeanSquare(Relative):
    """The mean squared error."""

    is_relative = False

    def __call__(self, out: Tensor, y: Tensor, **_: Any) -> Tensor:
        error = self.norm.scaled(out) - self.norm.scaled(y)
        if self.norm.weights is None:
            return error.square().mean()
        return norm(error, self.norm.weights).square().mean() / out.shape[2]


class Sobolev(Relative):
    """The relative distance in H1: mean of ‖e‖_H1 / ‖u‖_H1 with ‖e‖²_H1 = Σ_k (1 + |k|²) P_k(e).

    |k| is the wavenumber of the shell: waves per box, or half waves of cosines, rounded to a whole number.
    """

    def __init__(
        self, modes: Modes, compile_with: Callable[..., Any] = lambda function: function, norm: Norm | None = None
    ) -> None:
        super().__init__(norm)
        self.modes = modes
        self.weights = 1 + modes.shell_wavenumbers.square()
        self.distance = compile_with(sobolev_distance)

    @classmethod
    def of(cls, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> Sobolev:
        return cls(geometry.modes(), compile_with, geometry.norm)

    def __call__(self, out: Tensor, y: Tensor, **_: Any) -> Tensor:
        tau, truth, modes = self.norm.scaled(out), self.norm.scaled(y), self.modes
        self.weights = self.weights.to(tau)  # whole numbers, exact in either type
        loss: Tensor = self.distance(tau, truth, self.weights, modes, modes.tables(tau))
        return loss


def sobolev_distance(tau: Tensor, truth: Tensor, weights: Tensor, modes: Modes, tables: Tables) -> Tensor:
    """H1 with a weight per shell."""
    scale = norm(truth, tables.quadrature) + EPS
    per_state = (..., *(None,) * (tau.dim() - 2))
    error = modes.shell_power((tau - truth) / scale[per_state], tables) @ weights
    size = modes.shell_power(truth / scale[per_state], tables) @ weights
    # Two roots: where the truth is 0, the quotient of the squares would overflow.
    return (error.sum(-1).clamp(min=TINY).sqrt() / size.sum(-1).clamp(min=TINY).sqrt()).mean()


class Balance(NamedTuple):
    """S and the weights w of the last call, each (channel, shell), detached."""

    spectrum: Tensor
    weights: Tensor


class Balanced(Relative):
    """The balanced loss; `gain` (channel, shell) is g, None for 1."""

    Settings: ClassVar[Any] = Placed("hero.method.loss_settings:BalancedSettings")

    def __init__(
        self,
        modes: Modes,
        w_max: float = 100.0,
        spectrum: Literal["error", "data"] = "error",
        compile_with: Callable[..., Any] = lambda function: function,
        norm: Norm | None = None,
    ) -> None:
        super().__init__(norm)
        self.modes, self.w_max, self.spectrum = modes, w_max, spectrum
        self.gain: Tensor | None = None
        self.found: Balance | None = None
        self.distance = compile_with(balanced_distance)

    @classmethod
    def of(cls, settings: BalancedSettings, geometry: Geometry, compile_with: Callable[..., Any]) -> Balanced:
        modes = geometry.modes(geometry.reach if settings.reach == "kept" else None)
        return cls(modes, settings.w_max, settings.spectrum, compile_with, geometry.norm)

    @classmethod
    def on(
        cls,
        grid: Sequence[int],
        periodic: bool | Sequence[bool] = True,
        *,
        data: Any = None,
        kept: Sequence[int] | None = None,
        w_max: float = 100.0,
    ) -> Balanced:
        """The loss on an evenly spaced grid of this shape, for your own loop.

        `data`, training states (trajectory, time, channel, *space), measure each channel about its mean in units of its
        standard deviation, without the points that are NaN in every state, as `hero train FILE` does. `kept` are the
        modes per axis whose weight may rise, such as those of an FNO; by default all.
        """
        shape = tuple(grid) if isinstance(grid, Sequence) else ()
        if not shape or not all(isinstance(points, int) and points > 0 for points in shape):
            raise HeroError(f"`grid` is {shown(grid)}; give the points of each axis, as in (64, 64).")
        wraps = (periodic,) * len(shape) if isinstance(periodic, bool) else tuple(periodic)
        norm = Norm(by_channel=data is not None)
        if data is not None:
            norm.fit(masked_trajectories(torch.as_tensor(data)))
        modes = Box(shape, periodic=wraps, norm=norm).modes(None if kept is None else tuple(kept))
        return cls(modes, w_max, norm=norm)

    def __call__(self, out: Tensor, y: Tensor, **_: Any) -> Tensor:
        tau, truth, modes = self.norm.scaled(out), self.norm.scaled(y), self.modes
        tables = modes.tables(tau)
        gain = tau.new_ones(()) if self.gain is None else self.gain
        gain = gain.expand(tau.shape[2], len(tables.sizes)).contiguous()  # one layout: code is compiled once
        loss, *found = self.distance(tau, truth, gain, self.w_max, self.spectrum, modes, tables)
        self.found = Balance(*found)
        return loss


def balanced_distance(
    tau: Tensor, truth: Tensor, gain: Tensor, w_max: float, spectrum: str, modes: Modes, tables: Tables
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, S and w; w is 1 where there is no error."""
    scale = (norm(truth, tables.quadrature) + EPS)[(..., *(None,) * (tau.dim() - 2))]
    error = (tau - truth) / scale
    total = norm(error, tables.quadrature).square()  # (batch, time)
    power = modes.shell_power(error, tables)  # (batch, time, channel, shell)
    measured = power if spectrum == "error" else modes.shell_power(truth / scale, tables)
    s = batch_mean(measured.detach().mean(dim=(0, 1))) / tables.sizes  # a mean over the modes of a shell
    w = (s / s.mean().clamp(min=torch.finfo(s.dtype).tiny) + FLOOR).rsqrt() * gain
    w = (w / w.min()).clamp(max=w_max)
    weighted = total + (power * (w - 1)).sum(dim=(2, 3))
    c = batch_mean(total.detach().mean()) / batch_mean(weighted.detach().mean()).clamp(min=TINY)
    return (c * weighted).clamp(min=TINY).sqrt().mean(), s, w


@dataclass(frozen=True)
class GivenLoss:
    """A function (prediction, truth) -> number that was handed over in Python; looked up when it is computed."""

    name: str
    Settings = Placed("hero.config.settings:Settings")  # with an annotation the dataclass would import it

    def of(self, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> GivenLoss:
        return self

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        loss = found("loss", self.name)(tau, truth)
        if not isinstance(loss, Tensor) or loss.dim():
            shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise HeroError(f"loss {self.name} returns {shape}; return one number, such as its mean.")
        return loss


LOSSES: Registry[Any] = Registry(
    "loss",
    {"relative": Relative, "mse": MeanSquare, "h1": Sobolev, "balanced": Balanced},
    other="hero.method.losses:GivenLoss",
)
