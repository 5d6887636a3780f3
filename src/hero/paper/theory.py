"""The paper's theory: pure functions of measured numbers, and the records of `probe.json` that hold their results.

Symbols. Task i is a window of a trajectory; g_i = ∇ℓ_tr(q_i, θ) its training gradient, ∇J_L the gradient of the
long-horizon risk, a_i = ⟨∇J_L, g_i⟩ its usefulness, α_i its activation, λ the weight of the relative term. The two
update directions are d⁰ = -mean g_i and d^H = -mean (1 + λ α_i) g_i. `probe.py` measures all of them on a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, computed_field
from torch import Generator, Tensor

from hero.records import Record


def covariance(x: Tensor, y: Tensor) -> float:
    """Cov(x, y) = (1/B) Σ_i (x_i - x̄)(y_i - ȳ)."""
    return float(((x - x.mean()) * (y - y.mean())).mean())


def correlation(x: Tensor, y: Tensor) -> float:
    """Corr(x, y) = Cov(x, y) / (σ_x σ_y); NaN where one of them is constant."""
    scale = (covariance(x, x) * covariance(y, y)) ** 0.5
    return covariance(x, y) / scale if scale > 0 else math.nan


def correlation_interval(x: Tensor, y: Tensor, groups: Tensor, draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of Corr(x, y), with whole groups drawn again: windows of one trajectory are alike.

    `groups` (B,) numbers the trajectory of each sample from 0 without gaps. NaN where there are fewer than two groups.
    """
    members = [(groups == group).nonzero().flatten() for group in range(int(groups.max()) + 1)]
    if len(members) < 2:
        return math.nan, math.nan
    drawn = torch.randint(len(members), (draws, len(members)), generator=Generator().manual_seed(0))
    samples = (torch.cat([members[group] for group in draw]) for draw in drawn.tolist())
    found = torch.tensor([correlation(x[sample], y[sample]) for sample in samples], dtype=torch.float64)
    low, high = torch.nanquantile(found, torch.tensor([0.025, 0.975], dtype=torch.float64))
    return float(low), float(high)


class Identity(Record):
    """Both sides of an equation, measured on separate paths, and their difference."""

    left: float
    right: float
    residual: float
    """|left - right|, relative to the size of the numbers summed for it: rounding, if the equation holds."""


def decomposition(along_hero: float, along_standard: float, alpha: Tensor, a: Tensor, lam: float) -> Identity:
    """⟨∇J_L, d^H⟩ = (1 + λ ᾱ) ⟨∇J_L, d⁰⟩ - λ Cov(α, a): Proposition 1.

    `along_hero` = ⟨∇J_L, d^H⟩ and `along_standard` = ⟨∇J_L, d⁰⟩ come from the summed gradient vectors, the covariance
    from the scalars of each task: the equation tests the whole measurement, not only the algebra.
    """
    right = (1 + lam * float(alpha.mean())) * along_standard - lam * covariance(alpha, a)
    size = float(((1 + lam * alpha) * a).abs().mean()) or 1.0
    return Identity(left=along_hero, right=right, residual=abs(along_hero - right) / size)


def largest_rate(gamma: float, smoothness: float, norm: float) -> float:
    """η ≤ γ / (L D²), the largest rate that the theorem admits; NaN without descent (γ ≤ 0) or curvature (L = 0)."""
    denominator = smoothness * norm**2
    return gamma / denominator if gamma > 0 and 0 < denominator < math.inf else math.nan


def entry_bound(risk: float, epsilon: float, eta: float, gamma: float) -> float:
    """τ_H(ε) ≤ ⌈2 [J_L - ε]_+ / (η γ)⌉: steps until J_L ≤ ε, if γ, L and D hold all along; NaN without a rate."""
    if math.isnan(eta) or not gamma > 0:
        return math.nan
    return float(math.ceil(2 * max(0.0, risk - epsilon) / (eta * gamma)))


@dataclass(frozen=True)
class Measured:
    """Numbers of each task, and the two directions that its gradient was summed into."""

    alpha: Tensor  # (N,), on the CPU like the next three
    a: Tensor
    norm: Tensor  # ‖g_i‖
    selected: Tensor  # index of the candidate
    d_hero: Tensor
    d_standard: Tensor


class FirstOrder(Record):
    """The first-order quantities of the theory at one checkpoint, and the conclusions from them."""

    weight: float  # λ at the checkpoint
    windows: int
    alpha_mean: float
    alpha_std: float
    a_mean: float
    a_std: float
    a_positive: float  # share of the windows with a > 0
    cosine_mean: float
    covariance: float
    correlation: float
    correlation_interval: tuple[float, float]
    slope_norm: float
    along_standard: float
    along_hero: float
    decomposition: Identity

    @classmethod
    def of(cls, measured: Measured, slope: Tensor, lam: float, groups: Tensor) -> FirstOrder:
        """All that follows from the measurement, with `slope` = ∇J_L; `groups` numbers the trajectories from 0."""
        alpha, a = measured.alpha, measured.a
        along_hero, along_standard = float(slope @ measured.d_hero), float(slope @ measured.d_standard)
        slope_norm = float(slope.norm())
        return cls(
            weight=lam,
            windows=len(alpha),
            alpha_mean=float(alpha.mean()),
            alpha_std=float(alpha.std(correction=0)),
            a_mean=float(a.mean()),
            a_std=float(a.std(correction=0)),
            a_positive=float((a > 0).double().mean()),
            cosine_mean=float((a / (measured.norm * slope_norm)).mean()) if slope_norm else math.nan,
            covariance=covariance(alpha, a),
            correlation=correlation(alpha, a),
            correlation_interval=correlation_interval(alpha, a, groups),
            slope_norm=slope_norm,
            along_standard=along_standard,
            along_hero=along_hero,
            decomposition=decomposition(along_hero, along_standard, alpha, a, lam),
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def effect(self) -> float:
        """λ Cov / ((1 + λ ᾱ) |⟨∇J_L, d⁰⟩|): descent that reweighting adds at equal length, as a share of the standard.

        Positive where history helps to first order, whatever the sign of the standard direction.
        """
        scale = (1 + self.weight * self.alpha_mean) * abs(self.along_standard)
        return self.weight * self.covariance / scale if scale else math.nan

    @property
    def preserves(self) -> bool:
        """Corollary 1: ⟨∇J_L, d⁰⟩ ≤ -γ_0 < 0 and Cov ≥ c ≥ 0 give ⟨∇J_L, d^H⟩ ≤ -(1 + λ ᾱ) γ_0 - λ c."""
        return self.along_standard < 0 <= self.covariance

    @property
    def corrects(self) -> bool | None:
        """Corollary 2: ⟨∇J_L, d⁰⟩ ≤ B with B ≥ 0, and λ Cov > (1 + λ ᾱ) B, give ⟨∇J_L, d^H⟩ < 0; None if B is not."""
        if self.along_standard < 0:
            return None
        return self.weight * self.covariance > (1 + self.weight * self.alpha_mean) * self.along_standard


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
    selected: tuple[str, ...]  # name of the candidate that is the reference
    trajectory: tuple[int, ...]


class ProbePoint(FirstOrder):
    """One checkpoint of a probed run."""

    step: int
    loss: str  # the absolute loss that the run minimised
    risk: float  # J_L
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
