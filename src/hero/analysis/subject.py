"""What the analyses of a run share: the operator with its true trajectories, and the shares of parts in a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hero.data.trajectories import Context, Trajectories
from hero.evaluation.measure import Trained
from hero.method.norm import Norm
from hero.method.rollout import Stepper, steps_in


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


def shares(values: Sequence[float]) -> list[float]:
    """Each of the values over their sum; infinite ones share all of it, and of nothing each has NaN."""
    if math.inf in values:
        values = [float(value == math.inf) for value in values]
    total = sum(values)
    return [value / total if total else math.nan for value in values]
