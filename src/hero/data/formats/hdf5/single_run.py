"""Layouts with one run per file, so that a folder has a trajectory per file: RealPDEBench, BubbleML, ERA5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from hero.data.formats.arrays import channels_of, time_step
from hero.data.formats.hdf5.axes import grid_axes, order_axes, space_of
from hero.data.formats.hdf5.slabs import States, coordinates, dataset_of, is_dataset, numbers, slabs_of
from hero.data.recording import Channel, Recording, Trajectory

BUBBLES = ("temperature", "velx", "vely", "dfun", "pressure")


def _recording(
    format: str,
    path: Path,
    file: h5py.File,
    names: Sequence[str],
    axes: str,
    channels: Sequence[Channel],
    grid: Sequence[np.ndarray | None] = (),
    letters: str = "xyz",
) -> Recording:
    shape = dataset_of(file, names[0]).shape
    space, frames = space_of(axes, shape), shape[axes.index("t")]
    dt, notes = time_step(coordinates(file, ["t", "time"], frames))
    run = Trajectory(frames, States(slabs_of(file, path, names, axes, space)), numbers(file.attrs))
    return Recording(format, (path,), tuple(channels), grid_axes(space, grid, letters), dt, [run], notes=notes)


def is_realpdebench(file: h5py.File) -> bool:
    """Measured fields."""
    return is_dataset(file, "measured_data", (4,)) or is_dataset(file.get("measured_data"), "u", (3,))


def read_realpdebench(path: Path, file: h5py.File, layout: str) -> Recording:
    """Fields (time, y, x) in a group, or (time, y, x, channel) in one dataset."""
    measured = file["measured_data"]
    if isinstance(measured, h5py.Dataset):
        axes = order_axes(path, measured, layout, "txyc", {})
        names, channels = ["measured_data"], channels_of("u", measured.shape[axes.index("c")])
    else:
        axes = order_axes(path, measured["u"], layout, "txy", {})
        labels = [
            name for name in measured if is_dataset(measured, name) and measured[name].shape == measured["u"].shape
        ]
        channels = tuple(Channel(name) for name in labels)
        names = [f"measured_data/{name}" for name in labels]
    return _recording("realpdebench", path, file, names, axes, channels, letters="yx")


def is_bubbleml(file: h5py.File) -> bool:
    """Temperature, velocities and the distance to the bubbles."""
    return all(is_dataset(file, name, (3,)) for name in BUBBLES[:4])


def read_bubbleml(path: Path, file: h5py.File, layout: str) -> Recording:
    """Fields (time, ., .); the datasets x and y are as large and say along which axis they grow."""
    names = [name for name in BUBBLES if is_dataset(file, name, (3,))]
    axes, letters = order_axes(path, dataset_of(file, names[0]), layout, "txy", {}), "yx"
    grid: list[np.ndarray | None] = [None, None]
    if is_dataset(file, "x", (3,)) and is_dataset(file, "y", (3,)):
        first = np.asarray(file["x"][0], np.float64)
        letters = "xy" if np.ptp(first[:, 0]) > np.ptp(first[0]) else "yx"
        low, fast = file[letters[0]], file[letters[1]]
        grid = [np.asarray(low[0, :, 0], np.float64), np.asarray(fast[0, 0, :], np.float64)]
    return _recording("bubbleml", path, file, names, axes, [Channel(name) for name in names], grid, letters)


def is_era5(file: h5py.File) -> bool:
    """`fields` alone."""
    return is_dataset(file, "fields", (4,))


def read_era5(path: Path, file: h5py.File, layout: str) -> Recording:
    """(time, channel, latitude, longitude); a year per file."""
    shape = dataset_of(file, "fields").shape
    axes = order_axes(path, file["fields"], layout, "tcxy", {})
    return _recording("era5", path, file, ["fields"], axes, channels_of("field", shape[axes.index("c")]), letters="yx")
