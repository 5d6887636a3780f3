"""Open HDF5 files, kept for the next read: opening one costs more than reading a few states from it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from hero.errors import HeroError, NoPermissionError, reason_of

KEPT = 8  # a handle holds caches in memory, so a folder of thousands of files must not keep all of them open
KEPT_DATASETS = 32
"""Open datasets of one file: each has a cache, and a file may have a dataset per trajectory."""
CACHE_BYTES = 2**20
"""Bytes of the chunk cache of a file with compressed or chunked data: h5py's default for a dataset."""
DAMAGE: tuple[type[Exception], ...] = (OSError, RuntimeError, KeyError, ValueError)
"""What h5py raises for damaged files."""


@dataclass
class Handle:
    """An open file, and the datasets that were read last."""

    version: tuple[int, ...]
    file: h5py.File
    datasets: dict[str, h5py.Dataset] = field(default_factory=dict)


_handles: OrderedDict[Path, Handle] = OrderedDict()
_lock = threading.RLock()


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, which is HDF5 also where it calls itself NetCDF 4 or MATLAB 7.3; closed at the end."""
    with damage_reported(path), h5py.File(path, "r") as file:
        yield file


def read_hdf5(path: Path, name: str, selection: tuple[int | slice, ...]) -> np.ndarray:
    """A part of a dataset: whole numbers and slices, one for each axis."""
    with _kept(path) as handle:
        if name not in handle.datasets:
            if len(handle.datasets) >= KEPT_DATASETS:
                handle.datasets.clear()
            handle.datasets[name] = handle.file[name]
        return np.asarray(handle.datasets[name][selection])


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[Handle]:
    """The file, open for reading; at most `KEPT` stay open in this process, the least recently used is closed.

    The lock is held while the file is in use, so that no other thread closes it; HDF5 reads one at a time anyway.
    """
    with _lock, damage_reported(path):
        state = path.stat()
        version = state.st_ino, state.st_size, state.st_mtime_ns
        handle = _handles.pop(path, None)
        if handle is not None and handle.version != version:  # a file that was written again is another file
            handle.file.close()
            handle = None
        handle = handle or Handle(version, h5py.File(path, "r"))
        _handles[path] = handle
        while len(_handles) > KEPT:
            _handles.popitem(last=False)[1].file.close()
        yield handle


def close_hdf5() -> None:
    """Close all kept files, so that they can be written again."""
    with _lock:
        while _handles:
            _handles.popitem()[1].file.close()


@contextlib.contextmanager
def damage_reported(path: Path, errors: tuple[type[Exception], ...] = DAMAGE) -> Iterator[None]:
    """Turn the errors that a library raises for a damaged file into one sentence."""
    try:
        yield
    except HeroError:
        raise
    except PermissionError:
        raise NoPermissionError(path) from None
    except errors as error:
        raise HeroError(
            f"{path} cannot be read and may be incomplete ({reason_of(error)}); copy or download it again."
        ) from error


def _forget() -> None:
    """Start without handles after a fork: the parent's belong to it, and its lock may be held by a thread of it."""
    global _handles, _lock
    _handles, _lock = OrderedDict(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
