"""PBDL: simulations `sims/sim0`, `sims/sim1`, ..., each a dataset or a group with a dataset per time."""

from __future__ import annotations

from pathlib import Path

import h5py

from hero.data.files.recording import Channel, Recording, Trajectory
from hero.data.formats.arrays import Sequel, Slab, States, axes_of, channels_of, layout_of, length_of, space_of
from hero.data.formats.hdf5.datasets import arrays_of, check_lengths, dataset_of, is_dataset, numbers, words
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
    axes = _axes(path, file, dataset_of(sims, first), "" if "/" in first else "t", len(fields), layout)
    arrays = {name: arrays_of(path, sims, names, axes, free="") for name, names in parts.items()}
    one, runs = next(iter(arrays.values()))[0], []
    for name, states in arrays.items():
        check_lengths(one, axes, states[0], axes, free="t")
        reads = [States([Slab(array, axes, space_of(axes, array.shape))]) for array in states]
        lengths = [length_of("t", axes, array.shape) for array in states]
        read = Sequel(reads, lengths) if len(reads) > 1 else reads[0]
        runs.append(Trajectory(sum(lengths), read, numbers(sims[name].attrs)))
    named = tuple(Channel(label.replace(" ", "_")) for label in fields)
    count = length_of("c", axes, one.shape)
    channels = named if len(named) == count else channels_of("u", count)
    dt = numbers(sims.attrs).get("Dt", 1.0)
    return Recording("pbdl", (path,), channels, axes_of(space_of(axes, one.shape), {}), dt, runs)


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
