"""Orthogonal modes of a field, and its power in shells of equal wavenumber: what a loss or a diagnosis weighs.

    modes = fourier_modes((64, 64), kept=(8, 8))      # a periodic grid; the modes that an FNO can reach
    modes = cosine_modes((64, 64))                    # a grid with walls
    modes = mixed_modes((64, 64), (True, False))      # periodic along the first axis, walls along the second
    modes = graph_modes(PointCloud(coords))           # no grid

In a homogeneous box a mean of squares depends on |k| alone, so modes of equal |k| (rounded) share a shell. Transforms
are matrix products, which compile, and cost little where few modes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from hero.errors import HeroError
from hero.method.domain.transform import analysis_of, axis_scales, axis_weights, cosine_basis, wave_basis
from hero.models.spectral import dft_matrices, frequencies, truncated_transform


class Tables(NamedTuple):
    """Tensors of `Modes` in one type and place."""

    members: Tensor  # 1 where a mode is in a shell, (modes, shells)
    sizes: Tensor  # (shells,)
    quadrature: Tensor | None
    matrices: list[Tensor]


@dataclass(frozen=True, eq=False)
class Modes:
    """A basis of fields on one geometry. Power in the modes that are left out is ‖u‖² less the sum of the others."""

    project: Callable[[Tensor, Sequence[Tensor]], Tensor]
    """(field (batch, channel, *space), matrices) -> power (batch, channel, modes); it sums to at most ‖u‖²."""
    matrices: tuple[Tensor, ...]  # of the transform, float64
    wavenumber: Tensor  # |k| of each mode: waves in the longest axis; half waves of cosines; √(λ_m/λ_1) on a graph
    multiplicity: Tensor  # modes of the whole lattice that an entry stands for: 2 where the conjugate is left out
    weights: Tensor | None = None  # quadrature weights of the norm; None on a regular grid
    width: float = 1.0  # of a shell; ½ where waves and half waves meet
    _casts: dict[tuple[torch.device, torch.dtype], Tables] = field(default_factory=dict)

    @property
    def shells(self) -> Tensor:
        """The shell of each mode, numbered without gaps: (modes,)."""
        return torch.unique((self.wavenumber / self.width).round(), return_inverse=True)[1]

    @property
    def shell_wavenumbers(self) -> Tensor:
        """|k| of each shell."""
        return torch.unique((self.wavenumber / self.width).round()) * self.width

    def tables(self, like: Tensor) -> Tables:
        """Made once for each type and place, in a dictionary, which a compiler can read."""
        key = (like.device, like.dtype)
        if key not in self._casts:
            members = torch.nn.functional.one_hot(self.shells).double()
            sizes = self.multiplicity.double() @ members
            quadrature = None if self.weights is None else self.weights.to(like)
            matrices = [matrix.to(like) for matrix in self.matrices]
            self._casts[key] = Tables(members.to(like), sizes.to(like), quadrature, matrices)
        return self._casts[key]

    def shell_power(self, u: Tensor, tables: Tables | None = None) -> Tensor:
        """The power in each shell: (batch, time, channel, *space) -> (batch, time, channel, shells)."""
        members, _, _, matrices = self.tables(u) if tables is None else tables
        power = self.project(u.flatten(0, 1), matrices).unflatten(0, u.shape[:2])
        return power if members.shape[0] == members.shape[1] else power @ members


def fourier_modes(
    space: tuple[int, ...], kept: tuple[int, ...] | None = None, extents: tuple[float, ...] | None = None
) -> Modes:
    """Fourier modes of a periodic grid: all, or those that a spectral convolution with `kept` modes per axis has."""
    if kept is None:
        kept = (*(n // 2 for n in space[:-1]), space[-1] // 2 + 1)
    forward, _ = dft_matrices(kept, space)
    forward = [matrix / n for matrix, n in zip(forward, space, strict=True)]
    axes = [frequencies(m, axis == len(space) - 1) for axis, m in enumerate(kept)][::-1]  # as the transform has them
    count = torch.where((axes[0] == 0) | (2 * axes[0] == space[-1]), 1.0, 2.0)
    forward[-1] = forward[-1] * count.double().sqrt().repeat(2)
    wavenumber = radius(axes, axis_scales(extents, len(space))[::-1])
    multiplicity = count.repeat_interleave(len(wavenumber) // len(count))
    return Modes(fourier_power, tuple(forward), wavenumber, multiplicity)


def radius(axes: Sequence[Tensor], scales: Sequence[float]) -> Tensor:
    """|k| of each mode of a product, from the wavenumbers of its axes: (modes,)."""
    grids = torch.meshgrid(*(k * scale for k, scale in zip(axes, scales, strict=True)), indexing="ij")
    return torch.stack([k.flatten() for k in grids]).square().sum(0).sqrt()


def fourier_power(u: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """|û_k|² of the kept modes."""
    return truncated_transform(u, list(matrices)).square().sum(dim=-2).flatten(2)


def cosine_modes(
    space: tuple[int, ...],
    kept: tuple[int, ...] | None = None,
    extents: tuple[float, ...] | None = None,
    weights: Tensor | None = None,
) -> Modes:
    """√2 cos(πk(i + ½)/N) along each axis, 1 for k = 0: fields on a grid with walls, sampled in the cells.

    With quadrature `weights` the cells have their widths.
    """
    modes = mixed_modes(space, (False,) * len(space), kept, extents, weights)
    return replace(modes, wavenumber=2 * modes.wavenumber, width=1.0)


def mixed_modes(
    space: tuple[int, ...],
    periodic: tuple[bool, ...],
    kept: tuple[int, ...] | None = None,
    extents: tuple[float, ...] | None = None,
    weights: Tensor | None = None,
) -> Modes:
    """Waves along periodic axes times cosines along the others; a half wave counts ½, and shells are ½ wide.

    `kept` counts |k| < kept waves on a periodic axis and cosines on the others.
    """
    omegas = axis_weights(weights, space)
    kept = kept or tuple(n // 2 + 1 if around else n for n, around in zip(space, periodic, strict=True))
    matrices, axes = [], []
    for m, n, around, omega in zip(kept, space, periodic, omegas, strict=True):
        if m > n:
            raise HeroError(f"{kept} modes do not fit a grid of {space} points; keep at most as many as points.")
        if around:
            basis, k = wave_basis(n, m)
        else:
            basis, k = cosine_basis(n, m, omega), torch.arange(m, dtype=torch.float64) / 2
        matrices.append(analysis_of(basis, None if around else omega))
        axes.append(k)
    wavenumber = radius(axes, axis_scales(extents, len(space)))
    quadrature = None if all(omega is None for omega in omegas) else weights
    return Modes(product_power, tuple(matrices), wavenumber, torch.ones_like(wavenumber), quadrature, 0.5)


def product_power(u: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """c_k² of the kept products of functions of each axis."""
    for axis, matrix in enumerate(matrices, start=2):
        u = (u.movedim(axis, -1) @ matrix).movedim(-1, axis)
    return u.square().flatten(2)
