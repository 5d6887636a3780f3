"""How a reader is declared, and how a file is opened by its first bytes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from hero.data.recording import Recording
from hero.errors import HeroError


@dataclass(frozen=True)
class Reader:
    """An entry of the registry."""

    title: str
    """Display name."""
    container: str
    """Kind of file: hdf5, mat, npy, npz, torch, netcdf, zarr, folder or name."""
    recognises: Callable[[Any], bool]
    """Whether the opened file has this layout."""
    read: Callable[[Path, Any, str], Recording]
    """(path, opened file, layout word) -> the recording, which opens the file again when it reads."""


@dataclass(frozen=True)
class Container:
    """A kind of file."""

    kind: str
    matches: Callable[[Path, bytes], bool]
    """(path, its first bytes) -> whether it is of this kind; a folder and a name have no bytes."""
    opened: Callable[[Path], AbstractContextManager[Any]]
    """The file opened, for `Reader.recognises`."""


def is_name(path: Path) -> bool:
    """Whether this is no path but a name with its source, such as apebench:2d_phy_kolm_flow."""
    return not path.exists() and re.fullmatch(r"[a-z_]{2,}:\w+", str(path)) is not None


@contextlib.contextmanager
def opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, which is HDF5 also where it calls itself NetCDF 4 or MATLAB 7.3."""
    with h5py.File(path, "r") as file:
        yield file


CONTAINERS: list[Container] = [
    Container("name", lambda path, head: is_name(path), lambda path: contextlib.nullcontext(str(path))),
    Container("folder", lambda path, head: path.is_dir(), contextlib.nullcontext),
    Container("hdf5", lambda path, head: path.is_file() and h5py.is_hdf5(path), opened_hdf5),
]
"""In the order in which they are asked."""


@contextlib.contextmanager
def opened_container(path: Path) -> Iterator[tuple[str, Any]]:
    """The kind of a file, from its first bytes, and the file opened: an h5py.File, a mapping of arrays, a folder."""
    if not path.exists() and not is_name(path):
        raise HeroError(f"there is no file or folder {path}; check the path.")
    head = _first_bytes(path) if path.is_file() else b""
    for container in CONTAINERS:
        if container.matches(path, head):
            with container.opened(path) as content:
                yield container.kind, content
            return
    raise HeroError(
        f"{path} begins with {head[:8]!r}, which is none of HDF5, NetCDF, Zarr, MATLAB, NumPy and PyTorch; "
        "save the array with numpy.save and name its axes with `--set data.layout=btcxy`."
    )


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(128)
    except OSError as error:
        raise HeroError(f"cannot read {path} ({error.strerror or error}); check its permissions.") from error
