"""Arrays that stay in their files until they are sliced, and other views of them: states stacked in time, a complex
array as two, a flattened grid unfolded, faces averaged to cells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import SPELLINGS
from hero.errors import HeroError

LISTED = 8  # arrays that an error names
ROUNDING = 1e-4  # an imaginary part below this share of the real part is the rounding of a transform, of float32 too
LOOKED_AT = 1 << 22  # numbers of a complex array that are looked at before its imaginary part is called rounding
ALL = slice(None)


@dataclass(frozen=True)
class FileArray:
    """An array that stays in its file until it is sliced."""

    read: Callable[[tuple[slice, ...]], np.ndarray]  # a slice for each axis -> that part
    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        return self.read(index)


def held(path: Path, name: str, values: np.ndarray) -> FileArray:
    """An array in memory that belongs to a file."""
    return FileArray(values.__getitem__, path, name, values.shape, values.dtype)


def loaded(load: Callable[[Path], Mapping[str, np.ndarray]], path: Path) -> dict[str, FileArray]:
    """The arrays by name of a file that its library reads whole."""

    def part(name: str, index: tuple[slice, ...]) -> np.ndarray:
        return np.array(kept(load, path)[name][index])

    found = kept(load, path).items()
    return {name: FileArray(partial(part, name), path, name, values.shape, values.dtype) for name, values in found}


def kept(load: Callable[..., Any], path: Path, *name: str) -> Any:
    """What `load` returns for a file; the last two of a process stay in memory until their files change."""
    return _loaded(load, path.stat().st_mtime_ns, path, *name)


_loaded = lru_cache(maxsize=2)(lambda load, changed, path, *name: load(path, *name))


def describe(arrays: Mapping[str, Any]) -> str:
    """Names and shapes for an error, the first of them."""
    listed = [f"{name} {tuple(array.shape or ())}" for name, array in list(arrays.items())[:LISTED]]
    return ", ".join(listed) + (", ..." if len(arrays) > LISTED else "")


def stacked(read: Callable[[Any], FileArray | np.ndarray], states: Sequence[Any], like: FileArray) -> FileArray:
    """States of one shape, each read on its own, as an array with time first; `like` is the first of them."""

    def part(index: tuple[slice, ...]) -> np.ndarray:
        frames, rest = index[0], index[1:]
        parts = [read(state)[rest] for state in states[frames]]
        return np.stack(parts) if parts else np.empty((0, *read(states[0])[rest].shape))

    return replace(like, read=part, shape=(len(states), *like.shape))


def real_parts(name: str, array: FileArray) -> tuple[dict[str, FileArray], tuple[str, ...]]:
    """An array of real numbers by name: itself, or the parts of a complex one, with notes."""
    if array.dtype.kind != "c":
        return {name: array}, ()
    last = array.shape[0] - 1
    places = [ALL] if math.prod(array.shape) <= LOOKED_AT else [slice(n, n + 1) for n in (0, last // 2, last)]
    looked_at = np.concatenate([array[(place, *(ALL,) * (len(array.shape) - 1))] for place in places])
    limit = ROUNDING * float(np.abs(looked_at.real).max(initial=0.0))
    shown, real = name or "the array", looked_at.real.dtype

    def only_real(index: tuple[slice, ...]) -> np.ndarray:
        values = array[index]
        if np.abs(values.imag).max(initial=0.0) > max(limit, 1e-300):
            raise HeroError(f"{array.path}: {shown} is not real at {index}; save its two parts as two arrays.")
        return values.real

    if np.abs(looked_at.imag).max(initial=0.0) <= limit:
        note = f"{shown} is complex with an imaginary part that is rounding; its real part is taken."
        return {name: replace(array, read=only_real, dtype=real)}, (note,)
    base = name or "u"
    note = f"{shown} is complex: {base}_real and {base}_imag are its two channels (data.fields chooses one)."
    parts = {"real": lambda index: array[index].real, "imag": lambda index: array[index].imag}
    return {f"{base}_{part}": replace(array, read=read, dtype=real) for part, read in parts.items()}, (note,)


def unfolded(path: Path, layout: str, arrays: Mapping[str, FileArray]) -> tuple[str, dict[str, FileArray]]:
    """The letters of a layout such as "b t (x=21 y=21)", and the arrays that it fits with their grid unfolded."""
    words = re.findall(r"\(.*?\)|\S", layout)
    lengths = {axis: tuple(map(int, re.findall(r"\d+", word))) for axis, word in enumerate(words) if len(word) > 1}

    def fits(array: FileArray) -> bool:
        return len(array.shape) == len(words) and all(array.shape[i] == math.prod(lengths[i]) for i in lengths)

    if lengths and not any(map(fits, arrays.values())):
        told = f"fits none of the arrays, {describe(arrays).strip()}"
        raise HeroError(f"{path}: data.layout={layout!r} {told}; write a flattened grid as in 'b t (x=21 y=21)'.")
    found = dict(arrays)
    for name in [name for name in arrays if fits(arrays[name])]:
        for axis in sorted(lengths, reverse=True):  # an axis that becomes several moves those after it
            found[name] = _axis_as(found[name], axis, lengths[axis])
    return "".join(re.findall("[a-z]", layout)) if lengths else "".join(words), found


def in_cells(arrays: Mapping[str, FileArray]) -> tuple[dict[str, FileArray], list[str]]:
    """Arrays of a staggered grid in its cells, with notes: u has one point more along x and v along y than p."""
    found, notes = dict(arrays), []
    for rank in {len(array.shape) for array in arrays.values()} - {0, 1, 2}:
        shapes = {name: np.array(array.shape) for name, array in arrays.items() if len(array.shape) == rank}
        shapes = {name: shape for name, shape in shapes.items() if name not in SPELLINGS}
        differences = [one - other for one in shapes.values() for other in shapes.values()]
        # One is longer along one axis, another along another; an array with a state more is longer along time alone.
        crossed = [one for one in differences if one.sum() == 0 and np.abs(one).sum() == 2]
        staggered = set(np.flatnonzero(np.any(crossed, axis=0)))
        for name, shape in shapes.items():
            more = shape - np.min(list(shapes.values()), axis=0)
            if more.max() == 1 and staggered.issuperset(np.flatnonzero(more)):
                notes.append(f"{name} {arrays[name].shape} lies on faces; the mean of both is taken in each cell.")
                for axis in np.flatnonzero(more).tolist():
                    found[name] = _axis_as(found[name], axis, (arrays[name].shape[axis] - 1,), partial(_centre, axis))
    return found, notes


def _centre(axis: int, block: np.ndarray) -> np.ndarray:
    low, high = (block[(*(ALL,) * axis, part)] for part in (slice(-1), slice(1, None)))
    return low / 2 + high / 2


def _axis_as(
    array: FileArray, axis: int, lengths: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> FileArray:
    """An array whose axis is always read whole, then changed and unfolded to axes of these lengths."""
    end = axis + len(lengths)

    def part(index: tuple[slice, ...]) -> np.ndarray:
        block = change(array[(*index[:axis], ALL, *index[end:])])
        block = block.reshape(*block.shape[:axis], *lengths, *block.shape[axis + 1 :])
        return block[(*(ALL,) * axis, *index[axis:end])]

    return replace(array, read=part, shape=(*array.shape[:axis], *lengths, *array.shape[axis + 1 :]))
