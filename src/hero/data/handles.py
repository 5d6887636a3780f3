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

_handles: OrderedDict[Path, h5py.File] = OrderedDict()
_lock = threading.RLock()


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading; at most `KEPT` stay open in this process, the least recently used is closed.

    The lock is held while the file is in use, so that no other thread closes it; HDF5 reads one at a time anyway.
    """
    with _lock, damage_reported(path):
        file = _handles.pop(path, None) or h5py.File(path, "r")
        _handles[path] = file
        while len(_handles) > KEPT:
            _handles.popitem(last=False)[1].close()
        yield file


@contextlib.contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors of the HDF5 library into one sentence."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HeroError(
            f"{path} cannot be read and may be incomplete ({reason}); copy or download it again."
        ) from error


def _forget() -> None:
    """Start without handles after a fork: the parent's belong to it, and its lock may be held by a thread of it."""
    global _handles, _lock
    _handles, _lock = OrderedDict(), threading.RLock()


os.register_at_fork(after_in_child=_forget)
