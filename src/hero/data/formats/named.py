"""NumPy files, and arrays by name: `u`, or `train`, `val` and `test`, with `x`, `y`, `t`, `dt` and `mu` if there.

`frames` (trajectory,) counts the states of trajectories that are padded to one length.
A point cloud has `coords` (points, dimension), perhaps `weights` (points,), and `u` of the layout btcp. An array in a
.npy file, or uncompressed in a .npz file, is mapped into memory; pickled objects are never opened.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from hero.data.files.handles import damage_reported
from hero.data.files.recording import SPELLINGS, Recording, Trajectory, shortened
from hero.data.formats.arrays import (
    FileArray,
    describe,
    layout_of,
    of_whole,
    recording_of,
    whole,
    with_scalars,
)
from hero.data.formats.claims import members
from hero.errors import HeroError

STATES = ("u", "data", "solution", "tensor", "states", "usol", "uu", "y", "arr_0")
"""Names under which people store the states."""
CONDITIONS = ("mu", "params", "parameters")
COORDINATES = {"t": ("t", "tt", "time", "times"), "x": ("x", "xx"), "y": ("y", "yy"), "z": ("z", "zz")}
LARGEST_SMALL = 1 << 22
"""Numbers of a coordinate or table that is read at once."""
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


def read_npy(path: Path, array: FileArray, layout: str) -> Recording:
    """A bare array: (trajectory, time, channel, *space), or as the layout says."""
    layout = layout_of(layout, array.shape, {}, name="the array", path=path)
    return recording_of(
        "npy", (path,), {"": array}, layout, notes=(f"The axes of {array.shape} are read as {layout}.",)
    )


def read_named(path: Path, arrays: Mapping[str, FileArray], layout: str, *, form: str = "npz") -> Recording:
    """The trajectories in arrays by name."""
    numbers = {name: array for name, array in arrays.items() if np.dtype(array.dtype).kind in "fiubc"}
    states = _states(path, numbers, arrays)
    name, first = next((name, numbers[name]) for name in states.values())
    coordinates = coordinates_of(numbers, skip=set(states.values()))
    lengths = {letter: len(values) for letter, values in coordinates.items()}
    cloud = _small(numbers, "coords") if "coords" in numbers else None
    if cloud is not None:
        lengths = {"p": len(cloud), **({"t": lengths["t"]} if "t" in lengths else {})}
        if not layout and len(first.shape) == 4 and first.shape[3] == len(cloud):
            layout = "btcp"
    layout = layout_of(layout, first.shape, lengths, name=name, path=path)
    recording = recording_of(
        form,
        (path,),
        {split: numbers[name] for split, name in states.items()},
        layout,
        name="u" if name in ("data", "arr_0") or "" not in states else name,
        coordinates=coordinates,
        notes=(f"The axes of {', '.join(states.values())} {tuple(first.shape)} are read as {layout}.",),
    )
    weights = _small(numbers, "weights") if cloud is not None and "weights" in numbers else None
    _check_cloud(path, cloud, weights, recording.space)
    rows = [one for split in states for one in _conditioned(path, numbers, recording.trajectories, split)]
    has_dt = "dt" in numbers and math.prod(numbers["dt"].shape) == 1
    dt = float(_small(numbers, "dt").item()) if has_dt else recording.dt
    return replace(recording, dt=dt, trajectories=rows, points=cloud, weights=weights)


def _states(path: Path, numbers: Mapping[str, FileArray], arrays: Mapping[str, FileArray]) -> dict[str, str]:
    """The arrays of states by split; the split is "" where the file has none."""
    splits = {SPELLINGS[name]: name for name in numbers if name in SPELLINGS and len(numbers[name].shape) > 1}
    if splits:
        return splits
    found = [name for name in STATES if name in numbers and len(numbers[name].shape) > 1]
    large = [name for name in numbers if len(numbers[name].shape) > 2]
    if not found and len(large) == 1:
        found = large
    if not found:
        pickled = [name for name in arrays if np.dtype(arrays[name].dtype).hasobject]
        closed = f" (and {', '.join(pickled)}: Python objects, a pickle, not opened)" if pickled else ""
        raise HeroError(
            f"{path} holds {describe(numbers) or 'no array of numbers'}{closed}; name the array of states u, or the "
            "splits train, val and test."
        )
    return {"": found[0]}


def coordinates_of(arrays: Mapping[str, FileArray], skip: set[str]) -> dict[str, np.ndarray]:
    """Arrays with one long axis that are named as a coordinate, as (points,) float64."""
    found = {}
    for letter, names in COORDINATES.items():
        for name in names:
            shape = arrays[name].shape if name in arrays and name not in skip else ()
            # a (1, points) or (points, 1) array is how MATLAB keeps a vector
            if max(shape, default=0) > 1 and math.prod(shape) == max(shape) and letter not in found:
                found[letter] = np.asarray(_small(arrays, name), dtype=np.float64).ravel()
    return found


def _small(arrays: Mapping[str, FileArray], name: str) -> np.ndarray:
    if math.prod(arrays[name].shape) > LARGEST_SMALL:
        raise HeroError(f"{name} {tuple(arrays[name].shape)} is too large for a coordinate or a table; rename it.")
    return whole(arrays[name])


def _conditioned(
    path: Path, numbers: Mapping[str, FileArray], trajectories: Sequence[Trajectory], split: str
) -> list[Trajectory]:
    """The trajectories of a split with their conditioning numbers, `mu`, and cut to the states that they have."""
    chosen = [trajectory for trajectory in trajectories if trajectory.split == split]
    if frames := _of_split(numbers, "frames", split):
        lengths = np.asarray(_small(numbers, frames), dtype=np.int64).ravel()
        if lengths.shape != (len(chosen),) or lengths.min() < 1 or lengths.max() > chosen[0].frames:
            raise HeroError(f"{path}: {frames} are not the states of {len(chosen)} trajectories; save one for each.")
        chosen = [shortened(one, int(length)) for one, length in zip(chosen, lengths, strict=True)]
    for name in CONDITIONS:
        if table := _of_split(numbers, name, split):
            return with_scalars(chosen, name, _small(numbers, table), path)
    return chosen


def _of_split(numbers: Mapping[str, FileArray], name: str, split: str) -> str:
    """The name of an array of a split: `mu_train` or `train_mu`, else `mu`; empty where there is none."""
    spellings = [word for word, meaning in SPELLINGS.items() if meaning == split]
    names = (*(f"{name}_{word}" for word in spellings), *(f"{word}_{name}" for word in spellings), name)
    return next((candidate for candidate in names if candidate in numbers), "")


def _check_cloud(path: Path, cloud: np.ndarray | None, weights: np.ndarray | None, space: tuple[int, ...]) -> None:
    shapes = [part.shape for part in (cloud, weights) if part is not None]
    if any(shape[:1] != space or len(shape) != 2 - place for place, shape in enumerate(shapes)):
        told = f"coords and weights {shapes} do not fit {math.prod(space)} points"
        raise HeroError(f"{path}: {told}; save coords (points, dimension), weights (points,).")
