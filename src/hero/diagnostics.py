"""Stage 3 of HERO: four numbers per candidate that say how badly, and in which way, it fails. No gradient flows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hero.rollout import EPS, energy, state_distance, trajectory_distance


def rollout_error(tau: Tensor, truth: Tensor) -> Tensor:
    """E_roll = D(τ, τ_*)."""
    return trajectory_distance(tau, truth)


def spectral_mismatch(tau: Tensor, truth: Tensor) -> Tensor:
    """E_spec = (1/K) Σ_k ‖ |F v_k| - |F u_k| ‖₁ / (‖ |F u_k| ‖₁ + ε), over all coefficients and channels."""
    axes = tuple(range(3, tau.dim()))
    v, u = torch.fft.rfftn(tau, dim=axes).abs(), torch.fft.rfftn(truth, dim=axes).abs()
    # The half spectrum holds each coefficient of a real field once; all but k = 0 and Nyquist stand for two.
    n = tau.shape[-1]
    count = torch.full((v.shape[-1],), 2.0, device=tau.device, dtype=tau.dtype)
    count[0] = 1
    if n % 2 == 0:
        count[-1] = 1
    mismatch = ((v - u).abs() * count).flatten(2).sum(dim=2)
    total = (u * count).flatten(2).sum(dim=2)
    return (mismatch / (total + EPS)).mean(dim=1)


def energy_drift(tau: Tensor, truth: Tensor) -> Tensor:
    """E_energy = (1/K) Σ_k |𝓔(v_k) - 𝓔(u_k)| / (𝓔(u_k) + ε)."""
    reference = energy(truth)
    return ((energy(tau) - reference).abs() / (reference + EPS)).mean(dim=1)


def error_growth(tau: Tensor, truth: Tensor) -> Tensor:
    """E_growth = 1/(K-1) Σ_k max(0, e_{k+1} - e_k) with e_k = d_X(v_k, u_k); zero for K = 1."""
    e = state_distance(tau, truth)
    if e.shape[1] < 2:
        return torch.zeros_like(e[:, 0])
    return e.diff(dim=1).clamp(min=0).mean(dim=1)


DIAGNOSTICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "roll": rollout_error,
    "spec": spectral_mismatch,
    "energy": energy_drift,
    "growth": error_growth,
}

# A candidate that leaves the finite range is the worst there is, yet arithmetic on infinities would give NaN scores.
WORST = 1e6


@torch.no_grad()
def diagnose(tau: Tensor, truth: Tensor) -> Tensor:
    """All diagnostics of one candidate: (batch, diagnostic), finite."""
    values = torch.stack([diagnostic(tau, truth) for diagnostic in DIAGNOSTICS.values()], dim=1)
    return torch.nan_to_num(values, nan=WORST, posinf=WORST).clamp(max=WORST)
