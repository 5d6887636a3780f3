"""Contexts, trajectories, and training windows: every stretch of H+K states, in an order that the seed decides.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from hero.seeding import seed_of


@dataclass(frozen=True)
class Context:
    """z_n = (u_{n-H+1}, .., u_n; μ): the H most recent states and the conditioning μ, which is never perturbed."""

    states: Tensor  # (batch, H, channel, *space)
    mu: Tensor | None = None  # scalars (batch, p) or fields (batch, p, *space)

    def inputs(self) -> Tensor:
        """The input of a backbone: (batch, H*channel + p, *space)."""
        x = self.states.flatten(1, 2)
        if self.mu is None:
            return x
        mu = self.mu
        if mu.dim() == 2:
            mu = mu[(..., *(None,) * (x.dim() - 2))].expand(*mu.shape, *x.shape[2:])
        return torch.cat([x, mu], dim=1)

    def to(self, device: torch.device | str) -> Context:
        """The same on `device`."""
        return Context(self.states.to(device), None if self.mu is None else self.mu.to(device))

    def advance(self, new_states: Tensor) -> Context:
        """The context after appending `new_states` (batch, steps, channel, *space); keeps the H most recent."""
        history = self.states.shape[1]
        if new_states.shape[1] < history:
            new_states = torch.cat([self.states, new_states], dim=1)
        return replace(self, states=new_states[:, -history:])


@dataclass(frozen=True, eq=False)
class Trajectories:
    """States (trajectory, time, channel, *space) and μ, one row per trajectory: (trajectory, p) or with *space."""

    states: Tensor
    mu: Tensor | None = None

    @classmethod
    def of(cls, data: Trajectories | Tensor) -> Trajectories:
        """`data` as trajectories; a tensor has no conditioning."""
        return cls(data) if isinstance(data, Tensor) else data

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """(trajectories, states of each, channels, *space)."""
        return tuple(self.states.shape)

    @property
    def is_in_memory(self) -> bool:
        """Whether all states are at hand."""
        return True

    @property
    def device(self) -> torch.device:
        """Where windows are."""
        return self.states.device

    def __getitem__(self, part: slice) -> Trajectories:
        """Some of the trajectories, in memory."""
        return Trajectories(self.states[part], None if self.mu is None else self.mu[part])

    def frames(self, part: slice) -> Tensor:
        """Some states of all trajectories, in memory."""
        return self.states[:, part]

    def parts(self, size: int) -> Iterator[Trajectories]:
        """All trajectories, at most `size` at a time, in memory."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def first(self, history: int, device: torch.device | str | None = None) -> Context:
        """The first H states of each trajectory and their conditioning."""
        mu = None if self.mu is None else self.mu.to(device or self.device)
        return Context(self.frames(slice(history)).to(device or self.device), mu)

    def gather(self, trajectory: Tensor, start: Tensor, offsets: Tensor) -> Tensor:
        """Windows (batch, len(offsets), channel, *space) that begin at state `start` of each `trajectory`."""
        return self.states[trajectory[:, None], start[:, None] + offsets]

    def to(self, device: torch.device | str) -> Trajectories:
        """The same on `device`."""
        return Trajectories(self.states.to(device), None if self.mu is None else self.mu.to(device))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel."""
        values = self.states.movedim(2, 0).flatten(1)
        return values.mean(dim=1), values.std(dim=1)

    def step_std(self) -> Tensor:
        """Standard deviation of the change per step, for each channel."""
        return self.states.diff(dim=1).movedim(2, 0).flatten(1).std(dim=1)

    def mu_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel of μ; 1 for one that is constant."""
        assert self.mu is not None
        values = self.mu.movedim(1, 0).flatten(1)
        std = values.std(dim=1, correction=0)
        return values.mean(dim=1), torch.where(std > 0, std, 1.0)


@dataclass(frozen=True)
class Batch:
    """Training windows: contexts z_n, their true futures τ_*, the update s, and a generator seeded for it alone."""

    context: Context
    truth: Tensor  # (batch, K, channel, *space)
    step: int
    index: Tensor | None  # window numbers on the CPU, None where windows cannot be numbered
    generator: Generator


class Windows:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    Each epoch is a fresh permutation of all windows, cut into consecutive batches; a short last batch is used as it is.
    """

    def __init__(
        self,
        data: Trajectories | Tensor,
        unroll: int,
        batch: int,
        seed: int,
        history: int = 1,
        first_only: bool = False,
    ) -> None:
        """`data` are trajectories on the training device; `first_only` keeps the windows that begin with one."""
        data = self.data = Trajectories.of(data)
        self.unroll, self.batch, self.seed, self.history = unroll, batch, seed, history
        self.starts = 1 if first_only else data.shape[1] - unroll - history + 1
        self.count = data.shape[0] * self.starts
        self.per_epoch = -(-self.count // batch)
        self._epoch, self._order, self._order_there = -1, torch.empty(0), torch.empty(0)
        self._offsets = torch.arange(history + unroll, device=data.device)
        self._generator = Generator(device=data.device)

    def _position(self, step: int) -> slice:
        """Where the batch is in the order of its epoch, which is drawn if it is another one than before."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = Generator().manual_seed(seed_of(self.seed, "order", epoch))
            self._epoch = epoch
            self._order = torch.randperm(self.count, generator=generator)
            self._order_there = self._order.to(self.data.device)
        return slice(position * self.batch, (position + 1) * self.batch)

    def indices(self, step: int) -> Tensor:
        """The window numbers of batch `step`, on the CPU."""
        position = self._position(step)  # first: it draws the order
        return self._order[position]

    def __call__(self, step: int) -> Batch:
        """The batch of update `step`, with a generator seeded for that step."""
        position = self._position(step)
        index, there = self._order[position], self._order_there[position]
        trajectory, start = there // self.starts, there % self.starts
        window = self.data.gather(trajectory, start, self._offsets)  # (batch, H+K, channel, *space)
        mu = self.data.mu
        context = Context(window[:, : self.history], None if mu is None else mu[trajectory])
        self._generator.manual_seed(seed_of(self.seed, "noise", step))
        return Batch(context, window[:, self.history :], step, index, self._generator)
