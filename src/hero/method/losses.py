"""Absolute losses by name: how far a rollout is from the truth. `LOSSES["mine"] = Mine` adds one, for every strategy.

`balanced` weighs the error by wavenumber. Most of the power of a one-step error can sit in modes that make next to
nothing of the error after a hundred steps, and a mean square sees little else. With the relative error e,

    P_k(e) = |e_k|²                                          S_k = mean of P_k over batch and steps, detached
    w_k = (S_k + 10⁻³ mean S)^-½ g_k                         scaled to min 1 and cut off at w_max
    loss = mean of √(c Σ_k w_k P_k(e)),                      c = Σ S / Σ w S

in effect an L1 norm over the modes. c makes the present error as large with weights as without them, so that they only
turn the gradient. g is 1, or what strategy `foresight` measures. Modes outside of the
basis, as a rule those that the backbone does not keep, have weight 1, the smallest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from hero.config import Registry, Settings, per_dims, setting
from hero.errors import HeroError
from hero.method.distance import EPS, norm, trajectory_distance
from hero.method.modes import Modes, cosine_modes, fourier_modes

FLOOR = 1e-3
"""Share of the mean that is added to the spectrum, so that an empty mode is not lifted without bound."""
TINY = 1e-24
"""Smallest squared relative error; below it the gradient is 0, where the square root has none."""


@dataclass(frozen=True)
class Geometry:
    """The grid that a loss is for."""

    space: tuple[int, ...]
    reach: tuple[int, ...] | None = None
    """The modes per axis that the backbone keeps; None: all."""


class AbsoluteLoss(Protocol):
    """(τ, τ_*), both (batch, time, channel, *space) -> the loss, a mean over the batch."""

    Settings: ClassVar[type[Settings]]

    @classmethod
    def of(cls, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> AbsoluteLoss: ...

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor: ...


class Relative:
    """D(τ, τ_*), the normalised distance."""

    Settings: ClassVar[type[Settings]] = Settings

    @classmethod
    def of(cls, settings: Any, geometry: Geometry, compile_with: Callable[..., Any]) -> Relative:
        return cls()

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        return trajectory_distance(tau, truth).mean()


class MeanSquare(Relative):
    """The mean squared error."""

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        return (tau - truth).square().mean()


class SpectralSettings(Settings):
    """The modes of a loss."""

    basis: Literal["fourier", "cosine"] = setting("fourier", "fourier on a periodic grid, cosine between walls.")


class Sobolev:
    """The relative distance in H1: mean of ‖e‖_H1 / ‖u‖_H1 with ‖e‖²_H1 = Σ_k (1 + |k|²) P_k(e).

    |k| is the wavenumber of the shell: waves per box, or half waves of cosines, rounded to a whole number.
    """

    Settings: ClassVar[type[Settings]] = SpectralSettings

    def __init__(self, modes: Modes, compile_with: Callable[..., Any] = lambda function: function) -> None:
        self.modes = modes
        self.weights = 1 + modes.shell_wavenumbers.square()
        self.distance = compile_with(sobolev_distance)

    @classmethod
    def of(cls, settings: SpectralSettings, geometry: Geometry, compile_with: Callable[..., Any]) -> Sobolev:
        return cls(modes_of(settings.basis, geometry.space, None), compile_with)

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        self.weights = self.weights.to(tau)  # whole numbers, exact in either type
        loss: Tensor = self.distance(tau, truth, self.weights, self.modes, self.modes.tables(tau))
        return loss


def sobolev_distance(tau: Tensor, truth: Tensor, weights: Tensor, modes: Modes, tables: list[Tensor]) -> Tensor:
    """H1 with a weight per shell."""
    scale = norm(truth, modes.weights) + EPS
    per_state = (..., *(None,) * (tau.dim() - 2))
    error = modes.shell_power((tau - truth) / scale[per_state], tables) @ weights
    size = modes.shell_power(truth / scale[per_state], tables) @ weights
    # Two roots: where the truth is 0, the quotient of the squares would overflow.
    return (error.sum(-1).clamp(min=TINY).sqrt() / size.sum(-1).clamp(min=TINY).sqrt()).mean()


class BalancedSettings(SpectralSettings):
    """The balanced loss."""

    w_max: float = setting(100.0, "Largest weight of a mode; the smallest is 1.", ge=1)
    spectrum: Literal["error", "data"] = setting(
        "error", "S: the spectrum of the error, or, as a control, of the data."
    )
    reach: Annotated[Literal["kept", "all"], per_dims({1: "all", 2: "kept", 3: "kept"})] = setting(
        "Modes whose weight may rise above 1: those that the backbone keeps, or all."
    )


@dataclass(frozen=True)
class Balance:
    """S and the weights w of the last call, each (channel, shell), detached."""

    spectrum: Tensor
    weights: Tensor


class Balanced:
    """The balanced loss; `gain` (channel, shell) is g, None for 1."""

    Settings: ClassVar[type[Settings]] = BalancedSettings

    def __init__(
        self,
        modes: Modes,
        w_max: float = 100.0,
        spectrum: Literal["error", "data"] = "error",
        compile_with: Callable[..., Any] = lambda function: function,
    ) -> None:
        self.modes, self.w_max, self.spectrum = modes, w_max, spectrum
        self.gain: Tensor | None = None
        self.found: Balance | None = None
        self.distance = compile_with(balanced_distance)

    @classmethod
    def of(cls, settings: BalancedSettings, geometry: Geometry, compile_with: Callable[..., Any]) -> Balanced:
        reach = geometry.reach if settings.reach == "kept" else None
        if reach is not None and settings.basis == "cosine":
            reach = tuple(2 * m for m in reach)  # half waves
        return cls(modes_of(settings.basis, geometry.space, reach), settings.w_max, settings.spectrum, compile_with)

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        gain = self.gain if self.gain is not None else tau.new_ones(())
        tables = self.modes.tables(tau)
        gain = gain.expand(tau.shape[2], len(tables[1])).contiguous()  # one layout: code is compiled once
        loss, *found = self.distance(tau, truth, gain, self.w_max, self.spectrum, self.modes, tables)
        self.found = Balance(*found)
        return loss


def balanced_distance(
    tau: Tensor, truth: Tensor, gain: Tensor, w_max: float, spectrum: str, modes: Modes, tables: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, S and w."""
    scale = (norm(truth, modes.weights) + EPS)[(..., *(None,) * (tau.dim() - 2))]
    error = (tau - truth) / scale
    total = norm(error, modes.weights).square()  # (batch, time)
    power = modes.shell_power(error, tables)  # (batch, time, channel, shell)
    measured = power if spectrum == "error" else modes.shell_power(truth / scale, tables)
    s = measured.detach().mean(dim=(0, 1)) / tables[1]  # a mean over the modes of a shell
    w = mode_weights(s, gain, w_max)
    weighted = total + (power * (w - 1)).sum(dim=(2, 3))
    c = total.detach().mean() / weighted.detach().mean().clamp(min=TINY)
    return (c * weighted).clamp(min=TINY).sqrt().mean(), s, w


def mode_weights(s: Tensor, gain: Tensor, w_max: float) -> Tensor:
    """(S + 10⁻³ mean S)^-½ g, scaled to min 1 and cut off at w_max; 1 where there is no error."""
    w = (s / s.mean().clamp(min=torch.finfo(s.dtype).tiny) + FLOOR).rsqrt() * gain
    return (w / w.min()).clamp(max=w_max)


def modes_of(basis: str, space: tuple[int, ...], kept: tuple[int, ...] | None) -> Modes:
    """The modes of a grid."""
    if basis == "fourier":
        return fourier_modes(space, kept)
    return cosine_modes(space, kept and tuple(map(min, kept, space)))


LOSSES: Registry[type[AbsoluteLoss]] = Registry(
    "loss", {"relative": Relative, "mse": MeanSquare, "h1": Sobolev, "balanced": Balanced}
)


def balanced_part(loss: AbsoluteLoss, strategy: str) -> Balanced:
    """`loss` as the balanced one, which `strategy` needs."""
    if not isinstance(loss, Balanced):
        raise HeroError(f"the strategy {strategy} multiplies weights of the balanced loss; set train.loss=balanced.")
    return loss
