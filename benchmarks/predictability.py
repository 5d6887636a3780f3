"""How far the truth itself can be predicted: two true states that differ a little, solved side by side.

An operator whose error per step is e cannot be right for longer than it takes a difference of size e to grow to the
distance of two unrelated states. Where differences shrink, nothing but the operator limits its rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch

from hero.data import get_task
from hero.records import Record

NOTHING: Mapping[str, float] = MappingProxyType({})

FIRST, LARGEST = 20, 0.1
"""The growth rate is fitted from this step, when a difference has found its direction, to this relative distance."""


class Predictability(Record):
    """The growth of small differences between true states of a task."""

    task: str
    settings: dict[str, float]
    """Coefficients that are not the task's own."""
    growth: float
    """Factor of the relative distance in one step, geometric mean over states and steps."""
    distances: tuple[float, ...]
    """Relative distance at each step from a first one of `epsilon`, geometric mean over states."""
    epsilon: float
    unrelated: float
    """Relative distance of two states of different trajectories, root of the mean square."""

    def steps_until(self, start: float, end: float) -> float:
        """Steps in which a difference grows from one relative size to another; infinite if it does not grow."""
        return math.log(end / start) / math.log(self.growth) if self.growth > 1 else math.inf


def measure_predictability(
    name: str,
    settings: Mapping[str, float] = NOTHING,
    states: int = 8,
    steps: int = 200,
    epsilon: float = 1e-4,
) -> Predictability:
    """Solve `states` initial states of the test kind and their neighbours in float64."""
    task = get_task(name, settings)
    solve = task.stepper()
    truth = task.initial_states(states, seed=10_000)
    for _ in range(task.warmup):
        truth = solve(truth)
    nudge = task.initial_states(states, seed=20_000)
    near = truth + epsilon * nudge * norm(truth) / norm(nudge)
    distances = []
    for _ in range(steps):
        truth, near = solve(truth), solve(near)
        distances.append(relative_distance(near, truth))
    curve = torch.stack(distances).clamp(min=1e-14).log().mean(1).exp().numpy()
    return Predictability(
        task=name,
        settings=dict(settings),
        growth=growth_rate(curve),
        distances=tuple(float(f"{value:.4g}") for value in curve),
        epsilon=epsilon,
        unrelated=unrelated_distance(truth),
    )


def norm(states: torch.Tensor) -> torch.Tensor:
    """‖u‖ of each state, with axes of length one."""
    return states.pow(2).sum(tuple(range(1, states.ndim)), keepdim=True).sqrt()


def relative_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """‖a - b‖ / ‖b‖ of each pair of states."""
    return (norm(a - b) / norm(b)).flatten()


def growth_rate(curve: Sequence[float] | np.ndarray) -> float:
    """The factor per step of a curve of distances, by a line through its logarithm before it saturates."""
    values = np.asarray(curve)
    small = np.nonzero(values > LARGEST)[0]
    end = int(small[0]) if small.size else len(values)
    start = min(FIRST, end // 2)
    if end - start < 2:
        return math.nan
    return float(np.exp(np.polyfit(np.arange(start, end), np.log(values[start:end]), 1)[0]))


def unrelated_distance(states: torch.Tensor) -> float:
    """Between each state and the next one of another trajectory."""
    return float(relative_distance(states.roll(1, 0), states).pow(2).mean().sqrt())
