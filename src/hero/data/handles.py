"""Open HDF5 files, kept for the next read: opening one costs more than reading a few states from it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import h5py

from hero.errors import HeroError

KEPT = 8  # a handle holds caches in memory, so that a folder of thousands of files must not keep all of them open

_handles: OrderedDict[Path, tuple[tuple[int, ...], h5py.File]] = OrderedDict()
_lock = threading.RLock()


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading; at most `KEPT` stay open in this process, the least recently used is closed.

    The lock is held while the file is in use, so that no other thread closes it; HDF5 reads one at a time anyway.
    """
    with _lock, damage_reported(path):
        state = path.stat()
        version = state.st_ino, state.st_size, state.st_mtime_ns
        known, file = _handles.pop(path, (None, None))
        if file is None or known != version:  # a file that was written again is another file
            if file is not None:
                file.close()
            file = h5py.File(path, "r")
        _handles[path] = version, file
        while len(_handles) > KEPT:
            _handles.popitem(last=False)[1][1].close()
        yield file


def close_hdf5() -> None:
    """Close all kept files, so that they can be written again."""
    with _lock:
        while _handles:
            _handles.popitem()[1][1].close()


@contextlib.contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors of the HDF5 library into one sentence; h5py raises each of these types for damage."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HeroError(
            f"{path} cannot be read and may be incomplete ({reason}); copy or download it again."
        ) from error


def _forget() -> None:
    """Start without handles after a fork: the parent's belong to it, and its lock may be held by a thread of it."""
    global _handles, _lock
    _handles, _lock = OrderedDict(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
