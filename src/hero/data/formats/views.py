"""Arrays of a file seen in another way, still unread: complex as two, a flattened grid unfolded, faces as cells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.formats.arrays import ROUNDING, FileArray, whole
from hero.errors import HeroError

LOOKED_AT = 1 << 22
"""Numbers of a complex array that are looked at before its imaginary part is called rounding."""


def real_parts(name: str, array: FileArray) -> tuple[dict[str, FileArray], tuple[str, ...]]:
    """An array of real numbers by name: itself, or the parts of a complex one, with notes."""
    if array.dtype.kind != "c":
        return {name: array}, ()
    looked_at = _some(array)
    size = float(np.abs(looked_at.real).max(initial=0.0))
    shown = name or "the array"
    if np.abs(looked_at.imag).max(initial=0.0) <= ROUNDING * size:
        note = f"{shown} is complex with an imaginary part that is rounding; its real part is taken."
        return {name: _part(array, "real", ROUNDING * size)}, (note,)
    base = name or "u"
    note = f"{shown} is complex: {base}_real and {base}_imag are its two channels (data.fields chooses one)."
    return {f"{base}_{part}": _part(array, part, math.inf) for part in ("real", "imag")}, (note,)


def _some(array: FileArray) -> np.ndarray:
    """A small array, or the first, middle and last entries of the first axis of a large one."""
    if math.prod(array.shape) <= LOOKED_AT:
        return whole(array)
    rest, last = (slice(None),) * (len(array.shape) - 1), array.shape[0] - 1
    return np.stack([array[(place, *rest)] for place in (0, last // 2, last)])


def _part(array: FileArray, part: str, limit: float) -> FileArray:
    real = np.empty(0, array.dtype).real.dtype
    return FileArray(partial(_read_part, array, part, limit), array.path, array.name, array.shape, real)


def _read_part(array: FileArray, part: str, limit: float, path: Path, name: str, index: Any) -> np.ndarray:
    values = np.asarray(array[index])
    if part == "real" and limit < math.inf and np.abs(values.imag).max(initial=0.0) > max(limit, 1e-300):
        raise HeroError(
            f"{path}: {name or 'the array'} has an imaginary part that is no rounding at {index}; save its real and "
            "imaginary part as two arrays."
        )
    return np.ascontiguousarray(getattr(values, part))


def unfolded(path: Path, layout: str, arrays: Mapping[str, FileArray]) -> tuple[str, dict[str, FileArray]]:
    """Letters of the axes from a layout such as "t (x=21 y=21)", and the arrays with that axis as two."""
    if "(" not in layout:
        return layout.replace(" ", ""), dict(arrays)
    words = [group or letter for group, letter in re.findall(r"\(([^()]*)\)|([a-z])", layout)]
    axes = [re.findall(r"([a-z])(?:\s*=\s*(\d+))?", word) for word in words]
    letters = "".join(letter for axis in axes for letter, _ in axis)
    rest = re.sub(r"\([^()]*\)|[a-z\s]", "", layout)
    if rest or any(not size for axis in axes if len(axis) > 1 for _, size in axis):
        raise HeroError(f"data.layout={layout!r} is not understood; write a flattened grid as in 't (x=21 y=21)'.")
    found: dict[str, FileArray] = {}
    for name, array in arrays.items():
        sizes = [[int(size) for _, size in axis] if len(axis) > 1 else [] for axis in axes]
        if len(array.shape) != len(axes):
            found[name] = array
            continue
        for points, n in zip(sizes, array.shape, strict=True):
            if points and math.prod(points) != n:
                told = f"{' x '.join(map(str, points))} = {math.prod(points)} points"
                raise HeroError(f"{path}: data.layout={layout!r} has {told}, and {name or 'the array'} has {n}.")
        full = tuple(n for points, n in zip(sizes, array.shape, strict=True) for n in (points or [n]))
        found[name] = FileArray(partial(_read_unfolded, array, sizes), path, array.name, full, array.dtype)
    return letters, found


def _read_unfolded(array: FileArray, sizes: Sequence[Sequence[int]], path: Path, name: str, index: Any) -> np.ndarray:
    places, shape = iter(index), list[int]()
    outer: list[int | slice] = []
    inner: list[int | slice] = []
    for points, n in zip(sizes, array.shape, strict=True):
        own = [next(places) for _ in points or [n]]
        outer.append(slice(None) if points else own[0])
        if points:
            inner, shape = inner + own, [*shape, *points]
        elif isinstance(own[0], slice):
            inner, shape = [*inner, slice(None)], [*shape, len(range(*own[0].indices(n)))]
    return np.asarray(array[tuple(outer)]).reshape(shape)[tuple(inner)]


def in_cells(arrays: Mapping[str, FileArray]) -> tuple[dict[str, FileArray], tuple[str, ...]]:
    """Arrays of a staggered grid in the cells: u has one point more along x and v along y, with p between them."""
    found, notes = dict(arrays), list[str]()
    for rank in {len(array.shape) for array in arrays.values()} - {0, 1}:
        alike = {name: np.array(array.shape) for name, array in arrays.items() if len(array.shape) == rank}
        # One array longer along one axis, another along another: time would be longer along one alone.
        axes = {
            int(axis)
            for one in alike.values()
            for other in alike.values()
            if sorted(one - other) == [-1, *[0] * (rank - 2), 1]
            for axis in np.flatnonzero(one - other)
        }
        if not axes:
            continue
        cells = np.min([shape for shape in alike.values() if len(alike) > 1], axis=0)
        for name, shape in alike.items():
            longer = np.flatnonzero(shape - cells)
            if longer.size and set(longer.tolist()) <= axes and (shape - cells <= 1).all():
                found[name] = _centred(arrays[name], longer.tolist())
                notes.append(
                    f"{name} {tuple(arrays[name].shape)} lies on faces; the mean of both is taken in each cell."
                )
    return found, tuple(notes)


def _centred(array: FileArray, axes: Sequence[int]) -> FileArray:
    """Values on the faces of cells along some axes, one more than there are cells, as means of both faces."""
    shape = tuple(n - (i in axes) for i, n in enumerate(array.shape))
    return FileArray(partial(_read_centred, array, tuple(axes)), array.path, array.name, shape, array.dtype)


def _read_centred(array: FileArray, axes: Sequence[int], path: Path, name: str, index: Any) -> np.ndarray:
    block = np.asarray(array[tuple(slice(None) if i in axes else part for i, part in enumerate(index))])
    kept = [i for i, part in enumerate(index) if isinstance(part, slice) or i in axes]
    for axis in axes:
        block = np.moveaxis(block, kept.index(axis), 0)
        block = np.moveaxis((block[1:] + block[:-1]) / 2, 0, kept.index(axis))
    return block[tuple(index[i] if i in axes else slice(None) for i in kept)]
