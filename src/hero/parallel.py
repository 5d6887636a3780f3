"""One run in several processes: each computes its share of every batch, and numbers of the whole batch are combined.

All draw the same windows and random numbers with the same generators, and take their rows of them. Gradients, losses
and statistics are means over samples, so that the weighted sum over the shares is the number of one process. Without
torchrun every function here returns its argument, or the result of the function that it is given.

DistributedDataParallel is not used: compiled unrolls, lagged copies and functional calls do not pass through the
`forward` that it wraps.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

from hero.errors import HeroError
from hero.ranks import RANKS, Ranks

T = TypeVar("T")

SILENT = timedelta(minutes=30)
"""How long a process waits for a number of another one; a process that ends is noticed at once."""
WORKING = timedelta(days=7)  # how long the others wait while the first one solves, measures or validates
STORE = "HERO_STORE"  # the variable with the file at which processes of one machine meet, in the place of an open port
LOST = "another process of this run has ended or is out of reach; repeat the command to continue from its checkpoint."


@dataclass(frozen=True)
class Share:
    """Rows `first` to `first + count` of a batch of `total` windows; `index` numbers the windows of the whole batch."""

    first: int
    count: int
    total: int
    index: Tensor

    @classmethod
    def of(cls, index: Tensor, ranks: Ranks) -> Share | None:
        """Shares of sizes that differ by at most one; None where one process computes all."""
        if ranks.count == 1:
            return None
        total = len(index)
        first, stop = (rank * total // ranks.count for rank in (ranks.rank, ranks.rank + 1))
        return cls(first, stop - first, total, index)

    @property
    def rows(self) -> slice:
        """Our rows; one that is not ours where none is, because no network takes an empty batch."""
        return slice(self.first, self.first + self.count) if self.count else slice(0, 1)

    def weigh(self, mean: Tensor) -> Tensor:
        """The part of a mean over our rows in the mean over the whole batch."""
        return mean * (self.count / self.total) if self.count else torch.zeros_like(mean)


_share: Share | None = None


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Within, tensors with a batch axis hold the rows of `share`; None: the whole batch, as everywhere else."""
    global _share
    before, _share = _share, share
    try:
        yield
    finally:
        _share = before


_part: tuple[slice, int] | None = None


@contextmanager
def drawing(rows: slice, total: int) -> Iterator[None]:
    """Within, `draw` takes these rows of `total`: a batch that one process computes in parts."""
    global _part
    _part = rows, total
    try:
        yield
    finally:
        _part = None


def draw(function: Callable[..., Tensor], shape: Sequence[int], **how: Any) -> Tensor:
    """`function(shape, **how)`, random numbers for each sample: drawn for the whole batch; we take our rows."""
    part = _part if _share is None else (_share.rows, _share.total)
    if part is None:
        return function(tuple(shape), **how)
    rows, total = part
    return function((total, *shape[1:]), **how)[rows]


def batch_mean(mean: Tensor) -> Tensor:
    """The mean over the whole batch, without gradient, from the mean over our rows."""
    return mean if RANKS.count == 1 else _batch_mean(mean)


def _batch_mean(mean: Tensor) -> Tensor:
    return mean if _share is None else summed(_share.weigh(mean.detach()))


if RANKS.count > 1:  # a collective between two compiled parts; one process is spared loading the compiler
    _batch_mean = torch.compiler.disable(_batch_mean)


def batch_std(rows: Tensor) -> Tensor:
    """The standard deviation over the last axis, which holds the samples, of the whole batch."""
    if _share is None:
        return torch.std_mean(rows, dim=-1, correction=0)[0]
    mean = batch_mean(rows.mean(dim=-1))
    return batch_mean((rows - mean[..., None]).square().mean(dim=-1)).sqrt()


def gathered(rows: Tensor) -> Tensor:
    """The rows of the whole batch, from ours."""
    if _share is None:
        return rows
    whole = rows.new_zeros(_share.total, *rows.shape[1:])
    whole[_share.first : _share.first + _share.count] = rows[: _share.count]
    return summed(whole)


def batch_index(index: Tensor) -> Tensor:
    """The numbers of the windows of the whole batch, from ours."""
    return index if _share is None else _share.index


def combined(parameters: Iterable[Tensor], statistics: Mapping[str, Tensor | float]) -> dict[str, Tensor | float]:
    """Combine the gradients of all shares, in place; returns the combined statistics, of which tensors are means."""
    if _share is None:
        return dict(statistics)
    found = {name: value.detach().clone() for name, value in statistics.items() if isinstance(value, Tensor)}
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in [*(p.grad for p in parameters if p.grad is not None), *found.values()]:
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        by_type.setdefault(real.dtype, []).append(real)
    for tensors in by_type.values():
        flat = summed(_share.weigh(torch.cat([tensor.reshape(-1) for tensor in tensors])))
        parts = flat.split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(tensors, [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])
    return {**statistics, **found}


def summed(tensor: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    with lost_noticed():
        dist.all_reduce(tensor)
    return tensor


def from_first(compute: Callable[[], T]) -> T:
    """A result that the first process computes and all get."""
    if RANKS.count == 1 or not dist.is_initialized():
        return compute()
    found = [compute() if RANKS.is_first else None]
    wait_for_first()
    with lost_noticed():
        dist.broadcast_object_list(found, device=torch.device("cpu"))
    return found[0]  # type: ignore[return-value]


@contextmanager
def first_process_first() -> Iterator[None]:
    """The first process runs the block, then the others do: they find the files that it has written."""
    if RANKS.is_first:
        yield
        wait_for_first()
    else:
        wait_for_first()
        yield


_meetings = 0


def wait_for_first() -> None:
    """The others wait, as long as it takes, until the first process is here as well."""
    global _meetings
    if RANKS.count == 1 or not dist.is_initialized():
        return
    _meetings += 1
    key, store = f"hero/first/{_meetings}", dist.distributed_c10d._get_default_store()
    with lost_noticed():
        if RANKS.is_first:
            store.set(key, "")
        else:
            store.wait([key], WORKING)


class Agreement:
    """Whether any process says so. All get the same answer after the same update, from what they said an update ago.

    It travels between the hosts while an update runs, so that no device is waited for.
    """

    def __init__(self) -> None:
        self._sent: tuple[dist.Work, Tensor] | None = None

    def __call__(self, mine: bool) -> bool:
        if RANKS.count == 1:
            return mine
        before = self._sent
        said = torch.tensor([int(mine)])
        with lost_noticed():
            self._sent = (dist.all_reduce(said, async_op=True), said)
            if before is None:
                return False
            before[0].wait()
        return bool(before[1])


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """The processes of this run connected: by gloo between hosts, by NCCL between CUDA devices."""
    if RANKS.count == 1:
        yield
        return
    with lost_noticed():
        try:
            connect(device)
            yield
            wait_for_first()
            summed(torch.zeros(1))  # nobody leaves while another still listens
            atexit.register(disconnect)
        except BaseException:
            atexit.unregister(disconnect)  # it would wait for the lost
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                with suppress(ValueError):  # signals are for the main thread
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends survivors, who are to say why
            is_first_to_tell()  # before this process ends, which the others will notice
            raise


@cache
def connect(device: torch.device) -> None:
    """Once for all trainings of a session."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(torch.initial_seed() + RANKS.rank)  # for dropout, which draws without our generators
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store = FileStore(os.environ[STORE], RANKS.count) if STORE in os.environ else None
    dist.init_process_group(backend, timeout=SILENT, store=store, rank=RANKS.rank, world_size=RANKS.count)


def disconnect() -> None:
    """Join gloo's threads: one that frees a tensor while the interpreter ends aborts the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_noticed() -> Iterator[None]:
    """An error of a connection as one sentence."""
    try:
        yield
    except RuntimeError as error:  # DistError is one
        words = "gloo", "NCCL", "Socket", "Connection", "Timed out", "timed out"
        if not isinstance(error, dist.DistError) and not any(word in str(error) for word in words):
            raise
        raise HeroError(LOST) from error


@cache
def is_first_to_tell() -> bool:
    """Whether the others have not told yet why the run ends: one message is enough."""
    if RANKS.count == 1:
        return True
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        if STORE in os.environ:
            return bool(FileStore(f"{os.environ[STORE]}.told", RANKS.count).add(attempt, 1) == 1)
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*place, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
        return bool(store.add(f"hero/told/{attempt}", 1) == 1)
    except (RuntimeError, KeyError, ValueError):
        return True
