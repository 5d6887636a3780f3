"""Arrays by name, as in .npz files: `u`, or `train`, `val` and `test`, with `x`, `y`, `t`, `dt` and `mu` if there.

A point cloud has `coords` (points, dimension), perhaps `weights` (points,), and `u` of the layout btcp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.formats.arrays import (
    LazyArray,
    axes_of,
    channels_of,
    describe,
    layout_of,
    length,
    slabs,
    time_step,
    with_scalars,
)
from hero.data.recording import SPELLINGS, Recording, Trajectory
from hero.errors import HeroError

STATES = ("u", "data", "solution", "tensor", "states", "usol", "uu", "y", "arr_0")
"""Names under which people store the states."""
CONDITIONS = ("mu", "params", "parameters")
COORDINATES = {"t": ("t", "tt", "time", "times"), "x": ("x", "xx"), "y": ("y", "yy"), "z": ("z", "zz")}
LARGEST_SMALL = 1 << 22
"""Numbers of a coordinate or table that is read at once."""


def read_named(path: Path, arrays: Mapping[str, Any], layout: str, *, form: str = "npz") -> Recording:
    """The trajectories in arrays by name."""
    numbers = {name: array for name, array in arrays.items() if np.dtype(array.dtype).kind in "fiubc"}
    states = _states(path, numbers, arrays)
    coordinates = coordinates_of(numbers, skip=set(states.values()))
    cloud = _small(numbers, "coords") if "coords" in numbers else None
    lengths = {letter: len(values) for letter, values in coordinates.items()}
    if cloud is not None:
        lengths = {"p": len(cloud), **({"t": lengths["t"]} if "t" in lengths else {})}
    first = numbers[next(iter(states.values()))]
    if cloud is not None and not layout and len(first.shape) == 4 and first.shape[3] == len(cloud):
        layout = "btcp"
    trajectories: list[Trajectory] = []
    for split, name in states.items():
        word = layout_of(layout, numbers[name].shape, lengths, name=name, path=path)
        layout = layout or word
        trajectories += _conditioned(path, numbers, slabs(numbers[name], word, split), split)
    _check_same(path, {name: numbers[name] for name in states.values()}, layout)
    dt, notes = time_step(coordinates.get("t"))
    if "dt" in numbers and math.prod(numbers["dt"].shape) == 1:
        dt, notes = float(np.asarray(_small(numbers, "dt")).item()), ()
    weights = _small(numbers, "weights") if cloud is not None and "weights" in numbers else None
    if cloud is not None:
        _check_cloud(path, cloud, weights, length(first, layout, "p"))
    name = states.get("", "u")
    return Recording(
        format=form,
        files=(path,),
        channels=channels_of("u" if name in ("data", "arr_0") else name, length(first, layout, "c")),
        axes=axes_of(first, layout, coordinates),
        dt=dt,
        trajectories=trajectories,
        points=cloud,
        weights=weights,
        notes=(f"The axes of {', '.join(states.values())} {tuple(first.shape)} are read as {layout}.", *notes),
    )


def _states(path: Path, numbers: Mapping[str, LazyArray], arrays: Mapping[str, LazyArray]) -> dict[str, str]:
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


def coordinates_of(arrays: Mapping[str, LazyArray], skip: set[str]) -> dict[str, np.ndarray]:
    """Arrays with one long axis that are named as a coordinate, as (points,) float64."""
    found = {}
    for letter, names in COORDINATES.items():
        for name in names:
            shape = arrays[name].shape if name in arrays and name not in skip else ()
            # a (1, points) or (points, 1) array is how MATLAB keeps a vector
            if max(shape, default=0) > 1 and math.prod(shape) == max(shape) and letter not in found:
                found[letter] = np.asarray(_small(arrays, name), dtype=np.float64).ravel()
    return found


def _small(arrays: Mapping[str, LazyArray], name: str) -> np.ndarray:
    array = arrays[name]
    if math.prod(array.shape) > LARGEST_SMALL:
        raise HeroError(f"{name} {tuple(array.shape)} is too large for a coordinate or a table; rename it.")
    return np.asarray(array[...])


def _conditioned(
    path: Path, numbers: Mapping[str, LazyArray], trajectories: list[Trajectory], split: str
) -> list[Trajectory]:
    spellings = [name for name, meaning in SPELLINGS.items() if meaning == split] if split else []
    for name in CONDITIONS:
        candidates = [f"{name}_{word}" for word in spellings] + [f"{word}_{name}" for word in spellings] + [name]
        for candidate in candidates:
            if candidate in numbers:
                table = _small(numbers, candidate)
                return with_scalars(trajectories, name, table, path)
    return trajectories


def _check_same(path: Path, states: Mapping[str, LazyArray], layout: str) -> None:
    """All splits on one grid; only trajectories and frames may differ in number."""
    grids = {
        tuple(n for letter, n in zip(layout, array.shape, strict=True) if letter not in "bt")
        for array in states.values()
    }
    if len(grids) > 1:
        raise HeroError(f"{path}: the splits {describe(states)} differ in channels or grid; save them on one grid.")


def _check_cloud(path: Path, cloud: np.ndarray, weights: np.ndarray | None, points: int) -> None:
    if cloud.ndim != 2 or len(cloud) != points or (weights is not None and weights.shape != (points,)):
        found = f"coords {cloud.shape}" + ("" if weights is None else f" and weights {weights.shape}")
        raise HeroError(
            f"{path}: {found} do not fit {points} points; save coords (points, dimension), weights (points,)."
        )


def with_first_frames(trajectories: list[Trajectory], initial: LazyArray) -> list[Trajectory]:
    """Trajectories with a row of `initial`, (trajectory, *space), put before their first frame."""

    def longer(row: int, trajectory: Trajectory) -> Trajectory:
        def read(frames: slice, channels: Any) -> np.ndarray:
            wanted = range(trajectory.frames + 1)[frames]
            later = [frame - 1 for frame in wanted if frame > 0]
            low, high = (min(later), max(later) + 1) if later else (0, 0)
            stored = trajectory.read(slice(low, high), channels)
            start = np.asarray(initial[row : row + 1], dtype=stored.dtype)[:, None].repeat(len(channels), axis=1)
            return np.concatenate([start, stored])[[0 if frame == 0 else frame - low for frame in wanted]]

        return replace(trajectory, frames=trajectory.frames + 1, read=read)

    return [longer(row, trajectory) for row, trajectory in enumerate(trajectories)]
