"""P_ζ: a weak perturbation of the input states that keeps their scale, mean and boundary; μ stays as it is."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from hero.rollout import EPS, Context


def spectral_noise(u: Tensor, scale: float, generator: Generator) -> Tensor:
    """û_k ← (1 + s ξ_k) û_k with real ξ_k ~ N(0, 1) and ξ_0 = 0, then rescaled to ‖u‖; on a periodic grid.

    u is (.., *space) with every axis after the third spatial; real ξ on the half spectrum keeps the field real.
    """
    axes = tuple(range(3, u.dim()))
    spectrum = torch.fft.rfftn(u, dim=axes)
    xi = torch.randn(spectrum.shape, generator=generator, device=u.device, dtype=u.dtype)
    xi.flatten(3)[..., 0] = 0  # the mean is untouched
    perturbed = torch.fft.irfftn(spectrum * (1 + scale * xi), s=u.shape[3:], dim=axes)
    before = torch.linalg.vector_norm(u.flatten(3), dim=3)
    after = torch.linalg.vector_norm(perturbed.flatten(3), dim=3)
    return perturbed * (before / (after + EPS)).reshape(*u.shape[:3], *(1,) * len(axes))


def perturb(context: Context, scale: float, generator: Generator) -> Context:
    """P_ζ(z_n): the state history perturbed, the conditioning unchanged."""
    return replace(context, states=spectral_noise(context.states, scale, generator))
