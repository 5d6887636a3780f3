"""Variants of push-forward, curriculum, noise, bundling, averaged weights and recomputation, each against its words."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from conftest import tiny
from hero.data.windows import Batch, Context, Trajectories
from hero.method.norm import Norm
from hero.method.rollout import as_stepper, recomputed_unroll, rollout, unroll
from hero.models import FNO
from hero.training.memory import KeptForBackward
from hero.training.schedule import augment, noisy, unroll_length
from hero.training.update import AveragedWeights
from test_objective import Scale
from test_strategies import absolute, assert_same, batch_of, model_of, window
from test_train import assert_resumes

K = 4


def original() -> Any:
    return tiny(strategy="push_forward", push_forward__variant="original", train__loss="mse").make_strategy()


def original_gradient(x: float, ys: list[float], step: int) -> tuple[float, float]:
    model = Scale(0.7)
    truth = torch.tensor(ys, dtype=torch.float64).reshape(1, -1, 1, 1)
    batch = Batch(Context(torch.full((1, 1, 1, 1), x, dtype=torch.float64)), truth, step, None, Generator())
    loss = original().loss(model, batch).value
    loss.backward()
    return loss.item(), model.a.grad.item()


def test_the_original_trick_has_no_gradient_through_its_first_steps() -> None:
    """On f(x) = a x with two steps: x_1 = a x_0, x_2 = a x_1, squared errors; the other variants have twins below."""
    a, x, y1, y2 = 0.7, 1.3, 0.4, -0.2
    x1, e1, e2 = a * x, a * x - y1, a * a * x - y2
    drawn = sorted({original_gradient(x, [y1, y2], step) for step in range(50)})
    assert drawn == [pytest.approx((e1**2, 2 * e1 * x)), pytest.approx((e2**2, 2 * e2 * x1))]


@pytest.mark.parametrize("variant", ["full", "cut", "truncated", "last"])
@pytest.mark.parametrize("dims", [1, 2])
def test_variants_equal_their_naive_twins(variant: str, dims: int) -> None:
    model = model_of(dims)
    u, truth, generator = window(dims, 0)
    every = {"cut": 1, "truncated": 3}.get(variant, K)
    values = []
    for i in range(len(u)):
        v, tau = u[i], []
        for k in range(K):
            v = model((v.detach() if k and k % every == 0 else v)[None])[0]
            tau.append(v)
        kept = slice(-1, None) if variant == "last" else slice(None)
        values.append(absolute(tau[kept], truth[i, kept], "relative"))
    config = tiny(strategy="push_forward", push_forward__variant=variant, push_forward__cut_every=3)
    ours = config.make_strategy().loss(model, batch_of(u, truth, 0, generator)).value
    assert_same(model, ours, sum(values) / len(values))


def test_the_original_trick_draws_its_steps_evenly_and_again_after_a_resume() -> None:
    strategy = original()
    model, calls = Scale(1.0), []
    strategy.unroll = lambda m, z, steps: calls.append(steps) or z.states[:, -1:].expand(-1, steps, -1, -1) * m.a
    truth = torch.zeros(1, 5, 1, 1, dtype=torch.float64)
    drawn = []
    for step in range(2000):
        calls.clear()
        strategy.loss(model, Batch(Context(torch.ones(1, 1, 1, 1).double()), truth, step, None, Generator()))
        drawn.append(sum(calls) - 1)
    counts = Counter(drawn)
    assert set(counts) == set(range(5))
    assert max(abs(n - 400) for n in counts.values()) < 90  # five standard deviations


def test_curricula_need_no_state() -> None:
    grown = [unroll_length("steps", s, 100, 5, 0) for s in range(100)]
    assert grown == sorted(grown)
    assert Counter(grown) == dict.fromkeys(range(1, 6), 20)
    assert {unroll_length("fixed", s, 100, 5, 0) for s in range(100)} == {5}
    drawn = [unroll_length("random", s, 100, 5, 0) for s in range(2000)]
    assert set(drawn) == set(range(1, 6))
    assert max(abs(n - 400) for n in Counter(drawn).values()) < 90
    assert drawn == [unroll_length("random", s, 100, 5, 0) for s in range(2000)]
    assert drawn != [unroll_length("random", s, 100, 5, 1) for s in range(2000)]


def test_a_curriculum_shortens_the_batch_and_takes_its_number_away() -> None:
    u, truth, generator = window(1, 0)
    batch = Batch(Context(u[:, None]), truth, 3, torch.arange(5), generator)
    config = tiny(train__curriculum="steps", train__unroll=K)
    shorter = augment(batch, config.train, 0, Norm())
    assert torch.equal(shorter.truth, truth[:, :1])
    assert shorter.index is None
    assert augment(batch, tiny(train__unroll=K).train, 0, Norm()) is batch


def test_noise_of_channels_is_measured_by_their_standard_deviation() -> None:
    """An offset makes the noise no larger: 1 % of 1e5 ± 1e3 is 10."""
    u = torch.randn(40, 2, 2, 50, 50, generator=Generator().manual_seed(1))
    u[:, :, 1] = 1e5 + 1e3 * u[:, :, 1]
    norm = Norm(by_channel=True)
    norm.fit(Trajectories(u))
    moved = noisy(Context(u), 0.01, Generator().manual_seed(0), norm)
    for c, size in enumerate((0.01, 10.0)):
        assert float((moved.states - u)[:, :, c].std()) == pytest.approx(size, rel=0.02)
    joint = noisy(Context(u, mu=torch.ones(40, 3)), 0.05, Generator().manual_seed(0), Norm())
    change = (joint.states - u).flatten(2).norm(dim=2) / u.flatten(2).norm(dim=2)
    torch.testing.assert_close(change, torch.full_like(change, 0.05), rtol=0.1, atol=0)
    assert torch.equal(joint.mu, torch.ones(40, 3))


@pytest.mark.parametrize("history", [1, 2])
def test_a_bundle_makes_several_steps_per_call(history: int) -> None:
    torch.manual_seed(0)
    model = FNO(history, 3, width=3, modes=(2,), depth=1).double()
    states = torch.randn(2, history, 1, 8, dtype=torch.float64)
    tau = unroll(model, Context(states), 5)
    first = model(states.flatten(1, 2))
    past = torch.cat([states, first[:, :, None]], dim=1)[:, -history:]
    expected = torch.cat([first, model(past.flatten(1, 2))[:, :2]], dim=1)[:, :, None]
    torch.testing.assert_close(tau, expected)
    with torch.no_grad():
        torch.testing.assert_close(rollout(as_stepper(model), Context(states), 5), expected)


@pytest.mark.parametrize("dims", [1, 2])
def test_recomputation_changes_memory_and_nothing_else(dims: int) -> None:
    model = model_of(dims)
    u, truth, _ = window(dims, 0)
    results, kept = [], []
    for function in (unroll, recomputed_unroll):
        memory = KeptForBackward(model)
        with memory.hooks():
            tau = function(model, Context(u[:, None]), K)
        results.append(torch.autograd.grad((tau - truth).square().sum(), list(model.parameters())))
        kept.append(memory.nbytes())
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    assert kept[1] < kept[0] / 3


def test_averaged_weights_follow_their_formula() -> None:
    model = Scale(2.0)
    average = AveragedWeights(model, 0.995)
    with torch.no_grad():
        model.a.fill_(5.0)
    for _ in range(7):
        average.update(model)
    with average.applied(model):
        assert math.isclose(model.a.item(), 5 + 0.995**7 * (2 - 5), rel_tol=1e-12)
    assert model.a.item() == 5.0
    again = AveragedWeights(model, 0.995)
    again.load_state_dict(average.state_dict())
    assert torch.equal(again.shadow[0], average.shadow[0])
    assert not AveragedWeights(model, 0).state_dict()


def test_a_run_with_every_practice_is_resumed_to_the_same_bits(tmp_path: Path, data_dir: Path) -> None:
    practices = {"train__bundle": 2, "train__noise": 0.01, "train__curriculum": "random", "train__ema": 0.9}
    practices |= {"train__recompute": True, "backbone__residual": True, "hero__start": 6, "hero__refresh": 5}
    assert_resumes(tiny(**practices), 13, tmp_path, data_dir)
