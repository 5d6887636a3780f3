"""Point clouds against naive loops in float64, and the properties that HERO asks of norms, bases and perturbations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import hero.method.domain.cloud
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.domain import GraphSpectralNoise, LocalSmoothing, NeighbourhoodJitter, PointCloud

PERTURBATIONS = [LocalSmoothing, NeighbourhoodJitter, GraphSpectralNoise]


def scattered(points: int = 60, dims: int = 2, seed: int = 0) -> Tensor:
    return torch.rand(points, dims, generator=Generator().manual_seed(seed), dtype=torch.float64)


def fields(points: int = 60, mu: Tensor | None = None) -> Context:
    """Three samples, a history of two, two channels."""
    return Context(torch.randn(3, 2, 2, points, generator=Generator().manual_seed(1), dtype=torch.float64), mu)


def ring(points: int, **options: int) -> PointCloud:
    return PointCloud(torch.arange(points, dtype=torch.float64)[:, None] / points, period=1.0, **options)


def naive_neighbours(x: np.ndarray, k: int, period: list[float] | None) -> tuple[list[list[float]], list[list[int]]]:
    distances, indices = [], []
    for i in range(len(x)):
        row = []
        for j in range(len(x)):
            if j == i:
                continue
            squared = 0.0
            for a in range(x.shape[1]):
                gap = abs(x[i, a] - x[j, a])
                squared += (gap if period is None else min(gap, period[a] - gap)) ** 2
            row.append((math.sqrt(squared), j))
        row.sort()
        distances.append([r for r, _ in row[:k]])
        indices.append([j for _, j in row[:k]])
    return distances, indices


@pytest.mark.parametrize("period", [None, [1.0, 1.0], [1.0, 1.5]])
@pytest.mark.parametrize("block", [1, 1000, 2**18])
def test_neighbours_and_estimated_weights(
    period: list[float] | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hero.method.domain.cloud, "BLOCK", block)  # any number of rows at a time gives the same
    cloud = PointCloud(scattered(), neighbours=5, period=period)
    distances, indices = naive_neighbours(cloud.coords.numpy(), 5, period)
    np.testing.assert_allclose(cloud.distances.numpy(), distances, rtol=1e-12)
    assert cloud.neighbours.tolist() == indices
    own = [row[-1] ** 2 for row in distances]
    np.testing.assert_allclose(cloud.weights.numpy(), [v / sum(own) for v in own], rtol=1e-12)
    torch.testing.assert_close(cloud.offsets().norm(dim=2), cloud.distances)


def test_local_smoothing_against_a_loop() -> None:
    cloud, context = PointCloud(scattered(), neighbours=4), fields()
    ours = LocalSmoothing(cloud, 0.3)(context, Generator().manual_seed(5)).states.numpy()
    xi = torch.rand(3, 1, 1, 1, generator=Generator().manual_seed(5), dtype=torch.float64).flatten().tolist()
    u, omega, near = context.states.numpy(), cloud.weights.tolist(), cloud.neighbours.tolist()
    for b, h, c in np.ndindex(3, 2, 2):
        row = u[b, h, c]
        smooth = []
        for i in range(60):
            mean = sum(omega[j] * row[j] for j in near[i]) / sum(omega[j] for j in near[i])
            smooth.append((1 - 0.3 * xi[b]) * row[i] + 0.3 * xi[b] * mean)
        before, after = (math.sqrt(sum(w * v * v for w, v in zip(omega, x, strict=True))) for x in (row, smooth))
        np.testing.assert_allclose(ours[b, h, c], np.array(smooth) * before / after, rtol=1e-10)


def test_jitter_moves_every_value_towards_one_neighbour_the_same_in_all_states_and_channels() -> None:
    cloud, context = PointCloud(scattered(), neighbours=4), fields()
    moved = NeighbourhoodJitter(cloud, 0.2)(context, Generator().manual_seed(0)).states
    u, near = context.states, cloud.neighbours
    picked = torch.randint(4, (3, 60, 1), generator=Generator().manual_seed(0))[..., 0]
    for b in range(3):
        j = [int(near[i, picked[b, i]]) for i in range(60)]
        expected = 0.8 * u[b] + 0.2 * u[b][..., j]
        torch.testing.assert_close(moved[b], expected * (cloud.norm(u[b]) / cloud.norm(expected))[..., None])
    assert len({tuple(row.tolist()) for row in picked}) == 3  # each sample has its own displacement


def test_graph_noise_scales_coefficients_and_keeps_what_lies_outside_the_basis() -> None:
    cloud, context = PointCloud(scattered(), modes=20), fields()
    noisy = GraphSpectralNoise(cloud, 0.1)(context, Generator().manual_seed(0)).states
    xi = torch.randn(3, 2, 2, 20, generator=Generator().manual_seed(0), dtype=torch.float64)
    xi[..., 0] = 0
    before, after = cloud.coefficients(context.states), cloud.coefficients(noisy)
    common = after[..., :1] / before[..., :1]  # the rescaling; the constant mode itself is untouched
    torch.testing.assert_close(after, common * (1 + 0.1 * xi) * before)
    rest = context.states - cloud.synthesis(before)
    torch.testing.assert_close(noisy - cloud.synthesis(after), common * rest)


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("mu", [None, torch.ones(3, 2), torch.ones(3, 1, 60)], ids=["none", "scalars", "fields"])
def test_perturbations_keep_norm_and_conditioning_and_repeat(
    perturbation: Callable[..., Callable[[Context, Generator], Context]], mu: Tensor | None
) -> None:
    cloud, context = PointCloud(scattered()), fields(mu=mu)
    kept = context.states.clone()
    runs = [perturbation(cloud, 0.05)(context, Generator().manual_seed(s)) for s in (7, 7, 8)]
    assert torch.equal(context.states, kept)
    assert all(run.mu is mu for run in runs)
    assert torch.equal(runs[0].states, runs[1].states)
    assert not torch.equal(runs[0].states, runs[2].states)
    torch.testing.assert_close(cloud.norm(runs[0].states), cloud.norm(kept))
    change = cloud.norm(runs[0].states - kept) / cloud.norm(kept)
    assert bool((change > 0).all())
    assert bool((change < 0.2).all())
    torch.testing.assert_close(perturbation(cloud, 0.0)(context, Generator().manual_seed(0)).states, kept)
    zero = Context(torch.zeros_like(kept))
    assert torch.equal(perturbation(cloud, 0.05)(zero, Generator().manual_seed(0)).states, zero.states)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_basis_is_orthonormal_in_the_weighted_inner_product_and_starts_with_the_constant(dims: int) -> None:
    cloud = PointCloud(scattered(80, dims), modes=80)
    gram = cloud.basis.T @ (cloud.weights[:, None] * cloud.basis)
    torch.testing.assert_close(gram, torch.eye(80, dtype=torch.float64), atol=1e-9, rtol=0)
    assert torch.equal(cloud.basis[:, 0], torch.ones(80, dtype=torch.float64))
    assert bool((cloud.eigenvalues.diff() >= 0).all())
    assert cloud.eigenvalues[1] > 1e-9 > abs(cloud.eigenvalues[0])
    u = torch.randn(2, 3, 1, 80, dtype=torch.float64)
    torch.testing.assert_close(cloud.synthesis(cloud.coefficients(u)), u)  # a full basis is complete
    torch.testing.assert_close(cloud.amplitudes(u).square().sum(-1).sqrt(), cloud.norm(u)[..., 0])  # Parseval


@pytest.mark.parametrize("points", [24, 25])
def test_a_ring_has_the_fourier_modes_as_its_graph_basis(points: int) -> None:
    cloud = ring(points, neighbours=2, modes=points)
    u = torch.randn(4, 1, 1, points, dtype=torch.float64)
    energy, fft = cloud.amplitudes(u).square(), torch.fft.rfft(u, norm="forward").abs().square().flatten(2)
    for k in range(1, (points - 1) // 2 + 1):  # cosine and sine of one wavenumber share an eigenvalue
        torch.testing.assert_close(energy[..., 2 * k - 1] + energy[..., 2 * k], 2 * fft[..., k])
    torch.testing.assert_close(energy[..., 0], fft[..., 0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: PointCloud(torch.rand(60)),
        lambda: PointCloud(torch.rand(8, 2)),
        lambda: PointCloud(scattered(), modes=0),
        lambda: PointCloud(scattered().index_fill(0, torch.tensor([7]), math.nan)),
        lambda: PointCloud(scattered().index_fill(0, torch.tensor([3, 9]), 0.5)),
        lambda: PointCloud(scattered(), weights=torch.ones(59)),
        lambda: PointCloud(scattered(), weights=-torch.ones(60)),
        lambda: PointCloud(scattered(), period=0.0),
        lambda: PointCloud(scattered(), period=(1.0, 1.0, 1.0)),
        lambda: PointCloud(scattered()).amplitudes(torch.zeros(1, 1, 1, 61)),
        lambda: PointCloud(torch.cat([scattered(9), scattered(9) + 10]), neighbours=3).basis,
        lambda: ring(10_001).basis,
        lambda: LocalSmoothing(PointCloud(scattered()), -0.1),
        *(
            lambda p=p: p(PointCloud(scattered()), 0.1)(Context(torch.zeros(1, 1, 1, 8)), Generator())
            for p in PERTURBATIONS
        ),
    ],
)
def test_bad_input_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(HeroError):
        make()
