"""Stages 3 and 4 of HERO: how badly, and in which way, each candidate fails; the worst one is the reference.

A diagnostic is registered by one line, `DIAGNOSTICS["largest"] = Diagnostic("largest value", function)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hero.config.registry import Registry
from hero.method.cache import WindowCache
from hero.method.distance import EPS, norm
from hero.method.domain import Domain

WORST = 1e6  # the largest diagnostic and distance that are compared: infinities would make the scores NaN


def bounded(values: Tensor) -> Tensor:
    """min(values, WORST), and WORST for NaN; no gradient flows from where that changes them."""
    return torch.fmin(values, values.new_full((), WORST))


class Truth:
    """τ_* on a domain; its norm is computed once per batch, its spectrum once per window if windows are numbered."""

    def __init__(self, states: Tensor, domain: Domain, cache: WindowCache, index: Tensor | None = None) -> None:
        self.states, self.domain, self.cache, self.index = states, domain, cache, index
        self.measured = domain.norm.scaled(states)
        self._norm: Tensor | None = None  # not a cached_property, which compilers do not know
        self._amplitudes: Tensor | None = None

    @property
    def norm(self) -> Tensor:
        """‖u_k‖_X: (batch, K)."""
        if self._norm is None:
            self._norm = norm(self.measured, self.domain.weights)
        return self._norm

    @property
    def energy(self) -> Tensor:
        """𝓔(u_k) = ‖u_k‖²_X: (batch, K)."""
        return self.norm.square()

    @property
    def amplitudes(self) -> Tensor:
        """|F u_k|: (batch, K, coefficients)."""
        if self._amplitudes is None:
            table = self.cache.truth["amplitudes", self.states.shape[1]]
            self._amplitudes = table.get(self.index, lambda: self.domain.amplitudes(self.measured))
        return self._amplitudes


class TrajectoryErrors:
    """A trajectory τ = (v_1, .., v_K) against the truth; e_k, D and the spectrum are computed once, when first read."""

    def __init__(self, states: Tensor, truth: Truth) -> None:
        self.states, self.truth = states, truth  # (batch, K, channel, *space)
        self.measured = truth.domain.norm.scaled(states)
        self._e: Tensor | None = None
        self._D: Tensor | None = None
        self._amplitudes: Tensor | None = None

    def detached(self) -> TrajectoryErrors:
        """The same without gradient."""
        tau = TrajectoryErrors(self.states.detach(), self.truth)
        tau._e, tau._D = self.e.detach(), self.D.detach()
        return tau

    @property
    def e(self) -> Tensor:
        """e_k = d_X(v_k, u_k): (batch, K)."""
        if self._e is None:
            self._e = norm(self.measured - self.truth.measured, self.truth.domain.weights) / (self.truth.norm + EPS)
        return self._e

    @property
    def D(self) -> Tensor:
        """D(τ, τ_*) = (1/K) Σ_k e_k: (batch,)."""
        if self._D is None:
            self._D = self.e.mean(dim=1)
        return self._D

    @property
    def energy(self) -> Tensor:
        """𝓔(v_k) = ‖v_k‖²_X: (batch, K)."""
        return norm(self.measured, self.truth.domain.weights).square()

    @property
    def amplitudes(self) -> Tensor:
        """|F v_k|: (batch, K, coefficients)."""
        if self._amplitudes is None:
            self._amplitudes = self.truth.domain.amplitudes(self.measured)
        return self._amplitudes


def spectral_mismatch(tau: TrajectoryErrors) -> Tensor:
    """E_spec = (1/K) Σ_k ‖ |F v_k| - |F u_k| ‖₁ / (‖ |F u_k| ‖₁ + ε), over all coefficients and channels."""
    v, u = tau.amplitudes, tau.truth.amplitudes
    return ((v - u).abs().sum(dim=2) / (u.sum(dim=2) + EPS)).mean(dim=1)


def energy_drift(tau: TrajectoryErrors) -> Tensor:
    """E_energy = (1/K) Σ_k |𝓔(v_k) - 𝓔(u_k)| / (𝓔(u_k) + ε)."""
    true = tau.truth.energy
    return ((tau.energy - true).abs() / (true + EPS)).mean(dim=1)


def error_growth(tau: TrajectoryErrors) -> Tensor:
    """E_growth = 1/(K-1) Σ_k max(0, e_{k+1} - e_k); zero for K = 1."""
    if tau.e.shape[1] < 2:
        return torch.zeros_like(tau.D)
    return tau.e.diff(dim=1).clamp(min=0).mean(dim=1)


@dataclass(frozen=True)
class Diagnostic:
    """A number per sample, larger for a worse trajectory, and its name in figures."""

    title: str
    value: Callable[[TrajectoryErrors], Tensor]
    needs_spectrum: bool = False


DIAGNOSTICS: Registry[Diagnostic] = Registry(
    "diagnostic",
    {
        "roll": Diagnostic("rollout error E_roll", lambda tau: tau.D),  # D(τ, τ_*)
        "spec": Diagnostic("spectral mismatch E_spec", spectral_mismatch, needs_spectrum=True),
        "energy": Diagnostic("energy drift E_energy", energy_drift),
        "growth": Diagnostic("error growth E_growth", error_growth),
    },
)

PAPER_DIAGNOSTICS = ("roll", "spec", "energy", "growth")  # the paper's, and the default; others where they are named


Select = Callable[[Tensor], Tensor]  # E (batch, candidate, diagnostic) -> j* (batch,)


def scores(E: Tensor) -> Tensor:
    """S^(j) = mean_q Ẽ_q^(j) with Ẽ_q^(j) = (E_q^(j) - min_l E_q^(l)) / (max_l E_q^(l) - min_l E_q^(l) + ε).

    (batch, candidate, diagnostic) -> (batch, candidate), each in [0, 1].
    """
    low, high = torch.aminmax(E, dim=1, keepdim=True)
    return ((E - low) / (high - low + EPS)).mean(dim=2)


def worst(E: Tensor) -> Tensor:
    """j* = argmax_j S^(j) per sample, the first in candidate order on ties: (batch,)."""
    S = scores(E)
    order = torch.arange(S.shape[1], device=S.device)
    # argmax promises no order on ties, so the smallest index of a maximum is taken.
    return torch.where(S.amax(dim=1, keepdim=True) == S, order, S.shape[1]).amin(dim=1)


def measure(tau: TrajectoryErrors, diagnostics: Sequence[Diagnostic]) -> Tensor:
    """D and the diagnostics of a trajectory: (batch, 1 + diagnostics)."""
    return torch.stack([tau.D, *(q.value(tau) for q in diagnostics)], dim=1)


def rank(rows: list[Tensor], select: Select) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stages 3 and 4 from the rows of `measure`, one for each candidate: d_fail, j*, E, and means over the batch.

    The means are the share of samples that chose each candidate, (candidate,), and E, (candidate * diagnostic,).
    """
    table = bounded(torch.stack(rows, dim=1))  # (batch, candidate, 1 + diagnostics)
    D, E = table[..., 0], table[..., 1:]
    j_star = select(E)
    chosen = j_star[:, None] == torch.arange(len(rows), device=E.device)
    means = torch.cat([chosen, E.flatten(1)], dim=1).mean(dim=0)
    return D.gather(1, j_star[:, None])[:, 0], j_star, E, means
