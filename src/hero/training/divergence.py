"""Training that leaves the finite range: how it is noticed, and how it goes back to the last good state."""

from __future__ import annotations

import torch
from torch import Tensor

from hero.errors import HeroError

FACTOR = 0.5
"""The learning rate after a back-off, over the one before."""
LIMIT = 10
"""Back-offs of a run; 2^-10 of a learning rate is below every sensible one."""
BLOWN_UP = 1000
"""A loss above this many times the first makes a run back off: waiting for infinity would keep useless states."""
CHECK_EVERY = 50
"""Most updates between two checks where a check waits for the device."""


class DivergedError(HeroError):
    """Loss, gradient or weights are not finite; noticed after `step` updates."""

    def __init__(self, step: int, kept: bool) -> None:
        self.step = step
        super().__init__(
            f"training became non-finite before step {step}; lower train.lr, clip with train.clip=1 or less, or set "
            f"train.on_divergence=back_off{'; the last checkpoint is kept' if kept else ''}."
        )


def has_blown_up(loss: float, first: float) -> bool:
    """Whether a loss is so far above the first one that a run which backs off is to do so."""
    return abs(loss) > BLOWN_UP * abs(first)


class NormCheck:
    """Whether the norms of the gradients are finite: at every update on the CPU, elsewhere every few updates."""

    def __init__(self, device: torch.device, log_every: int) -> None:
        self.every = 1 if device.type == "cpu" else min(log_every, CHECK_EVERY)
        self._norms: list[Tensor] = []

    def are_finite(self, done: int, norm: Tensor | float) -> bool:
        """Add the norm of update `done`; True as well where it is not looked at yet."""
        self._norms.append(torch.as_tensor(norm))
        if done % self.every:
            return True
        norms, self._norms = torch.stack(self._norms), []
        return bool(norms.isfinite().all())
