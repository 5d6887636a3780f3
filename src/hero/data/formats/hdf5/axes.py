"""Which axis of a dataset is which.

An axis has a letter: b trajectory, t time, c and d components, x y z the axes of space in the order of the recording.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import h5py
import numpy as np

from hero.data.formats.arrays import layout_of
from hero.data.recording import Axis
from hero.errors import HeroError

SPACE = "xyz"


def order_axes(
    path: Path, data: h5py.Dataset, layout: str, documented: str, lengths: Mapping[str, Collection[int]]
) -> str:
    """A letter per axis: the user's layout, else the documented order where the coordinates have its lengths,
    else the only order that fits them."""
    if layout:
        if "p" in layout:
            raise HeroError(
                f"data.layout={layout!r} names points, which are read from .npz files only; save it as one."
            )
        return layout_of(layout, data.shape, {}, name=data.name, path=path)
    fitting = {
        "".join(order)
        for order in permutations(documented)
        if len(data.shape) == len(documented)
        and all(length in lengths.get(letter, [length]) for letter, length in zip(order, data.shape, strict=True))
    }
    if documented in fitting:
        return documented
    if len(fitting) == 1:
        return fitting.pop()
    told = ", ".join(f"{letter}: {' or '.join(map(str, sorted(of)))}" for letter, of in lengths.items())
    raise HeroError(
        f"{path}: the axes of {data.name} {data.shape} cannot be told from the lengths of its coordinates "
        f"({told or 'none'}); name them in their order with `--set data.layout`, as in {documented}."
    )


def length_of(letter: str, axes: str, shape: Sequence[int]) -> int:
    """Entries along the axis of that letter; 1 where the array has none."""
    return shape[axes.index(letter)] if letter in axes else 1


def space_of(axes: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Grid points per axis of space."""
    return tuple(length_of(letter, axes, shape) for letter in SPACE if letter in axes)


def grid_axes(
    space: Sequence[int], coordinates: Sequence[np.ndarray | None] = (), names: str = SPACE
) -> tuple[Axis, ...]:
    """An axis per number of points, with its coordinates where they are known."""
    known = [*coordinates, *(None for _ in space)]
    return tuple(
        Axis(name, np.arange(points, dtype=np.float64) if values is None else np.asarray(values, np.float64))
        for name, points, values in zip(names, space, known, strict=False)
    )
