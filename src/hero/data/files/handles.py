"""Opening files that may be large, damaged or made by strangers.

What a file claims is compared with its size and the memory before anything is unpacked. Datasets of HDF5 files stay
open for the next read, because opening one costs far more than reading a few states.
"""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.recording import Recording
from hero.errors import HeroError, NoPermissionError, reason_of
from hero.files import is_bomb

BOMB = 1000  # deflate cannot pack a real file this well; a member that claims to is made to fill the memory
KEPT = 16  # each dataset holds a cache, so a file with one per trajectory must not keep all of them open
CACHE_BYTES = 2**20  # bytes of the chunk cache of a dataset with compressed or chunked data, h5py's default
DAMAGE: tuple[type[Exception], ...] = (OSError, RuntimeError, KeyError, ValueError)  # of h5py, for damaged files


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


close_hdf5 = _dataset.cache_clear  # close all kept files, so that they can be written again


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
        raise HeroError(f"{path} may be incomplete ({reason_of(error)}); copy or download it again.") from error


def members(path: Path) -> list[zipfile.ZipInfo]:
    """The directory of a zip file, refused before anything is unpacked if it cannot be genuine."""
    try:
        with zipfile.ZipFile(path) as file:
            infos = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise HeroError(f"{path} is a damaged zip file ({error}); download or save it again.") from error
    for info in infos:
        check_unpacked(path, info.filename, info.file_size)
    return infos


def check_stored(path: Path) -> None:
    """Refuse a file of torch.save that unpacks to more than its size; torch packs nothing."""
    if zipfile.is_zipfile(path) and sum(info.file_size for info in members(path)) > path.stat().st_size:
        raise HeroError(f"{path} unpacks to more than its size; save it again with torch.save.")


def check_unpacked(path: Path, name: str, unpacked: int) -> None:
    """Refuse a member of a file that unpacks to far more than a real one or the memory can hold."""
    size = path.stat().st_size
    if unpacked > BOMB * size:
        raise HeroError(f"{path}: {name} claims {unpacked:,} bytes in a file of {size:,}; it is damaged or a zip bomb.")
    if unpacked > max(memory(), size):
        raise HeroError(f"{path}: {name} has {unpacked:,} bytes, more than the memory; save it as .npy, read in parts.")


def check_claim(recording: Recording) -> Recording:
    """The recording; refused if it claims far more numbers than its files can hold, also packed."""
    size = sum(map(stored_bytes, recording.files))
    frames = sum(trajectory.frames for trajectory in recording.trajectories)
    numbers = frames * len(recording.channels) * math.prod(recording.space)
    if size and numbers > BOMB * size:
        raise HeroError(f"{recording.files[0]} claims {numbers:,} numbers in {size:,} bytes; save it again.")
    return recording


def check_hdf5(path: Path, file: h5py.File) -> None:
    """Refuse datasets that lie in other files, which a stranger chooses, and such with chunks as bombs.

    By the inner functions of h5py: a file may have a dataset for each of thousands of trajectories.
    """
    links: list[tuple[bytes, int]] = []
    file.id.links.visit(lambda name, link: links.append((name, link.type)), info=True)
    for name, link in links:
        item = h5py.h5o.open(file.id, name) if link == h5py.h5l.TYPE_HARD else None
        made = item.get_create_plist() if isinstance(item, h5py.h5d.DatasetID) else None
        kind = made.get_layout() if made else None
        if link == h5py.h5l.TYPE_EXTERNAL or kind == h5py.h5d.VIRTUAL or (made and made.get_external_count()):
            raise HeroError(f"{path}: the values of {name.decode()} lie in other files; copy them into one file.")
        if item and made and kind == h5py.h5d.CHUNKED:
            check_chunk(path, name.decode(), math.prod(made.get_chunk()) * item.get_type().get_size())


def check_chunk(path: Path, name: str, unpacked: int) -> None:
    """Refuse an array of which any part unpacks to far more than its file."""
    if is_bomb(unpacked, stored_bytes(path)):
        raise HeroError(f"{path}: {name} has chunks of {unpacked:,} bytes; save it again with smaller ones.")


def stored_bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(part.stat().st_size for part in (path, *path.rglob("*")) if part.is_file())


def memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36
