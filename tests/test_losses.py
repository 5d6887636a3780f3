"""Absolute losses: naive float64 twins over the whole lattice, exact values, invariances, fields that break sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from conftest import tiny
from fakes import value_and_gradient
from hero.data.windows import Batch, Context
from hero.method.distance import EPS, norm, trajectory_distance
from hero.method.domain import (
    Modes,
    PointCloud,
    cosine_modes,
    fourier_modes,
    graph_modes,
    mixed_modes,
    quadrature_weights,
)
from hero.method.losses import FLOOR, LOSSES, AbsoluteLoss, Balanced, MeanSquare, Relative, Sobolev
from hero.runs.config import make_config
from hero.strategies import STRATEGIES
from hero.training.update import Trainee, update

KEPT = {(8,): (3,), (7,): (4,), (6, 4): (2, 3), (4, 5): (1, 2), (4, 2, 6): (1, 1, 3)}


def fields(space: tuple[int, ...], channels: int = 1, batch: int = 3, steps: int = 2) -> tuple[Tensor, Tensor]:
    """A truth, and a rollout whose error is some tenths of it and falls with the channel."""
    generator = Generator().manual_seed(sum(space) + channels)
    shape = (batch, steps, channels, *space)
    truth, noise = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    rough = noise + 3 * noise.mean(dim=-1, keepdim=True)  # a spectrum that is not flat
    sizes = torch.logspace(-1, -3, channels, dtype=torch.float64).reshape(-1, *(1,) * len(space))
    return truth + sizes * rough, truth


def lattice(space: tuple[int, ...], kept: tuple[int, ...] | None) -> dict[tuple[int, ...], float | None]:
    """|k| of every mode of the FFT that has its own weight, None of every other.

    A spectral convolution holds -m .. m-1 on all axes but the last and 0 .. m-1 there; a mode with a negative last
    number is the conjugate of one that it holds.
    """
    if kept is None:
        kept = (*(n // 2 for n in space[:-1]), space[-1] // 2 + 1)
    found: dict[tuple[int, ...], float | None] = {}
    for index in itertools.product(*map(range, space)):
        sign = -1 if 2 * index[-1] > space[-1] else 1
        held = [(sign * i + n // 2) % n - n // 2 for i, n in zip(index, space, strict=True)]
        held[-1] = sign * index[-1] % space[-1]
        inside = all(-m <= k < m for k, m in zip(held[:-1], kept[:-1], strict=True)) and held[-1] < kept[-1]
        found[index] = math.sqrt(sum(k * k for k in held)) if inside else None
    return found


def naive_weights(
    tau: Tensor, truth: Tensor, kept: tuple[int, ...] | None, gain: Tensor | None, w_max: float, spectrum: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """S and w by channel and shell, w by channel and lattice mode, and c: one mode after the other."""
    batch, steps, channels, *space = tau.shape
    wavenumbers = lattice(tuple(space), kept)
    shells = sorted({round(k) for k in wavenumbers.values() if k is not None})
    sizes = [sum(k is not None and round(k) == shell for k in wavenumbers.values()) for shell in shells]
    s = np.zeros((channels, len(shells)))
    powers = np.zeros((batch, steps, channels, *space))
    for b, t in itertools.product(range(batch), range(steps)):
        u, v = truth[b, t].numpy(), tau[b, t].numpy()
        scale = math.sqrt(sum(np.mean(u[c] ** 2) for c in range(channels))) + EPS
        for c in range(channels):
            transformed = np.abs(np.fft.fftn((v[c] - u[c]) / scale) / math.prod(space)) ** 2
            powers[b, t, c] = transformed
            measured = transformed if spectrum == "error" else np.abs(np.fft.fftn(u[c] / scale) / math.prod(space)) ** 2
            for index, k in wavenumbers.items():
                if k is not None:
                    shell = shells.index(round(k))
                    s[c, shell] += measured[index] / sizes[shell] / (batch * steps)
    w = (s / s.mean() + FLOOR) ** -0.5 * (1 if gain is None else gain.numpy())
    w = np.minimum(w / w.min(), w_max)
    by_mode = np.ones((channels, *space))
    for index, k in wavenumbers.items():
        if k is not None:
            by_mode[(slice(None), *index)] = w[:, shells.index(round(k))]
    return s, w, by_mode, powers.sum() / (powers * by_mode).sum()


def twin_loss(tau: Tensor, truth: Tensor, by_mode: np.ndarray, c: float) -> Tensor:
    """mean √(c Σ_k w_k P_k(e)) with w and c as constants."""
    axes, points = tuple(range(3, tau.dim())), math.prod(tau.shape[3:])
    scale = (truth.square().flatten(2).sum(2) / points).sqrt() + EPS
    error = (tau - truth) / scale[(..., *(None,) * (tau.dim() - 2))]
    power = (torch.fft.fftn(error, dim=axes) / points).abs().square()
    return (c * (power * torch.as_tensor(by_mode)).flatten(2).sum(2)).sqrt().mean()


@pytest.mark.parametrize(
    ("space", "channels", "reach", "with_gain"),
    [(s, *case) for s in KEPT for case in ((2, "kept", True), (1, "all", False) if len(s) % 2 else (2, "all", True))],
)
def test_balanced_equals_its_naive_twin(space: tuple[int, ...], channels: int, reach: str, with_gain: bool) -> None:
    kept = KEPT[space] if reach == "kept" else None
    for w_max, spectrum in [(1000.0, "error"), (3.0, "data")]:
        loss = Balanced(fourier_modes(space, kept), w_max, spectrum)
        tau, truth = fields(space, channels)
        gain = torch.rand(channels, len(loss.modes.shell_wavenumbers), generator=Generator().manual_seed(0)).double()
        loss.gain = gain + 0.01 if with_gain else None
        s, w, by_mode, c = naive_weights(tau, truth, kept, loss.gain, w_max, spectrum)
        ours = value_and_gradient(lambda v, loss=loss, truth=truth: loss(v, truth), tau)
        twin = value_and_gradient(lambda v, truth=truth, w=by_mode, c=c: twin_loss(v, truth, w, c), tau)
        torch.testing.assert_close(ours, twin, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(loss.found.spectrum, s, rtol=1e-10)
        np.testing.assert_allclose(loss.found.weights, w, rtol=1e-10)
        assert len(np.unique(w)) > 1


@pytest.mark.parametrize(("task", "reach", "shells"), [("decaying_turbulence", {}, 5), ("burgers", {}, 9),
                                                       ("decaying_turbulence", {"loss.reach": "all"}, 12)])  # fmt: skip
def test_the_reach_of_a_run_is_the_reach_of_its_backbone(task: str, reach: dict[str, str], shells: int) -> None:
    """In two dimensions modes out of its reach have no weight that could rise; in one, or with `all`, they do."""
    small = {"task.name": task, "task.resolution": 16, "task.cutoff": 2, "backbone.modes": 3, "train.loss": "balanced"}
    loss = make_config(overrides={**small, **reach}).make_strategy().absolute
    assert isinstance(loss, Balanced)
    assert len(loss.modes.shell_wavenumbers) == shells


CLOUD = PointCloud(torch.rand(30, 2, generator=Generator().manual_seed(3), dtype=torch.float64), modes=30)
UNEVEN = quadrature_weights([range(4), [0.0, 0.1, 0.3, 0.7, 1.0]], (True, False))
BASES = {
    "fourier 1D": (fourier_modes((8,)), fourier_modes((8,), (3,))),
    "fourier 2D": (fourier_modes((6, 4)), fourier_modes((6, 4), (2, 3))),
    "fourier 3D": (fourier_modes((4, 2, 6)), fourier_modes((4, 2, 6), (1, 1, 2))),
    "fourier odd": (fourier_modes((7,)), fourier_modes((7,), (2,))),
    "cosine 1D": (cosine_modes((7,)), cosine_modes((7,), (4,))),
    "cosine 2D": (cosine_modes((6, 5)), cosine_modes((6, 5), (3, 2))),
    "cosine 3D": (cosine_modes((3, 4, 5)), cosine_modes((3, 4, 5), (2, 2, 2))),
    "mixed 2D": (mixed_modes((6, 5), (True, False)), mixed_modes((6, 5), (True, False), (2, 3))),
    "mixed 3D": (mixed_modes((3, 4, 5), (False, True, True)), mixed_modes((3, 4, 5), (False, True, True), (2, 2, 2))),
    "uneven": (
        mixed_modes((4, 5), (True, False), weights=UNEVEN),
        mixed_modes((4, 5), (True, False), (2, 3), weights=UNEVEN),
    ),
    "graph": (graph_modes(CLOUD), graph_modes(PointCloud(CLOUD.coords, modes=12))),
}


def space_of(modes: Modes) -> tuple[int, ...]:
    if modes.weights is not None:
        return tuple(modes.weights.shape)
    fourier = modes.project is BASES["fourier 1D"][0].project
    sizes = [len(matrix) for matrix in modes.matrices]
    return (*(n // 2 if fourier else n for n in sizes[:-1]), sizes[-1])


@pytest.mark.parametrize("basis", BASES)
def test_shell_powers_add_up_to_the_squared_norm(basis: str) -> None:
    whole, part = BASES[basis]
    u = fields(space_of(whole), channels=2)[1]
    expected = norm(u, whole.weights).square()
    torch.testing.assert_close(whole.shell_power(u).sum(dim=(2, 3)), expected, rtol=1e-12, atol=0)
    assert bool((part.shell_power(u).sum(dim=(2, 3)) < expected).all())
    assert float(whole.multiplicity.sum()) == math.prod(space_of(whole))


@pytest.mark.parametrize("basis", BASES)
def test_the_balanced_loss_is_the_relative_one_with_equal_weights_and_as_large_with_others(basis: str) -> None:
    """c: the mean square of the weighted relative error is that of the unweighted one."""
    for modes in BASES[basis]:
        tau, truth = fields(space_of(modes), channels=2)
        ours = value_and_gradient(lambda v, m=modes, u=truth: Balanced(m, w_max=1.0)(v, u), tau)
        plain = value_and_gradient(lambda v, m=modes, u=truth: trajectory_distance(v, u, m.weights).mean(), tau)
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-15)
    tau, truth = fields(space_of(BASES[basis][0]), channels=2, batch=1, steps=1)
    loss = Balanced(BASES[basis][0], w_max=50.0)
    torch.testing.assert_close(loss(tau, truth), trajectory_distance(tau, truth, loss.modes.weights).mean())
    assert float(loss.found.weights.min()) == 1.0
    assert 1.5 < float(loss.found.weights.max()) <= 50.0


def all_losses(space: tuple[int, ...]) -> Iterator[tuple[str, AbsoluteLoss]]:
    yield from [("relative", Relative()), ("mse", MeanSquare()), ("h1", Sobolev(fourier_modes(space)))]
    yield from [("balanced", Balanced(fourier_modes(space))), ("kept", Balanced(fourier_modes(space, KEPT[space])))]
    yield from [("cosine h1", Sobolev(cosine_modes(space))), ("cosine balanced", Balanced(cosine_modes(space), 1e3))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_an_error_there_is_neither_loss_nor_gradient(dtype: torch.dtype) -> None:
    for truth in (fields((8,))[1].to(dtype), torch.zeros(2, 1, 1, 8, dtype=dtype)):
        for name, loss in all_losses((8,)):
            value, gradient = value_and_gradient(lambda v, loss=loss, u=truth: loss(v, u), truth)
            assert 0 <= float(value) <= (1e-11 if bool(truth.any()) else 1.0), name
            assert bool((gradient == 0).all()), name
    tau, truth = (u.to(dtype) for u in fields((8,)))
    tau[0] = truth[0]  # one window without an error next to others
    for name, loss in all_losses((8,)):
        value, gradient = value_and_gradient(lambda v, loss=loss: loss(v, truth), tau)
        assert bool(value.isfinite()), name
        assert bool((gradient[0] == 0).all()), name
        assert bool(gradient.isfinite().all()), name


@pytest.mark.parametrize("size", [0.0, 1e-18, 1e18])
def test_fields_of_any_size_in_single_precision(size: float) -> None:
    """Below ε the scale of a state is ε, as in the distance; a truth of 0 has no scale of its own."""
    tau, truth = (size * u.float() for u in fields((8,), channels=2))
    tau = tau if size else tau + 1.0
    for name, loss in all_losses((8,)):
        if name == "mse" and size == 1e18:
            continue  # which is in units of the field
        value, gradient = value_and_gradient(lambda v, loss=loss: loss(v, truth), tau)
        assert bool(value.isfinite()), name
        assert float(value) > 0, name
        assert bool(gradient.isfinite().all()), name
    plain = float(trajectory_distance(tau, truth).mean())
    assert 0.5 * plain < float(Balanced(fourier_modes((8,)))(tau, truth)) < 2 * plain


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_number_that_is_none_makes_the_loss_one_and_raises_nothing(broken: float) -> None:
    tau, truth = fields((6, 4), channels=2)
    tau[1, 0, 1, 2, 3] = broken
    for name, loss in all_losses((6, 4)):
        value = float(loss(tau, truth))
        assert not math.isfinite(value), name
        assert math.isnan(value) or not math.isnan(broken), name


@pytest.mark.parametrize("space", [(8,), (7,), (6, 4)], ids=str)
def test_h1_equals_its_naive_twin(space: tuple[int, ...]) -> None:
    tau, truth = fields(space, channels=2)
    weights = torch.zeros(space, dtype=torch.float64)
    for index, k in lattice(space, None).items():
        weights[index] = 0 if k is None else 1 + round(k) ** 2

    def twin(v: Tensor) -> Tensor:
        axes = tuple(range(3, v.dim()))
        error, size = (
            (torch.fft.fftn(u, dim=axes).abs().square() * weights).flatten(2).sum(2) for u in (v - truth, truth)
        )
        return (error / size).sqrt().mean()

    loss = Sobolev(fourier_modes(space))
    ours = value_and_gradient(lambda v: loss(v, truth), tau)
    torch.testing.assert_close(ours, value_and_gradient(twin, tau), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_updates_under_every_loss(strategy: str) -> None:
    values = {}
    small = {"task__resolution": 12, "task__cutoff": 2, "task__warmup": 0, "backbone__modes": 3, "backbone__depth": 1}
    small |= {"train__steps": 8, "train__batch": 3, "train__unroll": 3, "hero__start": 2, "strategy": strategy}
    for loss, task in (*((name, "burgers") for name in LOSSES), ("balanced", "decaying_turbulence")):
        config = tiny(**small, task__name=task, train__loss=loss)
        u = config.source.task.initial_states(3, seed=1).float()
        data = torch.stack([u * (1 - 0.05 * k) for k in range(4)], dim=1)
        trainee = Trainee.of(config, config.build_operator())
        trainee.strategy.begin(trainee.model, data)
        batch = Batch(Context(data[:, :1]), data[:, 1:], 2, None, Generator().manual_seed(0))
        statistics = update(trainee, batch)
        assert 0 < float(statistics["grad_norm"]) < math.inf
        assert all(bool(p.isfinite().all()) for p in trainee.model.parameters())
        values[loss, task] = float(statistics["loss"])
    # The target of the refiner is noise, for which the mean square is part of the method.
    assert len({values[loss, "burgers"] for loss in ("relative", "mse", "h1")}) == (1 if strategy == "refiner" else 3)


def test_compiled_losses_are_the_same_and_are_traced_once() -> None:
    """With and without a gain, which a strategy may bring in the middle of a training."""
    traced: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        traced.append(graph)
        return graph.forward

    def compile_with(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, dynamic=False, backend=backend, fullgraph=True)

    torch.compiler.reset()
    tau, truth = fields((6, 4), channels=2)
    modes = fourier_modes((6, 4), (2, 3))
    plain, faster = Balanced(modes), Balanced(modes, compile_with=compile_with)
    pairs: list[tuple[Any, Any]] = [(plain, faster), (Sobolev(modes), Sobolev(modes, compile_with))]
    for gain in (None, torch.rand(2, len(modes.shell_wavenumbers), dtype=torch.float64) + 0.1):
        plain.gain = faster.gain = gain
        for one, two in pairs:
            results = [value_and_gradient(lambda v, loss=loss: loss(v, truth), tau) for loss in (one, two)]
            torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-13)
    assert len(traced) == 2


def test_losses_on_a_point_cloud_weigh_by_its_quadrature() -> None:
    """An error in one eigenvector, whose relative size is exact in the weighted norm."""
    basis = CLOUD.basis
    truth = (basis[:, 0] + basis[:, 4])[None, None, None]
    tau = truth + 0.1 * basis[:, 7]
    modes = graph_modes(CLOUD)
    assert float(Balanced(modes)(tau, truth)) == pytest.approx(0.1 / math.sqrt(2), rel=1e-9)
    k = [1 + float(modes.wavenumber[m].round()) ** 2 for m in (0, 4, 7)]
    assert float(Sobolev(modes)(tau, truth)) == pytest.approx(0.1 * math.sqrt(k[2] / (k[0] + k[1])), rel=1e-9)
