"""PDE-Refiner: its published tables, oracle networks, naive twins of loss and sampler in float64, and whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from hero.data.windows import Batch, Context
from hero.errors import HeroError
from hero.models import FNO, Transolver
from hero.runs.config import RunConfig, make_config
from hero.strategies.refiner import Diffusion, RefinedOperator, Refiner


def config_of(**changes: Any) -> RunConfig:
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


def batch_of(data: Tensor, history: int = 1, seed: int = 0) -> Batch:
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
        strategy = config_of(refiner__noise=s, seed=seed).make_strategy()
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
    strategy, data = config_of(**variant).make_strategy(), data_of(dims, channels=2)
    model, history = operator_of(strategy, backbone(dims), data), strategy.train.history

    ours = strategy.loss(model, batch_of(data, history)).value
    twin = naive_loss(model, batch_of(data, history), 1e-3)
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
    strategy, data = config_of().make_strategy(), data_of()
    model = operator_of(strategy, fno(1), data)
    with pytest.raises(HeroError, match="hero predict"):
        torch.export.export(model, (data[:, 0],))
