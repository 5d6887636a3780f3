"""Training windows: every overlapping stretch of K+1 snapshots, in an order that depends on the seed alone."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from hero.method.rollout import Context
from hero.method.schedule import unroll_length
from hero.runs.config import RunConfig
from hero.seeding import seed_of
from hero.strategies import Batch


class Windows:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    Each epoch is a fresh permutation of all windows, cut into consecutive batches; a short last batch is used as it is.
    """

    def __init__(
        self,
        data: Tensor,
        unroll: int,
        batch: int,
        seed: int,
        history: int = 1,
        mu: Tensor | None = None,
        first_only: bool = False,
    ) -> None:
        """`data` is (trajectory, time, channel, *space) on the training device; `mu` is one row per trajectory;
        `first_only` keeps the windows that begin with a trajectory."""
        self.data, self.mu = data, mu
        self.unroll, self.batch, self.seed, self.history = unroll, batch, seed, history
        self.starts = 1 if first_only else data.shape[1] - unroll - history + 1
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


def training_windows(config: RunConfig, data: Tensor) -> Windows:
    """The windows of a run on its training data."""
    train = config.train
    first_only = config.strategy == "recurrent" and config.recurrent.starts == "first"
    return Windows(data, train.unroll, train.batch, config.seed, train.history, first_only=first_only)


def vary(batch: Batch, config: RunConfig) -> Batch:
    """The batch after the curriculum on its length and the noise on its input; both need no state beyond the step.

    A window that changes from epoch to epoch has no number any more: what is kept per window would be wrong.
    """
    train = config.train
    if train.curriculum != "fixed":
        length = unroll_length(train.curriculum, batch.step, train.steps, train.unroll, config.seed)
        batch = replace(batch, truth=batch.truth[:, :length], index=None)
    if train.noise:
        batch = replace(batch, context=noisy(batch.context, train.noise, batch.generator), index=None)
    return batch


def noisy(context: Context, noise: float, generator: Generator) -> Context:
    """u + σ rms(u) ξ for every state of the context, ξ standard normal; the conditioning stays as it is."""
    u = context.states
    rms = u.square().mean(dim=tuple(range(2, u.dim())), keepdim=True).sqrt()
    xi = torch.randn(u.shape, generator=generator, device=u.device, dtype=u.dtype)
    return replace(context, states=u + noise * rms * xi)
