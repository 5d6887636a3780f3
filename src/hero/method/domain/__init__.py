"""Where states live: one class per discretisation, which owns its norm, spectrum, modes, bands and perturbation.

`Box` has axes that are periodic or end at walls, `Cloud` scattered points. Another one, such as a sphere, is a class
of `Geometry` in a file of its own, a line in `geometry_on`, and a backbone that takes its states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from hero.data.files.recording import Axis
from hero.data.source import Source
from hero.method.domain.cloud import Cloud as Cloud, GraphSpectralNoise as GraphSpectralNoise
from hero.method.domain.cloud import LocalSmoothing as LocalSmoothing, NeighbourhoodJitter as NeighbourhoodJitter
from hero.method.domain.cloud import PointCloud as PointCloud, graph_modes as graph_modes
from hero.method.domain.geometry import Box as Box, Domain as Domain, Geometry as Geometry
from hero.method.domain.geometry import quadrature_weights as quadrature_weights
from hero.method.domain.modes import Modes as Modes, cosine_modes as cosine_modes
from hero.method.domain.modes import fourier_modes as fourier_modes, mixed_modes as mixed_modes
from hero.method.domain.transform import SpectralNoise as SpectralNoise


@lru_cache(maxsize=8)
def geometry_of(source: Source, reach: tuple[int, ...] | None = None) -> Geometry:
    """The discretisation of a source; `reach` are the modes per axis that the backbone keeps."""
    if found := source.points():
        return geometry_on((), *found)
    return geometry_on(source.exact_axes(), reach=reach, extents=source.extents)


def geometry_on(
    axes: Sequence[Axis],
    points: np.ndarray | None = None,
    areas: np.ndarray | None = None,
    reach: tuple[int, ...] | None = None,
    extents: tuple[float, ...] = (),
) -> Geometry:
    """The discretisation by `axes` with these lengths, or by scattered `points` (points, d) with their quadrature."""
    if points is not None:
        weights = None if areas is None else torch.from_numpy(areas).float()
        return Cloud(PointCloud(torch.from_numpy(points).float(), weights))
    periodic = tuple(bool(axis.periodic) for axis in axes)
    weights = quadrature_weights([np.array(axis.coordinates) for axis in axes], periodic)  # torch wants writable arrays
    weights = None if weights is None else weights.float()
    space = tuple(axis.points for axis in axes)
    return Box(space, reach, periodic, weights, extents if len(set(extents)) > 1 else None)
