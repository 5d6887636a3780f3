"""HDF5 files of no published layout: datasets by name, in one group or in one group per trajectory or split."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from pathlib import Path

import h5py

from hero.data.files.recording import SPELLINGS, Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.folders import join
from hero.data.formats.hdf5.datasets import array_of, datasets_in, is_dataset, numbers, shortest_names
from hero.data.formats.named import read_named
from hero.data.formats.xarray import has_dimensions


def is_fields(file: h5py.File) -> bool:
    """Whether there is an array of numbers that may be states; NetCDF names its dimensions, and is read as such."""
    return not has_dimensions(file) and any(data.ndim > 1 for data in _numeric(file).values())


def read_fields(path: Path, file: h5py.File, layout: str) -> Recording:
    """The trajectories in datasets by name; numbers among the attributes are conditioning."""
    groups = [item for item in file.values() if isinstance(item, h5py.Group) and _numeric(item)]
    if len(groups) > 1 and len({frozenset(_numeric(group)) for group in groups}) == 1:
        return join([_read_group(path, file, group, layout) for group in groups])
    return _read_group(path, file, file, layout)


def _read_group(path: Path, file: h5py.File, group: h5py.Group, layout: str) -> Recording:
    """A group with what the root says for all."""
    arrays = arrays_in(path, group)
    if group.name != "/":
        shared = {n: array_of(path, file, n) for n, data in _numeric(file, deep=False).items() if data.ndim < 2}
        arrays = {**shared, **arrays}
    facts = {n: v for n, v in (numbers(file.attrs) | numbers(group.attrs)).items() if n not in arrays}
    recording = read_named(path, arrays, layout, form="array")
    dt, split = facts.pop("dt", recording.dt), SPELLINGS.get(posixpath.basename(group.name), "")
    runs = [replace(one, scalars=facts | dict(one.scalars), split=one.split or split) for one in recording.trajectories]
    return replace(recording, trajectories=runs, dt=dt if dt > 0 else recording.dt)


def arrays_in(path: Path, group: h5py.Group) -> dict[str, FileArray]:
    """The datasets of numbers in a group and below it; nested ones go by their last name where it is the only one."""
    return shortest_names({name: array_of(path, group, name) for name in _numeric(group)})


def _numeric(group: h5py.Group, deep: bool = True) -> dict[str, h5py.Dataset]:
    found = datasets_in(group) if deep else {n: group[n] for n in group if is_dataset(group, n)}
    return {n: data for n, data in found.items() if data.dtype.kind in "fiuc" and data.shape is not None}
