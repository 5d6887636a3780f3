"""Roll out and measure: the errors of an operator, and of doing nothing, on trajectories of any number and size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from hero.data.trajectories import Trajectories
from hero.method.measures import Measure, measured, skill_ratio, vrmse
from hero.method.metrics import METRICS, Metric, Scoring, measures_of
from hero.method.norm import Norm
from hero.method.rollout import Stepper, rollout

CHUNK_VALUES = 2**26  # numbers of rollouts in float32 that are kept at once, before they are measured


def rollout_errors(
    step: Stepper,
    data: Trajectories | Tensor,
    steps: int,
    device: torch.device | str,
    history: int = 1,
    more: Sequence[Metric] = (),
    norm: Norm | None = None,
    measures: Sequence[Measure] = (),
) -> dict[str, Tensor]:
    """Roll out from the first H states of each trajectory of `data`: values (batch, steps) by the name of a measure,
    on the CPU, of all measures that the metrics of the `norm` and `more` need, or of `measures` alone.
    """

    def predict(part: Trajectories) -> Tensor:
        with torch.no_grad():
            return rollout(step, part.first(history, device), steps).cpu()

    return _errors_of(predict, data, steps, history, norm or Norm(), more, measures)


def baseline_errors(data: Trajectories | Tensor, steps: int, history: int, norm: Norm) -> dict[str, dict[str, Tensor]]:
    """The errors of doing nothing: `persistence` keeps the last given state, `mean` is the training data's mean state.

    Without a mean state, or on another grid than its own, there is no `mean`.
    """

    def persistence(part: Trajectories) -> Tensor:
        return part.frames(slice(history - 1, history)).cpu().expand(-1, steps, *(-1,) * (len(part.shape) - 2))

    found = {"persistence": _errors_of(persistence, data, steps, history, norm)}
    state, shape = norm.mean_state, data.shape[2:]
    if state is not None and tuple(state.shape) == tuple(shape):
        mean = state.cpu()
        found["mean"] = _errors_of(lambda part: mean.expand(len(part), steps, *shape), data, steps, history, norm)
    return found


def with_skill(errors: dict[str, Tensor], baselines: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """`errors` with the ratio of VRMSE to the better baseline at each step, where it is measured."""
    if vrmse.name not in errors or not baselines:
        return errors
    own, *others = (found[vrmse.name] for found in (errors, *baselines.values()))
    least = reduce(lambda a, b: a.minimum(b), others)
    ratio = (own / least).masked_fill(own == 0, 0.0)
    return errors | {skill_ratio.name: ratio.nan_to_num(nan=math.inf, posinf=math.inf)}


def _errors_of(
    predict: Callable[[Trajectories], Tensor],
    data: Trajectories | Tensor,
    steps: int,
    history: int,
    norm: Norm,
    more: Sequence[Metric] = (),
    measures: Sequence[Measure] = (),
) -> dict[str, Tensor]:
    """Measure predictions of the steps after the first H states, some trajectories at a time."""
    scoring = Scoring(steps, norm.measure)
    wanted = list(measures) or measures_of(scoring, (*METRICS.values(), *more) if scoring.measure == "nrmse" else more)
    data, parts = Trajectories.of(data), []
    for part in data.parts(max(1, CHUNK_VALUES // (steps * math.prod(data.shape[2:])))):
        parts.append(measured(wanted, predict(part), part.states[:, history : history + steps], norm))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
