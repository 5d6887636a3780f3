"""Scattered points and meshes: quadrature weights, neighbours, a graph spectrum, and perturbations of point values.

A trajectory on a cloud of P points has one space axis, (batch, time, channel, P). `Cloud(PointCloud(coords))` is its
discretisation; the parts of a `PointCloud` also make a `Domain`:

    cloud = PointCloud(coords)                                    # (P, d)
    Hero(domain=Domain(cloud.weights, cloud.amplitudes, GraphSpectralNoise(cloud, 0.01)))

with `LocalSmoothing` and `NeighbourhoodJitter` as the other perturbations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Generator, Tensor

from hero.data.trajectories import Context
from hero.errors import HeroError, check_number, shown
from hero.method.distance import EPS, cast
from hero.method.domain.bands import OneBand
from hero.method.domain.geometry import Domain, Geometry
from hero.method.domain.modes import Modes, product_power
from hero.method.norm import Norm
from hero.parallel import draw

MAX_DENSE = 10_000  # most points with a graph spectrum: a dense P x P matrix of 800 MB, and minutes of work
BLOCK = 2**18  # distances held at once in the search: memory grows with P, not P², and the block stays in cache


class PointCloud:
    """P points x_i in R^d with quadrature weights ω_i, and the k nearest neighbours of each.

    `weights` may be cell volumes or nodal areas. Without them ω_i is proportional to r_i^d, with r_i the distance to
    the k-th neighbour: the volume that a point has to itself. That is too large at a boundary, where half of the
    neighbourhood lies outside, so give the true weights of a mesh. Either way they are scaled to Σ_i ω_i = 1.

    `period` is the length of a periodic box, one number or one per axis; distances then go the short way round.
    `modes` is how many eigenvectors of the graph Laplacian, the smoothest first, make up the spectrum.

    All is computed in float64 and kept in the type and on the device of `coords`.
    """

    def __init__(
        self,
        coords: Tensor,
        weights: Tensor | None = None,
        neighbours: int = 8,
        period: float | Sequence[float] | None = None,
        modes: int = 64,
    ) -> None:
        if coords.dim() != 2 or not coords.shape[1] or not coords.is_floating_point() or not coords.isfinite().all():
            raise HeroError(
                f"coordinates ({shown(coords)}) are not (points, d) in finite floats; repair or leave out points."
            )
        if neighbours < 1 or len(coords) <= neighbours:
            raise HeroError(
                f"a cloud of {len(coords)} points has no {neighbours} neighbours for each; give more points or another "
                "number of neighbours, at least 1."
            )
        check_number("modes", modes, low=1, whole=True)
        self.coords = coords.detach()  # (P, d)
        self.period = _checked_period(period, self.coords)
        self.modes = min(modes, len(self))
        distances, self.neighbours = nearest_neighbours(self.coords.double(), neighbours, self.period)  # (P, k) both
        self.distances = distances.to(coords.dtype)
        if bool((distances[:, 0] == 0).any()):
            i = int((distances[:, 0] == 0).nonzero()[0])
            raise HeroError(f"point {i} of the cloud coincides with point {int(self.neighbours[i, 0])}; merge them.")
        if weights is None:
            weights = distances[:, -1] ** coords.shape[1]
        if tuple(weights.shape) != (len(self),) or not bool((weights.isfinite() & (weights > 0)).all()):
            raise HeroError(
                f"quadrature weights ({shown(weights)}) are not {len(self)} finite numbers above zero; give those."
            )
        omega = weights.detach().to(torch.float64)
        self.weights = (omega / omega.sum()).to(coords)  # (P,)

    def __len__(self) -> int:
        return self.coords.shape[0]

    def offsets(self) -> Tensor:
        """x_j - x_i from each point to its neighbours, the short way round: (P, k, d)."""
        x = self.coords.double()
        return _shortest(x[self.neighbours] - x[:, None], self.period).to(self.coords.dtype)

    def norm(self, u: Tensor) -> Tensor:
        """(Σ_i ω_i u_i²)^½ over the last axis."""
        return (cast(self.weights, u) * u.square()).sum(-1).sqrt()

    @property
    def eigenvalues(self) -> Tensor:
        """λ_m of the graph Laplacian, ascending from λ_0 = 0: (modes,)."""
        return self._spectrum[0]

    @property
    def basis(self) -> Tensor:
        """φ_m(x_i), orthonormal in the weighted inner product, Σ_i ω_i φ_m φ_n = δ_mn, and φ_0 = 1: (P, modes)."""
        return self._spectrum[1]

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """Solve L φ = λ Ω φ with L = diag(Σ_j W_ij) - W, as the symmetric problem of Ω^-½ L Ω^-½.

        W_ij = ω_i ω_j exp(-|x_i - x_j|²/(r_i r_j)) / (r_i r_j)^{(d+2)/2} between neighbours makes uᵀLu a quadrature of
        the Dirichlet energy ∫|∇u|² up to a constant, whatever the density of the points; so the eigenvectors resemble
        eigenfunctions of the Laplacian on the domain (cosines, or Fourier modes in a periodic box).
        """
        points, dims = self.coords.shape
        if points > MAX_DENSE:
            raise HeroError(
                f"the graph spectrum of {points} points needs a dense matrix and is computed up to {MAX_DENSE}; use "
                "fewer points, or Domain(spectrum=None) with LocalSmoothing and no spectral diagnostic."
            )
        omega, distances = self.weights.double(), self.distances.double()
        scale = distances[:, -1:] * distances[self.neighbours, -1]  # r_i r_j, (P, k)
        edges = (-distances.square() / scale).exp() / scale ** ((dims + 2) / 2)
        edges = omega[:, None] * omega[self.neighbours] * edges
        w = omega.new_zeros(points, points).scatter_(1, self.neighbours, edges)
        w = torch.maximum(w, w.T)  # j may be a neighbour of i without i being one of j: an edge joins both
        root = omega.sqrt()
        laplacian = (torch.diag(w.sum(1)) - w) / (root[:, None] * root)
        values, vectors = torch.linalg.eigh(laplacian)
        pieces = int((values < 1e-12 * values[-1]).sum())
        if pieces > 1:
            raise HeroError(
                f"the neighbour graph of the cloud falls into {pieces} pieces; raise neighbours above "
                f"{self.neighbours.shape[1]}."
            )
        basis = vectors[:, : self.modes] / root[:, None]
        basis[:, 0] = 1  # known exactly
        return values[: self.modes].to(self.coords.dtype), basis.to(self.coords.dtype)

    def coefficients(self, u: Tensor) -> Tensor:
        """c_m = Σ_i ω_i φ_m(x_i) u_i: (.., P) -> (.., modes)."""
        self.check(u)
        return (u * cast(self.weights, u)) @ cast(self.basis, u)

    def amplitudes(self, u: Tensor) -> Tensor:
        """|c_m| in the graph basis, in place of |F u|: (batch, time, channel, P) -> (batch, time, channel*modes)."""
        return self.coefficients(u).abs().flatten(2)

    def synthesis(self, c: Tensor) -> Tensor:
        """Σ_m c_m φ_m: (.., modes) -> (.., P)."""
        return c @ cast(self.basis, c).T

    def check(self, u: Tensor) -> None:
        if u.shape[-1] != len(self):
            raise HeroError(
                f"a field of shape {tuple(u.shape)} does not fit a cloud of {len(self)} points; its last axis must "
                "run over the points."
            )


@dataclass(frozen=True)
class CloudPerturbation(ABC):
    """P_ζ of size s on a cloud; each state is rescaled to the weighted norm it had, which moves its mean by O(s)."""

    cloud: PointCloud
    size: float = 0.01  # s

    def __post_init__(self) -> None:
        check_number("size", self.size, low=0)

    def __call__(self, context: Context, generator: Generator) -> Context:
        u = context.states  # (batch, H, channel, P)
        self.cloud.check(u)
        changed = self.changed(u, generator)
        gain = self.cloud.norm(u) / (self.cloud.norm(changed) + EPS)
        return replace(context, states=changed * gain[..., None])

    @abstractmethod
    def changed(self, u: Tensor, generator: Generator) -> Tensor:
        """The states (batch, H, channel, P), not yet rescaled."""


class LocalSmoothing(CloudPerturbation):
    """u ← (1 - s ξ) u + s ξ ū with ū = Σ_j ω_j u_j / Σ_j ω_j over the neighbours and ξ ~ U(0, 1), one per sample."""

    def changed(self, u: Tensor, generator: Generator) -> Tensor:
        xi = draw(torch.rand, (u.shape[0], 1, 1, 1), generator=generator, device=u.device, dtype=u.dtype)
        index = cast(self.cloud.neighbours, u)
        omega = cast(self.cloud.weights, u)[index]
        return u + self.size * xi * ((u[..., index] * omega).sum(-1) / omega.sum(-1) - u)


class NeighbourhoodJitter(CloudPerturbation):
    """u_i ← (1 - s) u_i + s u_j(i) with j(i) a random neighbour: the sample point moves towards it by the share s.

    The points of one sample move once, the same for all its states and channels.
    """

    def changed(self, u: Tensor, generator: Generator) -> Tensor:
        index = cast(self.cloud.neighbours, u)  # (P, k)
        shape = (u.shape[0], len(self.cloud), 1)
        pick = draw(partial(torch.randint, index.shape[1]), shape, generator=generator, device=u.device)
        j = index.expand(u.shape[0], -1, -1).gather(2, pick)[:, None, None, :, 0]  # (batch, 1, 1, P)
        return torch.lerp(u, u.gather(3, j.expand_as(u)), self.size)


class GraphSpectralNoise(CloudPerturbation):
    """c_m ← (1 + s ξ_m) c_m with ξ_m ~ N(0, 1) and ξ_0 = 0 in the graph basis; the part outside of it is kept."""

    def changed(self, u: Tensor, generator: Generator) -> Tensor:
        c = self.cloud.coefficients(u)
        xi = draw(torch.randn, c.shape, generator=generator, device=u.device, dtype=u.dtype)
        xi[..., 0] = 0  # no noise on the mean
        return u + self.cloud.synthesis(self.size * xi * c)


@dataclass(frozen=True, eq=False)
class Cloud(Geometry):
    """Scattered points: eigenvectors of the neighbour graph in the place of waves."""

    points: PointCloud
    norm: Norm = field(default_factory=Norm)

    @property
    def space(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.points),)

    @property
    def weights(self) -> Tensor:  # type: ignore[override]
        return self.points.weights

    def domain(self, scale: float = 0.01) -> Domain:
        """Graph-spectral noise; a cloud too large for eigenvectors is smoothed instead and has no spectrum."""
        if len(self.points) > MAX_DENSE:
            return Domain(self.weights, None, LocalSmoothing(self.points, scale), self.norm)
        return Domain(self.weights, self.points.amplitudes, GraphSpectralNoise(self.points, scale), self.norm)

    def modes(self, reach: tuple[int, ...] | None = None) -> Modes:
        return graph_modes(self.points)

    def bands(self, device: torch.device | str = "cpu") -> OneBand:
        return OneBand()


def graph_modes(cloud: PointCloud) -> Modes:
    """Eigenvectors of the graph Laplacian of a point cloud, `cloud.modes` of them."""
    matrix = cloud.weights.double()[:, None] * cloud.basis.double()
    first = cloud.eigenvalues[min(1, cloud.modes - 1)].clamp(min=1e-12)
    wavenumber = (cloud.eigenvalues.double().clamp(min=0) / first).sqrt()
    return Modes(product_power, (matrix,), wavenumber, torch.ones_like(wavenumber), cloud.weights)


def nearest_neighbours(coords: Tensor, k: int, period: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Distances and indices of the k nearest other points, nearest first, each (P, k); memory linear in P."""
    points, dims = coords.shape
    rows = max(1, BLOCK // points)
    distances = coords.new_empty(points, k)
    indices = torch.empty(points, k, dtype=torch.int64, device=coords.device)
    for start in range(0, points, rows):
        part = slice(start, start + rows)
        squared = coords.new_zeros(len(coords[part]), points)
        for axis in range(dims):  # one axis at a time: a sum over a last axis of two or three is slow
            gap = coords[part, axis, None] - coords[:, axis]
            squared += _shortest(gap, None if period is None else period[axis]).square_()
        squared.diagonal(start).fill_(torch.inf)  # no point is its own neighbour
        nearest = squared.topk(k, largest=False)
        distances[part], indices[part] = nearest.values.sqrt(), nearest.indices
    return distances, indices


def _shortest(offsets: Tensor, period: Tensor | None) -> Tensor:
    """The nearest periodic image of each difference vector."""
    return offsets if period is None else offsets - period * (offsets / period).round()


def _checked_period(period: float | Sequence[float] | None, coords: Tensor) -> Tensor | None:
    if period is None:
        return None
    lengths = torch.as_tensor(period, dtype=torch.float64, device=coords.device)
    dims = coords.shape[1]
    positive = bool(((lengths > 0) & lengths.isfinite()).all())
    if not positive or lengths.dim() > 1 or lengths.numel() not in (1, dims):
        raise HeroError(f"period is {period!r}; give a length above zero, or one for each of the {dims} axes.")
    return lengths.expand(dims).clone()
