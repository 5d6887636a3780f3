"""PBDL: simulations `sims/sim0`, `sims/sim1`, ..., each a dataset or a group with a dataset per time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from hero.data.formats.arrays import channels_of
from hero.data.formats.hdf5.axes import SPACE, grid_axes, length_of, order_axes, space_of
from hero.data.formats.hdf5.slabs import Sequel, States, dataset_of, is_dataset, numbers, slabs_of, words
from hero.data.recording import Channel, Recording, Trajectory
from hero.errors import HeroError


def is_pbdl(file: h5py.File) -> bool:
    """A group `sims` with sim0 in it."""
    return isinstance(file.get("sims"), h5py.Group) and bool(_simulations(file))


def _simulations(file: h5py.File) -> list[str]:
    names = [name for name in file["sims"] if name[:3] == "sim" and name[3:].isdecimal()]
    return sorted(names, key=lambda name: int(name[3:]))


def _frames(item: Any) -> list[str]:
    return sorted((name for name in item if name.isdecimal() and is_dataset(item, name)), key=int)


def read_pbdl(path: Path, file: h5py.File, layout: str) -> Recording:
    """A trajectory per simulation; its attributes are constants of the equation."""
    sims = file["sims"]
    fields = words(sims.attrs["Fields"]) if "Fields" in sims.attrs else []
    dt = numbers(sims.attrs).get("Dt", 1.0)
    runs, grids, counts = [], set(), set()
    for name in _simulations(file):
        parts = _frames(sims[name]) if isinstance(sims[name], h5py.Group) else [""]
        if not parts:
            raise HeroError(f"{path}: sims/{name} is a group without numbered datasets; check the file.")
        shape = dataset_of(sims, f"{name}/{parts[0]}".rstrip("/")).shape
        axes = _axes(
            path, file, dataset_of(sims, f"{name}/{parts[0]}".rstrip("/")), "" if parts[0] else "t", len(fields), layout
        )
        space = space_of(axes, shape)
        slabs = [slabs_of(file, path, [f"sims/{name}/{part}".rstrip("/")], axes, space) for part in parts]
        single = States(slabs[0])
        read = Sequel(tuple(States(slab) for slab in slabs), (1,) * len(slabs)) if parts[0] else single
        runs.append(
            Trajectory(length_of("t", axes, shape) if not parts[0] else len(parts), read, numbers(sims[name].attrs))
        )
        grids.add(space)
        counts.add(slabs[0][0].components)
    if len(grids) > 1 or len(counts) > 1:
        raise HeroError(f"{path}: the simulations have different shapes, {sorted(grids)}; split the file by shape.")
    count = counts.pop()
    named = tuple(Channel(label.replace(" ", "_")) for label in fields)
    channels = named if len(named) == count else channels_of("u", count)
    return Recording("pbdl", (path,), channels, grid_axes(grids.pop()), dt, runs)


def _axes(path: Path, file: h5py.File, data: h5py.Dataset, time: str, fields: int, layout: str) -> str:
    """Fields come before space, or after it where only that fits the number of fields."""
    statistics = file.get("norm_fields_sca_mean")
    known = statistics.shape[0] if isinstance(statistics, h5py.Dataset) and statistics.ndim else fields
    shape = data.shape
    letters = SPACE[: len(shape) - len(time) - 1]
    if known and shape[len(time)] != known == shape[-1]:
        return f"{time}{letters}c"
    return order_axes(path, data, layout, f"{time}c{letters}", {"c": {known}} if known else {})
