"""Every strategy against a naive twin in float64, for value and every gradient."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data.windows import Batch, Context
from hero.method.candidates import CANDIDATES
from hero.method.distance import EPS
from hero.method.domain import SpectralNoise
from hero.models import FNO
from hero.runs.config import RunConfig
from hero.strategies import base

K, START, REFRESH, WARMUP = 4, 3, 2, 4


def config_for(strategy: str, loss: str) -> RunConfig:
    own = {"start": START, "refresh": REFRESH, "warmup": WARMUP, "lambda_max": 0.3, "margin": 0.05, "beta": 4.0}
    hero = {f"hero__{name}": value for name, value in own.items()}
    return tiny(strategy=strategy, train__loss=loss, train__unroll=K, hero__perturbation=0.1, **hero)


def model_of(dims: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return FNO(1, 1, width=3, modes=(2,) * dims, depth=1).double()


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
