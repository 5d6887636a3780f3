"""Training windows: every overlapping stretch of K+1 snapshots, in an order that depends on the seed alone."""

from __future__ import annotations

import hashlib

import torch
from torch import Generator, Tensor

from hero.rollout import Context
from hero.strategies import Batch


def seed_of(*key: object) -> int:
    """A 63-bit seed from any key, so that streams of random numbers are named instead of counted."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1


class Windows:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    Each epoch is a fresh permutation of all windows, cut into consecutive batches; a short last batch is used as it is.
    """

    def __init__(self, data: Tensor, unroll: int, batch: int, seed: int) -> None:
        self.data = data  # (trajectory, time, channel, *space), on the training device
        self.unroll, self.batch, self.seed = unroll, batch, seed
        self.starts = data.shape[1] - unroll
        self.count = data.shape[0] * self.starts
        self.per_epoch = -(-self.count // batch)
        self._epoch, self._order = -1, torch.empty(0)
        self._offsets = torch.arange(unroll + 1, device=data.device)
        self._generator = Generator(device=data.device)

    def indices(self, step: int) -> Tensor:
        """The window numbers of batch `step`, on the device of the data."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = Generator().manual_seed(seed_of(self.seed, "order", epoch))
            self._epoch = epoch
            self._order = torch.randperm(self.count, generator=generator).to(self.data.device)
        return self._order[position * self.batch : (position + 1) * self.batch]

    def __call__(self, step: int) -> Batch:
        """The batch of update `step`, with a generator seeded for that step."""
        index = self.indices(step)
        trajectory, start = index // self.starts, index % self.starts
        window = self.data[trajectory[:, None], start[:, None] + self._offsets]  # (batch, K+1, channel, *space)
        self._generator.manual_seed(seed_of(self.seed, "noise", step))
        return Batch(Context(window[:, :1]), window[:, 1:], step, self._generator)
