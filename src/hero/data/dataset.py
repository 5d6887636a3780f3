"""Training windows for anybody's loop or trainer, as a torch Dataset. `hero train` has its own order: `Batches`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from hero.data.windows import masked_trajectories
from hero.errors import HeroError


class Windows(Dataset[Any]):
    """Every stretch of `steps` + 1 states of `trajectories`, a tensor or array (trajectory, time, channel, *space).

    An item is a tensor (steps + 1, channel, *space), or with `as_dict` {"x": its first state, "y": the others}, which
    neuralop and the Hugging Face trainer take. Points that are NaN in every state are a mask, and hold the mean of the
    others.
    """

    def __init__(self, trajectories: Any, steps: int, as_dict: bool = False) -> None:
        states = torch.as_tensor(trajectories)
        if states.dim() < 4 or not 1 <= steps < states.shape[1]:
            raise HeroError(
                f"`trajectories` of shape {tuple(states.shape)} have no windows of {steps} steps; give (trajectory, "
                "time, channel, *space) and a number of steps from 1 to time - 1."
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
