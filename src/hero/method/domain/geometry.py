"""What a discretisation owns (`Geometry`), what HERO asks of it (`Domain`), and grids (`Box`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hero.data.files.recording import is_even
from hero.errors import HeroError
from hero.method.domain.bands import Bands, GridBands, split_modes
from hero.method.domain.modes import Modes, cosine_modes, fourier_modes, mixed_modes
from hero.method.domain.transform import FOURIER, Amplitudes, Perturbation, SpectralNoise, Transform
from hero.method.norm import Norm


@dataclass(frozen=True, eq=False)
class Domain:
    """Quadrature weights ω in the shape of space (None: a regular grid), |F u| (None: no spectral basis), and P_ζ."""

    weights: Tensor | None = None
    spectrum: Amplitudes | None = FOURIER.amplitudes
    perturbation: Perturbation = field(default_factory=SpectralNoise)
    norm: Norm = field(default_factory=Norm)  # the channels and points that count, and their scales

    def __post_init__(self) -> None:
        if self.weights is not None and not bool((self.weights >= 0).all() & self.weights.isfinite().all()):
            raise HeroError("the quadrature weights hold negative or non-finite numbers; give weights of zero or more.")

    def amplitudes(self, u: Tensor) -> Tensor:
        """|F u| of measured states; `Hero` checks that there is a spectral basis where a diagnostic asks for it."""
        assert self.spectrum is not None
        return self.spectrum(u)


class Geometry(ABC):
    """A discretisation of space: the points at which states are given, and functions on them. A frozen dataclass."""

    space: tuple[int, ...]
    weights: Tensor | None  # quadrature weights in the shape of space with sum 1; None: all equal
    norm: Norm  # how errors are measured
    reach: tuple[int, ...] | None = None  # the modes per axis that the backbone keeps; None: all, or not known

    def __post_init__(self) -> None:
        if self.norm.weights is None:
            self.norm.weights = self.weights

    @abstractmethod
    def domain(self, scale: float = 0.01) -> Domain:
        """Norm, spectrum and perturbation of size `scale`."""

    @abstractmethod
    def modes(self, reach: tuple[int, ...] | None = None) -> Modes:
        """The modes of a loss: all, or those with fewer than `reach` waves along each axis."""

    @abstractmethod
    def bands(self, device: torch.device | str = "cpu") -> Bands:
        """Bands of wavenumbers, by which errors are split."""


@dataclass(frozen=True, eq=False)
class Box(Geometry):
    """A product of axes: Fourier modes along the periodic ones, cosines along those with ends."""

    space: tuple[int, ...]
    reach: tuple[int, ...] | None = None
    periodic: tuple[bool, ...] | None = None  # whether each axis is; None: all are
    weights: Tensor | None = None
    extents: tuple[float, ...] | None = None  # length of each axis; None: all equal
    norm: Norm = field(default_factory=Norm)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in (("periodic", self.periodic), ("extents", self.extents)):
            if given is not None and len(given) != len(self.space):
                raise HeroError(f"{name} is {given} on a grid of {len(self.space)} axes; give one value per axis.")
        if self.weights is not None and tuple(self.weights.shape) != self.space:
            raise HeroError(
                f"quadrature weights {tuple(self.weights.shape)} do not fit the space {self.space}; give one per point."
            )

    @property
    def wraps(self) -> tuple[bool, ...]:
        return self.periodic or (True,) * len(self.space)

    def transform(self) -> Transform:
        return FOURIER if all(self.wraps) else Transform(self.wraps, self.weights)

    def domain(self, scale: float = 0.01) -> Domain:
        transform = self.transform()
        return Domain(self.weights, transform.amplitudes, SpectralNoise(scale, transform), self.norm)

    def modes(self, reach: tuple[int, ...] | None = None) -> Modes:
        if all(self.wraps):
            return fourier_modes(self.space, reach, self.extents)
        # A wave is two half waves, which cosines count.
        kept = reach and tuple(
            m if wraps else min(2 * m, n) for m, n, wraps in zip(reach, self.space, self.wraps, strict=True)
        )
        if not any(self.wraps):
            return cosine_modes(self.space, kept, self.extents, self.weights)
        return mixed_modes(self.space, self.wraps, kept, self.extents, self.weights)

    def bands(self, device: torch.device | str = "cpu") -> GridBands:
        """Bands of points that count the same, as states are shown."""
        return split_modes(self.space, self.reach, device, Transform(self.wraps), self.extents)


def quadrature_weights(coordinates: Sequence[Any], periodic: Sequence[bool]) -> Tensor | None:
    """Quadrature weights in the shape of space, float64 with sum 1; None where all are equal.

    Evenly spaced points of an axis, ascending or descending, weigh the same, as cells do; others as trapezoids.
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
