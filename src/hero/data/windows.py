"""Contexts, trajectories, and training windows: every stretch of H+K states, in an order that the seed decides.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from hero.errors import HeroError
from hero.parallel import Share
from hero.ranks import RANKS, Ranks
from hero.seeding import seed_of

AHEAD = 3
"""Batches that are read while an update runs, where the data stay in their file."""


@dataclass(frozen=True)
class Context:
    """z_n = (u_{n-H+1}, .., u_n; μ, f_n): the H most recent states, and what is known of the step from u_n to u_{n+1}.

    That is the conditioning μ, which is constant in time, and the forcing f, of which the step sees the value at n.
    Neither is ever perturbed.
    """

    states: Tensor  # (batch, H, channel, *space)
    mu: Tensor | None = None  # scalars (batch, p) or fields (batch, p, *space)
    forcing: Tensor | None = None  # f_n, f_{n+1}, ..: scalars (batch, time, q) or fields (batch, time, q, *space)

    def inputs(self) -> Tensor:
        """The input of a backbone: (batch, H*channel + p + q, *space)."""
        x = self.states.flatten(1, 2)
        if self.mu is None and self.forcing is None:
            return x
        parts = [x]
        for known in (self.mu, None if self.forcing is None else self.forcing[:, 0]):
            if known is not None and known.dim() == 2:
                parts.append(known[(..., *(None,) * (x.dim() - 2))].expand(*known.shape, *x.shape[2:]))
            elif known is not None:
                parts.append(known)
        return torch.cat(parts, dim=1)

    def each(self, function: Callable[[Tensor], Tensor]) -> Context:
        """The context with `function` of its tensors."""
        parts = (self.states, self.mu, self.forcing)
        return Context(*(None if part is None else function(part) for part in parts))  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> Context:
        """The same on `device`."""
        return self.each(lambda part: part.to(device))

    def check_forcing(self, steps: int) -> None:
        """HeroError where the forcing ends before `steps` steps are made."""
        if self.forcing is not None and self.forcing.shape[1] < steps:
            raise HeroError(
                f"the forcing is given for {self.forcing.shape[1]} steps, and a rollout of {steps} was asked for; give "
                "it for every step, or ask for fewer."
            )

    def advance(self, new_states: Tensor) -> Context:
        """The context after appending `new_states` (batch, steps, channel, *space); keeps the H most recent."""
        history, steps = self.states.shape[1], new_states.shape[1]
        if steps < history:
            new_states = torch.cat([self.states, new_states], dim=1)
        forcing = None if self.forcing is None else self.forcing[:, steps:]
        return replace(self, states=new_states[:, -history:], forcing=forcing)


class Statistics(NamedTuple):
    """Of training data; masked points do not count."""

    mean: Tensor
    std: Tensor
    """Of each channel, (channel,), float64."""
    mean_state: Tensor
    """The mean over trajectories and time, (channel, *space)."""
    low: Tensor
    high: Tensor
    """The smallest and the largest value of each channel."""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """States (trajectory, time, channel, *space) and μ, one row per trajectory: (trajectory, p) or with *space."""

    states: Tensor
    mu: Tensor | None = None
    mask: Tensor | None = None
    """True where there is a value, (channel, *space), the same in every state; None: everywhere."""
    forcing: Tensor | None = None
    """At the times of the states: (trajectory, time, q), or with *space."""

    @classmethod
    def of(cls, data: Trajectories | Tensor) -> Trajectories:
        """`data` as trajectories; a tensor has no conditioning."""
        return cls(data) if isinstance(data, Tensor) else data

    @classmethod
    def joined(cls, parts: Sequence[Trajectories]) -> Trajectories:
        """Several of one kind, in memory."""
        columns = ([getattr(part, name) for part in parts] for name in ("states", "mu", "forcing"))
        states, mu, forcing = (None if column[0] is None else torch.cat(column) for column in columns)
        return cls(states, mu, parts[0].mask, forcing)  # type: ignore[arg-type]

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
    def is_conditioned(self) -> bool:
        """Whether there is a μ or a forcing."""
        return self.mu is not None or self.forcing is not None

    @property
    def device(self) -> torch.device:
        """Where batches are wanted."""
        return self.states.device

    def __getitem__(self, part: slice) -> Trajectories:
        """Some of the trajectories, in memory."""
        return self._each(lambda values: values[part])

    def _each(self, function: Callable[[Tensor], Tensor]) -> Trajectories:
        mu, forcing = (None if values is None else function(values) for values in (self.mu, self.forcing))
        return replace(self, states=function(self.states), mu=mu, forcing=forcing)

    def frames(self, part: slice) -> Tensor:
        """Some states of all trajectories, in memory."""
        return self.states[:, part]

    def parts(self, size: int) -> Iterator[Trajectories]:
        """All trajectories, at most `size` at a time, in memory."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def first(self, history: int, device: torch.device | str | None = None) -> Context:
        """The first H states of each trajectory, and all that is known of the steps after them."""
        return self.window(0, history).to(device or self.device)

    def window(self, start: int, history: int, steps: int | None = None) -> Context:
        """H states of each trajectory from number `start` on, with the forcing of `steps` steps after them, or all."""
        rows, newest = torch.arange(len(self)), start + history - 1
        steps = self.forced_states - newest if steps is None else steps
        forcing = self.forcing_at(rows, torch.full_like(rows, newest), steps)
        return Context(self.frames(slice(start, start + history)), self.conditioning(rows), forcing)

    @property
    def forced_states(self) -> int:
        """States from the first on that can be stepped from: the forcing may continue after the states."""
        return self.shape[1] if self.forcing is None else self.forcing.shape[1]

    def conditioning(self, trajectory: Tensor) -> Tensor | None:
        """μ of each of the trajectories with these numbers."""
        return None if self.mu is None else self.mu[trajectory]

    def gather(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor:
        """Windows (batch, count, channel, *space) that begin at state `start` of each `trajectory`."""
        return self.states[trajectory[:, None], start[:, None] + torch.arange(count, device=start.device)]

    def forcing_at(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor | None:
        """The forcing (batch, count, q, ..) from the time of state `start` of each `trajectory` on."""
        if self.forcing is None:
            return None
        return self.forcing[trajectory[:, None], start[:, None] + torch.arange(count, device=start.device)]

    def to(self, device: torch.device | str) -> Trajectories:
        """The same on `device`."""
        return self._each(lambda values: values.to(device))

    def each(self) -> Iterator[Tensor]:
        """The states (1, time, channel, *space) of one trajectory after the other, on the host."""
        return (part.states.cpu() for part in self.parts(1))

    def each_mu(self) -> Iterator[Tensor]:
        """μ of one trajectory after the other, on the host."""
        return iter(() if self.mu is None else self.mu.cpu().split(1))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, over the valid points."""
        return self.statistics()[:2]

    def statistics(self) -> Statistics:
        """Statistics of all states; read once."""
        if "_statistics" not in vars(self):
            total = torch.zeros(self.shape[2:], dtype=torch.float64)
            low, high = (torch.full(self.shape[2:3], edge) for edge in (torch.inf, -torch.inf))
            rest = (0, 1, *range(3, len(self.shape)))

            def parts() -> Iterator[Tensor]:
                for part in self.each():
                    total.add_(part.double().sum(dim=(0, 1)))
                    low.copy_(torch.minimum(low, part.amin(rest)))
                    high.copy_(torch.maximum(high, part.amax(rest)))
                    yield part

            moments = streamed_moments(parts(), correction=1, mask=self.mask)
            state = (total / (self.shape[0] * self.shape[1])).float()
            object.__setattr__(self, "_statistics", Statistics(*moments, state, low, high))
        found: Statistics = vars(self)["_statistics"]
        return found

    def step_std(self) -> Tensor:
        """The std of the change per step, for each channel."""
        changes = (part.diff(dim=1) for part in self.each())
        return streamed_moments(changes, correction=1, mask=self.mask)[1]

    def each_forcing(self) -> Iterator[Tensor]:
        """The forcing of one trajectory after the other, on the host."""
        return iter(() if self.forcing is None else self.forcing.cpu().split(1))

    def mu_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel of μ, then of the forcing; 1 for a constant up to rounding."""
        parts = ((mu[:, None] for mu in self.each_mu()), self.each_forcing())
        found = [streamed_moments(part, correction=0) for part in parts]
        mean, std = (torch.cat([moment for moment in moments if moment.dim()]) for moments in zip(*found, strict=True))
        return mean, torch.where(std > 1e-6 * mean.abs(), std, 1.0)


def states_of(value: Any, layout: str, dims: int) -> Tensor:
    """Somebody's states as a tensor of at least `dims` axes; HeroError where they are none."""
    try:
        states = torch.as_tensor(value)
    except Exception as error:  # whatever the object raises
        raise HeroError(f"{type(value).__name__} cannot be read as states; give a tensor {layout}.") from error
    if states.dim() < dims or states.is_meta or states.is_sparse or not states.dtype.is_floating_point:
        kind = str(states.dtype).removeprefix("torch.")
        raise HeroError(f"states of shape {tuple(states.shape)} and type {kind} are not real numbers {layout}.")
    if 0 in states.shape:
        raise HeroError(f"states of shape {tuple(states.shape)} are empty; give at least one of each axis.")
    return states


def masked_trajectories(states: Tensor, mu: Tensor | None = None) -> Trajectories:
    """Trajectories whose points with NaN in every state are masked and hold the mean of the others.

    HeroError where other values are not finite.
    """
    outside = states.isnan().double().mean(dim=(0, 1)) > 0.5
    for found, fault in (
        (~states.isfinite() & ~outside, "is not finite in"),
        (~states.isnan() & outside, "has a value of"),
    ):
        if bool(found.any()):
            trajectory, frame, channel = found.nonzero()[0, :3].tolist()
            raise HeroError(
                f"trajectory {trajectory} {fault} channel {channel} at frame {frame}, and not at the same points in "
                "every state, as a mask would be; fill the values or leave the trajectory out."
            )
    if not bool(outside.any()):
        return Trajectories(states, mu)
    empty = outside.flatten(1).all(1)
    if bool(empty.any()):
        raise HeroError(f"channel {int(empty.nonzero()[0])} has no value at all, only NaN; leave it out.")
    mean = streamed_moments([states.nan_to_num(nan=0.0)], 0, ~outside)[0]
    filled = torch.where(outside, mean.reshape(-1, *(1,) * (states.dim() - 3)), states)
    return Trajectories(filled, mu, ~outside)


def streamed_moments(parts: Iterable[Tensor], correction: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, one part (trajectory, time, channel, *space) at a time.

    `mask` (channel, *space) is true at the points that count. Data in memory and data in a file take this one path, so
    that both give the same bits.
    """
    count, total, squares = torch.zeros(()).double(), torch.zeros(()).double(), torch.zeros(()).double()
    for part in parts:
        values = part.double().movedim(2, 0)  # (channel, trajectory, time, *space)
        number: Tensor | int = values[0].numel()
        if mask is not None:
            values = values * mask[:, None, None].cpu()
            number = mask.flatten(1).sum(1).cpu() * math.prod(part.shape[:2])
        values = values.flatten(1)
        count, total, squares = count + number, total + values.sum(1), squares + values.square().sum(1)
    mean = total / count
    variance = (squares - count * mean.square()) / (count - correction).clamp(min=1)
    return mean.float(), variance.clamp(min=0).sqrt().float()


@dataclass(frozen=True)
class Batch:
    """Training windows: contexts z_n, their true futures τ_*, the update s, and a generator seeded for it alone."""

    context: Context
    truth: Tensor  # (batch, K, channel, *space)
    step: int
    index: Tensor | None  # window numbers on the CPU, None where windows cannot be numbered
    generator: Generator
    share: Share | None = None  # the part of the batch that this is; None: all

    def rows(self, part: slice) -> Batch:
        """Some of the windows."""
        context, index = self.context.each(lambda values: values[part]), self.index
        return replace(self, context=context, truth=self.truth[part], index=None if index is None else index[part])


Read = tuple[Tensor, Share | None, Tensor, Tensor | None, Tensor | None]
"""Numbers of windows, their share of the batch, windows, μ, forcing."""


class Batches:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    Each epoch is a fresh permutation of all windows, cut into consecutive batches; a short last batch is used as it is.
    Of several processes each reads its share of every batch.
    """

    def __init__(
        self,
        data: Trajectories | Tensor,
        unroll: int,
        batch: int,
        seed: int,
        history: int = 1,
        first_only: bool = False,
        ranks: Ranks = RANKS,
    ) -> None:
        """`data` are trajectories on the training device; `first_only` keeps the windows that begin with one."""
        data = self.data = Trajectories.of(data)
        self.unroll, self.batch, self.seed, self.history, self.ranks = unroll, batch, seed, history, ranks
        self.starts = 1 if first_only else data.shape[1] - unroll - history + 1
        self.count = data.shape[0] * self.starts
        self.per_epoch = -(-self.count // batch)
        self._epoch, self._order, self._order_there = -1, torch.empty(0), torch.empty(0)
        self._generator = Generator(device=data.device)

    def _position(self, step: int) -> slice:
        """Where the batch is in the order of its epoch, which is drawn if it is another one than before."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = Generator().manual_seed(seed_of(self.seed, "order", epoch))
            self._epoch = epoch
            self._order = torch.randperm(self.count, generator=generator)
            # A file is read by numbers on the host, a tensor indexed by numbers that lie where it does.
            self._order_there = self._order.to(self.data.device) if self.data.is_in_memory else self._order
        return slice(position * self.batch, (position + 1) * self.batch)

    def indices(self, step: int) -> Tensor:
        """The window numbers of batch `step`, on the CPU."""
        position = self._position(step)  # first: it draws the order
        return self._order[position]

    def __call__(self, step: int) -> Batch:
        """The batch of update `step`, with a generator seeded for that step."""
        return self._batch(step, self._read(step))

    @contextmanager
    def ahead(self, steps: Iterable[int]) -> Iterator[Iterator[Batch]]:
        """The batches of these updates, one after the other.

        Where the data stay in their file, a thread reads the next ones meanwhile; it ends with the context. A call for
        each update gives the same bits: the update alone decides on the windows, and the generator is seeded when the
        batch is handed out.
        """
        if self.data.is_in_memory:
            yield map(self, steps)
            return
        pool = ThreadPoolExecutor(1, "hero-reads-ahead")
        try:
            yield self._read_ahead(pool, steps)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read_ahead(self, pool: ThreadPoolExecutor, steps: Iterable[int]) -> Iterator[Batch]:
        reading: deque[tuple[int, Future[Read]]] = deque()
        for step in steps:
            reading.append((step, pool.submit(self._read, step)))
            if len(reading) > AHEAD:
                yield self._taken(*reading.popleft())
        while reading:
            yield self._taken(*reading.popleft())

    def _taken(self, step: int, future: Future[Read]) -> Batch:
        """The batch that the thread has read, or the error that it met."""
        try:
            return self._batch(step, future.result())
        except HeroError:
            raise
        except Exception as error:  # whatever a library for files may raise
            raise HeroError(
                f"the training data could not be read at update {step} ({type(error).__name__}: {error}); check the "
                "file, then repeat the command to continue."
            ) from error

    def _read(self, step: int) -> Read:
        """All of a batch that comes from the data."""
        position = self._position(step)
        share = Share.of(self._order[position], self.ranks)
        ours = slice(None) if share is None else share.rows
        there = self._order_there[position][ours]
        trajectory, start = there // self.starts, there % self.starts
        window = self.data.gather(trajectory, start, self.history + self.unroll)  # (batch, H+K, channel, *space)
        forcing = self.data.forcing_at(trajectory, start + self.history - 1, self.unroll)
        return self._order[position][ours], share, window, self.data.conditioning(trajectory), forcing

    def _batch(self, step: int, read: Read) -> Batch:
        """A batch on the training device; pinned memory is copied while the host continues."""
        index, share, window, *known = read
        window = window.to(self.data.device, non_blocking=True)
        there = (None if part is None else part.to(self.data.device, non_blocking=True) for part in known)
        self._generator.manual_seed(seed_of(self.seed, "noise", step))
        context = Context(window[:, : self.history], *there)
        return Batch(context, window[:, self.history :], step, index, self._generator, share)
