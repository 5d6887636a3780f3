"""Stored results of the two analyses of a trained run: `landscape.json` and `probe.json`."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field, computed_field

from hero.method.distance import EPS
from hero.records import Record

Pair = tuple[float, float]


def error_ratio(errors: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Δ_s(t) = log10((E_s(t) + ε) / (E_final(t) + ε)), from mean errors (.., steps); NaN where both have diverged.

    +∞ where the checkpoint has diverged and the final model has not, -∞ the other way round.
    """
    with np.errstate(invalid="ignore"):  # ∞ - ∞ is NaN on purpose
        return np.log10(errors + EPS) - np.log10(final + EPS)


class Landscape(Record):
    """Mean test errors E_s(t) of the kept checkpoints and of the final model, per rollout step."""

    remedy: ClassVar[str] = "`hero landscape` writes it again."

    run: str
    final_step: int
    steps: tuple[int, ...] = Field(min_length=1)
    """Updates after which the checkpoints were kept."""
    errors: tuple[tuple[float, ...], ...]
    """One row per kept checkpoint."""
    final_errors: tuple[float, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def log10_ratio(self) -> list[list[float]]:
        """Δ_s(t), one row per kept checkpoint."""
        ratio: list[list[float]] = error_ratio(np.array(self.errors), np.array(self.final_errors)).tolist()
        return ratio


class Identity(Record):
    """Both sides of an equation of the theory and their difference, relative to the numbers summed for it."""

    left: float
    right: float
    residual: float


class Minibatches(Record):
    """The decomposition in the mini-batches of training."""

    batches: int
    largest_residual: float
    covariance_mean: float
    covariance_positive: float
    """Share of the mini-batches with a positive covariance."""


class Correction(Record):
    """Corollary 2: whether there is an adverse direction to correct, and whether its condition holds."""

    adverse: bool
    holds: bool
    conservative: bool
    bound: float


class Preservation(Record):
    """Corollary 1: whether its condition holds, and its bound."""

    holds: bool
    bound: float


class FirstOrder(Record):
    """The first-order quantities of the theory at one checkpoint, and the conclusions from them."""

    weight: float
    """λ at the checkpoint."""
    windows: int
    alpha_mean: float
    alpha_std: float
    a_mean: float
    a_std: float
    a_positive: float
    """Share of the windows with a > 0."""
    cosine_mean: float
    covariance: float
    correlation: float
    correlation_interval: Pair
    slope_norm: float
    along_standard: float
    along_hero: float
    decomposition: Identity
    normalised: Identity
    minibatch: Minibatches
    effect: float
    preservation: Preservation
    correction: Correction


class FiniteStep(Record):
    """γ, D, L̂ and the bound that they imply for plain steps θ ← θ + η d^H."""

    gamma: float
    direction_norm: float
    smoothness: float
    rate: float
    epsilon: float
    entry_bound: float
    promised_decrease: float
    measured_decrease: float


class PerWindow(Record):
    """The measured numbers of each validation window."""

    alpha: tuple[float, ...]
    a: tuple[float, ...]
    gradient_norm: tuple[float, ...]
    selected: tuple[str, ...]
    """Name of the candidate that is the reference."""
    trajectory: tuple[int, ...]


class ProbePoint(FirstOrder):
    """One checkpoint of a probed run."""

    step: int
    loss: str
    """The absolute loss that the run minimised."""
    risk: float
    """J_L."""
    finite_step: FiniteStep
    per_window: PerWindow

    @computed_field  # type: ignore[prop-decorator]
    @property
    def conclusion(self) -> str:
        """One sentence: the correlation, whether it can be told from zero, and its effect on the descent."""
        r, (low, high) = self.correlation, self.correlation_interval
        here = f"At step {self.step}, "
        if math.isnan(r):
            return here + "alpha is the same for all windows: history scales the update and does not turn it."
        if low > 0 or high < 0:
            verdict = f"alpha and usefulness are {'positively' if r > 0 else 'negatively'} correlated"
        else:
            verdict = "no correlation of alpha and usefulness can be told from zero"
        interval = "no interval from one trajectory" if math.isnan(low) else f"95 % interval {low:+.2f} to {high:+.2f}"
        adverse = " (which here ascends)" if self.along_standard >= 0 else ""
        note = " The run minimised the mean squared error, of which this is not the update." * (self.loss == "mse")
        return (
            f"{here}{verdict} (r = {r:+.2f}, {interval}): history reweighting changes the descent of the long-horizon "
            f"risk by {100 * self.effect:+.2g} % of the descent of the unweighted direction{adverse}.{note}"
        )


class Probe(Record):
    """The content of `probe.json`."""

    version: ClassVar[int] = 2
    remedy: ClassVar[str] = "`hero probe` writes it again."

    run: str
    horizon: int
    checkpoints: tuple[ProbePoint, ...] = Field(min_length=1)
