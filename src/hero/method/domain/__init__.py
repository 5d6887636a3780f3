"""Where states live: one class per discretisation, which owns its norm, spectrum, modes, bands and perturbation.

`Box` has axes that are periodic or end at walls, `Cloud` scattered points. Another one, such as a sphere, is a class
of `Geometry` in a file of its own, a line in `DISCRETISATIONS`, and a backbone that takes its states.
"""

from __future__ import annotations

from functools import lru_cache

from hero.data.source import Source
from hero.method.domain.base import Domain, Geometry, SpectralNoise
from hero.method.domain.box import Box, quadrature_weights
from hero.method.domain.cloud import (
    Cloud,
    GraphSpectralNoise,
    LocalSmoothing,
    NeighbourhoodJitter,
    PointCloud,
    graph_modes,
)
from hero.method.domain.modes import Modes, cosine_modes, fourier_modes, mixed_modes

__all__ = [
    "Box",
    "Cloud",
    "Domain",
    "Geometry",
    "GraphSpectralNoise",
    "LocalSmoothing",
    "Modes",
    "NeighbourhoodJitter",
    "PointCloud",
    "SpectralNoise",
    "cosine_modes",
    "fourier_modes",
    "geometry_of",
    "graph_modes",
    "mixed_modes",
    "quadrature_weights",
]

DISCRETISATIONS: tuple[type[Geometry], ...] = (Cloud, Box)
"""In the order in which they are asked whether the data are theirs."""


@lru_cache(maxsize=8)
def geometry_of(source: Source, reach: tuple[int, ...] | None = None) -> Geometry:
    """The discretisation of a source; `reach` are the modes per axis that the backbone keeps."""
    found = (kind.of(source, reach) for kind in DISCRETISATIONS)
    return next(one for one in found if one is not None)
