"""Training windows: every overlapping stretch of K+1 snapshots, in an order that depends on the seed alone."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from hero.rollout import Context
from hero.seeding import seed_of
from hero.strategies import Batch


class Windows:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    Each epoch is a fresh permutation of all windows, cut into consecutive batches; a short last batch is used as it is.
    """

    def __init__(
        self, data: Tensor, unroll: int, batch: int, seed: int, history: int = 1, mu: Tensor | None = None
    ) -> None:
        """`data` is (trajectory, time, channel, *space) on the training device; `mu` is one row per trajectory."""
        self.data, self.mu = data, mu
        self.unroll, self.batch, self.seed, self.history = unroll, batch, seed, history
        self.starts = data.shape[1] - unroll - history + 1
        self.count = data.shape[0] * self.starts
        self.per_epoch = -(-self.count // batch)
        self._epoch, self._order, self._order_there = -1, torch.empty(0), torch.empty(0)
        self._offsets = torch.arange(history + unroll, device=data.device)
        self._generator = Generator(device=data.device)

    def _position(self, step: int) -> slice:
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = Generator().manual_seed(seed_of(self.seed, "order", epoch))
            self._epoch = epoch
            self._order = torch.randperm(self.count, generator=generator)
            self._order_there = self._order.to(self.data.device)
        return slice(position * self.batch, (position + 1) * self.batch)

    def indices(self, step: int) -> Tensor:
        """The window numbers of batch `step`, on the CPU."""
        position = self._position(step)  # first: it renews the order
        return self._order[position]

    def __call__(self, step: int) -> Batch:
        """The batch of update `step`, with a generator seeded for that step."""
        index, there = self.indices(step), self._order_there[self._position(step)]
        trajectory, start = there // self.starts, there % self.starts
        window = self.data[trajectory[:, None], start[:, None] + self._offsets]  # (batch, H+K, channel, *space)
        context = Context(window[:, : self.history], None if self.mu is None else self.mu[trajectory])
        self._generator.manual_seed(seed_of(self.seed, "noise", step))
        return Batch(context, window[:, self.history :], step, index, self._generator)
