"""Geometries: quadrature, cosines and modes of axes with ends; point clouds against naive loops in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import hero.method.domain.cloud
from conftest import Later
from hero import Hero
from hero.config import Facts
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.distance import norm
from hero.method.domain import (
    Box,
    Cloud,
    GraphSpectralNoise,
    LocalSmoothing,
    Modes,
    NeighbourhoodJitter,
    PointCloud,
    SpectralNoise,
    cosine_modes,
    fourier_modes,
    mixed_modes,
    quadrature_weights,
)
from hero.method.domain.transform import cosine_basis
from hero.method.losses import LOSSES

fft = Later("scipy.fft")

CHEBYSHEV = [(1 - math.cos(math.pi * i / 8)) / 2 for i in range(9)]


def states(*space: int) -> Tensor:
    return torch.randn(2, 3, 2, *space, dtype=torch.float64, generator=Generator().manual_seed(0))


def shells(modes: Modes, u: Tensor) -> dict[float, float]:
    """The shells that hold power."""
    power = modes.shell_power(u[None, None, None])[0, 0, 0]
    pairs = zip(modes.shell_wavenumbers.tolist(), power.tolist(), strict=True)
    return {k: p for k, p in pairs if p > 1e-12}


def test_weights_of_the_trapezoidal_rule() -> None:
    x, y = torch.tensor(CHEBYSHEV, dtype=torch.float64), torch.arange(6, dtype=torch.float64) / 6
    weights = quadrature_weights([x, y], (False, True))
    u = torch.exp(x)[:, None] * (2 + torch.sin(2 * math.pi * y))
    expected = torch.trapezoid(u.mean(1), x)
    torch.testing.assert_close((weights * u).sum(), expected, rtol=1e-14, atol=0)
    ends = quadrature_weights([[0.0, 1.0, 2.0, 4.0]], (False,))
    torch.testing.assert_close(ends, torch.tensor([0.125, 0.25, 0.375, 0.25], dtype=torch.float64))
    falling = quadrature_weights([x.flip(0), y], (False, True))
    torch.testing.assert_close(falling, weights.flip(0))


def test_an_even_grid_has_no_weights() -> None:
    """Walls or not: every point counts the same, as in a mean over an array."""
    assert quadrature_weights([np.arange(5.0)], (False,)) is None
    assert quadrature_weights([np.arange(5.0), np.linspace(0, 1, 4)], (False, True)) is None
    mixed = quadrature_weights([np.arange(5.0), [0.0, 1.0, 3.0]], (False, False))
    torch.testing.assert_close(mixed.sum(1), torch.full((5,), 0.2, dtype=torch.float64))
    single = np.linspace(0, 7, 64, dtype=np.float32)  # rounded coordinates are even all the same
    assert quadrature_weights([single, np.arange(5)], (True, True)) is None
    assert quadrature_weights([[3.0]], (False,)) is None


def test_cosines_are_orthonormal_in_the_quadrature() -> None:
    even = cosine_basis(8, 8)
    torch.testing.assert_close(even.T @ even / 8, torch.eye(8, dtype=torch.float64))
    omega = quadrature_weights([CHEBYSHEV], (False,))
    uneven = cosine_basis(9, 9, omega)
    torch.testing.assert_close(uneven.T @ (omega[:, None] * uneven), torch.eye(9, dtype=torch.float64))
    torch.testing.assert_close(uneven[:, 0], torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(cosine_basis(8, 5, torch.full((8,), 1 / 8, dtype=torch.float64)), even[:, :5])
    nodes = torch.linspace(0, 1, 65, dtype=torch.float64)
    trapezoid = torch.full((65,), 1 / 64, dtype=torch.float64)
    trapezoid[[0, -1]] /= 2
    wave = 2**0.5 * torch.cos(3 * math.pi * nodes)
    assert float((cosine_basis(65, 4, trapezoid)[:, 3] - wave).abs().max()) < 0.01


@pytest.mark.parametrize("wraps", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_the_transform_is_the_known_one_and_its_inverse_is_exact(wraps: tuple[bool, ...]) -> None:
    u, transform = states(6, 7), Box((6, 7), periodic=wraps).transform()
    c = transform.forward(u)
    walls = [3 + axis for axis in (0, 1) if not wraps[axis]]
    around = [3 + axis for axis in (0, 1) if wraps[axis]]
    twin = fft.dctn(u.numpy(), axes=walls, norm="ortho") / math.sqrt(math.prod(u.shape[axis] for axis in walls))
    twin = np.fft.rfftn(twin, axes=around) if around else twin
    np.testing.assert_allclose(c.numpy(), twin, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(transform.inverse(c, u), u, rtol=1e-12, atol=1e-13)
    full = np.fft.fftn(fft.dctn(u.numpy(), axes=walls, norm="ortho"), axes=around) if around else twin
    scale = 1 if not around else 1 / math.sqrt(math.prod(u.shape[axis] for axis in walls))
    counted = np.abs(full).sum(axis=(3, 4)) * scale  # each coefficient of the full transform
    torch.testing.assert_close(transform.amplitudes(u).unflatten(2, (2, -1)).sum(-1), torch.from_numpy(counted))


GEOMETRIES = {
    "walls": Box((8,), periodic=(False,)),
    "mixed": Box((6, 9), periodic=(True, False)),
    "uneven": Box((9, 4), periodic=(False, True), weights=quadrature_weights([CHEBYSHEV, range(4)], (False, True))),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_noise_between_walls_keeps_the_norm_and_multiplies_coefficients(name: str) -> None:
    geometry = GEOMETRIES[name]
    domain, u = geometry.domain(0.1), states(*geometry.space)
    assert isinstance(domain.perturbation, SpectralNoise)
    noisy = domain.perturbation(Context(u), Generator().manual_seed(1)).states
    for channel in (0, 1):
        part = (slice(None), slice(None), slice(channel, channel + 1))
        torch.testing.assert_close(norm(noisy[part], geometry.weights), norm(u[part], geometry.weights))
    transform = domain.perturbation.transform
    ratio = transform.forward(noisy) / transform.forward(u)
    assert float(torch.as_tensor(ratio).imag.abs().max() if ratio.is_complex() else 0.0) < 1e-9  # phases stay
    factors = ratio.real.flatten(3) if ratio.is_complex() else ratio.flatten(3)
    relative = factors / factors[..., :1] - 1  # the mean has the rescaling alone
    assert 0.05 < float(relative.std()) < 0.2
    again = geometry.domain(0.1).perturbation(Context(u), Generator().manual_seed(1)).states
    assert torch.equal(noisy, again)
    still = geometry.domain(0.0).perturbation(Context(u), Generator().manual_seed(1)).states
    torch.testing.assert_close(still, u, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("space", [(16,), (15,), (8, 6), (4, 6, 8)])
def test_spectral_noise_keeps_norm_and_phase_and_multiplies_the_mean_by_the_rescaling_alone(
    space: tuple[int, ...],
) -> None:
    u, s = torch.randn(3, 2, 1, *space, dtype=torch.float64) + 0.5, 0.05
    v = SpectralNoise(s)(Context(u), Generator().manual_seed(0)).states
    axes = tuple(range(3, u.dim()))
    assert not torch.allclose(u, v)
    torch.testing.assert_close(v.flatten(3).norm(dim=3), u.flatten(3).norm(dim=3))
    spectrum, noisy = torch.fft.rfftn(u, dim=axes), torch.fft.rfftn(v, dim=axes)
    xi = torch.randn(spectrum.shape, generator=Generator().manual_seed(0), dtype=torch.float64)
    gain = v.flatten(3).mean(dim=3) / u.flatten(3).mean(dim=3)  # one factor per state and channel
    assert bool(((gain - 1).abs() < s).all())
    assert bool((gain != 1).all())
    # All coefficients but the plane k = 0 and Nyquist of the last axis, which hold conjugate pairs.
    inner = slice(1, (space[-1] + 1) // 2)
    factor = gain.reshape(3, 2, 1, *(1,) * len(space)) * (1 + s * xi)
    torch.testing.assert_close(noisy[..., inner], (factor * spectrum)[..., inner])
    zero_noise = SpectralNoise(0.0)(Context(u), Generator().manual_seed(0)).states
    torch.testing.assert_close(zero_noise, u)


def test_a_half_wave_counts_half() -> None:
    x, y = torch.arange(16, dtype=torch.float64) / 16, (torch.arange(12, dtype=torch.float64) + 0.5) / 12
    modes = mixed_modes((16, 12), (True, False))
    one, half = torch.ones_like(x)[:, None], torch.cos(math.pi * y)
    assert shells(modes, one * half) == pytest.approx({0.5: 0.5})
    assert shells(modes, torch.sin(4 * math.pi * x)[:, None] * torch.ones_like(y)) == pytest.approx({2.0: 0.5})
    both = torch.sin(4 * math.pi * x)[:, None] * torch.cos(3 * math.pi * y)
    assert shells(modes, both) == pytest.approx({2.5: 0.25})  # √(2² + 1.5²)
    assert shells(cosine_modes((16, 12)), one * half) == pytest.approx({1.0: 0.5})  # counted in half waves


def test_shells_of_a_long_box_are_waves_in_its_longest_axis() -> None:
    x = torch.arange(12, dtype=torch.float64) / 12
    wave, flat = torch.sin(2 * math.pi * x), torch.ones(12, dtype=torch.float64)
    for make in (
        lambda extents: fourier_modes((12, 12), extents=extents),
        lambda extents: mixed_modes((12, 12), (True, True), extents=extents),
    ):
        modes = make((1.0, 4.0))
        assert shells(modes, wave[:, None] * flat) == pytest.approx({4.0: 0.5})
        assert shells(modes, flat[:, None] * wave) == pytest.approx({1.0: 0.5})
        assert torch.equal(make((3.0, 3.0)).wavenumber, make(None).wavenumber)
    cosine = torch.cos(math.pi * (x + 0.5 / 12))
    assert shells(cosine_modes((12, 12), extents=(1.0, 4.0)), cosine[:, None] * flat) == pytest.approx({4.0: 0.5})


def test_modes_follow_the_boundary_and_reach_as_far_as_the_backbone() -> None:
    assert Box((16, 16)).modes((3, 4)).wavenumber.numel() == 2 * 3 * 4
    assert Box((16, 16), periodic=(True, False)).modes((3, 4)).wavenumber.numel() == (2 * 3 - 1) * 8
    assert Box((16, 16), periodic=(False, False)).modes((3, 12)).wavenumber.numel() == 6 * 16


def cloud() -> PointCloud:
    return PointCloud(torch.rand(30, 2, generator=Generator().manual_seed(3), dtype=torch.float64), modes=12)


@pytest.mark.parametrize("name", [*GEOMETRIES, "cloud"])
def test_every_loss_and_hero_work_on_every_boundary(name: str) -> None:
    geometry = GEOMETRIES[name] if name in GEOMETRIES else Cloud(cloud())
    facts = Facts(dims=len(geometry.space), periodic=getattr(geometry, "periodic", ()))
    truth = states(*geometry.space)
    tau = (truth + 0.1 * truth.roll(1, -1)).requires_grad_()
    for cls in LOSSES.values():
        loss = cls.of(cls.Settings.from_values("loss", {}, facts), geometry, lambda function: function)
        (gradient,) = torch.autograd.grad(loss(tau, truth), tau)
        assert bool(gradient.isfinite().all())
        assert float(gradient.abs().max()) > 0
    hero = Hero(0, domain=geometry.domain())
    model = torch.nn.Conv1d(2, 2, 1).double() if len(geometry.space) == 1 else torch.nn.Conv2d(2, 2, 1).double()
    value, _, comparison = hero(model, truth[:, 0], truth[:, 1:], hero.init())
    value.backward()
    assert comparison is not None
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_large_cloud_is_smoothed_and_has_no_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hero.method.domain.cloud.MAX_DENSE", 10)
    assert Cloud(cloud()).domain().spectrum is None


PERTURBATIONS = [LocalSmoothing, NeighbourhoodJitter, GraphSpectralNoise]


def scattered(points: int = 60, dims: int = 2, seed: int = 0) -> Tensor:
    return torch.rand(points, dims, generator=Generator().manual_seed(seed), dtype=torch.float64)


def samples(points: int = 60, mu: Tensor | None = None) -> Context:
    """Three fields, a history of two, two channels."""
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
    cloud, context = PointCloud(scattered(), neighbours=4), samples()
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
    cloud, context = PointCloud(scattered(), neighbours=4), samples()
    moved = NeighbourhoodJitter(cloud, 0.2)(context, Generator().manual_seed(0)).states
    u, near = context.states, cloud.neighbours
    picked = torch.randint(4, (3, 60, 1), generator=Generator().manual_seed(0))[..., 0]
    for b in range(3):
        j = [int(near[i, picked[b, i]]) for i in range(60)]
        expected = 0.8 * u[b] + 0.2 * u[b][..., j]
        torch.testing.assert_close(moved[b], expected * (cloud.norm(u[b]) / cloud.norm(expected))[..., None])
    assert len({tuple(row.tolist()) for row in picked}) == 3  # each sample has its own displacement


def test_graph_noise_scales_coefficients_and_keeps_what_lies_outside_the_basis() -> None:
    cloud, context = PointCloud(scattered(), modes=20), samples()
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
    cloud, context = PointCloud(scattered()), samples(mu=mu)
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
        lambda: quadrature_weights([[0, 1], [0, 2, 1]], (True, False)),
        lambda: quadrature_weights([CHEBYSHEV], (True,)),
        lambda: Box((4, 3), periodic=(True,)),
        lambda: Box((4, 3), extents=(1.0, 2.0, 3.0)),
        lambda: Box((4, 3), weights=torch.ones(3)),
        lambda: mixed_modes((2, 2), (True, False), weights=torch.tensor([[1.0, 2.0], [2.0, 1.0]]) / 6),
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
def test_a_geometry_that_contradicts_itself_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(HeroError):
        make()
