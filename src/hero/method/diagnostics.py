"""Stages 3 and 4 of HERO: how badly, and in which way, each candidate fails; the worst one is the reference.

A diagnostic is registered by one line, `DIAGNOSTICS["largest"] = Diagnostic("largest value", function)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hero.config.registry import Registry
from hero.method.cache import WindowCache
from hero.method.distance import EPS, norm
from hero.method.domain import Domain

WORST = 1e6
"""The largest diagnostic and the largest distance that are compared: infinities would turn the scores into NaN."""


def bounded(values: Tensor) -> Tensor:
    """min(values, WORST), and WORST for NaN; no gradient flows from where that changes them."""
    return torch.fmin(values, values.new_full((), WORST))


class Truth:
    """τ_* on a domain; what the diagnostics read of it is computed once per batch, or once per window if numbered."""

    def __init__(self, states: Tensor, domain: Domain, index: Tensor | None = None, cache: WindowCache | None = None):
        self.states, self.domain, self.index, self.cache = states, domain, index, cache

    @cached_property
    def norm(self) -> Tensor:
        """‖u_k‖_X: (batch, K)."""
        return norm(self.states, self.domain.weights)

    @cached_property
    def energy(self) -> Tensor:
        """𝓔(u_k) = ‖u_k‖²_X: (batch, K)."""
        return self.norm.square()

    @cached_property
    def amplitudes(self) -> Tensor:
        """|F u_k|: (batch, K, coefficients)."""
        spectrum = self.domain.spectrum
        assert spectrum is not None  # checked by Hero
        if self.index is None or self.cache is None:
            return spectrum(self.states)
        return self.cache.truth["amplitudes", self.states.shape[1]].get(self.index, lambda: spectrum(self.states))


class TrajectoryErrors:
    """A trajectory τ = (v_1, .., v_K) against the truth; each quantity is computed once, when it is first read."""

    def __init__(self, states: Tensor, truth: Truth) -> None:
        self.states, self.truth = states, truth  # (batch, K, channel, *space)

    @cached_property
    def e(self) -> Tensor:
        """e_k = d_X(v_k, u_k): (batch, K)."""
        return norm(self.states - self.truth.states, self.truth.domain.weights) / (self.truth.norm + EPS)

    @cached_property
    def D(self) -> Tensor:
        """D(τ, τ_*) = (1/K) Σ_k e_k: (batch,)."""
        return self.e.mean(dim=1)

    @cached_property
    def energy(self) -> Tensor:
        """𝓔(v_k) = ‖v_k‖²_X: (batch, K)."""
        return norm(self.states, self.truth.domain.weights).square()

    @cached_property
    def amplitudes(self) -> Tensor:
        """|F v_k|: (batch, K, coefficients)."""
        assert self.truth.domain.spectrum is not None  # checked by Hero
        return self.truth.domain.spectrum(self.states)


def rollout_error(tau: TrajectoryErrors) -> Tensor:
    """E_roll = D(τ, τ_*)."""
    return tau.D


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
        "roll": Diagnostic("rollout error E_roll", rollout_error),
        "spec": Diagnostic("spectral mismatch E_spec", spectral_mismatch, needs_spectrum=True),
        "energy": Diagnostic("energy drift E_energy", energy_drift),
        "growth": Diagnostic("error growth E_growth", error_growth),
    },
)

PAPER_DIAGNOSTICS = tuple(DIAGNOSTICS)
"""The paper's; one that is registered later is used where it is named."""


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
