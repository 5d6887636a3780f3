"""A trained operator and the states that it is examined on, for the doctor of a run and the anatomy of its error."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hero.data.trajectories import Context, Trajectories
from hero.evaluation.measure import Trained
from hero.method.norm import Norm
from hero.method.rollout import Stepper, steps_in


@dataclass(frozen=True, eq=False)
class Subject:
    """How the operator makes a step, the true trajectories, and how its errors are measured."""

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

    def state_size(self, states: Tensor) -> Tensor:
        """Norm of states (row, time, channel, *space) as they are measured, over all times, in float64.

        Squares of a state that blows up overflow long before the state.
        """
        return torch.linalg.vector_norm(self.norm.scaled(states.double()).flatten(1), dim=1)

    def size(self, error: Tensor) -> Tensor:
        """Norm of differences of states (row, time, channel, *space)."""
        rows = error.double()
        origin = self.norm.scaled(torch.zeros_like(rows))
        return torch.linalg.vector_norm((self.norm.scaled(rows) - origin).flatten(1), dim=1)
