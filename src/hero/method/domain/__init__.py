"""Where states live: one class per discretisation, which owns its norm, spectrum, modes, bands and perturbation.

`Box` has axes that are periodic or end at walls, `Cloud` scattered points. Another one, such as a sphere, is a class
of `Geometry` in a file of its own, a line in `geometry_of`, and a backbone that takes its states.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from hero.data.source import Source
from hero.method.domain.cloud import (
    Cloud as Cloud,
    GraphSpectralNoise as GraphSpectralNoise,
    LocalSmoothing as LocalSmoothing,
    NeighbourhoodJitter as NeighbourhoodJitter,
    PointCloud as PointCloud,
    graph_modes as graph_modes,
)
from hero.method.domain.geometry import (
    Box as Box,
    Domain as Domain,
    Geometry as Geometry,
    quadrature_weights as quadrature_weights,
)
from hero.method.domain.modes import (
    Modes as Modes,
    cosine_modes as cosine_modes,
    fourier_modes as fourier_modes,
    mixed_modes as mixed_modes,
)
from hero.method.domain.transform import SpectralNoise as SpectralNoise


@lru_cache(maxsize=8)
def geometry_of(source: Source, reach: tuple[int, ...] | None = None) -> Geometry:
    """The discretisation of a source; `reach` are the modes per axis that the backbone keeps."""
    if found := source.points():
        coords, areas = found
        weights = None if areas is None else torch.from_numpy(areas).float()
        return Cloud(PointCloud(torch.from_numpy(coords).float(), weights))
    weights = quadrature_weights(source.coordinates(), source.periodic)
    weights = None if weights is None else weights.float()
    extents = source.extents if len(set(source.extents)) > 1 else None
    return Box(source.space, reach, source.periodic, weights, extents)
