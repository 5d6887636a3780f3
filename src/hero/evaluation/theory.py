"""The paper's theory as pure functions of measured numbers; `probe.py` measures them on a run.

Symbols. Task i is a window of a trajectory; g_i = ∇ℓ_tr(q_i, θ) its training gradient, ∇J_L the gradient of the
long-horizon risk, a_i = ⟨∇J_L, g_i⟩ its usefulness, α_i its activation, λ the weight of the relative term. The two
update directions are d⁰ = -mean g_i and d^H = -mean (1 + λ α_i) g_i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


def task_weight(alpha: Tensor, lam: float) -> Tensor:
    """w_i = 1 + λ α_i, in [1, 1 + λ]."""
    return 1 + lam * alpha


def covariance(x: Tensor, y: Tensor) -> float:
    """Cov(x, y) = (1/B) Σ_i (x_i - x̄)(y_i - ȳ)."""
    return float(((x - x.mean()) * (y - y.mean())).mean())


def correlation(x: Tensor, y: Tensor) -> float:
    """Corr(x, y) = Cov(x, y) / (σ_x σ_y); NaN where one of them is constant."""
    return float(weighted_correlation(x, y, torch.ones(1, len(x), dtype=x.dtype))[0])


def weighted_correlation(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Corr of (x, y) under each row of `weights` (draws, B): (draws,), NaN where a variance vanishes."""
    share = weights / weights.sum(dim=1, keepdim=True)
    x, y = x - (share @ x)[:, None], y - (share @ y)[:, None]
    cov, var_x, var_y = ((share * product).sum(dim=1) for product in (x * y, x * x, y * y))
    return torch.where((var_x > 0) & (var_y > 0), cov / (var_x * var_y).sqrt(), math.nan)


def correlation_interval(x: Tensor, y: Tensor, groups: Tensor, draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of Corr(x, y), with whole groups drawn again: windows of one trajectory are alike.

    `groups` (B,) numbers the trajectory of each sample from 0. NaN where there are fewer than two groups.
    """
    count = int(groups.max()) + 1
    if count < 2:
        return math.nan, math.nan
    generator = Generator().manual_seed(0)
    drawn = torch.randint(count, (draws, count), generator=generator)
    times = torch.zeros(draws, count, dtype=x.dtype).scatter_add_(1, drawn, torch.ones(draws, count, dtype=x.dtype))
    weights = times[:, groups]
    weights = weights[weights.sum(dim=1) > 0]
    low, high = torch.nanquantile(weighted_correlation(x, y, weights), torch.tensor([0.025, 0.975], dtype=x.dtype))
    return float(low), float(high)


@dataclass(frozen=True)
class Identity:
    """Both sides of an equation, measured on separate paths, and the size of the numbers that were summed for it."""

    left: float
    right: float
    scale: float

    @property
    def residual(self) -> float:
        """|left - right| / scale: rounding, if the equation holds."""
        return abs(self.left - self.right) / self.scale if self.scale else abs(self.left - self.right)


def decomposition(along_hero: float, along_standard: float, alpha: Tensor, a: Tensor, lam: float) -> Identity:
    """⟨∇J_L, d^H⟩ = (1 + λ ᾱ) ⟨∇J_L, d⁰⟩ - λ Cov(α, a): Proposition 1, and its mini-batch form if given a batch.

    `along_hero` = ⟨∇J_L, d^H⟩ and `along_standard` = ⟨∇J_L, d⁰⟩ come from the summed gradient vectors, the covariance
    from the scalars of each task: the equation tests the whole measurement, not only the algebra.
    """
    right = (1 + lam * float(alpha.mean())) * along_standard - lam * covariance(alpha, a)
    return Identity(along_hero, right, float((task_weight(alpha, lam) * a).abs().mean()))


def normalised_decomposition(
    along_hero: float, along_standard: float, alpha: Tensor, a: Tensor, lam: float
) -> Identity:
    """⟨∇J_L, d̃^H⟩ = ⟨∇J_L, d⁰⟩ - λ/(1 + λ ᾱ) Cov(α, a) with d̃^H = d^H / (1 + λ ᾱ): direction without length."""
    scaling = 1 + lam * float(alpha.mean())
    right = along_standard - lam / scaling * covariance(alpha, a)
    return Identity(along_hero / scaling, right, float(a.abs().mean()))


@dataclass(frozen=True)
class Corollary:
    """Whether a corollary's condition holds here, and what it then promises for ⟨∇J_L, d^H⟩."""

    holds: bool
    bound: float


def preservation(along_standard: float, cov: float, alpha_mean: float, lam: float) -> Corollary:
    """Corollary 1: ⟨∇J_L, d⁰⟩ ≤ -γ_0 < 0 and Cov ≥ c ≥ 0 give ⟨∇J_L, d^H⟩ ≤ -(1 + λ ᾱ) γ_0 - λ c.

    γ_0 and c are taken as large as the measurement allows: -⟨∇J_L, d⁰⟩ and Cov.
    """
    return Corollary(along_standard < 0 and cov >= 0, (1 + lam * alpha_mean) * along_standard - lam * cov)


def correction(along_standard: float, cov: float, alpha_mean: float, lam: float) -> Corollary:
    """Corollary 2: ⟨∇J_L, d⁰⟩ ≤ B with B ≥ 0, and λ Cov > (1 + λ ᾱ) B, give ⟨∇J_L, d^H⟩ ≤ (1 + λ ᾱ) B - λ Cov < 0.

    B = max(0, ⟨∇J_L, d⁰⟩); where the standard direction descends already there is nothing to correct and B = 0.
    """
    bound = (1 + lam * alpha_mean) * max(0.0, along_standard) - lam * cov
    return Corollary(bound < 0, bound)


def conservative_correction(along_standard: float, cov: float, lam: float) -> bool:
    """The sufficient condition λ Cov > (1 + λ) B of Corollary 2, which needs no ᾱ."""
    return lam * cov > (1 + lam) * max(0.0, along_standard)


def reweighting_effect(along_standard: float, cov: float, alpha_mean: float, lam: float) -> float:
    """λ Cov / ((1 + λ ᾱ) |⟨∇J_L, d⁰⟩|): descent that reweighting adds at equal length, as a share of the standard.

    Positive where history helps to first order, whatever the sign of the standard direction.
    """
    return lam * cov / ((1 + lam * alpha_mean) * abs(along_standard)) if along_standard else math.nan


def largest_rate(gamma: float, smoothness: float, norm: float) -> float:
    """η ≤ γ / (L D²), the largest rate that the theorem admits; NaN without descent (γ ≤ 0) or curvature (L = 0)."""
    denominator = smoothness * norm**2
    return gamma / denominator if gamma > 0 and 0 < denominator < math.inf else math.nan


def entry_bound(risk: float, epsilon: float, eta: float, gamma: float) -> float:
    """τ_H(ε) ≤ ⌈2 [J_L - ε]_+ / (η γ)⌉: steps until J_L ≤ ε, if γ, L and D hold all along; NaN without a rate."""
    if math.isnan(eta) or not gamma > 0:
        return math.nan
    return float(math.ceil(2 * max(0.0, risk - epsilon) / (eta * gamma)))
