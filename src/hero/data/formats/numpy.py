"""NumPy files: an array in a .npy file, or uncompressed in a .npz file, is mapped into memory; pickles stay closed."""

from __future__ import annotations

import math
import os
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from hero.data.files.handles import damage_reported
from hero.data.formats.arrays import FileArray, of_whole
from hero.data.formats.claims import members
from hero.errors import HeroError

LONGEST_HEADER = 2**16
"""Bytes; NumPy itself trusts no header above 10,000."""


def _mapped(header: tuple[Any, ...], offset: int, path: Path, name: str, index: Any) -> np.ndarray:
    """A part of an array that lies in a file without compression; the header is shape, Fortran order and dtype."""
    shape, fortran, dtype = header
    if 0 in shape:
        return np.zeros(shape, dtype)[index]
    mapped = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return np.array(mapped[index])


def open_npy(path: Path) -> FileArray:
    """The array of a .npy file, checked against its header."""
    with damage_reported(path), path.open("rb") as file:
        header = shape, _, dtype = _header(file, path, path.name, path.stat().st_size)
        offset = file.tell()
    if dtype.hasobject:
        raise HeroError(f"{path} holds Python objects, a pickle that could run code; save numbers with numpy.save.")
    if dtype.kind not in "fiubc":
        raise HeroError(f"{path} holds {dtype}, not numbers; save an array of floats.")
    return FileArray(partial(_mapped, header, offset), path, "", shape, dtype)


def open_npz(path: Path) -> dict[str, FileArray]:
    """The arrays of a .npz file by name; none is read, and np.load reads no pickled ones."""
    arrays = {}
    infos = [info for info in members(path) if info.filename.endswith(".npy")]
    with zipfile.ZipFile(path) as file:
        for info in infos:
            with file.open(info) as stream:
                header = shape, _, dtype = _header(stream, path, info.filename, info.file_size)
                offset = _data_offset(path, info) + stream.tell()
            in_one_piece = info.compress_type == zipfile.ZIP_STORED and not dtype.hasobject
            read = partial(_mapped, header, offset) if in_one_piece else partial(of_whole, _member)
            name = info.filename.removesuffix(".npy")
            arrays[name] = FileArray(read, path, name, shape, dtype)
    return arrays


def _member(path: Path, name: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _header(file: IO[bytes], path: Path, name: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype) of an array in a file or member of `size` bytes; it stands at the data then."""
    try:
        version = npy_format.read_magic(file)
        digits = 2 if version == (1, 0) else 4
        claimed = int.from_bytes(file.read(digits), "little")
        if claimed > LONGEST_HEADER:  # NumPy would make room for it
            raise ValueError(f"it claims {claimed:,} bytes")
        file.seek(-digits, os.SEEK_CUR)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"its shape is {shape}")
    except (ValueError, EOFError, SyntaxError) as error:
        raise HeroError(f"{path}: the header of {name} is damaged ({error}); save it again.") from error
    found, wanted = size - file.tell(), math.prod(shape) * dtype.itemsize
    if found < wanted and not dtype.hasobject:
        raise HeroError(f"{path}: {name} {shape} needs {wanted:,} bytes and has {found:,}, cut off; copy it again.")
    return shape, fortran, dtype


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after its local header, whose names may be longer than in the directory."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = file.read(4)
    return info.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
