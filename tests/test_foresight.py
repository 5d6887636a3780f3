"""Foresight: adjoints against explicit Jacobians, g in closed form, and the strategy's state, cost and limits."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data.tasks.task import Task
from hero.data.windows import Batch, Batches, Context
from hero.errors import HeroError
from hero.method.distance import EPS
from hero.method.foresight import LEFT_OUT, adjoints, sensitivity
from hero.method.losses import Balanced
from hero.method.modes import Modes, cosine_modes, fourier_modes, graph_modes
from hero.method.pointcloud import PointCloud
from hero.method.rollout import as_stepper, rollout
from hero.runs.checkpoint import load_state
from hero.runs.config import RunConfig, make_config
from hero.strategies import Strategy
from hero.strategies.foresight import Foresight, random_phases
from hero.training.loop import resume, train
from test_losses import naive_weights, space_of, twin_loss
from test_train import assert_same_run

POINTS, CHANNELS = 5, 2


class Nonlinear(nn.Module):
    """A dense map of all inputs of a call to all its outputs."""

    def __init__(self, history: int, bundle: int, conditions: int) -> None:
        super().__init__()
        generator = Generator().manual_seed(1)
        size = (bundle * CHANNELS * POINTS, (history * CHANNELS + conditions) * POINTS)
        self.matrix = nn.Parameter(torch.randn(size, generator=generator, dtype=torch.float64) / size[1] ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (1.5 * torch.tanh(x.flatten(1) @ self.matrix.T) + 0.1).unflatten(1, (-1, POINTS))


def contexts(history: int, conditions: int, batch: int = 2) -> Context:
    generator = Generator().manual_seed(2)
    states = torch.randn(batch, history, CHANNELS, POINTS, generator=generator, dtype=torch.float64)
    mu = torch.randn(batch, conditions, generator=generator, dtype=torch.float64) if conditions else None
    return Context(states, mu)


def naive_adjoints(
    model: nn.Module, context: Context, bundle: int, horizon: int, draws: Tensor, omega: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """λ_n = probe_n + Σ over the calls that read state n of Ω^-1 Jᵀ Ω λ, with a full Jacobian for each call."""
    batch, history, *state = context.states.shape
    size = math.prod(state)
    weights = torch.ones(size, dtype=torch.float64) if omega is None else omega.repeat(state[0])
    points = math.prod(state[1:])
    every_v, every_lambda = [], []
    for b in range(batch):
        mu = None if context.mu is None else context.mu[b : b + 1]

        def call(x: Tensor, mu: Tensor | None = mu) -> Tensor:
            return model(Context(x.reshape(1, history, *state), mu).inputs()).flatten()

        states = [u.flatten() for u in context.states[b]]  # state n of the rollout is states[history + n - 1]
        jacobians = []
        while len(states) < history + horizon:
            x = torch.cat(states[-history:])
            jacobians.append((len(states), torch.autograd.functional.jacobian(call, x)))
            states += list(call(x).detach().reshape(bundle, size))
        lambdas = [torch.zeros(size, dtype=torch.float64) for _ in states]
        for n in reversed(range(history, len(states))):
            if n < history + horizon:
                length = (states[n].square() * (1 / points if omega is None else weights)).sum().sqrt() + EPS
                lambdas[n] = draws[b, n - history].flatten() / weights.sqrt() / length
            for first, jacobian in jacobians:
                for read in range(history):
                    if first - history + read == n:
                        later = torch.cat([weights * lambdas[first + j] for j in range(bundle)])
                        lambdas[n] = lambdas[n] + jacobian[:, read * size : (read + 1) * size].T @ later / weights
        every_v.append(torch.stack(states[history : history + horizon]).reshape(horizon, *state))
        every_lambda.append(torch.stack(lambdas[history : history + horizon]).reshape(horizon, *state))
    return torch.stack(every_v), torch.stack(every_lambda)


@pytest.mark.parametrize("conditions", [0, 1])
@pytest.mark.parametrize(("history", "bundle"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2)])
def test_adjoints_equal_products_of_jacobians(history: int, bundle: int, conditions: int) -> None:
    model, context, horizon = Nonlinear(history, bundle, conditions), contexts(history, conditions), 5
    v, lambdas = adjoints(as_stepper(model), context, horizon, Generator().manual_seed(0))
    draws = torch.randn(v.shape, generator=Generator().manual_seed(0), dtype=torch.float64)
    expected = naive_adjoints(model, context, bundle, horizon, draws)
    torch.testing.assert_close((v, lambdas), expected, rtol=1e-11, atol=1e-12)
    assert model.matrix.grad is None
    assert not v.requires_grad
    assert not lambdas.requires_grad


def test_adjoints_in_the_inner_product_of_a_point_cloud() -> None:
    omega = torch.tensor([0.1, 0.3, 0.05, 0.35, 0.2], dtype=torch.float64)
    model, context = Nonlinear(2, 1, 1), contexts(2, 1)
    found = adjoints(as_stepper(model), context, 4, Generator().manual_seed(0), omega)
    draws = torch.randn(found[0].shape, generator=Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(found, naive_adjoints(model, context, 1, 4, draws, omega), rtol=1e-11, atol=1e-12)


def closed_form(a: Tensor, lengths: Tensor) -> Tensor:
    """g_k ∝ mean_n ‖v_n‖² Σ_{m ≥ n} |a_k|^{2(m-n)} / ‖v_m‖² of v_{n+1,k} = a_k v_{n,k}, scaled to mean 1."""
    horizon = len(lengths)
    used = range(max(1, horizon - LEFT_OUT))
    terms = [(lengths[n] / lengths[m]) ** 2 * a.abs() ** (2 * (m - n)) for n in used for m in range(n, horizon)]
    g = torch.stack(terms).sum(0)
    return g / g.mean()


def test_g_of_a_linear_operator_is_known() -> None:
    """Each Fourier mode is damped or raised and turned by a phase; 3,000 equal trajectories make the mean a number."""
    n, horizon, count = 12, 12, 3000
    a = torch.polar(torch.tensor([1.0, 1.1, 0.9, 0.6, 0.3, 0.05, 0.8]), torch.tensor([0, 1.0, 2, 0.5, 3, 1, 0])).to(
        torch.complex128
    )
    u = torch.randn(1, 1, 1, n, generator=Generator().manual_seed(0), dtype=torch.float64).expand(count, -1, -1, -1)

    def step(z: Context) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(z.states[:, -1]) * a, n=n)

    g = sensitivity(step, Context(u), horizon, fourier_modes((n,)), Generator().manual_seed(1))
    lengths = rollout(step, Context(u[:1]), horizon).square().mean(dim=(0, 2, 3)).sqrt()
    torch.testing.assert_close(g[0], closed_form(a, lengths), rtol=0.06, atol=0)
    assert float(g.max() / g.min()) > 5


@pytest.mark.parametrize(
    "modes",
    [
        fourier_modes((6, 4)),
        fourier_modes((5, 7), (2, 3)),
        fourier_modes((4, 2, 6), (1, 1, 3)),
        cosine_modes((5, 6), (4, 4)),
    ],
    ids=["2D", "2D odd, kept", "3D kept", "cosine"],
)
def test_no_shell_is_preferred_where_nothing_happens(modes: Modes) -> None:
    """The identity keeps white noise white: shells of unequal sizes have the same g."""
    space = space_of(modes)
    u = torch.randn(800, 1, 2, *space, generator=Generator().manual_seed(0), dtype=torch.float64)
    g = sensitivity(lambda z: 1.0 * z.states[:, -1], Context(u), 10, modes, Generator().manual_seed(1))
    assert g.shape == (2, len(modes.shell_wavenumbers))
    torch.testing.assert_close(g, torch.ones_like(g), rtol=0.12, atol=0)


def test_g_on_a_point_cloud() -> None:
    """An operator that is diagonal in the graph basis, where cells differ tenfold in size."""
    coords = torch.rand(20, 2, generator=Generator().manual_seed(3), dtype=torch.float64)
    omega = torch.linspace(0.1, 1.0, 20, dtype=torch.float64)
    cloud = PointCloud(coords, omega, modes=20)
    modes = graph_modes(cloud)
    a = torch.linspace(1.0, 0.2, 20, dtype=torch.float64)
    u = torch.randn(1, 1, 1, 20, generator=Generator().manual_seed(4), dtype=torch.float64).expand(3000, -1, -1, -1)

    def step(z: Context) -> Tensor:
        return cloud.synthesis(a * cloud.coefficients(z.states[:, -1]))

    horizon = 8
    g = sensitivity(step, Context(u), horizon, modes, Generator().manual_seed(1))
    lengths = cloud.norm(rollout(step, Context(u[:1]), horizon)[0, :, 0])
    by_mode = closed_form(a, lengths)
    shells = [by_mode[modes.shells == shell].mean() for shell in range(len(modes.shell_wavenumbers))]
    expected = torch.stack(shells)
    torch.testing.assert_close(g[0], expected / expected.mean(), rtol=0.08, atol=0)


def unstable(factor: float) -> Any:
    """0.5 is a fixed point, from which every difference grows by `factor`."""
    return lambda z: 0.5 + factor * (z.states[:, -1] - 0.5)


def test_g_is_finite_whatever_the_operator_does() -> None:
    """λ² runs through all sizes up to overflow, in which the sum over trajectories would be lost first."""
    context = Context(torch.full((100, 1, 1, 8), 0.5))
    modes = fourier_modes((8,))
    for factor in torch.logspace(3, 4.5, 60).tolist():  # to the power of 10 after six steps
        g = sensitivity(unstable(factor), context, 6, modes, Generator().manual_seed(0))
        assert bool(g.isfinite().all()), factor
        assert float(g.min()) > 0
    overflowing = [lambda z: 10 * z.states[:, -1] ** 3 + 9, lambda z: z.states[:, -1] * math.nan]
    for step in overflowing:
        g = sensitivity(step, context, 12, modes, Generator().manual_seed(0))
        assert bool((g == 1).all())


def test_trajectories_that_overflow_are_left_out() -> None:
    states = torch.randn(6, 1, 1, 8, generator=Generator().manual_seed(0))

    def step(z: Context) -> Tensor:
        u = z.states[:, -1]
        return torch.where(u.abs().amax(dim=(1, 2), keepdim=True) > 100, u**3, torch.sin(2 * u))

    modes = fourier_modes((8,))
    wild = states.clone()
    wild[3:] *= 1e6
    g = sensitivity(step, Context(wild), 12, modes, Generator().manual_seed(0))
    v, lambdas = adjoints(step, Context(states), 12, Generator().manual_seed(0))
    relative = (lambdas * v.square().mean(dim=(2, 3), keepdim=True).sqrt())[:3, : 12 - LEFT_OUT]
    power = modes.shell_power(relative).mean(dim=(0, 1)) / torch.tensor([1.0, 2, 2, 2, 1])
    torch.testing.assert_close(g, power / power.mean())


SMALL: dict[str, Any] = {
    "task.resolution": 12,
    "task.cutoff": 2,
    "task.substeps": 1,
    "backbone.width": 3,
    "backbone.modes": 3,
    "backbone.depth": 1,
    "train.steps": 20,
    "train.unroll": 3,
    "train.batch": 4,
    "foresight.start": 2,
    "foresight.refresh": 3,
    "foresight.horizon": 8,
    "foresight.trajectories": 3,
}


def config_for(strategy: str = "foresight", **changes: Any) -> RunConfig:
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return make_config(overrides={**SMALL, "train.loss": "balanced", "strategy": strategy, **values})


def strategy_for(**changes: Any) -> Foresight:
    strategy = config_for(**changes).make_strategy()
    assert isinstance(strategy, Foresight)
    return strategy


def windows_for(config: RunConfig, dtype: torch.dtype = torch.float64) -> Batches:
    """Decaying waves, as data of any run."""
    u = config.make_source().initial_states(4, seed=1).to(dtype)
    return config.windows(torch.stack([u * (1 - 0.05 * k) for k in range(7)], dim=1))


def operator(config: RunConfig, dtype: torch.dtype = torch.float64) -> nn.Module:
    return config.build_operator().to(dtype)


def descend(strategy: Strategy[Any], model: nn.Module, windows: Batches, steps: range) -> list[Tensor]:
    """Plain gradient descent; returns the losses and the weights."""
    values = []
    for step in steps:
        value = strategy.loss(model, windows(step)).value
        gradients = torch.autograd.grad(value, list(model.parameters()))
        values.append(value.detach())
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p -= 0.02 * g
    return [*values, *(p.detach().clone() for p in model.parameters())]


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_loss_of_the_strategy_equals_its_naive_twin(power: float) -> None:
    """Value and every gradient, over updates in which g is measured, is reused, and is measured again."""
    config = config_for(foresight__power=power, loss__w_max=1000)
    strategy, model, windows = config.make_strategy(), operator(config), windows_for(config)
    gain = None
    for step in range(7):
        batch = windows(step)
        if step in (2, 5):
            context = Context(batch.context.states[:3])
            draws = torch.randn(3, 8, 1, 12, generator=batch.generator, dtype=torch.float64)
            batch = windows(step)  # with its generator as it was
            v, lambdas = naive_adjoints(model, context, 1, 8, draws)
            spectrum = torch.fft.rfft(lambdas * v.square().mean(dim=(2, 3), keepdim=True).sqrt()).abs().square()
            g = spectrum[:, :3].mean(dim=(0, 1))  # without the last five of eight
            gain = (g / g.mean()) ** power
        tau = rollout(as_stepper(model), batch.context, 3)
        _, w, by_mode, c = naive_weights(tau.detach(), batch.truth, None, gain, 1000.0, "error")
        twin = twin_loss(tau, batch.truth, by_mode, c)
        ours = strategy.loss(model, batch).value
        torch.testing.assert_close(ours, twin, rtol=1e-9, atol=1e-12)
        gradients = [torch.autograd.grad(value, list(model.parameters())) for value in (ours, twin)]
        for one, two in zip(*gradients, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(strategy.spectra()["weights"], torch.as_tensor(w), rtol=1e-9, atol=0)
        assert ("sensitivity" in strategy.spectra()) == (step >= 2)
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients[0], strict=True):
                p -= 0.05 * g


@pytest.mark.parametrize("control", [{"foresight__power": 0.0}, {"foresight__adjoint": "none"}], ids=str)
def test_without_g_it_is_push_forward_to_the_bit(control: dict[str, Any]) -> None:
    runs = []
    for config in (config_for(**control), config_for("push_forward")):
        strategy = config.make_strategy()
        assert strategy.reduces_to == "push_forward"
        model = operator(config, torch.float32)
        runs.append(descend(strategy, model, windows_for(config, torch.float32), range(8)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("adjoint", ["none", "lagged"])
def test_a_relative_term_on_top_is_hero_with_that_absolute_loss(adjoint: str) -> None:
    ours = strategy_for(foresight__relative=0.3, foresight__adjoint=adjoint)
    config = config_for("hero", hero__lambda_max=0.3)
    theirs, windows = config.make_strategy(), windows_for(config)
    assert isinstance(theirs.absolute_loss, Balanced)
    assert ours.reduces_to == ""
    model = operator(config)
    for step in range(14):  # hero.start is 8, its ramp 4
        values = []
        for strategy in (ours, theirs):
            batch = windows(step)
            if strategy is theirs and ours.is_refresh(step):  # the probes are drawn before the perturbation
                torch.randn(3, 8, 1, 12, generator=batch.generator, dtype=torch.float64)
            loss = strategy.loss(model, batch)
            values.append([loss.value, *torch.autograd.grad(loss.value, list(model.parameters()))])
            theirs.absolute_loss.gain = ours.balanced.gain
        assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))
        assert ("alpha" in loss.statistics) == (step >= 8)
        with torch.no_grad():
            for p, g in zip(model.parameters(), values[0][1:], strict=True):
                p -= 0.02 * g
    assert (ours.balanced.gain is None) == (adjoint == "none")
    assert ours.cache_bytes() == theirs.cache_bytes() > 0
    again = strategy_for(foresight__relative=0.3, foresight__adjoint=adjoint)
    again.load_state_dict(copy.deepcopy(ours.state_dict()), model)
    assert torch.equal(again.loss(model, windows(14)).value, ours.loss(model, windows(14)).value)


@pytest.mark.parametrize(
    ("start", "refresh", "expected"),
    [(2, 3, [2, 5, 8, 11, 14, 17]), (0, 1, list(range(20))), (19, 1, [19]), (0, 30, [0])],
)
def test_g_is_measured_at_the_refreshes_and_the_phases_add_up(start: int, refresh: int, expected: list[int]) -> None:
    strategy = strategy_for(foresight__start=start, foresight__refresh=refresh)
    assert [step for step in range(20) if strategy.is_refresh(step)] == expected
    phases = strategy.phases(windows_for(config_for()))
    assert sum(phase.updates for phase in phases) == 20
    assert phases[0].updates == len(expected)
    assert strategy.is_refresh(phases[0].step)
    assert not any(strategy.is_refresh(phase.step) for phase in phases[1:])
    assert sum(phase.updates for phase in strategy_for(foresight__power=0).phases(windows_for(config_for()))) == 20


def test_a_start_after_the_end_is_refused() -> None:
    with pytest.raises(HeroError, match=r"foresight\.start=20 is not below train\.steps=20"):
        strategy_for(foresight__start=20)
    assert strategy_for(foresight__start=20, foresight__adjoint="none").g is None


def test_g_lags_and_travels_in_the_state() -> None:
    config = config_for()
    strategy, model, windows = strategy_for(), operator(config), windows_for(config)
    assert strategy.state_dict() == {"g": None}
    descend(strategy, model, windows, range(2))
    assert strategy.g is None
    descend(strategy, model, windows, range(2, 4))
    g = strategy.state_dict()["g"]
    assert g.shape == (1, 7)
    assert float(g.mean()) == pytest.approx(1)
    descend(strategy, model, windows, range(4, 5))
    assert strategy.state_dict()["g"] is g
    descend(strategy, model, windows, range(5, 6))
    assert not torch.equal(strategy.state_dict()["g"], g)


@pytest.mark.parametrize("adjoint", ["lagged", "solver", "phases"])
def test_whose_adjoint(adjoint: str) -> None:
    """The solver's does not see the model; the others do, and no two of them agree."""
    config = config_for(foresight__adjoint=adjoint, train__history=2)
    strategy, windows = config.make_strategy(), windows_for(config)
    assert isinstance(strategy, Foresight)
    found = []
    for seed in (0, 1):
        model = operator(replace(config, seed=seed))
        found.append(strategy.measure(model, windows(2)))
        assert bool(found[-1].isfinite().all())
    assert torch.equal(*found) == (adjoint == "solver")
    plain = strategy_for(train__history=2).measure(model, windows(2))
    assert torch.equal(plain, found[-1]) == (adjoint == "lagged")
    descend(strategy, model, windows, range(6))


def test_the_solver_s_g_of_a_linear_equation_is_known() -> None:
    """Dispersion turns waves and damps none, so all modes matter alike, but for the Nyquist mode, which cannot turn."""
    config = config_for(task__name="dispersion", foresight__adjoint="solver", foresight__trajectories=400)
    u = config.make_source().initial_states(1, seed=1).expand(400, -1, -1)
    batch = Batch(Context(u[:, None]), u[:, None], 2, None, Generator())
    strategy = config.make_strategy()
    assert isinstance(strategy, Foresight)
    g = strategy.measure(operator(config), batch)
    torch.testing.assert_close(g[0, :-1], torch.ones(6, dtype=g.dtype), rtol=0.15, atol=0)


def test_other_phases_are_the_same_amplitudes() -> None:
    states = torch.randn(3, 2, 1, 6, 5, generator=Generator().manual_seed(0), dtype=torch.float64)
    seen = []
    step = random_phases(lambda z: seen.append(z.states) or z.states[:, -1], states, Generator().manual_seed(1))
    step(Context(states))
    torch.testing.assert_close(torch.fft.fft2(seen[0]).abs(), torch.fft.fft2(states).abs())
    assert not torch.allclose(seen[0], states)


def test_lagged_foresight_needs_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_for()
    model, windows = operator(config), windows_for(config)

    def stepper(self: Task, device: object = "cpu") -> None:
        raise RuntimeError("the solver was asked")

    monkeypatch.setattr(Task, "stepper", stepper)
    descend(strategy_for(), model, windows, range(6))
    with pytest.raises(RuntimeError, match="the solver was asked"):
        descend(strategy_for(foresight__adjoint="solver"), model, windows, range(6))


class Restless(nn.Module):
    """A convolution with dropout, batch statistics, and a buffer that counts every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 4, 3, padding=1, padding_mode="circular"),
            nn.BatchNorm1d(4),
            nn.Dropout(0.5),
            nn.Conv1d(4, 1, 1),
        )
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(x)


def test_a_refresh_leaves_the_model_as_it_was() -> None:
    torch.manual_seed(0)
    model = Restless().double()
    model.layers[3].eval()  # frozen by its owner, and to stay so
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    windows = windows_for(config_for())
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    found = [strategy_for().measure(model, windows(2)) for _ in range(2)]
    assert torch.equal(*found)  # without dropout
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == modes
    assert all(bool((p.grad == 1).all()) and p.requires_grad for p in model.parameters())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    descend(strategy_for(), model, windows, range(6))
    assert float(model.calls) == 6 * 3  # the rollouts of training alone
    assert model.training


def test_an_operator_that_explodes_stops_neither_g_nor_the_next_updates() -> None:
    config = config_for(foresight__power=2.0)
    strategy, windows = config.make_strategy(), windows_for(config, torch.float32)
    assert isinstance(strategy, Foresight)
    model = operator(config, torch.float32)
    exploding = copy.deepcopy(model)
    with torch.no_grad():
        for p in exploding.parameters():
            p *= 30
    strategy.use(strategy.measure(exploding, windows(2)))
    assert bool(strategy.balanced(windows(2).truth + 0.1, windows(2).truth).isfinite())
    # A few shells that grow beyond all others: powers of their ratio underflow.
    strategy.use(torch.tensor([[1e-30, 1e-20, 1e-10, 1e-3, 1.0, 3.0, 3.0]]))
    value = strategy.loss(model, windows(3)).value
    assert bool(value.isfinite())
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(value, list(model.parameters())))
    weights = strategy.spectra()["weights"]
    assert float(weights.min()) == 1.0
    assert float(weights[0, -1]) == strategy.balanced.w_max


def test_g_in_two_dimensions_has_the_shells_of_the_loss() -> None:
    config = config_for(task__name="decaying_turbulence", task__warmup=0)
    strategy, model = config.make_strategy(), operator(config, torch.float32)
    descend(strategy, model, windows_for(config, torch.float32), range(4))
    spectra = strategy.spectra()
    assert spectra["sensitivity"].shape == spectra["weights"].shape == spectra["error"].shape
    assert spectra["wavenumber"].shape == (1, spectra["weights"].shape[1])


class Stopped(Exception):
    """In the middle of a training."""


def test_a_resumed_run_has_the_same_bits(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SOAP; the checkpoint of update 10 lies between the refreshes at 8 and 11."""
    changes = {"foresight__start": 2, "foresight__refresh": 3, "foresight__horizon": 7, "train__optimizer": "soap"}
    config = tiny(strategy="foresight", train__checkpoint_every=5, foresight__relative=0.1, **changes)
    whole = train(config, tmp_path / "whole", data_dir)
    loss = Foresight.loss

    def stopping(self: Foresight, model: nn.Module, batch: Batch) -> Any:
        if batch.step == 13:
            raise Stopped
        return loss(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Foresight, "loss", stopping)
        with pytest.raises(Stopped):
            train(config, tmp_path / "parts", data_dir)
    (parts,) = (tmp_path / "parts").glob("*foresight*")
    assert load_state(parts / "last" / "state.pt")["step"] == 10
    resume(parts, data_dir)
    assert_same_run(parts, whole)
