"""Where a state lives: the grid or cloud, its boundary and its quadrature; and bases of functions along one axis.

Along an axis with ends, point i stands for a cell of width ω_i whose centre is s_i = ω_0 + .. + ω_{i-1} + ω_i/2. The
basis is √2 cos(πk s), 1 for k = 0, orthonormal in the sum over cells: for equal cells that is the DCT-II, for others
these functions are orthonormalised from the smoothest on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hero.data.files.boundaries import is_even
from hero.errors import HeroError
from hero.method.norm import Norm
from hero.method.pointcloud import PointCloud


@dataclass(frozen=True, eq=False)
class Geometry:
    """The domain that a loss, a spectrum and a perturbation are for."""

    space: tuple[int, ...]
    reach: tuple[int, ...] | None = None
    """The modes per axis that the backbone keeps; None: all."""
    periodic: tuple[bool, ...] | None = None
    """Whether each axis is periodic; None: all are."""
    weights: Tensor | None = None
    """Quadrature weights in the shape of space with sum 1; None: all equal. On a cloud its own, unless given."""
    cloud: PointCloud | None = None
    """The scattered points, where space is (points,)."""
    extents: tuple[float, ...] | None = None
    """Length of each axis; None: all equal."""
    norm: Norm = field(default_factory=Norm)
    """How errors are measured."""

    def __post_init__(self) -> None:
        if self.cloud is not None and self.weights is None:
            object.__setattr__(self, "weights", self.cloud.weights)
        if self.norm.weights is None:
            self.norm.weights = self.weights
        for name, given in (("periodic", self.periodic), ("extents", self.extents)):
            if given is not None and len(given) != len(self.space):
                raise HeroError(f"{name} is {given} on a grid of {len(self.space)} axes; give one value per axis.")
        if self.weights is not None and tuple(self.weights.shape) != self.space:
            raise HeroError(
                f"quadrature weights {tuple(self.weights.shape)} do not fit the space {self.space}; give one per point."
            )

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether each axis is periodic."""
        return self.periodic or (True,) * len(self.space)

    @property
    def scales(self) -> tuple[float, ...]:
        """Waves in the longest axis for each wave in an axis: 1 in a cube."""
        extents = self.extents or (1.0,) * len(self.space)
        return tuple(max(extents) / extent for extent in extents)

    @property
    def axis_weights(self) -> tuple[Tensor | None, ...]:
        """The factor of the weights along each axis, float64 with sum 1; None where all are equal."""
        if self.weights is None:
            return (None,) * len(self.space)
        weights = self.weights.double().cpu() / float(self.weights.double().sum())
        axes = range(len(self.space))
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


def quadrature_weights(coordinates: Sequence[Any], periodic: Sequence[bool]) -> Tensor | None:
    """Quadrature weights in the shape of space, float64 with sum 1; None where all are equal.

    `coordinates` holds the points of each axis, ascending or descending. Evenly spaced points weigh the same, as cells
    do, and as everybody's mean over a grid has it; unevenly spaced ones have the trapezoidal rule.
    """
    weights = torch.ones((), dtype=torch.float64)
    for axis, (points, wraps) in enumerate(zip(coordinates, periodic, strict=True)):
        gaps = torch.as_tensor(points, dtype=torch.float64).diff()
        if not bool(((gaps > 0).all() | (gaps < 0).all()) & gaps.isfinite().all()):
            raise HeroError(f"the coordinates of axis {axis} neither rise nor fall throughout; sort its points.")
        gaps = gaps.abs()
        if is_even(gaps):
            widths = gaps.new_ones(len(gaps) + 1)
        elif not wraps:
            ends = gaps.new_zeros(1)
            widths = torch.cat([ends, gaps]) + torch.cat([gaps, ends])
        else:
            raise HeroError(
                f"axis {axis} is periodic and its points are not evenly spaced; interpolate the data to an even grid, "
                "or declare the axis as not periodic (data.periodic=false)."
            )
        weights = weights[..., None] * (widths / widths.sum())
    return None if is_even(weights.flatten()) else weights


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
