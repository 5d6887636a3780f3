"""Training windows: every stretch of H+K states, in an order that the seed decides; or as a torch Dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset

from hero.data.trajectories import Context as Context
from hero.data.trajectories import Trajectories as Trajectories
from hero.data.trajectories import masked_trajectories, states_of
from hero.errors import HeroError, check_number
from hero.parallel import Share
from hero.ranks import RANKS, Ranks
from hero.seeding import seed_of

AHEAD = 3  # batches that are read while an update runs, where the data stay in their file


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
        context, index = self.context.each(lambda values: values[part]), self.index
        return replace(self, context=context, truth=self.truth[part], index=None if index is None else index[part])


Read = tuple[Tensor, Share | None, Tensor, Tensor | None, Tensor | None]  # numbers, share, windows, μ, forcing


class Batches:
    """Batches by step number. Stateless: batch s is the same whether reached in one go or after a resume.

    An epoch is a fresh permutation of all windows, cut into batches, the last one short; processes share each batch.
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

    def __call__(self, step: int) -> Batch:
        """The batch of update `step`: its windows follow from it alone, and its generator is seeded as it is made."""
        return self._batch(step, self._read(step))

    @contextmanager
    def ahead(self, steps: Iterable[int]) -> Iterator[Iterator[Batch]]:
        """The batches of these updates, one after the other, with the same bits as by a call for each.

        Where the data stay in their file, a thread reads the next ones meanwhile; it ends with the context.
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
        epoch, number = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = Generator().manual_seed(seed_of(self.seed, "order", epoch))
            self._epoch, self._order = epoch, torch.randperm(self.count, generator=generator)
            # A file is read by numbers on the host, a tensor indexed by numbers that lie where it does.
            self._order_there = self._order.to(self.data.device) if self.data.is_in_memory else self._order
        position = slice(number * self.batch, (number + 1) * self.batch)
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


class Windows(Dataset[Any]):
    """Every stretch of `steps` + 1 states of `trajectories`, a tensor or array (trajectory, time, channel, *space).

    They are for anybody's loop or trainer; `hero train` has its own order, `Batches`. An item is a tensor (steps + 1,
    channel, *space), or with `as_dict` {"x": its first state, "y": the others}, which neuralop and the Hugging Face
    trainer take. Points that are NaN in every state are a mask, and hold the mean of the others.
    """

    def __init__(self, trajectories: Any, steps: int, as_dict: bool = False) -> None:
        states = states_of(trajectories, "(trajectory, time, channel, *space)", 4)
        check_number("steps", steps, low=1, whole=True)
        if steps >= states.shape[1]:
            raise HeroError(f"trajectories of {states.shape[1]} states have no windows of {steps} steps; give fewer.")
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
