"""Where states live: one class per discretisation, which owns its norm, spectrum, modes, bands and perturbation.

`Box` has axes that are periodic or end at walls, `Cloud` scattered points. Another one, such as a sphere, is a class
of `Geometry` in a file of its own, a line in `DISCRETISATIONS`, and a backbone that takes its states.
"""

from __future__ import annotations

from functools import lru_cache

from hero.data import Source
from hero.method.domain.base import Domain as Domain
from hero.method.domain.base import Geometry as Geometry
from hero.method.domain.base import SpectralNoise as SpectralNoise
from hero.method.domain.box import Box as Box
from hero.method.domain.box import quadrature_weights as quadrature_weights
from hero.method.domain.cloud import (
    Cloud as Cloud,
)
from hero.method.domain.cloud import (
    GraphSpectralNoise as GraphSpectralNoise,
)
from hero.method.domain.cloud import (
    LocalSmoothing as LocalSmoothing,
)
from hero.method.domain.cloud import (
    NeighbourhoodJitter as NeighbourhoodJitter,
)
from hero.method.domain.cloud import (
    PointCloud as PointCloud,
)
from hero.method.domain.cloud import (
    graph_modes as graph_modes,
)
from hero.method.domain.modes import (
    Modes as Modes,
)
from hero.method.domain.modes import (
    cosine_modes as cosine_modes,
)
from hero.method.domain.modes import (
    fourier_modes as fourier_modes,
)
from hero.method.domain.modes import (
    mixed_modes as mixed_modes,
)

DISCRETISATIONS: tuple[type[Geometry], ...] = (Cloud, Box)
"""In the order in which they are asked whether the data are theirs."""


@lru_cache(maxsize=8)
def geometry_of(source: Source, reach: tuple[int, ...] | None = None) -> Geometry:
    """The discretisation of a source; `reach` are the modes per axis that the backbone keeps."""
    found = (kind.of(source, reach) for kind in DISCRETISATIONS)
    return next(one for one in found if one is not None)
