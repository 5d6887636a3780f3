"""Datasets and attributes of HDF5 files: arrays that stay in their file, coordinates, numbers and words.

Files of no published layout have datasets by name, in one group or in one group per trajectory or split.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import read_hdf5
from hero.data.files.recording import SPELLINGS, Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.folders import join
from hero.data.formats.named import read_named
from hero.data.formats.slabs import COMPONENTS
from hero.data.formats.xarray import has_dimensions
from hero.errors import HeroError


def dataset_of(group: h5py.Group, name: str) -> h5py.Dataset:
    """A dataset of real or complex numbers; HeroError where the file has something else there."""
    item = group.get(name)
    where = f"{posixpath.join(group.name, name)} in {group.file.filename}"
    if not isinstance(item, h5py.Dataset):
        raise HeroError(f"{where} is {'a group' if item is not None else 'missing'}, not a dataset; check the file.")
    if item.dtype.kind not in "fiuc" or item.shape is None:
        raise HeroError(f"{where} holds {item.dtype}, not numbers; convert it to an array of floats.")
    return item


def is_dataset(group: Any, name: str, ranks: Sequence[int] = ()) -> bool:
    """Whether `name` is a dataset, with one of these numbers of axes."""
    item = group.get(name) if isinstance(group, h5py.Group) else None
    return isinstance(item, h5py.Dataset) and (not ranks or item.ndim in ranks)


def datasets_in(group: h5py.Group, most: int | None = None) -> dict[str, h5py.Dataset]:
    """The datasets in a group and below it, `most` at most."""
    found: dict[str, h5py.Dataset] = {}

    def collect(name: str, item: object) -> bool | None:
        if isinstance(item, h5py.Dataset):
            found[name] = item
        return True if len(found) == most else None  # a value ends the visit

    group.visititems(collect)
    return found


def array_of(path: Path, group: h5py.Group, name: str) -> FileArray:
    data, full = dataset_of(group, name), posixpath.join(group.name, name)
    return FileArray(partial(read_hdf5, path, full), path, full, data.shape, data.dtype)


def shortest_names(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Nested arrays by their last name where it is the only one."""
    last = [posixpath.basename(name) for name in arrays]
    names = [base if last.count(base) == 1 else name for name, base in zip(arrays, last, strict=True)]
    return dict(zip(names, arrays.values(), strict=True))


def arrays_of(
    path: Path, group: h5py.Group, names: Sequence[str], axes: str, free: str = COMPONENTS
) -> list[FileArray]:
    """Datasets of one order of axes and of equal lengths, but for the letters `free`; HeroError where one differs."""
    arrays = [array_of(path, group, name) for name in names]
    for array in arrays:
        check_lengths(arrays[0], axes, array, axes, free)
    return arrays


def check_lengths(one: FileArray, axes: str, other: FileArray, letters: str, free: str = COMPONENTS) -> None:
    """Refuse two datasets whose axes of the same letter differ in length."""
    lengths = dict(zip(axes, one.shape, strict=False))
    fits = len(letters) == len(other.shape) and all(
        letter in free or lengths[letter] == n for letter, n in zip(letters, other.shape, strict=True)
    )
    if not fits:
        both = f"{one.name} {one.shape} and {other.name} {other.shape}"
        raise HeroError(f"{one.path}: the shapes of {both} differ; check the file, or split it by shape.")


def coordinates(group: h5py.Group, names: Sequence[str], length: int, most: int) -> np.ndarray | None:
    """The first dataset of these names with `length` entries to `most` of them; (length,) or (trajectory, length)."""
    for name in names:
        item = group.get(name)
        numeric = is_dataset(group, name, (1, 2)) and item.dtype.kind in "fiu"
        if numeric and length <= item.shape[-1] <= most:
            return np.asarray(item[..., :length], np.float64)
    return None


def first_row(values: h5py.Dataset | np.ndarray) -> np.ndarray:
    """Coordinates; of the first trajectory where every trajectory has a row."""
    return np.asarray(values[(0,) * (values.ndim - 1)], np.float64)


def numbers(attributes: Mapping[str, Any]) -> dict[str, float]:
    """The attributes that are one number each."""
    found = {name: np.asarray(value) for name, value in attributes.items()}
    return {name: float(n.item()) for name, n in found.items() if n.size == 1 and n.dtype.kind in "fiub"}


def words(value: Any) -> list[str]:
    """An attribute that is a list of texts, or one text."""
    return [word.decode() if isinstance(word, bytes) else str(word) for word in np.atleast_1d(value)]


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
