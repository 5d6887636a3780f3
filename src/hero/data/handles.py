"""Open HDF5 files, kept for the next read: opening one costs more than reading a few states from it.

A dataset that lies in the file in one piece is read by its position: for a window of a few states the library takes
several times longer to describe the selection than the disk's cache takes to deliver it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from hero.errors import HeroError, NoPermissionError

KEPT = 8  # a handle holds caches in memory, so that a folder of thousands of files must not keep all of them open

CACHE_BYTES = 2**20
"""Of a file with compressed or chunked data: the default of h5py for a dataset."""
LARGEST_READ = 2**30
"""Bytes that are read by position at once; some systems deliver no more than twice as many."""


@dataclass
class Handle:
    """An open file, and its datasets as far as they were asked for."""

    version: tuple[int, ...]
    file: h5py.File
    datasets: dict[str, Dataset] = field(default_factory=dict)


@dataclass
class Dataset:
    """A dataset of an open file."""

    stored: h5py.Dataset
    descriptor: int
    offset: int | None
    """Of its first byte in the file if it lies there in one piece, as numpy would store it."""

    @classmethod
    def of(cls, stored: h5py.Dataset) -> Dataset:
        file = stored.file
        plain = stored.dtype.kind in "fiuc" and stored.id.get_storage_size() == stored.size * stored.dtype.itemsize
        if not plain or stored.external or file.userblock_size or file.driver != "sec2" or not hasattr(os, "pread"):
            return cls(stored, -1, None)
        return cls(stored, file.id.get_vfd_handle(), stored.id.get_offset())  # None unless in one piece

    def __getitem__(self, selection: tuple[int | slice, ...]) -> np.ndarray:
        """A whole number or a slice with a step above 0 for each axis."""
        shape, dtype = self.stored.shape, self.stored.dtype
        numbers = list(itertools.takewhile(lambda part: not isinstance(part, slice), selection))
        slices = [part for part in selection[len(numbers) :] if isinstance(part, slice)]
        if self.offset is None or not slices or len(numbers) + len(slices) < len(shape):
            return np.asarray(self.stored[selection])
        length, *inner = shape[len(numbers) :]
        start, stop, step = slices[0].indices(length)
        row = math.prod(inner)
        size = max(0, stop - start) * row * dtype.itemsize
        wanted = math.prod(len(range(*part.indices(n))) for part, n in zip(slices, (length, *inner), strict=True))
        if size > min(LARGEST_READ, 2 * wanted * dtype.itemsize):  # most of it would be read in vain
            return np.asarray(self.stored[selection])
        first = 0
        for number, n in zip(numbers, shape, strict=False):
            first = first * n + int(number)  # type: ignore[arg-type]
        found = os.pread(self.descriptor, size, self.offset + (first * length + start) * row * dtype.itemsize)
        if len(found) != size:
            raise OSError("it ends early")
        return np.frombuffer(found, dtype).reshape(-1, *inner)[(slice(None, None, step), *slices[1:])]


_handles: OrderedDict[Path, Handle] = OrderedDict()
_lock = threading.RLock()


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading; at most `KEPT` stay open in this process, the least recently used is closed.

    The lock is held while the file is in use, so that no other thread closes it; HDF5 reads one at a time anyway.
    """
    with _kept(path) as handle:
        yield handle.file


def read_hdf5(path: Path, name: str, selection: tuple[int | slice, ...]) -> np.ndarray:
    """A part of a dataset: whole numbers and slices, one for each axis."""
    with _kept(path) as handle:
        if name not in handle.datasets:
            handle.datasets[name] = Dataset.of(handle.file[name])
        return handle.datasets[name][selection]


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[Handle]:
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
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors of the HDF5 library into one sentence; h5py raises each of these types for damage."""
    try:
        yield
    except PermissionError:
        raise NoPermissionError(path) from None
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
