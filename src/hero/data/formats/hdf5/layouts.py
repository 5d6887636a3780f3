"""HDF5 layouts that a row of a table describes: names of datasets, order of axes, times, coordinates, numbers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import h5py

from hero.data.files.recording import Channel, Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.folders import join
from hero.data.formats.hdf5 import datasets as of
from hero.data.formats.slabs import Slab, axes_of, channels_of, layout_of, length_of, orders, recording_of, space_of
from hero.errors import HeroError


@dataclass(frozen=True)
class Layout:
    """A row of the table."""

    title: str
    states: Callable[[h5py.Group], list[str]]
    """The datasets of the states; none where a file has another layout."""
    axes: str = ""
    """Letters of their axes as documented, a word for each number of axes; "" where the user has to say."""
    channels: Mapping[str, str] = field(default_factory=dict)
    """Names of a dataset's channels, else its own name; one name is numbered where there are several channels."""
    fits: Callable[[h5py.File], bool] = lambda file: True
    """What else the file must have."""
    times: tuple[str, ...] = ("t", "time")
    grid: str = ""
    """Names of the coordinates of x, y and z, in the place of {}; their lengths decide the order of the axes."""
    axis_names: str = "xyz"
    """Names of the axes x, y and z of the recording."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Datasets of conditioning fields and the names of their components."""
    scalars: Callable[[h5py.Group, int], Sequence[Mapping[str, float]]] = lambda group, count: [{}] * count
    """(group, trajectories) -> conditioning numbers of each."""
    groups: Callable[[h5py.File], list[tuple[str, h5py.Group]]] = lambda file: [("", file)]
    """(split, group) for each group that is a recording."""
    runs: bool = False
    """Whether each dataset is a trajectory, next to its coordinates; else all are channels of the same ones."""
    test_share: int = 0
    """n: the first n-th of the trajectories is the test set."""
    steady: bool = False
    """Whether steady problems share the layout, with one state each."""
    complete: Callable[[h5py.File, Recording], Recording] = lambda file, recording: recording
    """Adds what only the code of a layout knows."""

    def recognises(self, file: h5py.File) -> bool:
        """Whether a file has this layout."""
        found = [(group, self.states(group)) for _, group in self.groups(file)]
        ranks = [len(word) for word in self.axes.split()]
        known = all(names and of.is_dataset(group, names[0], ranks) for group, names in found)
        return bool(found) and known and self.fits(file)


def read_layout(form: str, row: Layout, path: Path, file: h5py.File, word: str) -> Recording:
    """The recording of a file that `row` describes; `word` names the axes where the user did."""
    parts = [_read_group(form, row, path, group, word, split) for split, group in row.groups(file)]
    return row.complete(file, join(parts))


def _read_group(form: str, row: Layout, path: Path, group: h5py.Group, word: str, split: str) -> Recording:
    names = row.states(group)
    data = of.dataset_of(group, names[0])
    home = data.parent if row.runs else group
    axes = _order_axes(row, path, home, data, word)
    space, frames = space_of(axes, data.shape), length_of("t", axes, data.shape)
    if row.steady and frames == 1:
        raise HeroError(f"{path} is steady, one {names[0]} {data.shape} per sample; choose a file of trajectories.")
    arrays = of.arrays_of(path, group, names, axes, free="t" if row.runs else "c")
    states = [Slab(array, axes, space, _channels(row, array, axes)) for array in arrays]
    fields = _fields(row, path, group, arrays[0], axes)
    grid = {letter: of.coordinates(home, [row.grid.format(letter)], n, n) for letter, n in space.items() if row.grid}
    given = {letter: of.first_row(points) for letter, points in grid.items() if points is not None}
    parts = [
        recording_of(
            *(form, (path,), [*part, *fields], axes_of(space, given, row.axis_names)),
            clock=of.coordinates(home, row.times, frames, frames + 1),  # PDEBench has a time more than states
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
    else the only order that fits them."""
    if word or not row.axes:
        return layout_of(word, data.shape, {}, name=data.name, path=path)
    documented = next(letters for letters in row.axes.split() if len(letters) == data.ndim)
    lengths: dict[str, list[int]] = {}
    for letter in "txyz" if row.grid else "":
        name = row.times[0] if letter == "t" else row.grid.format(letter)
        if letter in documented and name in home and of.dataset_of(home, name).ndim:
            length = home[name].shape[-1]
            lengths[letter] = [length, length - 1] if letter == "t" else [length]
    fitting = orders(documented, data.shape, lengths)
    if documented in fitting:
        return documented
    if len(fitting) == 1:
        return fitting.pop()
    told = ", ".join(f"{letter}: {' or '.join(map(str, known))}" for letter, known in lengths.items())
    raise HeroError(
        f"{path}: the axes of {data.name} {data.shape} cannot be told from the lengths of its coordinates "
        f"({told}); name them in their order with `--set data.layout`, as in {documented}."
    )


def _fields(row: Layout, path: Path, group: h5py.Group, states: FileArray, axes: str) -> list[Slab]:
    """The conditioning fields; a dataset of the same name with another number of axes is none."""
    found = []
    words = {len(word): word for word in (axes.replace("t", ""), axes.replace("t", "").replace("c", ""))}
    for name in row.fields:
        if of.is_dataset(group, name, tuple(words)):
            array = of.array_of(path, group, name)
            word = words[len(array.shape)]
            of.check_lengths(states, axes, array, word)
            channels = tuple(map(Channel, row.fields[name].split()))
            found.append(Slab(array, word, space_of(axes, states.shape), channels))
    return found


def _channels(row: Layout, array: FileArray, axes: str) -> tuple[Channel, ...]:
    base, count = posixpath.basename(array.name), length_of("c", axes, array.shape)
    known = row.channels.get(base, base).split()
    if 1 < len(known) >= count:
        return tuple(map(Channel, known[:count]))
    return channels_of(known[0] if len(known) == 1 else "u", count)


def named(required: str, optional: str = "") -> Callable[[h5py.Group], list[str]]:
    """For `states`: datasets of these names, if all that are required are there."""

    def names(group: h5py.Group) -> list[str]:
        found = required.split()
        known = all(of.is_dataset(group, name) for name in found)
        return [*found, *(name for name in optional.split() if name in group)] if known else []

    return names


def of_attributes(group: h5py.Group, count: int) -> list[dict[str, float]]:
    """For `scalars`: the attributes that are numbers, the same for all trajectories."""
    return [of.numbers(group.attrs)] * count
