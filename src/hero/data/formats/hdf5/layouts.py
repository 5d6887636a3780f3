"""HDF5: datasets and attributes by name, and layouts that a row of a table describes.

A layout says names of datasets, order of axes, times, coordinates and numbers. Files of no published layout have
datasets by name, in one group or in one group per trajectory or split.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import read_hdf5
from hero.data.files.recording import SPELLINGS, Channel, Recording
from hero.data.formats import slabs
from hero.data.formats.arrays import FileArray
from hero.data.formats.folders import join
from hero.data.formats.named import read_named
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
    path: Path, group: h5py.Group, names: Sequence[str], axes: str, free: str = slabs.COMPONENTS
) -> list[FileArray]:
    """Datasets of one order of axes and of equal lengths, but for the letters `free`; HeroError where one differs."""
    arrays = [array_of(path, group, name) for name in names]
    for array in arrays:
        check_lengths(arrays[0], axes, array, axes, free)
    return arrays


def check_lengths(one: FileArray, axes: str, other: FileArray, letters: str, free: str = slabs.COMPONENTS) -> None:
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
        return join([_read_named_group(path, file, group, layout) for group in groups])
    return _read_named_group(path, file, file, layout)


def _read_named_group(path: Path, file: h5py.File, group: h5py.Group, layout: str) -> Recording:
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


@dataclass(frozen=True)
class Layout:
    """A row of the table."""

    title: str
    states: Callable[[h5py.Group], list[str]]  # the datasets of the states; none where a file has another layout
    axes: str = ""  # letters of their axes as documented, a word for each number of axes; "" where the user has to say
    channels: Mapping[str, str] = field(default_factory=dict)  # names by dataset, else its own; one name is numbered
    fits: Callable[[h5py.File], bool] = lambda file: True  # what else the file must have
    times: tuple[str, ...] = ("t", "time")
    grid: str = ""  # names of the coordinates, {} for x, y or z; their lengths decide the order of the axes
    axis_names: str = "xyz"  # names of the axes x, y and z of the recording
    fields: Mapping[str, str] = field(default_factory=dict)  # datasets of conditioning fields and their components
    scalars: Callable[[h5py.Group, int], Sequence[Mapping[str, float]]] = lambda group, count: [{}] * count
    """(group, trajectories) -> conditioning numbers of each."""
    groups: Callable[[h5py.File], list[tuple[str, h5py.Group]]] = lambda file: [("", file)]
    """(split, group) for each group that is a recording."""
    runs: bool = False  # whether each dataset is a trajectory, next to its coordinates; else all are its channels
    test_share: int = 0  # n: the first n-th of the trajectories is the test set
    steady: bool = False  # whether steady problems share the layout, with one state each
    complete: Callable[[h5py.File, Recording], Recording] = lambda file, recording: recording
    """Adds what only the code of a layout knows."""

    def recognises(self, file: h5py.File) -> bool:
        found = [(group, self.states(group)) for _, group in self.groups(file)]
        ranks = [len(word) for word in self.axes.split()]
        known = all(names and is_dataset(group, names[0], ranks) for group, names in found)
        return bool(found) and known and self.fits(file)


def read_layout(form: str, row: Layout, path: Path, file: h5py.File, word: str) -> Recording:
    """The recording of a file that `row` describes; `word` names the axes where the user did."""
    parts = [_read_group(form, row, path, group, word, split) for split, group in row.groups(file)]
    return row.complete(file, join(parts))


def _read_group(form: str, row: Layout, path: Path, group: h5py.Group, word: str, split: str) -> Recording:
    names = row.states(group)
    data = dataset_of(group, names[0])
    home = data.parent if row.runs else group
    axes = _order_axes(row, path, home, data, word)
    space, frames = slabs.space_of(axes, data.shape), slabs.length_of("t", axes, data.shape)
    if row.steady and frames == 1:
        raise HeroError(f"{path} is steady, one {names[0]} {data.shape} per sample; choose a file of trajectories.")
    arrays = arrays_of(path, group, names, axes, free="t" if row.runs else "c")
    states = [slabs.Slab(array, axes, space, _channels(row, array, axes)) for array in arrays]
    fields = _fields(row, path, group, arrays[0], axes)
    grid = {letter: coordinates(home, [row.grid.format(letter)], n, n) for letter, n in space.items() if row.grid}
    given = {letter: first_row(points) for letter, points in grid.items() if points is not None}
    parts = [
        slabs.recording_of(
            *(form, (path,), [*part, *fields], slabs.axes_of(space, given, row.axis_names)),
            clock=coordinates(home, row.times, frames, frames + 1),  # PDEBench has a time more than states
            split=split,
        )
        for part in ([[state] for state in states] if row.runs else [states])
    ]
    runs = [one for part in parts for one in part.trajectories]
    tests = len(runs) // row.test_share if row.test_share else 0
    told = [
        replace(one, scalars=numbers, split="test" if index < tests else split)
        for index, (one, numbers) in enumerate(zip(runs, row.scalars(group, len(runs)), strict=True))
    ]
    return replace(parts[0], trajectories=told)


def _order_axes(row: Layout, path: Path, home: h5py.Group, data: h5py.Dataset, word: str) -> str:
    """A letter per axis: the user's word, else the documented order where the coordinates have its lengths,
    else the only order that fits them.
    """
    if word or not row.axes:
        return slabs.layout_of(word, data.shape, {}, name=data.name, path=path)
    documented = next(letters for letters in row.axes.split() if len(letters) == data.ndim)
    lengths: dict[str, list[int]] = {}
    for letter in "txyz" if row.grid else "":
        name = row.times[0] if letter == "t" else row.grid.format(letter)
        if letter in documented and name in home and dataset_of(home, name).ndim:
            length = home[name].shape[-1]
            lengths[letter] = [length, length - 1] if letter == "t" else [length]
    fitting = slabs.orders(documented, data.shape, lengths)
    if documented in fitting:
        return documented
    if len(fitting) == 1:
        return fitting.pop()
    told = ", ".join(f"{letter}: {' or '.join(map(str, known))}" for letter, known in lengths.items())
    raise HeroError(
        f"{path}: the axes of {data.name} {data.shape} cannot be told from the lengths of its coordinates "
        f"({told}); name them in their order with `--set data.layout`, as in {documented}."
    )


def _fields(row: Layout, path: Path, group: h5py.Group, states: FileArray, axes: str) -> list[slabs.Slab]:
    """The conditioning fields; a dataset of the same name with another number of axes is none."""
    found = []
    words = {len(word): word for word in (axes.replace("t", ""), axes.replace("t", "").replace("c", ""))}
    for name in row.fields:
        if is_dataset(group, name, tuple(words)):
            array = array_of(path, group, name)
            word = words[len(array.shape)]
            check_lengths(states, axes, array, word)
            channels = tuple(map(Channel, row.fields[name].split()))
            found.append(slabs.Slab(array, word, slabs.space_of(axes, states.shape), channels))
    return found


def _channels(row: Layout, array: FileArray, axes: str) -> tuple[Channel, ...]:
    base, count = posixpath.basename(array.name), slabs.length_of("c", axes, array.shape)
    known = row.channels.get(base, base).split()
    if 1 < len(known) >= count:
        return tuple(map(Channel, known[:count]))
    return slabs.channels_of(known[0] if len(known) == 1 else "u", count)


def named(required: str, optional: str = "") -> Callable[[h5py.Group], list[str]]:
    """For `states`: datasets of these names, if all that are required are there."""

    def names(group: h5py.Group) -> list[str]:
        found = required.split()
        known = all(is_dataset(group, name) for name in found)
        return [*found, *(name for name in optional.split() if name in group)] if known else []

    return names


def of_attributes(group: h5py.Group, count: int) -> list[dict[str, float]]:
    """For `scalars`: the attributes that are numbers, the same for all trajectories."""
    return [numbers(group.attrs)] * count
