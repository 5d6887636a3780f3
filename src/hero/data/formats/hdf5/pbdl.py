"""PBDL: simulations `sims/sim0`, `sims/sim1`, ..., each a dataset or a group with a dataset per time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py

from hero.data.files.recording import Channel, Recording
from hero.data.formats.arrays import (
    FileArray,
    Slab,
    axes_of,
    channels_of,
    layout_of,
    length_of,
    recording_of,
    space_of,
    stacked,
)
from hero.data.formats.hdf5.datasets import array_of, arrays_of, check_lengths, dataset_of, is_dataset, numbers, words
from hero.errors import HeroError


def is_pbdl(file: h5py.File) -> bool:
    """A group `sims` with sim0 in it."""
    return isinstance(file.get("sims"), h5py.Group) and bool(_simulations(file))


def _simulations(file: h5py.File) -> list[str]:
    names = [name for name in file["sims"] if name[:3] == "sim" and name[3:].isdecimal()]
    return sorted(names, key=lambda name: int(name[3:]))


def read_pbdl(path: Path, file: h5py.File, layout: str) -> Recording:
    """A trajectory per simulation; its attributes are constants of the equation."""
    sims = file["sims"]
    fields = words(sims.attrs.get("Fields", []))
    parts = {name: _parts(path, sims, name) for name in _simulations(file)}
    first = next(iter(parts.values()))[0]
    by_frame = "/" in first
    axes = _axes(path, file, dataset_of(sims, first), "" if by_frame else "t", len(fields), layout)
    one = array_of(path, sims, first)
    named, count = tuple(Channel(label.replace(" ", "_")) for label in fields), length_of("c", axes, one.shape)
    channels = named if len(named) == count else channels_of("u", count)
    space, dt, runs = space_of(axes, one.shape), numbers(sims.attrs).get("Dt", 1.0), list[Recording]()
    for name, names in parts.items():
        arrays = arrays_of(path, sims, names, axes, free="")
        check_lengths(one, axes, arrays[0], axes, free="t")
        array = stacked(_itself, arrays, arrays[0]) if by_frame else arrays[0]
        slab = Slab(array, "t" * by_frame + axes, space, channels)
        scalars = {constant: [value] for constant, value in numbers(sims[name].attrs).items()}
        runs.append(recording_of("pbdl", (path,), [slab], axes_of(space, {}), scalars=scalars, dt=dt))
    return replace(runs[0], trajectories=[run for part in runs for run in part.trajectories])


def _itself(array: FileArray) -> FileArray:
    return array


def _parts(path: Path, sims: h5py.Group, name: str) -> list[str]:
    """The datasets of a simulation: its own, or one per time."""
    if not isinstance(sims[name], h5py.Group):
        return [name]
    times = sorted((time for time in sims[name] if time.isdecimal() and is_dataset(sims[name], time)), key=int)
    if not times:
        raise HeroError(f"{path}: sims/{name} is a group without numbered datasets; check the file.")
    return [f"{name}/{time}" for time in times]


def _axes(path: Path, file: h5py.File, data: h5py.Dataset, time: str, fields: int, layout: str) -> str:
    """Fields come before space, or after it where only that fits the number of fields."""
    statistics = file.get("norm_fields_sca_mean")
    known = statistics.shape[0] if isinstance(statistics, h5py.Dataset) and statistics.ndim else fields
    space, before, after = "xyz"[: data.ndim - len(time) - 1], data.shape[len(time)], data.shape[-1]
    if known and before != known == after:
        return f"{time}{space}c"
    if layout:
        return layout_of(layout, data.shape, {}, name=data.name, path=path)
    if known and before != known:
        raise HeroError(f"{path}: no axis of {data.name} {data.shape} is the {known} fields; set data.layout=tcxy.")
    return f"{time}c{space}"
