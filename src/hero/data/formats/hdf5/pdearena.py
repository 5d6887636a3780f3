"""PDEArena: a group train, valid or test with fields (trajectory, time, *space), coordinates and numbers."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from hero.data.formats.arrays import time_step
from hero.data.formats.hdf5.axes import SPACE, grid_axes, length_of, order_axes, space_of
from hero.data.formats.hdf5.slabs import States, coordinates, dataset_of, differing_rows, is_dataset, slabs_of
from hero.data.formats.join import join
from hero.data.recording import SPELLINGS, Channel, Recording, Trajectory

STEPS = ("dt", "dx", "dy", "dz")


def is_pdearena(file: h5py.File) -> bool:
    """Groups of these names, and nothing else, with at least one field and times."""
    return len(file) > 0 and all(
        name in SPELLINGS and _fields(file, name) and is_dataset(file.get(name), "t") for name in file
    )


def _fields(file: h5py.File, split: str) -> list[str]:
    group = file.get(split)
    return [name for name in group if is_dataset(group, name, (3, 4, 5))] if isinstance(group, h5py.Group) else []


def read_pdearena(path: Path, file: h5py.File, layout: str) -> Recording:
    """All splits of a file."""
    return join([_read_split(path, file, split, layout) for split in file])


def _read_split(path: Path, file: h5py.File, split: str, layout: str) -> Recording:
    group, names = file[split], _fields(file, split)
    shape = dataset_of(group, names[0]).shape
    letters = SPACE[: len(shape) - 2]
    lengths = {name: {group[name].shape[-1]} for name in ("t", *letters) if is_dataset(group, name, (1, 2))}
    axes = order_axes(path, group[names[0]], layout, f"bt{letters}", lengths)
    space, frames, count = space_of(axes, shape), length_of("t", axes, shape), length_of("b", axes, shape)
    slabs = slabs_of(file, path, [f"{split}/{name}" for name in names], axes, space)
    scalars = {
        name: np.asarray(group[name][...], np.float64)
        for name in group
        if name not in STEPS and is_dataset(group, name, (1,)) and group[name].shape == (count,) and name not in lengths
    }
    trajectories = [
        Trajectory(
            frames,
            States(tuple(slab.of(index) for slab in slabs)),
            {name: float(values[index]) for name, values in scalars.items()},
            split=SPELLINGS[split],
        )
        for index in range(count)
    ]
    dt, notes = time_step(coordinates(group, ["t"], frames))
    uneven = differing_rows(group, ["t", *letters])
    grid = grid_axes(
        space, [coordinates(group, [letter], points) for letter, points in zip(letters, space, strict=True)]
    )
    return Recording(
        "pdearena", (path,), tuple(Channel(name) for name in names), grid, dt, trajectories, notes=(*notes, *uneven)
    )
