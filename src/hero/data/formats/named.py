"""Arrays by name, as in .npz files: `u`, or `train`, `val` and `test`, with `x`, `y`, `t`, `dt` and `mu` if there.

A point cloud has `coords` (points, dimension), perhaps `weights` (points,), and `u` of the layout btcp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hero.data.formats.arrays import LazyArray, describe, layout_of, recording_of, time_step, whole, with_scalars
from hero.data.recording import SPELLINGS, Recording, Trajectory
from hero.errors import HeroError

STATES = ("u", "data", "solution", "tensor", "states", "usol", "uu", "y", "arr_0")
"""Names under which people store the states."""
CONDITIONS = ("mu", "params", "parameters")
COORDINATES = {"t": ("t", "tt", "time", "times"), "x": ("x", "xx"), "y": ("y", "yy"), "z": ("z", "zz")}
LARGEST_SMALL = 1 << 22
"""Numbers of a coordinate or table that is read at once."""


def read_named(path: Path, arrays: Mapping[str, LazyArray], layout: str, *, form: str = "npz") -> Recording:
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
    dt, notes = time_step(coordinates.get("t"))
    if "dt" in numbers and math.prod(numbers["dt"].shape) == 1:
        dt, notes = float(_small(numbers, "dt").item()), ()
    recording = recording_of(
        form,
        (path,),
        {split: numbers[name] for split, name in states.items()},
        layout,
        name="u" if name in ("data", "arr_0") or "" not in states else name,
        coordinates=coordinates,
        dt=dt,
        notes=(f"The axes of {', '.join(states.values())} {tuple(first.shape)} are read as {layout}.", *notes),
    )
    weights = _small(numbers, "weights") if cloud is not None and "weights" in numbers else None
    if cloud is not None:
        _check_cloud(path, cloud, weights, recording.space)
    rows = [one for split in states for one in _conditioned(path, numbers, recording.trajectories, split)]
    return replace(recording, trajectories=rows, points=cloud, weights=weights)


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
    if math.prod(arrays[name].shape) > LARGEST_SMALL:
        raise HeroError(f"{name} {tuple(arrays[name].shape)} is too large for a coordinate or a table; rename it.")
    return whole(arrays[name])


def _conditioned(
    path: Path, numbers: Mapping[str, LazyArray], trajectories: Sequence[Trajectory], split: str
) -> list[Trajectory]:
    """The trajectories of a split with their conditioning numbers: mu, or mu_train of the split train."""
    chosen = [trajectory for trajectory in trajectories if trajectory.split == split]
    spellings = [word for word, meaning in SPELLINGS.items() if meaning == split]
    for name in CONDITIONS:
        for candidate in (*(f"{name}_{word}" for word in spellings), *(f"{word}_{name}" for word in spellings), name):
            if candidate in numbers:
                return with_scalars(chosen, name, _small(numbers, candidate), path)
    return chosen


def _check_cloud(path: Path, cloud: np.ndarray, weights: np.ndarray | None, space: tuple[int, ...]) -> None:
    if cloud.ndim != 2 or (len(cloud),) != space or (weights is not None and weights.shape != space):
        found = f"coords {cloud.shape}" + ("" if weights is None else f" and weights {weights.shape}")
        raise HeroError(
            f"{path}: {found} do not fit {math.prod(space)} points; save coords (points, dimension), weights (points,)."
        )
