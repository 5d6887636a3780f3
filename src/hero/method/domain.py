"""HERO asks three things of a domain: a norm, a spectrum and a weak perturbation. Here the regular periodic grid.

Scattered points and meshes are in `pointcloud.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from hero.data.windows import Context
from hero.errors import HeroError, check_number
from hero.method.distance import EPS

Spectrum = Callable[[Tensor], Tensor]
"""|F u|: (batch, time, channel, *space) -> (batch, time, coefficients), over all channels."""

Perturbation = Callable[[Context, Generator], Context]
"""P_ζ: changes the input states within their neighbourhood and keeps their norm; μ stays as it is."""


def fourier_amplitudes(u: Tensor) -> Tensor:
    """|F u| on a periodic grid, each coefficient of the full transform counted."""
    amplitudes = torch.fft.rfftn(u, dim=tuple(range(3, u.dim()))).abs()
    # The half spectrum holds each coefficient of a real field once; all but k = 0 and Nyquist stand for two.
    amplitudes[..., 1 : (u.shape[-1] + 1) // 2].mul_(2)
    return amplitudes.flatten(2)


@dataclass(frozen=True)
class SpectralNoise:
    """û_k ← (1 + s ξ_k) û_k with real ξ_k ~ N(0, 1) and ξ_0 = 0, then rescaled to ‖u‖; on a periodic grid.

    Real ξ on the half spectrum keeps the field real and its phases. The noise leaves the mean as it is; the rescaling
    multiplies every coefficient, the mean as well, by one factor g = ‖u‖/‖noisy u‖ per state and channel, 1 + O(s).
    """

    scale: float = 0.01  # s

    def __post_init__(self) -> None:
        check_number("scale", self.scale, low=0)

    def __call__(self, context: Context, generator: Generator) -> Context:
        """P_ζ(z_n): every state of the history perturbed independently."""
        u = context.states  # (batch, H, channel, *space)
        axes = tuple(range(3, u.dim()))
        spectrum = torch.fft.rfftn(u, dim=axes)
        xi = torch.randn(spectrum.shape, generator=generator, device=u.device, dtype=u.dtype)
        xi.flatten(3)[..., 0] = 0
        noisy = torch.fft.irfftn(spectrum * (1 + self.scale * xi), s=u.shape[3:], dim=axes)
        before, after = (torch.linalg.vector_norm(x, dim=axes, keepdim=True) for x in (u, noisy))
        return replace(context, states=noisy * (before / (after + EPS)))


@dataclass(frozen=True, eq=False)
class Domain:
    """Quadrature weights ω in the shape of space (None: a regular grid), |F u| (None: no spectral basis), and P_ζ."""

    weights: Tensor | None = None
    spectrum: Spectrum | None = fourier_amplitudes
    perturbation: Perturbation = SpectralNoise()

    def amplitudes(self, u: Tensor) -> Tensor:
        """|F u|; `Hero` checks that there is a spectral basis where a diagnostic asks for it."""
        assert self.spectrum is not None
        return self.spectrum(u)

    def __post_init__(self) -> None:
        if self.weights is not None and not bool((self.weights >= 0).all() & self.weights.isfinite().all()):
            raise HeroError("the quadrature weights hold negative or non-finite numbers; give weights of zero or more.")
