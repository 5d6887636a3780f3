"""How a reader is declared, and how a file is opened by its first bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from hero.data.handles import damage_reported
from hero.data.formats.arrays import describe
from hero.data.formats.matlab import opened_mat
from hero.data.formats.npy import opened_npy, opened_npz
from hero.data.formats.torch import LEGACY, opened_torch, refused_pickle
from hero.data.formats.xarray import describe_dataset, is_netcdf, opened_netcdf
from hero.data.formats.zarr import describe_zarr, is_zarr, opened_zarr
from hero.data.formats.claims import refused_zip, zip_kind
from hero.data.recording import Recording
from hero.errors import HeroError

LISTED = 8  # datasets that an error names


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

    join: Callable[[Sequence[Recording]], Recording] | None = None
    """The recordings of several files of a folder as one; one trajectory after the other where this is None."""


@dataclass(frozen=True)
class Container:
    """A kind of file."""

    kind: str
    matches: Callable[[Path, bytes], bool]
    """(path, its first bytes) -> whether it is of this kind; a folder and a name have no bytes."""
    opened: Callable[[Path], AbstractContextManager[Any]]
    """The file opened, for `Reader.recognises`."""
    describe: Callable[[Any], str] = lambda content: ""
    """The contents of an opened file that no reader knows, for the error."""


def describe_hdf5(file: h5py.File) -> str:
    """The first datasets with shapes and types."""
    found: list[str] = []

    def note(name: str, item: object) -> bool | None:
        if isinstance(item, h5py.Dataset):
            found.append(f"{name} {item.shape} {item.dtype}")
        return True if len(found) > LISTED else None  # a value ends the visit

    file.visititems(note)
    return (", ".join(found[:LISTED]) + (", ..." if len(found) > LISTED else "")) or "no datasets"


def is_name(path: Path) -> bool:
    """Whether this names a source instead of a path, such as apebench:2d_phy_kolm_flow."""
    return not path.exists() and re.fullmatch(r"[a-z_]{2,}:\w+", str(path)) is not None


@contextlib.contextmanager
def _opened_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, which is HDF5 also where it calls itself NetCDF 4 or MATLAB 7.3."""
    with damage_reported(path), h5py.File(path, "r") as file:
        yield file


def is_hdf5(path: Path) -> bool:
    """Whether the signature of HDF5 is at 0, 512, 1024, 2048, ...: a user block, as of MATLAB, may come before it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        places = itertools.chain([0], itertools.takewhile(lambda place: place < size, (512 << n for n in range(64))))
        return any(file.seek(place) == place and file.read(8) == b"\x89HDF\r\n\x1a\n" for place in places)


CONTAINERS: list[Container] = [
    Container("name", lambda path, head: is_name(path), lambda path: contextlib.nullcontext(str(path))),
    Container("zarr", lambda path, head: is_zarr(path) or zip_kind(path, head) == "zarr", opened_zarr, describe_zarr),
    Container("folder", lambda path, head: path.is_dir(), contextlib.nullcontext),
    Container("hdf5", lambda path, head: path.is_file() and is_hdf5(path), _opened_hdf5, describe_hdf5),
    Container("netcdf", is_netcdf, opened_netcdf, describe_dataset),
    Container("npy", lambda path, head: head.startswith(b"\x93NUMPY"), opened_npy),
    Container("npz", lambda path, head: zip_kind(path, head) == "npz", opened_npz, describe),
    Container("torch", lambda path, head: head.startswith(LEGACY) or zip_kind(path, head) == "torch", opened_torch),
    Container("mat", lambda path, head: head.startswith(b"MATLAB 5.0"), opened_mat, describe),
    Container("zip", lambda path, head: zip_kind(path, head) == "zip", refused_zip),
    Container("pickle", lambda path, head: head[:1] == b"\x80" and not head.startswith(LEGACY), refused_pickle),
]
"""In the order in which they are asked; a file may be of two kinds, as NetCDF 4 is HDF5 too."""


def containers_of(path: Path) -> list[Container]:
    """The kinds of file that this may be, from its first bytes; at least one."""
    if not path.exists() and not is_name(path):
        raise HeroError(f"there is no file or folder {path}; check the path.")
    head = _first_bytes(path) if path.is_file() else b""
    if path.is_file() and not head:
        raise HeroError(f"{path} is empty (0 bytes); copy or download it again.")
    if path.is_dir() and not any(path.iterdir()):
        raise HeroError(f"{path} is an empty folder; put files of one layout into it, or name another.")
    found = [container for container in CONTAINERS if container.matches(path, head)]
    if not found:
        raise HeroError(
            f"{path} begins with {head[:8]!r}, which is none of HDF5, NetCDF, Zarr, MATLAB, NumPy and PyTorch; "
            "save the array with numpy.save and name its axes with `--set data.layout=btcxy`."
        )
    return found


ARRAY_KINDS = ("npy", "npz", "torch", "mat", "netcdf")


def array_files(folder: Path) -> list[Path]:
    """The files of arrays other than HDF5 in a folder, by name; where it has none, the files in folders below it."""
    kinds = [container for container in CONTAINERS if container.kind in ARRAY_KINDS]
    for pattern in ("*", "**/*"):
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        found = [path for path in files if any(kind.matches(path, _first_bytes(path)) for kind in kinds)]
        if found:
            return found
    return []


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(128)
    except OSError as error:
        raise HeroError(f"cannot read {path} ({error.strerror or error}); check its permissions.") from error
