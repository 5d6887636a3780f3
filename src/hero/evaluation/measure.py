"""The one measurement: roll out, compare with the truth and with doing nothing, sum up, store.

trained = Trained(run, data_dir)
found = trained.measure(trained.data("test"))
found.summary, found.baselines
found.write(run / "elsewhere.json", record)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hero.console import progress_bar
from hero.data import SPLITS
from hero.data.trajectories import Context, Trajectories
from hero.errors import unknown_name
from hero.method import measures, metrics
from hero.method.metrics import Metric, Scoring
from hero.method.norm import Norm
from hero.method.rollout import Stepper, counted, steps_in
from hero.method.rollout_errors import baseline_errors, rollout_errors, with_skill
from hero.records import Record
from hero.runs.folder import Run, choose_device, load_data, with_float64
from hero.runs.records import write_arrays

NO_METRICS: Mapping[str, Metric] = MappingProxyType({})


@dataclass(frozen=True)
class RolloutErrors:
    """Errors of rollouts, and of doing nothing on the same data."""

    errors: dict[str, Tensor]  # values (trajectory, step) by the name of their measure, on the CPU
    idle: Mapping[str, dict[str, Tensor]]  # values by the name of a baseline; empty where none was measured
    scoring: Scoring
    more: Mapping[str, Metric] = field(default_factory=dict)  # metrics in addition to those of the scoring

    @classmethod
    def of(cls, errors: dict[str, Tensor], idle: Mapping[str, dict[str, Tensor]]) -> RolloutErrors:
        """Errors of a rollout of any length, scored over as many steps as there are."""
        measure = measures.scored_by(errors)
        steps = min(measures.HORIZON, errors[measure].shape[1])
        return cls(with_skill(errors, idle), idle, Scoring(steps, measure))

    @property
    def score(self) -> Tensor:
        """The measure that rollouts are scored by, (trajectory, step)."""
        return self.errors[self.scoring.measure]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: values.numpy() for name, values in self.errors.items()}

    @property
    def summary(self) -> dict[str, float]:
        """Every metric that the rollout is long enough for."""
        return metrics.summarise(self.errors, self.scoring) | metrics.evaluated(self.more, self.errors)

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """The metrics of doing nothing."""
        return {name: metrics.summarise(found, self.scoring) for name, found in self.idle.items()}

    @property
    def numbers(self) -> dict[str, Any]:
        """The fields of a record of this measurement."""
        trajectories, steps = self.score.shape
        sizes = {"trajectories": trajectories, "steps": steps, "horizon": self.scoring.steps}
        return {**sizes, "metrics": self.summary, "baselines": self.baselines}

    def channels(self, names: Sequence[str], baseline: str | None = None) -> dict[str, dict[str, float]]:
        """The metrics of each channel, of the rollout or of a baseline; empty where errors are joint."""
        return metrics.by_channel(self.errors if baseline is None else self.idle[baseline], names, self.scoring)

    def idle_of(self, measure: str) -> dict[str, np.ndarray]:
        return {name: errors[measure].numpy() for name, errors in self.idle.items() if measure in errors}

    def write(self, path: Path, record: Record) -> None:
        """Store the errors beside `record`, which comes last: its presence says that the measurement is complete."""
        write_arrays(path.with_suffix(".npz"), self.arrays)
        record.write(path)


def measure(
    step: Stepper,
    data: Trajectories,
    norm: Norm,
    device: torch.device | str = "cpu",
    history: int = 1,
    *,
    steps: int | None = None,
    scoring: Scoring | None = None,
    more: Mapping[str, Metric] = NO_METRICS,
    baselines: bool = True,
    title: str = "rolling out",
) -> RolloutErrors:
    """Roll out from the first `history` states of each trajectory, by default to its end and scored over all of it."""
    steps = data.shape[1] - history if steps is None else steps
    with progress_bar(title, len(data) * steps) as advance:
        chosen = tuple(more.values())
        errors = rollout_errors(counted(step, advance), data, steps, device, history, chosen, norm)
    idle = baseline_errors(data, steps, history, norm) if baselines else {}
    scoring = scoring or Scoring(min(measures.HORIZON, steps), norm.measure)
    return RolloutErrors(with_skill(errors, idle), idle, scoring, more)


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)


class Trained:
    """A trained run, opened to be rolled out; its parts are made when they are first asked for."""

    def __init__(self, run: Path, data_dir: Path, baselines: bool = False, float64: bool = False) -> None:
        """With `baselines` the norm knows the mean state of the training data; `float64` is computed on its device."""
        self.run, self.data_dir, self.baselines, self.float64 = Run(run), data_dir, baselines, float64
        self.config = self.run.config
        self.history = self.config.train.history

    @cached_property
    def device(self) -> torch.device:
        device = choose_device(self.config.train.device)
        return with_float64(device) if self.float64 else device

    @cached_property
    def model(self) -> nn.Module:
        return self.run.operator(self.device)

    @cached_property
    def norm(self) -> Norm:
        return self.run.norm(self.data_dir, self.baselines)

    @cached_property
    def step(self) -> Stepper:
        """How the operator makes one step; where it draws random numbers they continue from call to call."""
        return self.fresh_step()

    def fresh_step(self) -> Stepper:
        """A step that begins with the first random numbers."""
        return self.run.stepper(self.model)

    def data(self, split: str) -> Trajectories:
        return load_data(self.config, split, self.data_dir, self.device)

    def measure(self, data: Trajectories, step: Stepper | None = None, **options: Any) -> RolloutErrors:
        """Roll out on `data`, by default scored as on the run's own; `options` are those of `measure`."""
        given: dict[str, Any] = {
            "scoring": self.config.scoring,
            "baselines": self.baselines,
            "title": self.run.name,
        } | options
        return measure(step or self.step, data, self.norm, self.device, self.history, **given)


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained operator, the true trajectories that it is examined on, and how its errors are measured."""

    step: Stepper
    data: Trajectories
    history: int = 1
    norm: Norm = field(default_factory=Norm)
    device: torch.device | str = "cpu"

    @classmethod
    def of(cls, trained: Trained, split: str, trajectories: int) -> Subject:
        """A run and the first trajectories of a split of its data."""
        data = trained.data(split)[:trajectories]
        return cls(trained.step, data, trained.history, trained.norm, trained.device)

    def window(self, n: int) -> Context:
        """The true context that ends with state n of the rollout; 0 is the initial one."""
        return self.data.window(n, self.history).to(self.device)

    def truth(self, n: int, count: int = 1) -> Tensor:
        """The true states n, n+1, .. of the rollout, as many as there are: (trajectory, count, channel, *space)."""
        first = n + self.history - 1
        return self.data.states[:, first : first + count].to(self.device)

    def call(self, context: Context) -> Tensor:
        """The states that one call makes, (trajectory, steps, channel, *space)."""
        return steps_in(self.step(context), context)

    def size(self, states: Tensor, other: Tensor | None = None) -> Tensor:
        """Norm of states (row, time, channel, *space) as they are measured, or of their difference from others.

        In float64: squares of a state that blows up overflow long before the state.
        """
        rows = self.norm.scaled(states.double())
        if other is not None:
            rows = rows - self.norm.scaled(other.double())
        return torch.linalg.vector_norm(rows.flatten(1), dim=1)


class StreamedErrors:
    """Errors of a rollout that arrives block by block in time, as if it had been measured at once.

    Values are (batch, time), float64; a trajectory that diverged once stays diverged.
    """

    def __init__(self, norm: Norm | None = None) -> None:
        self.norm = norm or Norm()
        self.measures = {one.name: one for one in metrics.measures_of(Scoring(measure=self.norm.measure))}
        self.parts: dict[str, list[Tensor]] = {name: [] for name in self.measures}
        self.gone: Tensor | None = None

    def __len__(self) -> int:
        return sum(part.shape[1] for part in next(iter(self.parts.values())))

    def add(self, prediction: Tensor, truth: Tensor) -> None:
        """The next steps of all trajectories, (batch, time, channel, *space)."""
        found = measures.measured(list(self.measures.values()), prediction, truth, self.norm)
        if self.gone is not None:
            for name, one in self.measures.items():
                found[name][self.gone] = one.diverged
        for name, values in found.items():
            self.parts[name].append(values)
        self.gone = ~found[self.norm.measure][:, -1].isfinite()  # infinite from divergence on, and nowhere else

    @property
    def values(self) -> dict[str, Tensor]:
        """All steps by the name of their measure; empty if there are none."""
        return {name: torch.cat(parts, dim=1) for name, parts in self.parts.items() if parts}
