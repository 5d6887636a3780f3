"""Training windows for anybody's loop or trainer, as a torch Dataset. `hero train` has its own order: `Batches`."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from hero.data.windows import masked_trajectories, states_of
from hero.errors import HeroError, check_number


class Windows(Dataset[Any]):
    """Every stretch of `steps` + 1 states of `trajectories`, a tensor or array (trajectory, time, channel, *space).

    An item is a tensor (steps + 1, channel, *space), or with `as_dict` {"x": its first state, "y": the others}, which
    neuralop and the Hugging Face trainer take. Points that are NaN in every state are a mask, and hold the mean of the
    others.
    """

    def __init__(self, trajectories: Any, steps: int, as_dict: bool = False) -> None:
        states = states_of(trajectories, "(trajectory, time, channel, *space)", 4)
        check_number("steps", steps, low=1, whole=True)
        if steps >= states.shape[1]:
            raise HeroError(
                f"trajectories of {states.shape[1]} states have no windows of {steps} steps; give fewer steps."
            )
        self.states, self.steps, self.as_dict = masked_trajectories(states).states, steps, as_dict
        self.starts = states.shape[1] - steps

    def __len__(self) -> int:
        return len(self.states) * self.starts

    def __getitem__(self, number: int) -> Tensor | dict[str, Tensor]:
        if not -len(self) <= number < len(self):  # iteration over a sequence ends here
            raise IndexError(number)
        trajectory, start = divmod(number % len(self), self.starts)
        window = self.states[trajectory, start : start + self.steps + 1]
        return {"x": window[0], "y": window[1:]} if self.as_dict else window
