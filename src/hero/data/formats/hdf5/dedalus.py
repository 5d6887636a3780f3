"""Dedalus v3: `tasks/<field>` with labelled axes and scales attached; sets of one run follow each other in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import h5py
import numpy as np

from hero.data.handles import opened_hdf5
from hero.data.formats.arrays import time_step
from hero.data.formats.hdf5.axes import SPACE
from hero.data.formats.hdf5.slabs import Sequel, Slab, States, dataset_of
from hero.data.formats.join import check_alike
from hero.data.recording import Axis, Channel, Recording, Trajectory
from hero.errors import HeroError


def is_dedalus(file: h5py.File) -> bool:
    """Tasks and the scale of time."""
    return isinstance(file.get("tasks"), h5py.Group) and isinstance(file.get("scales/sim_time"), h5py.Dataset)


def read_dedalus(path: Path, file: h5py.File, layout: str) -> Recording:
    """The fields on the largest grid; others, such as averages, are left out with a note."""
    labels = {name: [dim.label for dim in dataset_of(file["tasks"], name).dims] for name in file["tasks"]}
    if not labels:
        raise HeroError(f"{path} has no tasks; add the fields to the handler's tasks.")
    spaces = {name: _space(file["tasks"][name]) for name in labels}
    full = max(spaces.values(), key=lambda space: (len(space), int(np.prod([points for _, points in space]))))
    names = [name for name, space in spaces.items() if space == full]
    for name in names:
        if not np.all(file["tasks"][name].attrs.get("grid_space", True)):
            raise HeroError(f"{path}: the task {name} holds coefficients; save it with layout='g'.")
    space = tuple(points for _, points in full)
    slabs, channels = [], []
    for name in names:
        shape, axes = file["tasks"][name].shape, _letters(labels[name])
        components = [length for length, letter in zip(shape, axes, strict=True) if letter in "cd"]
        slabs.append(Slab(path, f"tasks/{name}", axes, space, int(np.prod(components, dtype=int))))
        parts = product(*([axis for axis, _ in full] if n == len(full) else map(str, range(n)) for n in components))
        channels += [Channel("_".join([name, "".join(part)]) if part else name) for part in parts]
    times = np.asarray(file["scales/sim_time"][...], np.float64)
    left_out = [name for name in labels if name not in names]
    notes = (f"The tasks {', '.join(left_out)} are on another grid and left out.",) if left_out else ()
    dt, uneven = time_step(times)
    axes_of_space = tuple(Axis(name, _scale(file["tasks"][names[0]], name, points)) for name, points in full)
    run = Trajectory(len(times), States(tuple(slabs)))
    return Recording("dedalus", (path,), tuple(channels), axes_of_space, dt, [run], notes=(*notes, *uneven))


def _space(task: h5py.Dataset) -> tuple[tuple[str, int], ...]:
    """Names and points of the axes of space: the first axis is time, axes without a label are components."""
    return tuple((dim.label, n) for dim, n in zip(task.dims, task.shape, strict=True) if dim.label not in {"", "t"})


def _letters(labels: Sequence[str]) -> str:
    space, components = iter(SPACE), iter("cd")
    return "".join("t" if label == "t" else next(space if label else components) for label in labels)


def _scale(task: h5py.Dataset, label: str, points: int) -> np.ndarray:
    """The coordinates that are attached to an axis."""
    attached = next(dim for dim in task.dims if dim.label == label)
    return np.asarray(attached[0][...], np.float64) if len(attached) else np.arange(points, dtype=np.float64)


def join_dedalus(recordings: Sequence[Recording]) -> Recording:
    """The sets of one run, in the order of their times."""
    times = []
    for recording in recordings:
        with opened_hdf5(recording.files[0]) as file:
            times.append(np.asarray(file["scales/sim_time"][...], np.float64))
    order = sorted(range(len(times)), key=lambda index: times[index][:1].tolist())
    sets, clock = [recordings[index] for index in order], np.concatenate([times[index] for index in order])
    if np.any(np.diff(clock) <= 0):
        raise HeroError(
            f"the times of {sets[0].files[0]} and {sets[-1].files[0]} overlap, so that they are not sets of one run; "
            "open them separately."
        )
    dt, notes = time_step(clock)
    check_alike([replace(recording, dt=dt) for recording in sets])  # a set may have one state and no time step
    runs = [recording.trajectories[0] for recording in sets]
    whole = Trajectory(len(clock), Sequel(tuple(run.read for run in runs), tuple(run.frames for run in runs)))
    files = tuple(path for recording in sets for path in recording.files)
    own = [note for note in sets[0].notes if "left out" in note]
    return replace(sets[0], files=files, dt=dt, trajectories=[whole], notes=(*own, *notes))
