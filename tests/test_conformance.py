"""Conformance of the strategies: one is tested by being registered.

Every strategy trains in 1D and on one of the other networks; HERO trains on all of them.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from conftest import tiny
from hero.data.windows import Batches
from hero.method.rollout import rollout
from hero.models import BACKBONES
from hero.runs.config import RunConfig
from hero.strategies import STRATEGIES, Strategy
from hero.training.schedule import augment
from test_backbones import SMALL

STEPS, STOP = 6, 4
TASKS = {1: "burgers", 2: "decaying_turbulence", 3: "swift_hohenberg"}


def config_for(strategy: str, backbone: str, dims: int) -> RunConfig:
    """A run of a few updates on a tiny grid: whatever a strategy does later begins before and after the stop."""
    task = {"task.name": TASKS[dims], "task.resolution": 8 if dims == 3 else 12, "task.cutoff": 1 if dims == 3 else 2}
    network = {"backbone.modes": None, "backbone.name": backbone, **SMALL[backbone]}
    data = {"data.train_trajectories": 3, "data.train_steps": 6, "train.batch": 4, "train.unroll": 3}
    own = {"train.steps": STEPS, "hero.start": 1, "hero.refresh": 2, "task.warmup": 0}
    return tiny(strategy=strategy, **task, **network, **data, **own)


def begin(config: RunConfig) -> tuple[Strategy, nn.Module, Batches]:
    """What training sets up, on smooth data of order one."""
    u = config.source.task.initial_states(3, seed=1).float()
    data = torch.stack([u * (1 - 0.05 * k) for k in range(7)], dim=1)
    return config.make_strategy(), config.build_operator(), config.windows(data)


def update(strategy: Strategy, model: nn.Module, windows: Batches, steps: range) -> list[Tensor]:
    """Plain gradient descent; returns the weights."""
    for step in steps:
        batch = augment(windows(step), strategy.train, strategy.seed, strategy.norm)
        value = strategy.loss(model, batch).value
        gradients = torch.autograd.grad(value, list(model.parameters()))
        assert all(bool(g.isfinite().all()) for g in gradients)
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p -= 0.02 * g
    return [p.detach().clone() for p in model.parameters()]


NETWORKS = [("fno", 3), *((name, 2) for name in sorted(BACKBONES))]
CASES = [(name, "fno", 1) for name in sorted(STRATEGIES)]
CASES += [(name, *NETWORKS[place % len(NETWORKS)]) for place, name in enumerate(sorted(STRATEGIES.keys() - {"hero"}))]
CASES += [("hero", *network) for network in NETWORKS]


@pytest.mark.parametrize(("strategy", "backbone", "dims"), CASES)
def test_gradients_are_finite_a_resume_gives_the_same_bits_and_the_stepper_rolls_out(
    strategy: str, backbone: str, dims: int
) -> None:
    config = config_for(strategy, backbone, dims)
    one, model, windows = begin(config)
    one.begin(model, windows.data)
    update(one, model, windows, range(STOP))
    kept = copy.deepcopy((one.state_dict(), model.state_dict()))
    whole = update(one, model, windows, range(STOP, STEPS))

    second, other, windows = begin(config)
    other.load_state_dict(kept[1])
    second.load_state_dict(kept[0], other)
    second.begin(other, windows.data)
    resumed = update(second, other, windows, range(STOP, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))

    with torch.no_grad():
        rolled = [
            rollout(made.stepper(network.eval()), windows.data.first(1), 3)
            for made, network in ((one, model), (second, other))
        ]
    assert rolled[0].shape == (3, 3, *windows.data.shape[2:])
    assert bool(rolled[0].isfinite().all())
    assert torch.equal(*rolled)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_history_normalisation_and_the_practices(strategy: str) -> None:
    """Two states of history, noise and a curriculum go with every strategy."""
    config = config_for(strategy, "fno", 1)
    train = config.train.model_copy(
        update={"history": 2, "normalise": True, "noise": 0.01, "curriculum": "random", "recompute": True}
    )
    config = replace(config, train=train)
    made, model, windows = begin(config)
    made.begin(model, windows.data)
    update(made, model, windows, range(STEPS))
