"""Poseidon (PDEgym): `velocity`, `data` or `solution`, (trajectory, time[, channel], x, y); DPOT: channels last.

Both may call their dataset `data`; its square tells which two axes are space.
"""

from __future__ import annotations

from pathlib import Path

import h5py

from hero.data.formats.arrays import channels_of, time_step
from hero.data.formats.hdf5.axes import grid_axes, length_of, order_axes, space_of
from hero.data.formats.hdf5.slabs import Fields, Slab, States, coordinates, dataset_of, is_dataset, slabs_of
from hero.data.recording import Channel, Recording, Trajectory
from hero.errors import HeroError

CHANNELS = {
    "velocity": ("velocity_x", "velocity_y", "tracer"),
    "data": ("density", "velocity_x", "velocity_y", "pressure", "tracer"),
}


def _dataset(file: h5py.File) -> str | None:
    found = [name for name in ("velocity", "data", "solution") if is_dataset(file, name, (3, 4, 5))]
    return found[0] if len(found) == 1 else None


def _square(file: h5py.File, first: int) -> bool:
    """Whether two neighbouring axes of the dataset have one length, which is more than channels have."""
    shape = file[_dataset(file)].shape
    return shape[first] == shape[first + 1] > 1


def is_poseidon(file: h5py.File) -> bool:
    """Space is last."""
    name = _dataset(file)
    if name is None or not _square(file, -2):
        return False
    few = file[name].ndim == 5 and file[name].shape[2] <= len(CHANNELS.get(name, ()))
    return name == "solution" or (few and (name == "velocity" or not _square(file, 1)))


def read_poseidon(path: Path, file: h5py.File, layout: str) -> Recording:
    """States on the last two axes; `c` conditions them."""
    name = _dataset(file) or ""
    shape = dataset_of(file, name).shape
    if len(shape) == 3 or shape[1] == 1:
        raise HeroError(f"{path} has one {name} {shape} per sample, which is steady; choose a file of trajectories.")
    axes = order_axes(path, file[name], layout, {4: "btxy", 5: "btcxy"}[len(shape)], {})
    components = length_of("c", axes, shape)
    known = tuple(Channel(label) for label in CHANNELS.get(name, ())[:components])
    channels = known if len(known) == components else channels_of("u", components)
    speed = is_dataset(file, "c", (3,)) and file["c"].shape == (length_of("b", axes, shape), *space_of(axes, shape))
    return _recording("poseidon", path, file, name, axes, channels, "c" if speed else "")


def is_dpot(file: h5py.File) -> bool:
    """Space is before time and channels."""
    return (
        _dataset(file) == "data"
        and file["data"].ndim > 3
        and not _square(file, -2)
        and _square(file, file["data"].ndim - 4)
    )


def read_dpot(path: Path, file: h5py.File, layout: str) -> Recording:
    """(trajectory, x, y, time, channel), or one trajectory per file."""
    shape = dataset_of(file, "data").shape
    axes = order_axes(path, file["data"], layout, {4: "xytc", 5: "bxytc"}[len(shape)], {})
    return _recording("dpot", path, file, "data", axes, channels_of("u", length_of("c", axes, shape)))


def _recording(
    format: str, path: Path, file: h5py.File, name: str, axes: str, channels: tuple[Channel, ...], field: str = ""
) -> Recording:
    shape = file[name].shape
    space, frames = space_of(axes, shape), length_of("t", axes, shape)
    (slab,) = slabs_of(file, path, [name], axes, space)
    dt, notes = time_step(coordinates(file, ["t", "time"], frames))
    trajectories = [
        Trajectory(
            frames,
            States((slab.of(index),)),
            fields=Fields((Slab(path, field, "bxy", space, 1, index),)) if field else None,
        )
        for index in range(length_of("b", axes, shape))
    ]
    grid = grid_axes(space, [coordinates(file, [letter], points) for letter, points in zip("xyz", space, strict=False)])
    return Recording(
        format, (path,), channels, grid, dt, trajectories, field_names=(field,) if field else (), notes=notes
    )
