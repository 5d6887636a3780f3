"""Every strategy against a naive twin in float64, for value and every gradient; PDE-Refiner and its tables."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data import TASKS
from hero.data.windows import Batch, Context
from hero.errors import HeroError
from hero.method.candidates import CANDIDATES
from hero.method.distance import EPS
from hero.method.domain import SpectralNoise
from hero.models import FNO, Transolver
from hero.runs.config import RunConfig, make_config
from hero.strategies import base
from hero.strategies.refiner import Diffusion, RefinedOperator, Refiner

K, START, REFRESH, WARMUP = 4, 3, 2, 4


def config_for(strategy: str, loss: str) -> RunConfig:
    own = {"start": START, "refresh": REFRESH, "warmup": WARMUP, "lambda_max": 0.3, "margin": 0.05, "beta": 4.0}
    hero = {f"hero__{name}": value for name, value in own.items()}
    return tiny(strategy=strategy, train__loss=loss, train__unroll=K, hero__perturbation=0.1, **hero)


def model_of(dims: int, seed: int = 0, bundle: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return FNO(1, bundle, width=3, modes=(2,) * dims, depth=1).double()


def window(dims: int, step: int, seed: int = 7) -> tuple[Tensor, Tensor, Generator]:
    generator = Generator().manual_seed(seed)
    data = torch.randn(5, K + 1, 1, *(6,) * dims, generator=generator, dtype=torch.float64)
    return data[:, 0], data[:, 1:], Generator().manual_seed(1000 + step)


def batch_of(u: Tensor, truth: Tensor, step: int, generator: Generator) -> Batch:
    return Batch(Context(u[:, None]), truth, step, None, generator)


def d(v: Tensor, w: Tensor) -> Tensor:
    """d_X of one state, written out."""
    return ((v - w) ** 2).sum(0).mean().sqrt() / ((w**2).sum(0).mean().sqrt() + EPS)


def unroll(model: nn.Module, u: Tensor, steps: int) -> list[Tensor]:
    out = []
    for _ in range(steps):
        u = model(u[None])[0]
        out.append(u)
    return out


def absolute(tau: list[Tensor], truth: Tensor, loss: str) -> Tensor:
    terms = [d(v, w) if loss == "relative" else ((v - w) ** 2).mean() for v, w in zip(tau, truth, strict=True)]
    return sum(terms) / len(terms)


def naive_diagnostics(tau: list[Tensor], truth: Tensor) -> list[float]:
    """E_roll, E_spec, E_energy and E_growth of one trajectory; ‖·‖ sums over channels."""
    e, steps = [d(v, w).item() for v, w in zip(tau, truth, strict=True)], len(tau)
    space = tuple(range(1, truth.dim() - 1))
    spec, drift = 0.0, 0.0
    for v, w in zip(tau, truth, strict=True):
        a, b = (torch.fft.fftn(u, dim=space).abs() for u in (v, w))
        spec += ((a - b).abs().sum() / (b.sum() + EPS)).item() / steps
        energy, true = ((u**2).sum(dim=0).mean().item() for u in (v, w))
        drift += abs(energy - true) / (true + EPS) / steps
    growth = sum(max(0.0, after - before) for before, after in itertools.pairwise(e)) / (steps - 1)
    return [sum(e) / steps, spec, drift, growth]


def naive_hero(model: nn.Module, lagged: nn.Module, u: Tensor, truth: Tensor, step: int, loss: str) -> Tensor:
    """Algorithm 1, one sample after the other."""
    noisy = SpectralNoise(0.1)(Context(u[:, None]), Generator().manual_seed(1000 + step)).states[:, 0]
    weight = 0.3 * min(max((step - START) / WARMUP, 0), 1)
    total: Tensor = torch.zeros((), dtype=torch.float64)
    for i in range(len(u)):
        current = unroll(model, u[i], K)
        with torch.no_grad():
            candidates = [unroll(lagged, u[i], K), unroll(model, noisy[i], K), [v.detach() for v in current]]
        table = [naive_diagnostics(tau, truth[i]) for tau in candidates]
        score = []
        for row in table:
            parts = []
            for q in range(4):
                column = [r[q] for r in table]
                parts.append((row[q] - min(column)) / (max(column) - min(column) + EPS))
            score.append(sum(parts) / 4)
        d_fail = table[score.index(max(score))][0]
        d_cur = absolute(current, truth[i], "relative")
        rel = torch.log(1 + torch.exp(4.0 * (d_cur - d_fail + 0.05))) / 4.0
        total = total + absolute(current, truth[i], loss) + weight * rel
    return total / len(u)


def naive(strategy: str, model: nn.Module, u: Tensor, truth: Tensor, step: int, loss: str) -> Tensor:
    values = []
    for i in range(len(u)):
        if strategy == "one_step":
            values.append(absolute(unroll(model, u[i], 1), truth[i, :1], loss))
            continue
        tau = unroll(model, u[i], K)
        value = absolute(tau, truth[i], loss)
        if strategy == "fixed_weight":
            weight = 0.3 * min(max((step - START) / WARMUP, 0), 1)
            value = value + weight * 0.5 * absolute(tau, truth[i], "relative")
        values.append(value)
    return sum(values) / len(values)


def assert_same(model: nn.Module, ours: Tensor, twin: Tensor) -> None:
    torch.testing.assert_close(ours, twin, rtol=1e-10, atol=1e-12)
    mine = torch.autograd.grad(ours, list(model.parameters()))
    other = torch.autograd.grad(twin, list(model.parameters()))
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(("dims", "loss"), [(1, "relative"), (2, "mse"), (3, "relative")])
@pytest.mark.parametrize("name", ["one_step", "push_forward", "fixed_weight"])
def test_strategy_equals_its_naive_twin(name: str, dims: int, loss: str) -> None:
    strategy, model = config_for(name, loss).make_strategy(), model_of(dims)
    for step in (0, 5, 19):
        u, truth, generator = window(dims, step)
        ours = strategy.loss(model, batch_of(u, truth, step, generator)).value
        assert_same(model, ours, naive(name, model, u, truth, step, loss))


@pytest.mark.parametrize(("dims", "loss"), [(1, "mse"), (2, "relative"), (3, "mse")])
def test_hero_equals_algorithm_1(dims: int, loss: str) -> None:
    """Over a short training in which the lag is refreshed twice and every candidate is selected at times."""
    strategy, model = config_for("hero", loss).make_strategy(), model_of(dims)
    lagged = None
    for step in range(9):
        if step >= START and (step - START) % REFRESH == 0:
            lagged = copy.deepcopy(model)
        u, truth, generator = window(dims, step, seed=step)
        ours = strategy.loss(model, batch_of(u, truth, step, generator)).value
        if step < START:
            twin = naive("push_forward", model, u, truth, step, loss)
        else:
            twin = naive_hero(model, lagged, u, truth, step, loss)
        assert_same(model, ours, twin)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.02 * torch.randn(p.shape, generator=Generator().manual_seed(step), dtype=p.dtype)


@pytest.mark.parametrize(
    ("strategy", "dims", "small"), [("push_forward", 1, 30), ("hero", 2, 180), ("fixed_weight", 1, 29), ("hero", 1, 0)]
)
def test_compiled_losses_have_the_value_and_the_gradients(
    strategy: str, dims: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled as a whole, a loss and its gradients are those of autograd, for new and for known windows."""
    plain, model = config_for(strategy, "relative").make_strategy(), model_of(dims)
    torch.compiler.reset()
    monkeypatch.setattr(base, "SMALL", small)
    whole = partial(torch.compile, dynamic=False, backend="eager", fullgraph=True)
    faster = config_for(strategy, "relative").make_strategy(whole)
    parameters = list(model.parameters())
    with torch.no_grad():
        model(window(dims, 0)[0])  # fills its caches
    for step in (0, START, START + 1):
        found = []
        for made in (plain, faster):
            u, truth, generator = window(dims, step)
            model.zero_grad()
            loss = made.loss(model, replace(batch_of(u, truth, step, generator), index=torch.arange(len(u))))
            assert (loss.gradients is None) == (made is plain or u.numel() > small)
            loss.backward(parameters, 0.5)
            # At the start the lagged operator is the model itself: rounding decides which of two equals is chosen.
            told = {name: x for name, x in loss.statistics.items() if step != START or name not in CANDIDATES}
            found.append((loss.value.detach(), [p.grad for p in parameters], told))
        torch.testing.assert_close(*found)


def series(steps: int) -> Batch:
    data = torch.randn(3, steps + 1, 1, 32, generator=Generator().manual_seed(1), dtype=torch.float64)
    return batch_of(data[:, 0], data[:, 1:], 0, Generator())


@pytest.mark.parametrize("loss", ["relative", "mse"])
@pytest.mark.parametrize("residual", [False, True])
def test_recurrent_training_equals_its_naive_twin(residual: bool, loss: str) -> None:
    config = tiny(strategy="recurrent", backbone__residual=residual, train__loss=loss, train__unroll=8)
    model, batch = config.build_operator().double(), series(8)
    backbone = model.backbone if residual else model

    def step(u: Tensor) -> Tensor:
        return u + backbone(u) if residual else backbone(u)

    twin = torch.zeros((), dtype=torch.float64)
    for u, truth in zip(batch.context.states[:, 0], batch.truth, strict=True):
        twin = twin + absolute(unroll(step, u, 8), truth, loss) / len(batch.truth)
    assert_same(model, config.make_strategy().loss(model, batch).value, twin)


@pytest.mark.parametrize(("other", "steps"), [("one_step", 1), ("push_forward", 5)])
def test_recurrent_training_is_another_strategy_at_its_ends(other: str, steps: int) -> None:
    """N = 1 is one_step, here in residual form, and N = K from any state is push_forward."""
    configs = [tiny(strategy=s, train__unroll=steps, backbone__residual=True) for s in ("recurrent", other)]
    model, batch = configs[0].build_operator().double(), series(steps)
    values = [config.make_strategy().loss(model, batch).value for config in configs]
    torch.testing.assert_close(*values, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(value, list(model.parameters())) for value in values]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)
    windows = [config.windows(torch.arange(44.0).reshape(4, 11, 1, 1)) for config in configs]
    assert torch.equal(windows[0](3).context.states, windows[1](3).context.states)


@pytest.mark.parametrize("starts", ["any", "first"])
def test_windows_from_the_first_state_alone(starts: str) -> None:
    config = tiny(strategy="recurrent", recurrent__starts=starts, train__unroll=8)
    times = torch.arange(11.0).expand(4, 11)[:, :, None, None]
    windows = config.windows(times)
    seen = {float(n) for step in range(3 * windows.per_epoch) for n in windows(step).context.states.flatten()}
    assert seen == ({0.0} if starts == "first" else {0.0, 1.0, 2.0})
    assert windows.count == (4 if starts == "first" else 12)


class Exact(nn.Module):
    """A solver as a model, with a parameter."""

    def __init__(self, stepper: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stepper, self.weight = stepper, nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.stepper(self.weight * x)


ONE_D = sorted(name for name, task in TASKS.items() if task.dims == 1)


@pytest.mark.parametrize("loss", ["relative", "mse"])
@pytest.mark.parametrize("through", [True, False])
@pytest.mark.parametrize("bundle", [1, 2])
def test_diverted_chain_equals_its_naive_twin(bundle: int, through: bool, loss: str) -> None:
    changes = {"diverted_chain__through_solver": through, "train__bundle": bundle, "train__loss": loss}
    config = tiny(strategy="diverted_chain", train__unroll=4, **changes)
    model, u0 = model_of(1, bundle=bundle), config.source.task.initial_states(3, 0)
    batch = batch_of(u0, torch.full((3, 4, 1, 32), torch.nan), 0, Generator())
    solver = config.source.stepper()
    twin = torch.zeros((), dtype=torch.float64)
    for u in u0:
        tau: list[Tensor] = []
        while len(tau) < 4:
            made = model((tau[-1] if tau else u)[None])
            tau += [made[:, j] for j in range(bundle)]
        targets = [solver((v if through else v.detach())[None])[0] for v in [u, *tau[:-1]]]
        twin = twin + absolute(tau, targets, loss) / len(u0)
    assert_same(model, config.make_strategy().loss(model, batch).value, twin)


@pytest.mark.parametrize("name", [*ONE_D, "decaying_turbulence", "swift_hohenberg"])
@pytest.mark.parametrize("through", [True, False])
def test_the_true_operator_has_no_loss(name: str, through: bool) -> None:
    small = {"task__resolution": 32} if TASKS[name].dims == 1 else {"task__resolution": 8, "task__cutoff": 1}
    small |= {"task__name": name, "backbone__modes": 2, "diverted_chain__through_solver": through}
    config = tiny(strategy="diverted_chain", task__substeps=TASKS[name].substeps, **small)
    u0 = config.source.task.initial_states(2, 0)
    batch = batch_of(u0, u0[:, None].expand(-1, 5, *u0.shape[1:]), 0, Generator())
    assert config.make_strategy().loss(Exact(config.source.stepper()), batch).value.item() < 1e-12


def refined(**changes: Any) -> RunConfig:
    values = {"strategy": "refiner", "refiner.noise": 1e-3}
    return make_config(overrides={**values, **{key.replace("__", "."): value for key, value in changes.items()}})


def fno(dims: int) -> Callable[[int, int], nn.Module]:
    return lambda inputs, outputs: FNO(inputs, outputs, width=3, modes=(2,) * dims, depth=1)


def transolver(dims: int) -> Callable[[int, int], nn.Module]:
    return lambda inputs, outputs: Transolver(inputs, outputs, dims, width=4, depth=1, heads=2, slices=3)


def operator_of(
    strategy: Refiner, backbone: Callable[[int, int], nn.Module], data: Tensor, seed: int = 0
) -> RefinedOperator:
    """The operator of `strategy`, fitted to `data` (trajectory, time, channel, *space) and in its precision."""
    torch.manual_seed(seed)
    model = strategy.operator(backbone, data.shape[2]).to(data.dtype)
    strategy.begin(model, data)
    return model


def data_of(dims: int = 1, channels: int = 1, samples: int = 5, steps: int = 4) -> Tensor:
    """Smooth changes around a mean that is not zero; channels of different size."""
    noise = torch.randn(samples, steps, channels, *(6,) * dims, generator=Generator().manual_seed(3)).double()
    scale = torch.tensor([2.0, 0.1]).double()[:channels].reshape(-1, *(1,) * dims)
    return scale * (1.5 + noise[:, :1] + 0.2 * noise.cumsum(dim=1))


def whole_batch_of(data: Tensor, history: int = 1, seed: int = 0) -> Batch:
    return Batch(Context(data[:, :history]), data[:, history:], 0, None, Generator().manual_seed(seed))


class Recorded(nn.Module):
    """A stand-in for the backbone that notes the (guess, index) of every call and answers by `answer(guess, k)`."""

    def __init__(self, answer: Callable[[Tensor, int], Tensor], steps: int = 3) -> None:
        super().__init__()
        self.answer, self.steps, self.calls = answer, steps, list[tuple[Tensor, int]]()
        self.weight = nn.Parameter(torch.zeros(()))  # a model has a device by its parameters

    def forward(self, x: Tensor) -> Tensor:
        k = round(self.steps * float(x[0, -1].flatten()[0]))
        self.calls.append((x[:, 1:2].clone(), k))
        return self.answer(x[:, 1:2], k)


# s: (t, β, ᾱ, noise std, coefficient of x̂₀, of the current sample, posterior variance)
PUBLISHED = {
    4e-7: [
        (3, 1, 0, 1, 0.99628191, 0, 7.42235e-3),
        (2, 7.368063e-3, 0.9925776516, 0.0861531, 0.99265908, 0.00734087, 5.42884e-5),
        (1, 5.428835e-5, 0.9999453117, 0.00739516, 0.99268602, 0.00731398, 3.97074e-7),
        (0, 4e-7, 0.9999996, 6.32456e-4, 1, 0, 0),
    ],
    2e-7: [
        (3, 1, 0, 1, 0.99705455, 0, 5.88223e-3),
        (2, 5.848035e-3, 0.9941177662, 0.0766957, 0.99416906, 0.00583091, 3.41995e-5),
        (1, 3.419952e-5, 0.9999656005, 0.00586511, 0.99418606, 0.00581394, 1.98837e-7),
        (0, 2e-7, 0.9999998, 4.47214e-4, 1, 0, 0),
    ],
}


def six_digits(published: Iterable[float]) -> Any:
    """What is equal to numbers that were rounded to six digits or more; zero is exact."""
    return pytest.approx(list(published), rel=5e-6, abs=0)


@pytest.mark.parametrize("s", PUBLISHED)
def test_the_tables_are_the_published_ones(s: float) -> None:
    form = Diffusion(3, s)
    for t, *row in PUBLISHED[s]:
        ours = [x[t].item() for x in (form.beta, form.alpha_bar, form.noise, form.c_0, form.c_s, form.variance)]
        assert ours == six_digits(row), t
    assert form.alpha_bar[-1] == 0
    assert form.noise[-1] == 1
    assert form.alpha_bar.dtype == torch.float64


def test_stored_runs_of_the_retired_form_are_refused_and_others_open(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for form in ("pdearena", "paper"):
        file.write_text(f'strategy = "refiner"\n\n[refiner]\nform = "{form}"\n')
        if form == "pdearena":
            assert make_config(file=file) == make_config(overrides={"strategy": "refiner"})
        else:
            with pytest.raises(HeroError, match=r"refiner\.form"):
                make_config(file=file)


def oracle(diffusion: Diffusion, y: Tensor) -> Callable[[Tensor, int], Tensor]:
    """The network that knows y and gives what finds it in one call."""
    signal, noise = diffusion.alpha_bar.sqrt(), (1 - diffusion.alpha_bar).sqrt()
    return lambda guess, t: (signal[t] * guess - y) / noise[t]


@pytest.mark.parametrize("s", [2e-7, 1e-2])
def test_a_network_that_knows_the_target_gives_the_target_for_every_seed(s: float) -> None:
    data = data_of()
    for seed in range(3):
        strategy = refined(refiner__noise=s, seed=seed).make_strategy()
        recorded = Recorded(lambda guess, k: guess)
        model = operator_of(strategy, lambda i, o, network=recorded: network, data)
        recorded.answer = oracle(model.diffusion, model.target(data[:, 0], data[:, 1]))
        made = strategy.stepper(model)(Context(data[:, :1]))
        torch.testing.assert_close(made, data[:, 1], rtol=1e-11, atol=1e-11)
        assert len({tuple(guess.flatten().tolist()) for guess, _ in recorded.calls}) == 4


def draws(batch: Batch, steps: int) -> tuple[list[int], Tensor]:
    """The indices and the noise of a loss, in the order in which they are drawn."""
    y = batch.truth[:, 0]
    k = torch.randint(steps + 1, (len(y),), generator=batch.generator).tolist()
    return k, torch.randn(y.shape, generator=batch.generator, dtype=y.dtype)


def naive_alpha_bar(t: int, steps: int, s: float) -> float:
    return math.prod(1 - s ** ((steps - i) / steps) for i in range(t + 1))


def naive_network(model: RefinedOperator, states: Tensor, guess: Tensor, k: int) -> Tensor:
    """f(z, guess, k) of one sample: `states` (H, channel, *space), normalised channel by channel."""
    parts = [(u[c] - model.mean[c]) / model.std[c] for u in states for c in range(len(u))]
    parts += [*guess, torch.full_like(guess[0], k / 3)]
    return model.backbone(torch.stack(parts)[None])[0]


def naive_y(model: RefinedOperator, states: Tensor, following: Tensor) -> Tensor:
    return torch.stack([(following[c] - states[-1][c]) / model.w[c] for c in range(len(following))])


def naive_loss(model: RefinedOperator, batch: Batch, s: float) -> Tensor:
    total: Tensor = torch.zeros((), dtype=torch.float64)
    for i, (k, epsilon) in enumerate(zip(*draws(batch, 3), strict=True)):
        states = batch.context.states[i]
        y = naive_y(model, states, batch.truth[i, 0])
        a = naive_alpha_bar(k, 3, s)
        guess = math.sqrt(a) * y + math.sqrt(1 - a) * epsilon
        target = math.sqrt(a) * epsilon - math.sqrt(1 - a) * y
        total = total + ((naive_network(model, states, guess, k) - target) ** 2).mean()
    return total / len(batch.truth)


def naive_step(model: RefinedOperator, states: Tensor, s: float, generator: Generator) -> Tensor:
    """One step of one trajectory, `states` (H, channel, *space)."""

    def noise() -> Tensor:
        return torch.randn(states[-1:].shape, generator=generator, dtype=states.dtype)[0]

    z = noise()
    for t in (3, 2, 1, 0):
        beta, a = s ** ((3 - t) / 3), naive_alpha_bar(t, 3, s)
        before = naive_alpha_bar(t - 1, 3, s)
        y = math.sqrt(a) * z - math.sqrt(1 - a) * naive_network(model, states, z, t)
        if t > 0:
            c_0, c_s = math.sqrt(before) * beta / (1 - a), math.sqrt(1 - beta) * (1 - before) / (1 - a)
            z = c_0 * y + c_s * z + math.sqrt((1 - before) * beta / (1 - a)) * noise()
    return torch.stack([states[-1][c] + model.w[c] * y[c] for c in range(len(y))])


VARIANT = {"train__normalise": True, "train__history": 2}


@pytest.mark.parametrize(
    ("dims", "variant", "backbone"),
    [(1, {}, fno), (2, VARIANT, fno), (3, {}, fno), (1, VARIANT, transolver), (2, {}, transolver)],
)
def test_loss_and_sampler_equal_their_naive_twins(
    dims: int, variant: dict[str, Any], backbone: Callable[[int], Callable[[int, int], nn.Module]]
) -> None:
    strategy, data = refined(**variant).make_strategy(), data_of(dims, channels=2)
    model, history = operator_of(strategy, backbone(dims), data), strategy.train.history

    ours = strategy.loss(model, whole_batch_of(data, history)).value
    twin = naive_loss(model, whole_batch_of(data, history), 1e-3)
    torch.testing.assert_close(ours, twin, rtol=1e-10, atol=1e-12)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [torch.autograd.grad(value, parameters, allow_unused=True) for value in (ours, twin)]
    for mine, other in zip(*gradients, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-10)

    one = data[:1, :history]
    with torch.no_grad():
        made = model(one.flatten(1, 2), Generator().manual_seed(4))
        expected = naive_step(model, one[0], 1e-3, Generator().manual_seed(4))
    torch.testing.assert_close(made[0], expected, rtol=1e-9, atol=1e-11)


def test_an_export_is_refused_for_the_numbers_that_it_could_not_draw() -> None:
    strategy, data = refined().make_strategy(), data_of()
    model = operator_of(strategy, fno(1), data)
    with pytest.raises(HeroError, match="hero predict"):
        torch.export.export(model, (data[:, 0],))
