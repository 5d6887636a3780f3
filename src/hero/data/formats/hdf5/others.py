"""Our own files, a file with one array whose axes the user names, and particles, which are refused."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

from hero.data.formats.arrays import channels_of, layout_of
from hero.data.formats.hdf5.axes import grid_axes, length_of, space_of
from hero.data.formats.hdf5.slabs import States, dataset_of, is_dataset, slabs_of, words
from hero.data.formats.xarray import has_dimensions
from hero.data.recording import Axis, Recording, Trajectory
from hero.data.task import NUMERICS
from hero.errors import HeroError


def is_own(file: h5py.File) -> bool:
    """`u` with the settings of a task."""
    return is_dataset(file, "u") and "settings" in file.attrs and "solver_version" in file.attrs


def read_own(path: Path, file: h5py.File, layout: str) -> Recording:
    """(trajectory, time, channel, *space) on a periodic box; the coefficients condition it."""
    shape, settings = dataset_of(file, "u").shape, json.loads(file.attrs["settings"])
    axes = "btcxyz"[: len(shape)]
    space = space_of(axes, shape)
    (slab,) = slabs_of(file, path, ["u"], axes, space)
    scalars = {
        name: float(value)
        for name, value in settings.items()
        if name not in NUMERICS and isinstance(value, int | float)
    }
    split = str(file.attrs.get("split", ""))
    drawn: list[dict[str, float]] = [{} for _ in range(shape[0])] if "mu" not in file else _drawn(file["mu"])
    trajectories = [
        Trajectory(shape[1], States((slab.of(index),)), scalars | numbers, split=split)
        for index, numbers in enumerate(drawn)
    ]
    grid = tuple(
        Axis(name, np.arange(points) * (settings["extent"] / points), periodic=True)
        for name, points in zip("xyz", space, strict=False)
    )
    return Recording("hero", (path,), channels_of("u", slab.components), grid, float(settings["dt"]), trajectories)


def _drawn(mu: h5py.Dataset) -> list[dict[str, float]]:
    """The coefficients that every trajectory drew from a range."""
    return [dict(zip(words(mu.attrs["names"]), map(float, row), strict=True)) for row in mu[...]]


def is_particles(file: h5py.File) -> bool:
    """Positions and types of particles, in numbered groups (LagrangeBench)."""
    first = next((file.get(name) for name in file if name.isdecimal()), None)
    return is_dataset(first, "position", (3,)) and is_dataset(first, "particle_type")


def refuse_particles(path: Path, file: h5py.File, layout: str) -> Recording:
    """Particles have no grid."""
    raise HeroError(
        f"{path} holds particles (LagrangeBench), which move; hero reads states on a grid or on fixed points."
    )


def _arrays(file: h5py.File) -> list[str]:
    """The datasets of numbers with three axes or more."""
    found: list[str] = []

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim >= 3 and item.dtype.kind in "fiuc":
            found.append(name)

    file.visititems(collect)
    return found


def is_array(file: h5py.File) -> bool:
    """One array alone; NetCDF says more about its axes and has its own reader."""
    return len(_arrays(file)) == 1 and not has_dimensions(file)


def read_array(path: Path, file: h5py.File, layout: str) -> Recording:
    """The array, with axes as the layout says."""
    (name,) = _arrays(file)
    shape = file[name].shape
    axes = layout_of(layout, shape, {}, name=name, path=path)
    space = space_of(axes, shape)
    (slab,) = slabs_of(file, path, [name], axes, space)
    frames, count = length_of("t", axes, shape), length_of("b", axes, shape)
    runs = [Trajectory(frames, States((slab.of(index),))) for index in range(count)]
    channels = channels_of(name.rpartition("/")[2], slab.components)
    return Recording("array", (path,), channels, grid_axes(space), 1.0, runs)
