"""Memory of this process and its device: what is available, and the most that was held at once."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn


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
        return torch.cuda.mem_get_info(device)[0]
    free, own = status_bytes("meminfo", "MemAvailable"), status_bytes("self/status", "VmRSS")
    if free is None or own is None or device.type != "cpu":
        return None
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container, which sees the memory of the whole machine above
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(free + own, int(text)) if text.isdigit() else free + own


def reset_peak(device: torch.device) -> None:
    """Forget the high-water mark of what came before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with contextlib.suppress(OSError):  # where this is forbidden, the peak includes what came before
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int | None:
    """The most bytes held at once since `reset_peak`; None where this is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    found = status_bytes("self/status", "VmHWM")
    if found is not None:
        return found
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class KeptForBackward:
    """The memory that a forward pass leaves to its backward pass, without the model's own tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
        self._kept: dict[int, torch.UntypedStorage] = {}  # held, so that no other tensor gets the same identity

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """A context in which every saved tensor is noted."""
        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda saved: saved)

    def _keep(self, saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage._cdata not in self._own:
            self._kept[storage._cdata] = storage
        return saved

    def nbytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())
