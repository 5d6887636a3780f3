"""NumPy files: .npy, mapped into memory, and .npz with named arrays. Pickled objects inside are never opened."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from hero.data.formats.arrays import axes_of, channels_of, layout_of, length, slabs
from hero.data.formats.claims import members
from hero.data.recording import Recording
from hero.errors import HeroError

LONGEST_HEADER = 2**16
"""Bytes; NumPy itself trusts no header above 10,000."""


@dataclass(frozen=True)
class NpyArray:
    """An array in a .npy file, or stored without compression in a .npz file."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    def __getitem__(self, index: Any) -> np.ndarray:
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype)[index]
        order = "F" if self.fortran else "C"
        mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload]
        return np.array(mapped[index])


@dataclass(frozen=True)
class PackedArray:
    """A compressed member of a .npz file: read whole, and the last one kept."""

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.array(_unpacked(self.path, self.member, self.path.stat().st_mtime_ns)[index])


@functools.lru_cache(maxsize=2)
def _unpacked(path: Path, member: str, changed: int) -> np.ndarray:
    with zipfile.ZipFile(path) as file, file.open(member) as stream:
        return npy_format.read_array(stream, allow_pickle=False)


@dataclass(frozen=True)
class Pickled:
    """A member that holds Python objects, of which nothing but the name is looked at."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        raise HeroError("an array of Python objects is a pickle, which could run code, and is not opened.")


@contextlib.contextmanager
def opened_npy(path: Path) -> Iterator[NpyArray]:
    """The array of a .npy file, checked against its header."""
    with path.open("rb") as file:
        shape, fortran, dtype = npy_header(file, path, path.name)
        offset = file.tell()
    if dtype.hasobject:
        raise HeroError(f"{path} holds Python objects, a pickle that could run code; save numbers with numpy.save.")
    _check_size(path, path.name, shape, dtype, path.stat().st_size - offset)
    yield NpyArray(path, shape, dtype, fortran, offset)


@contextlib.contextmanager
def opened_npz(path: Path) -> Iterator[dict[str, NpyArray | PackedArray | Pickled]]:
    """The arrays of a .npz file by name; none is read."""
    arrays: dict[str, NpyArray | PackedArray | Pickled] = {}
    infos = [info for info in members(path) if info.filename.endswith(".npy")]
    try:
        with zipfile.ZipFile(path) as file:
            for info in infos:
                with file.open(info) as stream:
                    shape, fortran, dtype = npy_header(stream, path, info.filename)
                    header = stream.tell()
                name = info.filename.removesuffix(".npy")
                if dtype.hasobject:
                    arrays[name] = Pickled(shape, dtype)
                    continue
                _check_size(path, info.filename, shape, dtype, info.file_size - header)
                if info.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = NpyArray(path, shape, dtype, fortran, _data_offset(path, info) + header)
                else:
                    arrays[name] = PackedArray(path, info.filename, shape, dtype)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise HeroError(f"{path} is a damaged .npz file ({error}); download or save it again.") from error
    yield arrays


def npy_header(file: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype); the file stands at its data afterwards."""
    try:
        version = npy_format.read_magic(file)
        digits = 2 if version == (1, 0) else 4
        claimed = int.from_bytes(file.read(digits), "little")
        if claimed > LONGEST_HEADER:  # NumPy would make room for it
            raise ValueError(f"it claims {claimed:,} bytes")
        file.seek(-digits, os.SEEK_CUR)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        return read(file)
    except (ValueError, EOFError, SyntaxError) as error:
        raise HeroError(f"{path}: the header of {name} is damaged ({error}); save it again.") from error


def _check_size(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], found: int) -> None:
    wanted = math.prod(shape) * dtype.itemsize
    if found < wanted:
        raise HeroError(
            f"{path}: {name} {shape} needs {wanted:,} bytes but has {found:,}; it is cut off: copy it again."
        )


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after its local header, whose names may be longer than in the directory."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = file.read(4)
    return info.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


def read_npy(path: Path, array: NpyArray, layout: str) -> Recording:
    """A bare array: (trajectory, time, channel, *space), or as the layout says."""
    check_numbers(path, "the array", array.dtype)
    layout = layout_of(layout, array.shape, {}, name="the array", path=path)
    return Recording(
        format="npy",
        files=(path,),
        channels=channels_of("u", length(array, layout, "c")),
        axes=axes_of(array, layout, {}),
        dt=1.0,
        trajectories=slabs(array, layout),
        notes=(f"The axes of {array.shape} are read as {layout}.",),
    )


def check_numbers(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse text, dates and records."""
    if dtype.kind not in "fiubc":
        raise HeroError(f"{path}: {name} holds {dtype}, not numbers; save an array of floats.")


def is_phiflow(arrays: Mapping[str, Any]) -> bool:
    """Whether a .npz file is one frame of a PhiFlow scene."""
    return {"data", "dim_names", "dim_types", "field_type"} <= set(arrays)


def read_phiflow(path: Path, arrays: Mapping[str, Any], layout: str) -> Recording:
    """A frame of a PhiFlow scene, which is not a trajectory; its `extrapolation` is a pickle and stays closed."""
    raise HeroError(
        f"{path} is one frame of a PhiFlow scene, data {tuple(arrays['data'].shape)}, too short for a trajectory; "
        "stack the frames, save (time, channel, *space) with numpy.save and add `--set data.layout=tcxy`."
    )
