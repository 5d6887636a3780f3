"""Stage 3 of HERO: numbers per candidate that say how badly, and in which way, it fails. No gradient flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hero.method.rollout import EPS, energy, state_distance

Spectrum = Callable[[Tensor], Tensor]
"""|F u|: (batch, time, channel, *space) -> (batch, time, coefficients), over all channels."""


def fourier_amplitudes(u: Tensor) -> Tensor:
    """|F u| on a periodic grid, each coefficient of the full transform counted."""
    axes = tuple(range(3, u.dim()))
    amplitudes = torch.fft.rfftn(u, dim=axes).abs()
    # The half spectrum holds each coefficient of a real field once; all but k = 0 and Nyquist stand for two.
    count = torch.full((amplitudes.shape[-1],), 2.0, device=u.device, dtype=u.dtype)
    count[0] = 1
    if u.shape[-1] % 2 == 0:
        count[-1] = 1
    return (amplitudes * count).flatten(2)


@dataclass(frozen=True)
class Truth:
    """The true future with what the diagnostics read of it, which depends on the window alone and can be kept."""

    states: Tensor  # τ_*, (batch, K, channel, *space)
    energy: Tensor  # 𝓔(u_k), (batch, K)
    amplitudes: Tensor | None  # |F u_k|, (batch, K, coefficients)


@dataclass(frozen=True)
class Reading:
    """What is measured of one candidate τ; the diagnostics are functions of it."""

    tau: Tensor  # (batch, K, channel, *space)
    truth: Truth
    error: Tensor  # e_k = d_X(v_k, u_k), (batch, K)
    energy: Tensor  # 𝓔(v_k), (batch, K)
    amplitudes: Tensor | None  # |F v_k|, (batch, K, coefficients)


Diagnostic = Callable[[Reading], Tensor]


def rollout_error(reading: Reading) -> Tensor:
    """E_roll = D(τ, τ_*) = (1/K) Σ_k e_k."""
    return reading.error.mean(dim=1)


def spectral_mismatch(reading: Reading) -> Tensor:
    """E_spec = (1/K) Σ_k ‖ |F v_k| - |F u_k| ‖₁ / (‖ |F u_k| ‖₁ + ε), over all coefficients and channels."""
    v, u = reading.amplitudes, reading.truth.amplitudes
    assert v is not None
    assert u is not None
    return ((v - u).abs().sum(dim=2) / (u.sum(dim=2) + EPS)).mean(dim=1)


def energy_drift(reading: Reading) -> Tensor:
    """E_energy = (1/K) Σ_k |𝓔(v_k) - 𝓔(u_k)| / (𝓔(u_k) + ε)."""
    true = reading.truth.energy
    return ((reading.energy - true).abs() / (true + EPS)).mean(dim=1)


def error_growth(reading: Reading) -> Tensor:
    """E_growth = 1/(K-1) Σ_k max(0, e_{k+1} - e_k); zero for K = 1."""
    if reading.error.shape[1] < 2:
        return torch.zeros_like(reading.error[:, 0])
    return reading.error.diff(dim=1).clamp(min=0).mean(dim=1)


DIAGNOSTICS: dict[str, Diagnostic] = {
    "roll": rollout_error,
    "spec": spectral_mismatch,
    "energy": energy_drift,
    "growth": error_growth,
}

WORST = 1e6
"""A candidate that leaves the finite range is the worst there is; infinities would turn the scores into NaN."""


class Instrument:
    """Measures candidates on one kind of domain: quadrature weights ω and a spectral basis, if there is one."""

    def __init__(
        self, diagnostics: dict[str, Diagnostic], weights: Tensor | None = None, spectrum: Spectrum | None = None
    ) -> None:
        self.diagnostics, self.weights, self.spectrum = diagnostics, weights, spectrum

    def energy(self, u: Tensor) -> Tensor:
        """𝓔(u_k): (batch, time)."""
        return energy(u, self.weights)

    def amplitudes(self, u: Tensor) -> Tensor | None:
        """|F u_k|: (batch, time, coefficients), None without a spectral basis."""
        return None if self.spectrum is None else self.spectrum(u)

    @torch.no_grad()
    def measure(self, tau: Tensor, truth: Truth) -> Tensor:
        """D(τ, τ_*) followed by the active diagnostics: (batch, 1 + diagnostics), finite."""
        reading = Reading(
            tau,
            truth,
            error=state_distance(tau, truth.states, self.weights),
            energy=self.energy(tau),
            amplitudes=self.amplitudes(tau),
        )
        values = [rollout_error(reading), *(diagnostic(reading) for diagnostic in self.diagnostics.values())]
        return torch.nan_to_num(torch.stack(values, dim=1), nan=WORST, posinf=WORST).clamp(max=WORST)
