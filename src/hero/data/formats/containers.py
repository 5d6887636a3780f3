"""How a format is declared; kinds of files, known by their first bytes, and how each is opened."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from hero.data.files.handles import damage_reported, opened_hdf5
from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.claims import check_hdf5, zip_kind
from hero.data.formats.hdf5.fields import arrays_in
from hero.data.formats.matlab import open_mat
from hero.data.formats.meshes import open_vtk
from hero.data.formats.names import natural
from hero.data.formats.plain import IMAGES, LEGACY, open_image, open_npy, open_npz, open_torch
from hero.data.formats.tables import is_csv, open_csv, open_parquet
from hero.data.formats.xarray import (
    CLASSIC,
    has_dimensions,
    is_prediction,
    is_zarr,
    open_dataset,
    open_zarr,
    variables_of,
)
from hero.errors import HeroError


@dataclass(frozen=True)
class Format:
    """An entry of the registry."""

    title: str
    """Display name."""
    container: str
    """Kind of file: a key of `KINDS`."""
    recognises: Callable[[Any], object]
    """True, or not empty, if the opened file has this layout."""
    read: Callable[[Path, Any, str], Recording] | str
    """(path, opened file, layout word) -> the recording; or the end of a sentence that refuses the file."""


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    open: Callable[[Path], Any]
    """Its contents, for `Format.recognises`; nothing but HDF5 has to be closed."""
    magic: tuple[bytes, ...] = ()
    """First bytes."""
    in_folders: bool = False
    """Whether a folder may hold many of them."""


KINDS = {
    "xdmf": Kind(Path, in_folders=True),  # which says what the HDF5 files beside it hold
    "hdf5": Kind(opened_hdf5, in_folders=True),
    "name": Kind(str),
    "folder": Kind(Path),
    "zarr": Kind(open_zarr),
    "npy": Kind(open_npy, (b"\x93NUMPY",), in_folders=True),
    "npz": Kind(open_npz, in_folders=True),
    "torch": Kind(open_torch, (LEGACY,), in_folders=True),  # the older ones begin as a pickle does
    "mat": Kind(open_mat, (b"MATLAB 5.0",), in_folders=True),
    "netcdf": Kind(open_dataset, CLASSIC, in_folders=True),
    "parquet": Kind(open_parquet, (b"PAR1",), in_folders=True),
    "vtk": Kind(open_vtk, (b"# vtk DataFile", b"<VTKFile"), in_folders=True),
    "csv": Kind(open_csv, in_folders=True),
    "image": Kind(open_image, IMAGES, in_folders=True),
    "zip": Kind(Path),
    "pickle": Kind(Path, (b"\x80",)),
}
"""The most telling first: one kind of a folder's files is read."""
LOOKED_INTO = 64
"""Files of a folder that are all opened to know their kind; of more, the first of each ending."""


@contextlib.contextmanager
def opened(kind: str, path: Path) -> Iterator[Any]:
    """The contents of a file of a kind, for `Format.recognises`."""
    with damage_reported(path, (Exception,)):  # a library raises what its parser meets
        content = KINDS[kind].open(path)
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
        f"{path} begins with {head[:8]!r}, which is none of HDF5, NetCDF, Zarr, MATLAB, NumPy, PyTorch, VTK, XDMF, "
        "CSV, Parquet and images; "
        "save the array with numpy.save and name its axes with `--set data.layout=btcxy`."
    )


def _kinds_of_file(path: Path, head: bytes) -> list[str]:
    if head.startswith(b"PK"):
        return [zip_kind(path)]
    if h5py.is_hdf5(path):
        return _kinds_of_hdf5(path)
    if head.startswith((b"<?xml", b"<Xdmf")):
        return ["vtk"] * (b"<VTKFile" in head) or ["xdmf"] * (b"<Xdmf" in head)
    known = [name for name, kind in KINDS.items() if head.startswith(kind.magic)]
    return known[:1] or ["csv"] * is_csv(head)


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
    below = [path for path in folder.rglob("*") if not path.name.startswith(".") and path.is_file()]
    direct = [path for path in below if path.parent == folder]
    kinds = {path: _kind_in_folder(path) for path in _samples(direct) + _samples(below)}
    for wanted in (name for name, kind in KINDS.items() if kind.in_folders):
        for paths in (direct, below):
            endings = {path.suffix for path in paths if kinds.get(path) == wanted} - {""}
            # A file that cannot be read is not left out of files with its ending: its reader says what is wrong.
            found = [path for path in paths if (kinds.get(path) or wanted * (path.suffix in endings)) == wanted]
            if found:
                return sorted(found, key=lambda path: natural(str(path)))
    return []


def _samples(paths: Sequence[Path]) -> list[Path]:
    return list(paths if len(paths) <= LOOKED_INTO else {path.suffix: path for path in paths}.values())


def _kind_in_folder(path: Path) -> str:
    return "hdf5" if h5py.is_hdf5(path) else next(iter(_kinds_of_file(path, _first_bytes(path))), "")


def states_of(kind: str, path: Path) -> dict[str, FileArray]:
    """The arrays of a file by name, whatever its axes are: one state of a folder of many."""
    with opened(kind, path) as content:
        if kind == "hdf5":
            return arrays_in(path, content)
        return dict(variables_of(path, content) if kind == "netcdf" else content)


def _first_bytes(path: Path) -> bytes:
    with damage_reported(path), path.open("rb") as file:
        return file.read(512)
