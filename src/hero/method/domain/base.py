"""What a discretisation owns (`Geometry`), and the three things that HERO asks of a domain (`Domain`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from hero.errors import HeroError
from hero.method.domain.bands import Bands
from hero.method.domain.transform import (
    Amplitudes as Amplitudes,
)
from hero.method.domain.transform import (
    Perturbation as Perturbation,
)
from hero.method.domain.transform import (
    SpectralNoise as SpectralNoise,
)
from hero.method.domain.transform import (
    axis_weights,
    fourier_amplitudes,
)
from hero.method.norm import Norm

if TYPE_CHECKING:
    from hero.data import Source
    from hero.method.domain.modes import Modes


@dataclass(frozen=True, eq=False)
class Domain:
    """Quadrature weights ω in the shape of space (None: a regular grid), |F u| (None: no spectral basis), and P_ζ."""

    weights: Tensor | None = None
    spectrum: Amplitudes | None = fourier_amplitudes
    perturbation: Perturbation = field(default_factory=SpectralNoise)
    norm: Norm = field(default_factory=Norm)
    """The channels and points that count, and their scales."""

    def amplitudes(self, u: Tensor) -> Tensor:
        """|F u| of measured states; `Hero` checks that there is a spectral basis where a diagnostic asks for it."""
        assert self.spectrum is not None
        return self.spectrum(u)

    def __post_init__(self) -> None:
        if self.weights is not None and not bool((self.weights >= 0).all() & self.weights.isfinite().all()):
            raise HeroError("the quadrature weights hold negative or non-finite numbers; give weights of zero or more.")


class Geometry(ABC):
    """A discretisation of space: the points at which states are given, and functions on them."""

    space: tuple[int, ...]
    weights: Tensor | None
    """Quadrature weights in the shape of space with sum 1; None: all equal."""
    norm: Norm
    """How errors are measured."""
    bases: tuple[str, ...]
    """Values of `loss.basis` that it has modes for."""
    reach: tuple[int, ...] | None = None
    """The modes per axis that the backbone keeps; None: all, or not known."""

    @classmethod
    @abstractmethod
    def of(cls, source: Source, reach: tuple[int, ...] | None) -> Self | None:
        """The discretisation of a source, or None if it is another one."""

    @abstractmethod
    def domain(self, scale: float = 0.01) -> Domain:
        """Norm, spectrum and perturbation of size `scale`."""

    @abstractmethod
    def modes(self, basis: str, reach: tuple[int, ...] | None = None) -> Modes:
        """The modes of a loss: all, or those with fewer than `reach` waves along each axis."""

    @abstractmethod
    def bands(self, device: torch.device | str = "cpu") -> Bands:
        """Bands of wavenumbers, by which errors are split."""

    def measured_by(self, norm: Norm) -> Self:
        """The discretisation with another norm."""
        return replace(self, norm=norm)  # type: ignore[type-var]  # subclasses are dataclasses

    def axis_weights(self) -> tuple[Tensor | None, ...]:
        """The factor of the weights along each axis, float64 with sum 1; None where all are equal."""
        return axis_weights(self.weights, self.space)

    def check_basis(self, basis: str) -> None:
        """Refuse a basis of another discretisation."""
        if basis not in self.bases:
            raise HeroError(f"loss.basis={basis} does not fit the data; use {' or '.join(self.bases)}.")
