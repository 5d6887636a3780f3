"""Fields ↔ coefficients: Fourier modes along periodic axes, cosines along axes with ends; their wavenumbers and power.

Along an axis with ends, point i stands for a cell of width ω_i whose centre is s_i = ω_0 + .. + ω_{i-1} + ω_i/2. The
basis is √2 cos(πk s), 1 for k = 0, orthonormal in the sum over cells: for equal cells that is the DCT-II, for others
these functions are orthonormalised from the smoothest on. Wavenumbers count waves in the longest axis; a cosine is half
a wave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Generator, Tensor

from hero.data.files.recording import is_even
from hero.data.trajectories import Context
from hero.errors import HeroError, check_number
from hero.method.distance import EPS, cast
from hero.parallel import draw

Amplitudes = Callable[[Tensor], Tensor]  # |F u|: (batch, time, channel, *space) -> (batch, time, coefficients)
Perturbation = Callable[[Context, Generator], Context]  # P_ζ: changes the input states and keeps their norm and μ


@dataclass(frozen=True, eq=False)
class Transform:
    """Fields (batch, time, channel, *space) ↔ coefficients, exactly; by default every axis is periodic."""

    periodic: tuple[bool, ...] | None = None  # whether each axis is; None: all are
    weights: Tensor | None = None  # quadrature weights in the shape of space; None: all equal
    _bases: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def wave_axes(self, u: Tensor) -> tuple[int, ...]:
        """The periodic axes of `u`; the transform holds the non-negative half of the last of them."""
        axes = range(3, u.dim())
        return tuple(axes) if self.periodic is None else tuple(a for a in axes if self.periodic[a - 3])

    def matrices(self, u: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """(axis, analysis, synthesis) of each axis with ends, in the type and place of `u`."""
        if self.periodic is None or all(self.periodic):
            return []
        if not self._bases:
            for axis, (n, omega) in enumerate(zip(u.shape[3:], axis_weights(self.weights, u.shape[3:]), strict=True)):
                if not self.periodic[axis]:
                    basis = cosine_basis(n, n, omega)
                    self._bases[3 + axis] = analysis_of(basis, omega), basis.T
        return [(axis, cast(analysis, u), cast(synthesis, u)) for axis, (analysis, synthesis) in self._bases.items()]

    def forward(self, u: Tensor) -> Tensor:
        """The coefficients: as many as points, of the last periodic axis the non-negative half."""
        axes = self.wave_axes(u)
        for axis, analysis, _ in self.matrices(u):
            u = (u.movedim(axis, -1) @ analysis).movedim(-1, axis)
        return torch.fft.rfftn(u, dim=axes) if axes else u

    def inverse(self, c: Tensor, like: Tensor) -> Tensor:
        """The field of the shape of `like`."""
        if axes := self.wave_axes(like):
            c = torch.fft.irfftn(c, s=[like.shape[axis] for axis in axes], dim=axes)
        for axis, _, synthesis in self.matrices(like):
            c = (c.movedim(axis, -1) @ synthesis).movedim(-1, axis)
        return c

    def counted_twice(self, values: Tensor, u: Tensor) -> Tensor:
        """`values` of the coefficients of `u`, in place, doubled where one stands for its conjugate as well.

        The half spectrum holds each coefficient of a real field once; all but k = 0 and Nyquist stand for two.
        """
        if axes := self.wave_axes(u):
            values.movedim(axes[-1], -1)[..., 1 : (u.shape[axes[-1]] + 1) // 2].mul_(2)
        return values

    def amplitudes(self, u: Tensor) -> Tensor:
        """|F u|, each coefficient of the full transform counted."""
        c = self.forward(u)
        if torch.compiler.is_compiling() and c.is_complex():  # compilers know no complex numbers
            return self.counted_twice(torch.view_as_real(c).square().sum(dim=-1).sqrt(), u).flatten(2)
        return self.counted_twice(c.abs(), u).flatten(2)

    def wavenumbers(self, space: Sequence[int], device: torch.device | str) -> list[Tensor]:
        """The wavenumber of each coefficient along each axis, float64: negative ones but for the half spectrum."""
        periodic = self.periodic or (True,) * len(space)
        last = max((axis for axis, wraps in enumerate(periodic) if wraps), default=-1)
        axes = []
        for axis, (n, wraps) in enumerate(zip(space, periodic, strict=True)):
            k = torch.arange(n // 2 + 1 if axis == last else n, dtype=torch.float64, device=device)
            if wraps and axis != last:
                k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64, device=device)
            axes.append(k if wraps else k / 2)
        return list(torch.meshgrid(*axes, indexing="ij"))


FOURIER = Transform()


@dataclass(frozen=True)
class SpectralNoise:
    """û_k ← (1 + s ξ_k) û_k with real ξ_k ~ N(0, 1) and ξ_0 = 0, then rescaled to ‖u‖ with its quadrature weights.

    Real ξ on the half spectrum keeps the field real and its phases. The noise leaves the mean as it is; the rescaling
    multiplies every coefficient, the mean as well, by one factor g = ‖u‖/‖noisy u‖ per state and channel, 1 + O(s).
    """

    scale: float = 0.01  # s
    transform: Transform = FOURIER

    def __post_init__(self) -> None:
        check_number("scale", self.scale, low=0)

    def __call__(self, context: Context, generator: Generator) -> Context:
        """P_ζ(z_n): every state of the history perturbed independently."""
        u, weights = context.states, self.transform.weights  # (batch, H, channel, *space)
        c = self.transform.forward(u)
        xi = draw(torch.randn, c.shape, generator=generator, device=u.device, dtype=u.dtype)
        xi.flatten(3)[..., 0] = 0
        noisy = self.transform.inverse(c * (1 + self.scale * xi), u)
        weighed = (u, noisy) if weights is None else (cast(weights, u, root=True) * x for x in (u, noisy))
        axes = tuple(range(3, u.dim()))
        before, after = (torch.linalg.vector_norm(x, dim=axes, keepdim=True) for x in weighed)
        return replace(context, states=noisy * (before / (after + EPS)))


def axis_scales(extents: Sequence[float] | None, dims: int) -> tuple[float, ...]:
    """Waves in the longest axis for each wave in an axis: 1 in a cube."""
    lengths = extents or (1.0,) * dims
    return tuple(max(lengths) / length for length in lengths)


def axis_weights(weights: Tensor | None, space: Sequence[int]) -> tuple[Tensor | None, ...]:
    """The factor of the weights along each axis, float64 with sum 1; None where all are equal."""
    if weights is None:
        return (None,) * len(space)
    weights = weights.double().cpu() / float(weights.double().sum())
    axes = range(len(space))
    factors = [
        weights.sum(dim=[other for other in axes if other != axis]) if len(axes) > 1 else weights for axis in axes
    ]
    product = factors[0]
    for factor in factors[1:]:
        product = product[..., None] * factor
    if not torch.allclose(product, weights, rtol=1e-4, atol=0):
        raise HeroError(
            "the quadrature weights of the grid are not a product of weights per axis, which its modes need; leave "
            "the weights out or use train.loss=relative and strategies without a spectrum."
        )
    return tuple(None if is_even(factor) else factor for factor in factors)


def cosine_basis(points: int, kept: int, weights: Tensor | None = None) -> Tensor:
    """√2 cos(πk s) at the centres of the cells, 1 for k = 0: (points, kept), BᵀΩB = 1; float64."""
    k = torch.arange(kept, dtype=torch.float64)
    if weights is None:
        i = torch.arange(points, dtype=torch.float64)
        basis = torch.cos(math.pi / points * torch.outer(i + 0.5, k)) * 2**0.5
        basis[:, 0] = 1
        return basis
    centres = weights.cumsum(0) - weights / 2
    root = weights.sqrt()[:, None]
    q, r = torch.linalg.qr(root * torch.cos(math.pi * torch.outer(centres, k)))
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0) / root


def analysis_of(basis: Tensor, weights: Tensor | None) -> Tensor:
    """The matrix that gives the coefficients of values in an orthonormal basis (points, functions): ΩB."""
    return basis / len(basis) if weights is None else weights[:, None] * basis


def wave_basis(points: int, kept: int) -> tuple[Tensor, Tensor]:
    """1, √2 cos 2πkx, √2 sin 2πkx with k < kept on a periodic axis, (points, functions), and k of each; float64."""
    x = torch.arange(points, dtype=torch.float64) / points
    k = torch.arange(1, min(kept, points // 2 + 1), dtype=torch.float64)
    phase = 2 * math.pi * torch.outer(x, k)
    cos, sin = torch.cos(phase) * 2**0.5, torch.sin(phase) * 2**0.5
    if len(k) and 2 * int(k[-1]) == points:  # the Nyquist mode is one function
        cos[:, -1] /= 2**0.5
        sin = sin[:, :-1]
    basis = torch.cat([torch.ones(points, 1, dtype=torch.float64), cos, sin], dim=1)
    return basis, torch.cat([torch.zeros(1, dtype=torch.float64), k, k[: sin.shape[1]]])


def shell_power(
    state: np.ndarray, periodic: Sequence[bool], extents: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Σ_{|k| in shell} |û_k|² of (channel, *space): (channel, shells), and the coefficients of each shell.

    Shells end with the largest wavenumber that every axis resolves. Transforms are fast ones, for grids of any size.
    """
    from scipy.fft import dctn, fftn  # training needs torch and numpy alone

    space = state.shape[1:]
    walls = [axis for axis, wraps in enumerate(periodic, start=1) if not wraps]
    waves = [axis for axis, wraps in enumerate(periodic, start=1) if wraps]
    u = dctn(state, axes=walls, norm="ortho") if walls else state
    u = fftn(u, axes=waves, norm="ortho") if waves else u
    power = np.square(np.abs(u)) / math.prod(space)
    numbers = [
        scale * (np.abs(np.fft.fftfreq(n, 1 / n)) if wraps else np.arange(n) / 2)
        for scale, n, wraps in zip(axis_scales(extents, len(space)), space, periodic, strict=True)
    ]
    shell = np.rint(np.sqrt(sum(np.square(k) for k in np.meshgrid(*numbers, indexing="ij")))).astype(int).ravel()
    end = max(1, int(min(k.max() for k in numbers))) + 1
    found = [np.bincount(shell, one.ravel(), end)[:end] for one in power]
    return np.stack(found), np.bincount(shell, minlength=end)[:end]
