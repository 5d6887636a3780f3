"""Memory of this process and its device: how much is available, and the most that was held at once.

torch is imported where a device is asked for: processes without torch (`benchmarks/`) read their memory here too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor, nn

    from hero.data.windows import Batch
    from hero.runs.config import RunConfig

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def status_bytes(file: str, name: str) -> int | None:
    """A field in kB of a file of Linux's /proc, such as VmHWM of self/status; None on other systems."""
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def available_memory(device: torch.device) -> int | None:
    """Bytes that this process may hold on the device, with those it holds already; None where this is not known."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    free, own = status_bytes("meminfo", "MemAvailable"), status_bytes("self/status", "VmRSS")
    if free is None or own is None or device.type != "cpu":
        return None
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container, which sees the memory of the whole machine above
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(free + own, int(text)) if text.isdigit() else free + own


def release_memory() -> None:
    """Return freed memory to the system, so that resident memory is memory in use."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next array, for the rest of this process.

    By itself it gives arrays of some megabytes back, and an update spent a third of its time on fresh pages. What is
    kept has gaps: large arrays take up to 1.5 times the memory.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # glibc alone has it
        for threshold in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(threshold, 2**30)


def resident_memory() -> int | None:
    """Bytes that this process holds now; where this is not known, the most it ever held, or None."""
    return status_bytes("self/status", "VmRSS") or peak_memory()


def reset_peak(device: torch.device | None = None) -> None:
    """Forget the high-water mark of what came before."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with contextlib.suppress(OSError):  # where this is forbidden, the peak includes what came before
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device | None = None) -> int | None:
    """The most bytes held at once since `reset_peak`, on the GPU or by the process; None where this is not known."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    found = status_bytes("self/status", "VmHWM")
    if found is not None:
        return found
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


LARGE = 2**30  # bytes of an unroll from which it is worth a line


class UnrollMemory(NamedTuple):
    """Bytes that an unroll keeps for its backward pass."""

    steps: int
    kept: int
    recomputed: int
    """With train.recompute, which keeps the states, and the rest of one step at a time."""
    free: int | None
    """What this process may hold."""

    @property
    def is_small(self) -> bool:
        """Whether there is room for several times as much."""
        return self.free is None or self.kept < self.free / 8

    def note(self, recompute: bool) -> Iterator[str]:
        """A line, where the memory is large."""
        found = self.recomputed if recompute else self.kept
        if found < LARGE and (self.free is None or found < self.free / 4):
            return
        there = "" if self.free is None else f" of {self.free / 1e9:.3g} GB"
        remedy = "" if recompute else f"; train.recompute=true keeps about {self.recomputed / 1e9:.2g} GB"
        yield f"an unroll of {self.steps} steps keeps about {found / 1e9:.2g} GB{there} for its gradient{remedy}"


def unroll_memory(config: RunConfig, model: nn.Module, batch: Batch) -> UnrollMemory:
    """The memory of an unroll: that of one step, tried."""
    import torch

    train, part = config.train, batch.rows(slice(0, -(-len(batch.truth) // config.train.accumulate)))
    steps = train.unroll // train.bundle if config.untrained_strategy.unrolls else 1
    kept, was_training = KeptForBackward(model), model.training
    model.eval()  # no running statistics follow the trial
    with kept.hooks(), torch.random.fork_rng(devices=[]):
        model(part.context.inputs())
    model.train(was_training)
    one, free = kept.nbytes(), available_memory(batch.truth.device)
    return UnrollMemory(steps, one * steps, one + part.truth.nbytes, free)


class KeptForBackward:
    """The memory that a forward pass leaves to its backward pass, without the model's own tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
        self._kept: dict[int, torch.UntypedStorage] = {}  # held, so that no other tensor gets the same identity

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """A context in which every saved tensor is noted."""
        import torch

        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda saved: saved)

    def _keep(self, saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage._cdata not in self._own:
            self._kept[storage._cdata] = storage
        return saved

    def nbytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())
