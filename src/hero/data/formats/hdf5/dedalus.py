"""Dedalus v3: `tasks/<field>` with labelled axes and scales attached; sets of one run follow each other in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import h5py
import numpy as np

from hero.data.files.recording import Axis, Channel, Recording
from hero.data.formats.arrays import COMPONENTS, Slab, recording_of
from hero.data.formats.folders import join
from hero.data.formats.hdf5.datasets import array_of, dataset_of, first_row, is_dataset
from hero.errors import HeroError

TIMES = "scales/sim_time"


def is_dedalus(file: h5py.File) -> bool:
    """Tasks and the scale of time."""
    return isinstance(file.get("tasks"), h5py.Group) and is_dataset(file, TIMES, (1,))


def read_dedalus(path: Path, file: h5py.File, layout: str) -> Recording:
    """The fields on the largest grid; others, such as averages, are left out with a note."""
    tasks = {name: dataset_of(file["tasks"], name) for name in file["tasks"]}
    if not tasks:
        raise HeroError(f"{path} has no tasks; add the fields to the handler's tasks.")
    full = max(map(_space, tasks.values()), key=lambda space: (len(space), math.prod(space.values())))
    fields = {name: task for name, task in tasks.items() if _space(task) == full}
    grid = tuple(Axis(name, _scale(next(iter(fields.values())), name, points)) for name, points in full.items())
    slabs = []
    for name, task in fields.items():
        if not np.all(task.attrs.get("grid_space", True)):
            raise HeroError(f"{path}: the task {name} holds coefficients; save it with layout='g'.")
        axes, space = _letters(task), dict(zip("xyz", full.values(), strict=False))
        components = [n for n, letter in zip(task.shape, axes, strict=True) if letter in COMPONENTS]
        parts = product(*(full if n == len(full) else map(str, range(n)) for n in components))
        channels = tuple(Channel("_".join(filter(None, [name, "".join(part)]))) for part in parts)
        slabs.append(Slab(array_of(path, file["tasks"], name), axes, space, channels))
    left_out = [name for name in tasks if name not in fields]
    notes = (f"The tasks {', '.join(left_out)} are on another grid and left out.",) if left_out else ()
    return recording_of("dedalus", (path,), slabs, grid, clock=first_row(dataset_of(file, TIMES)), notes=notes)


def _space(task: h5py.Dataset) -> dict[str, int]:
    """Points of the axes of space by name: the first axis is time, axes without a label are components."""
    return {dim.label: n for dim, n in zip(task.dims, task.shape, strict=True) if dim.label not in {"", "t"}}


def _letters(task: h5py.Dataset) -> str:
    space, components = iter("xyz"), iter(COMPONENTS)
    labels = [dim.label for dim in task.dims]
    return "".join("t" if label == "t" else next(space if label else components) for label in labels)


def _scale(task: h5py.Dataset, label: str, points: int) -> np.ndarray:
    """The coordinates that are attached to an axis."""
    attached = next(dim for dim in task.dims if dim.label == label)
    return np.asarray(attached[0][...] if len(attached) else np.arange(points), np.float64)


def join_dedalus(recordings: Sequence[Recording]) -> Recording:
    """The sets of one run, in the order of their times."""
    joined = join(recordings)
    if len(joined.trajectories) > 1:
        ends = f"{recordings[0].files[0]} and {recordings[-1].files[0]}"
        raise HeroError(f"the times of {ends} overlap, so they are not sets of one run; open them separately.")
    return joined
