"""P_ζ: weak perturbations of the input states that keep their scale, mean and boundary; μ stays as it is.

A perturbation is any callable (Context, Generator) -> Context. Those of scattered points are in `hero.pointcloud`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator

from hero.data.windows import Context
from hero.method.rollout import EPS

Perturbation = Callable[[Context, Generator], Context]


@dataclass(frozen=True)
class SpectralNoise:
    """û_k ← (1 + s ξ_k) û_k with real ξ_k ~ N(0, 1) and ξ_0 = 0, then rescaled to ‖u‖; on a periodic grid.

    Real ξ on the half spectrum keeps the field real.
    """

    scale: float = 0.01

    def __call__(self, context: Context, generator: Generator) -> Context:
        """P_ζ(z_n): every state of the history perturbed on its own."""
        u = context.states  # (batch, H, channel, *space)
        axes = tuple(range(3, u.dim()))
        spectrum = torch.fft.rfftn(u, dim=axes)
        xi = torch.randn(spectrum.shape, generator=generator, device=u.device, dtype=u.dtype)
        xi.flatten(3)[..., 0] = 0  # the mean is untouched
        noisy = torch.fft.irfftn(spectrum * (1 + self.scale * xi), s=u.shape[3:], dim=axes)
        before = torch.linalg.vector_norm(u.flatten(3), dim=3)
        after = torch.linalg.vector_norm(noisy.flatten(3), dim=3)
        return replace(context, states=noisy * (before / (after + EPS)).reshape(*u.shape[:3], *(1,) * len(axes)))
