"""HERO asks three things of a domain: a norm, a spectrum and a weak perturbation. Here they are for grids.

`grid_domain` chooses them by the boundary. Scattered points and meshes are in `pointcloud.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from hero.data.windows import Context
from hero.errors import HeroError, check_number
from hero.method.distance import EPS, root_weights
from hero.method.geometry import Geometry, cosine_basis
from hero.method.norm import Norm
from hero.method.pointcloud import MAX_DENSE, GraphSpectralNoise, LocalSmoothing
from hero.parallel import draw

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
        xi = draw(torch.randn, spectrum.shape, generator=generator, device=u.device, dtype=u.dtype)
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
    norm: Norm = field(default_factory=Norm)
    """The channels and points that count, and their scales."""

    def amplitudes(self, u: Tensor) -> Tensor:
        """|F u| of measured states; `Hero` checks that there is a spectral basis where a diagnostic asks for it."""
        assert self.spectrum is not None
        return self.spectrum(u)

    def __post_init__(self) -> None:
        if self.weights is not None and not bool((self.weights >= 0).all() & self.weights.isfinite().all()):
            raise HeroError("the quadrature weights hold negative or non-finite numbers; give weights of zero or more.")


@dataclass(frozen=True, eq=False)
class BoxTransform:
    """Cosines along the axes with ends, Fourier modes along the others: u ↔ coefficients, exactly."""

    geometry: Geometry
    _casts: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor, Tensor]]] = field(default_factory=dict)

    @property
    def fourier_axes(self) -> tuple[int, ...]:
        """The periodic axes of (batch, time, channel, *space)."""
        return tuple(3 + axis for axis, wraps in enumerate(self.geometry.wraps) if wraps)

    def matrices(self, u: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """(axis, analysis, synthesis) of each axis with ends, in the type and place of `u`, made once."""
        key = (u.device, u.dtype)
        if key not in self._casts:
            geometry = self.geometry
            found = []
            for axis, (n, omega) in enumerate(zip(geometry.space, geometry.axis_weights, strict=True)):
                if not geometry.wraps[axis]:
                    basis = cosine_basis(n, n, omega)
                    analysis = basis / n if omega is None else omega[:, None] * basis
                    found.append((3 + axis, analysis.to(u), basis.T.to(u)))
            self._casts[key] = found
        return self._casts[key]

    def forward(self, u: Tensor) -> Tensor:
        """The coefficients: as many as points, of the last periodic axis the non-negative half."""
        for axis, analysis, _ in self.matrices(u):
            u = (u.movedim(axis, -1) @ analysis).movedim(-1, axis)
        return torch.fft.rfftn(u, dim=self.fourier_axes) if self.fourier_axes else u

    def inverse(self, c: Tensor, like: Tensor) -> Tensor:
        """The field of the shape of `like`."""
        if axes := self.fourier_axes:
            c = torch.fft.irfftn(c, s=[like.shape[axis] for axis in axes], dim=axes)
        for axis, _, synthesis in self.matrices(like):
            c = (c.movedim(axis, -1) @ synthesis).movedim(-1, axis)
        return c

    def amplitudes(self, u: Tensor) -> Tensor:
        """|c|, in place of |F u|; as there, a coefficient of the half spectrum counts for both of its pair."""
        amplitudes = self.forward(u).abs()
        if axes := self.fourier_axes:
            amplitudes.movedim(axes[-1], -1)[..., 1 : (u.shape[axes[-1]] + 1) // 2].mul_(2)
        return amplitudes.flatten(2)


@dataclass(frozen=True)
class BoxNoise:
    """`SpectralNoise` in the coefficients of a `BoxTransform`; it keeps the norm with its quadrature weights."""

    transform: BoxTransform
    scale: float = 0.01  # s

    def __post_init__(self) -> None:
        check_number("scale", self.scale, low=0)

    def __call__(self, context: Context, generator: Generator) -> Context:
        u = context.states  # (batch, H, channel, *space)
        c = self.transform.forward(u)
        xi = draw(torch.randn, c.shape, generator=generator, device=u.device, dtype=u.dtype)
        xi.flatten(3)[..., 0] = 0
        noisy = self.transform.inverse(c * (1 + self.scale * xi), u)
        weights = self.transform.geometry.weights
        root = torch.ones((), dtype=u.dtype, device=u.device) if weights is None else root_weights(weights, u)
        axes = tuple(range(3, u.dim()))
        before, after = (torch.linalg.vector_norm(root * x, dim=axes, keepdim=True) for x in (u, noisy))
        return replace(context, states=noisy * (before / (after + EPS)))


def grid_domain(geometry: Geometry, scale: float = 0.01) -> Domain:
    """Norm, spectrum and perturbation of size `scale` that fit the boundary.

    Fourier modes where every axis is periodic, with cosines along the axes that are not, eigenvectors of the graph on
    scattered points. A cloud too large for these is smoothed instead and has no spectrum.
    """
    cloud = geometry.cloud
    if cloud is not None:
        if len(cloud) > MAX_DENSE:
            return Domain(geometry.weights, None, LocalSmoothing(cloud, scale), geometry.norm)
        return Domain(geometry.weights, cloud.amplitudes, GraphSpectralNoise(cloud, scale), geometry.norm)
    if all(geometry.wraps):
        return Domain(geometry.weights, perturbation=SpectralNoise(scale), norm=geometry.norm)
    transform = BoxTransform(geometry)
    return Domain(geometry.weights, transform.amplitudes, BoxNoise(transform, scale), geometry.norm)
