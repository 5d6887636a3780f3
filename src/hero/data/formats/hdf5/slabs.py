"""States in HDF5 datasets, read by slices: the callables of a `Trajectory`, which also survive pickling.

slab = Slab(path, "velocity", "btxyc", (64, 64), components=2)
States((slab, Slab(path, "pressure", "btxy", (64, 64))))(slice(0, 10), [0, 2])   # (10, 2, 64, 64)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.handles import read_hdf5
from hero.data.formats.arrays import real
from hero.data.formats.hdf5.axes import SPACE, length_of, space_of
from hero.data.recording import Frames
from hero.errors import HeroError


@dataclass(frozen=True)
class Slab:
    """The components of one dataset, as channels of one trajectory."""

    path: Path
    name: str
    axes: str
    """A letter per axis of the dataset; axes of space that it lacks are filled by repetition."""
    space: tuple[int, ...]
    components: int = 1
    trajectory: int = 0
    """Index on the axis b."""

    def of(self, trajectory: int) -> Slab:
        """The same channels of another trajectory."""
        return replace(self, trajectory=trajectory)

    def __call__(self, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space)."""
        one_axis = "d" not in self.axes and "c" in self.axes
        first, last = (min(channels), max(channels)) if one_axis else (0, self.components - 1)
        parts: dict[str, Any] = {
            "b": self.trajectory,
            "t": frames,
            "c": slice(first, last + 1) if one_axis else slice(None),
        }
        block = read_hdf5(self.path, self.name, tuple(parts.get(letter, slice(None)) for letter in self.axes))
        left = self.axes.replace("b", "")
        ordered = [letter for letter in "tcd" + SPACE if letter in left]
        block = block.transpose([left.index(letter) for letter in ordered])
        lengths = dict(zip(ordered, block.shape, strict=True))
        times, components = lengths.get("t", 1), last - first + 1
        here = [lengths.get(letter, 1) for letter in SPACE[: len(self.space)]]
        block = np.broadcast_to(block.reshape(times, components, *here), (times, components, *self.space))
        return real(block)[slice(None) if "t" in left else frames, [channel - first for channel in channels]]


@dataclass(frozen=True)
class States:
    """The channels of one trajectory, from several datasets one after the other."""

    slabs: tuple[Slab, ...]

    def __call__(self, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space)."""
        if len(self.slabs) == 1:
            return self.slabs[0](frames, channels)
        owners = [(slab, component) for slab in self.slabs for component in range(slab.components)]
        chosen = [owners[channel] for channel in channels]
        blocks: dict[Slab, Mapping[int, np.ndarray]] = {}
        for slab in dict(chosen):
            components = sorted({component for owner, component in chosen if owner is slab})
            blocks[slab] = dict(zip(components, np.moveaxis(slab(frames, components), 1, 0), strict=True))
        return np.stack([blocks[slab][component] for slab, component in chosen], axis=1)


@dataclass(frozen=True)
class Fields:
    """Conditioning fields of one trajectory."""

    slabs: tuple[Slab, ...]

    def __call__(self) -> np.ndarray:
        """(field, *space)."""
        return np.concatenate([slab(slice(None), range(slab.components))[0] for slab in self.slabs])


@dataclass(frozen=True)
class Sequel:
    """Parts that follow each other in time."""

    parts: tuple[Frames, ...]
    lengths: tuple[int, ...]
    """Frames of each."""

    def __call__(self, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space)."""
        start, stop, step = frames.indices(sum(self.lengths))
        found, begin = [], 0
        for part, length in zip(self.parts, self.lengths, strict=True):
            low = max(start, begin + (start - begin) % step)
            if low < min(stop, begin + length):
                found.append(part(slice(low - begin, min(stop, begin + length) - begin, step), channels))
            begin += length
        return np.concatenate(found) if found else self.parts[0](slice(0, 0), channels)


def dataset_of(group: h5py.Group, name: str) -> h5py.Dataset:
    """A dataset of real or complex numbers; HeroError where the file has something else there."""
    item = group.get(name)
    where = f"{name} in {group.file.filename}"
    if not isinstance(item, h5py.Dataset):
        raise HeroError(f"{where} is {'a group' if item is not None else 'missing'}, not a dataset; check the file.")
    if item.dtype.kind not in "fiuc" or item.shape is None:
        raise HeroError(f"{where} holds {item.dtype}, not numbers; convert it to an array of floats.")
    return item


def is_dataset(group: Any, name: str, axes: Sequence[int] = ()) -> bool:
    """Whether `name` is a dataset, with one of these numbers of axes."""
    item = group.get(name) if isinstance(group, h5py.Group) else None
    return isinstance(item, h5py.Dataset) and (not axes or item.ndim in axes)


def coordinates(group: h5py.Group, names: Sequence[str], length: int) -> np.ndarray | None:
    """The first dataset of these names that has the length, or a row of it for each trajectory."""
    for name in names:
        item = group.get(name)
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.ndim and item.shape[-1] == length:
            return first_row(item)
    return None


def first_row(values: h5py.Dataset) -> np.ndarray:
    """Coordinates; of the first trajectory where every trajectory has a row."""
    return np.asarray(values[(0,) * (values.ndim - 1)], np.float64)


def differing_rows(group: h5py.Group, names: Sequence[str]) -> list[str]:
    """Notes about coordinates that have a row per trajectory, of which the first is used; a start may differ."""
    found = []
    for name in names:
        item = group.get(name)
        if isinstance(item, h5py.Dataset) and item.ndim == 2 and item.shape[1] > 1:
            rows = np.asarray(item[...], np.float64)
            rows = rows - rows[:, :1]
            if np.abs(rows - rows[0]).max() > 1e-3 * np.abs(np.diff(rows[0])).max():
                found.append(
                    f"The coordinates {name} differ between trajectories; those in the first are used for all."
                )
    return found


def numbers(attributes: Mapping[str, Any], leave_out: Sequence[str] = ()) -> dict[str, float]:
    """The attributes that are one number each."""
    return {
        name: float(np.asarray(value).reshape(()))
        for name, value in attributes.items()
        if name not in leave_out and np.asarray(value).size == 1 and np.asarray(value).dtype.kind in "fiub"
    }


def words(value: Any) -> list[str]:
    """An attribute that is a list of texts, or one text."""
    return [word.decode() if isinstance(word, bytes) else str(word) for word in np.atleast_1d(value)]


def slabs_of(file: h5py.File, path: Path, names: Sequence[str], axes: str, space: tuple[int, ...]) -> tuple[Slab, ...]:
    """Datasets of equal axes and lengths but for their components; HeroError where one is missing or differs."""
    shapes = {name: dataset_of(file, name).shape for name in names}
    first = next(iter(shapes))
    for name, shape in shapes.items():
        alike = len(shape) == len(axes) and all(
            letter in "cd" or shape[place] == shapes[first][place] for place, letter in enumerate(axes)
        )
        if not alike or space_of(axes, shape) != space:
            raise HeroError(f"{path}: the shapes of {first} {shapes[first]} and {name} {shape} differ; check the file.")
    return tuple(
        Slab(path, name, axes, space, length_of("c", axes, shape) * length_of("d", axes, shape))
        for name, shape in shapes.items()
    )
