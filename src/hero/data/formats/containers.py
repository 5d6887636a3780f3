"""How a format is declared; kinds of files, known by their first bytes, and how each is opened."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from hero.data.files.handles import damage_reported, opened_hdf5
from hero.data.files.recording import Recording
from hero.data.formats.claims import check_hdf5, zip_kind
from hero.data.formats.folders import join
from hero.data.formats.matlab import open_mat
from hero.data.formats.numpy import open_npy, open_npz
from hero.data.formats.torch import LEGACY, open_torch
from hero.data.formats.xarray import CLASSIC, has_dimensions, is_prediction, is_zarr, open_dataset, open_zarr
from hero.errors import HeroError


@dataclass(frozen=True)
class Format:
    """An entry of the registry."""

    title: str
    """Display name."""
    container: str
    """Kind of file: hdf5, mat, npy, npz, torch, netcdf, zarr, folder or name."""
    recognises: Callable[[Any], object]
    """True, or not empty, if the opened file has this layout."""
    read: Callable[[Path, Any, str], Recording] | str
    """(path, opened file, layout word) -> the recording; or the end of a sentence that refuses the file."""
    join: Callable[[Sequence[Recording]], Recording] = join
    """The recordings of several files of a folder as one."""


OPEN: dict[str, Callable[[Path], Any]] = {
    "hdf5": opened_hdf5,
    "name": str,
    "folder": Path,
    "zarr": open_zarr,
    "netcdf": open_dataset,
    "npy": open_npy,
    "npz": open_npz,
    "torch": open_torch,
    "mat": open_mat,
    "zip": Path,
    "pickle": Path,
}
"""How a file is opened; nothing but HDF5 has to be closed."""
MAGIC: dict[str, bytes | tuple[bytes, ...]] = {
    "npy": b"\x93NUMPY",
    "mat": b"MATLAB 5.0",
    "netcdf": CLASSIC,
    "torch": LEGACY,
    "pickle": b"\x80",
}
"""First bytes; older files of PyTorch begin as a pickle does."""
ARRAY_KINDS = ("npy", "npz", "torch", "mat", "netcdf")
"""Kinds of files other than HDF5 that a folder may hold."""


@contextlib.contextmanager
def opened(kind: str, path: Path) -> Iterator[Any]:
    """The contents of a file of a kind, for `Format.recognises`."""
    with damage_reported(path, (Exception,)):  # a library raises what its parser meets
        content = OPEN[kind](path)
    with content if kind == "hdf5" else contextlib.nullcontext(content) as found:
        yield found


def kinds_of(path: Path) -> list[str]:
    """The kinds of file that this may be, in the order in which they are asked; at least one."""
    if path.is_dir():
        if not any(path.iterdir()):
            raise HeroError(f"{path} is an empty folder; put files of one layout into it, or name another.")
        return ["zarr" if is_zarr(path) else "folder"]
    if not path.exists():
        if not re.fullmatch(r"[a-z_]{2,}:\w+", str(path)):  # a source, such as apebench:2d_phy_kolm_flow
            raise HeroError(f"there is no file or folder {path}; check the path.")
        return ["name"]
    head = _first_bytes(path)
    if not head:
        raise HeroError(f"{path} is empty (0 bytes); copy or download it again.")
    if kinds := _kinds_of_file(path, head):
        return kinds
    raise HeroError(
        f"{path} begins with {head[:8]!r}, which is none of HDF5, NetCDF, Zarr, MATLAB, NumPy and PyTorch; "
        "save the array with numpy.save and name its axes with `--set data.layout=btcxy`."
    )


def _kinds_of_file(path: Path, head: bytes) -> list[str]:
    if head.startswith(b"PK"):
        return [zip_kind(path)]
    if is_hdf5(path):
        return _kinds_of_hdf5(path)
    return [kind for kind, magic in MAGIC.items() if head.startswith(magic)][:1]


def is_hdf5(path: Path) -> bool:
    """Whether the signature of HDF5 is at 0, 512, 1024, 2048, ...: a user block, as of MATLAB, may come before it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        places = itertools.chain([0], itertools.takewhile(lambda place: place < size, (512 << n for n in range(64))))
        return any(file.seek(place) == place and file.read(8) == b"\x89HDF\r\n\x1a\n" for place in places)


def _kinds_of_hdf5(path: Path) -> list[str]:
    """HDF5, and NetCDF where a file was written by its library or has its scales; damage is told when it is opened."""
    with contextlib.suppress(OSError, RuntimeError, KeyError), h5py.File(path, "r") as file:
        check_hdf5(path, file)
        if is_prediction(file):
            return ["netcdf"]
        return ["hdf5", "netcdf"] if has_dimensions(file) else ["hdf5"]
    return ["hdf5"]


def files_of(folder: Path) -> list[Path]:
    """The HDF5 files in a folder, data_2 before data_10, or in the folders below it; else its other files of arrays."""
    files = [[path for path in folder.glob(pattern) if path.is_file()] for pattern in ("*", "**/*")]
    for paths in files:
        if found := [path for path in paths if path.name[0] != "." and is_hdf5(path)]:
            return sorted(found, key=_numbered)
    for paths in files:
        if found := [path for path in paths if set(_kinds_of_file(path, _first_bytes(path))) & set(ARRAY_KINDS)]:
            return sorted(found)
    return []


def _numbered(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _first_bytes(path: Path) -> bytes:
    with damage_reported(path), path.open("rb") as file:
        return file.read(128)
