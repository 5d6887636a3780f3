"""HDF5 files: datasets stay open for the next read, because opening one costs far more than reading a few states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.errors import HeroError, NoPermissionError, reason_of

KEPT = 16  # each dataset holds a cache, so a file with one per trajectory must not keep all of them open
CACHE_BYTES = 2**20
"""Bytes of the chunk cache of a dataset with compressed or chunked data, h5py's default."""
DAMAGE: tuple[type[Exception], ...] = (OSError, RuntimeError, KeyError, ValueError)
"""What h5py raises for damaged files."""


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, which is HDF5 also where it calls itself NetCDF 4 or MATLAB 7.3; closed at the end."""
    with damage_reported(path), h5py.File(path, "r") as file:
        yield file


def read_hdf5(path: Path, name: str, selection: tuple[Any, ...]) -> np.ndarray:
    with damage_reported(path):
        state = path.stat()
        version = state.st_ino, state.st_size, state.st_mtime_ns
        if _versions.setdefault(path, version) != version:  # HDF5 would remember what the open file held before
            close_hdf5()
            _versions[path] = version
        return np.asarray(_dataset(path, name, version)[selection])


_versions: dict[Path, tuple[int, ...]] = {}


@lru_cache(maxsize=KEPT)
def _dataset(path: Path, name: str, version: tuple[int, ...]) -> h5py.Dataset:
    return h5py.File(path, "r")[name]


close_hdf5 = _dataset.cache_clear
"""Close all kept files, so that they can be written again."""


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
