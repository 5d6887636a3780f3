"""Arrays and the letters of their axes: b trajectory, t time, c d e components, x y z space, p points of a cloud.

    axes = layout_of("", array.shape, {"t": 201, "x": 512}, name="uu", path=path)   # "xt"
    slab = Slab(array, axes, space_of(axes, array.shape), channels_of("u", 1))
    recording_of("matlab", (path,), [slab], axes_of(slab.space, {}))   # one trajectory, which stays in its file

An array is anything with `shape`, `dtype` and slices, so that it may stay in its file until it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import Axis, Channel, Frames, Recording, Trajectory
from hero.data.formats.arrays import FileArray, real_parts
from hero.errors import HeroError

LETTERS = "btcxyzp"
SPACE = "xyzp"
COMPONENTS = "cde"


def layout_of(word: str, shape: Sequence[int], lengths: Mapping[str, int], *, name: str, path: Path) -> str:
    """A letter per axis: the user's word, else the one that fits the lengths of the coordinates, else ours by rank."""
    shape = tuple(shape)
    if word:
        space = [letter for letter in word if letter in SPACE]
        if len(word) != len(shape):
            raise HeroError(f"{path}: data.layout={word!r} names {len(word)} axes, but {name} has the shape {shape}.")
        if set(word) - set(LETTERS) or len(set(word)) != len(word):
            raise HeroError(f"data.layout={word!r} must have different letters out of b, t, c, x, y, z or p.")
        if "t" not in word or not space or ("p" in space and len(space) > 1):
            raise HeroError(
                f"data.layout={word!r} needs t for time and x, y, z for space, or p for points; as in btcxy."
            )
        return word
    orders_of = _fitting(shape, lengths) if lengths and len(shape) <= 6 else []
    fitting = [word for word in orders_of if set(word) & set(SPACE)]
    if orders_of and not fitting:
        raise HeroError(
            f"{path}: {name} {shape} has time but no axis of space, and hero learns fields; if its numbers lie along a "
            f"line, say so with `--set data.layout={orders_of[0].replace('c', 'x').replace('b', 'x')}`."
        )
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise HeroError(
            f"{path}: by their lengths, the axes of {name} {shape} may be {' or '.join(fitting[:3])}; say which with "
            f"`--set data.layout={fitting[0]}`."
        )
    ours = {4: "btcx", 5: "btcxy", 6: "btcxyz"}.get(len(shape), "")
    # Channels are few: a third axis as long as the others is space, or channels stand elsewhere.
    if ours and shape[2] < min(shape[3:]) and (shape[2] <= 8 or len(shape) > 4):
        return ours
    example = {2: "tx", 3: "btx", 4: "btxy", 5: "btcxy", 6: "btcxyz"}.get(len(shape))
    if example is None:
        raise HeroError(f"{path}: {name} {shape} cannot be trajectories; save (time, space) at least.")
    raise HeroError(
        f"{path}: which axes of {name} {shape} are trajectory (b), time (t), channel (c) and space (x, y, z) is not "
        f"known; say it with one letter per axis, as in `--set data.layout={example}`."
    )


def _fitting(shape: tuple[int, ...], lengths: Mapping[str, int]) -> list[str]:
    """The words whose letters have the given lengths; x, y, z in this order if they can be."""
    known = "".join(letter for letter in LETTERS if letter in lengths)
    missing = len(shape) - len(known)
    if "t" in known:
        others = {0: [""], 1: ["b", "c"], 2: ["bc"]}.get(missing, [])
    else:
        others = {1: ["t"], 2: ["bt", "tc"], 3: ["btc"]}.get(missing, [])
    words = {word for rest in others for word in orders(known + rest, shape, lengths) if _in_order(word, rest)}
    if "t" in known and missing == 1:
        # One axis without a coordinate: first, it counts trajectories; elsewhere, channels.
        words = {word for word in words if ("b" in word) == (word[0] in "bc")}
    return sorted({word for word in words if _in_order(word, "xyz")} or words)


def orders(letters: str, shape: Sequence[int], lengths: Mapping[str, int | Sequence[int]]) -> set[str]:
    """The orders of the letters in which each axis has the length of its letter, or one of several."""
    return {"".join(order) for order in permutations(letters) if fits(order, shape, lengths)}


def fits(word: Sequence[str], shape: Sequence[int], lengths: Mapping[str, int | Sequence[int]]) -> bool:
    """Whether the axes have the lengths of their letters; a letter without a length may have any."""
    known = [(lengths[letter], n) for letter, n in zip(word, shape, strict=True) if letter in lengths]
    return all(n == length if isinstance(length, int) else n in length for length, n in known)


def _in_order(word: str, letters: str) -> bool:
    places = [word.index(letter) for letter in letters if letter in word]
    return places == sorted(places)


def length_of(letters: str, axes: str, shape: Sequence[int]) -> int:
    """Entries along the axes of these letters; 1 where the array has none of them."""
    return math.prod(n for letter, n in zip(axes, shape, strict=True) if letter in letters)


def space_of(axes: str, shape: Sequence[int]) -> dict[str, int]:
    """Points along the axes of space in our order, by letter."""
    return {letter: length_of(letter, axes, shape) for letter in SPACE if letter in axes}


@dataclass(frozen=True, eq=False)
class Slab:
    """An array as channels of a recording."""

    array: FileArray
    axes: str  # a letter per axis of the array
    space: Mapping[str, int]  # points by axis of the recording; along one that the array lacks it is repeated
    channels: tuple[Channel, ...] = ()

    @property
    def components(self) -> int:
        return length_of(COMPONENTS, self.axes, self.array.shape)

    def read(self, row: int, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space) of one trajectory; of an array without time, one frame."""
        one_axis = "c" in self.axes and "d" not in self.axes
        part = slice(min(channels), max(channels) + 1) if one_axis else slice(0, self.components)
        parts = {"b": slice(row, row + 1), "t": frames, "c": part if one_axis else slice(None)}
        block = np.asarray(self.array[tuple(parts.get(letter, slice(None)) for letter in self.axes)])
        ordered = [letter for letter in "bt" + COMPONENTS + SPACE if letter in self.axes]
        block = block.transpose([self.axes.index(letter) for letter in ordered])
        lengths = dict(zip(ordered, block.shape, strict=True))
        shape = lengths.get("t", 1), part.stop - part.start
        block = block.reshape(*shape, *(lengths.get(letter, 1) for letter in self.space))
        block = np.broadcast_to(block, (*shape, *self.space.values()))
        return block[slice(None) if "t" in self.axes else frames, [channel - part.start for channel in channels]]


def beside(parts: Sequence[tuple[Frames, int]]) -> Frames:
    """The channels of several readers, each with so many, one after the other."""
    owners = [(read, channel) for read, count in parts for channel in range(count)]

    def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
        groups = groupby((owners[channel] for channel in channels), key=lambda owner: owner[0])
        return np.concatenate([part(frames, [channel for _, channel in own]) for part, own in groups], axis=1)

    return parts[0][0] if len(parts) == 1 else read


def in_turn(
    parts: Sequence[Callable[..., np.ndarray]], lengths: Sequence[int], skipped: Sequence[int]
) -> Callable[..., np.ndarray]:
    """Readers of parts that follow each other in time, with so many frames each, after `skipped` ones at its start."""
    begins = list(accumulate(lengths, initial=0))[:-1]

    def read(frames: slice, *channels: Sequence[int]) -> np.ndarray:
        start, stop, step = frames.indices(sum(lengths))
        found = []
        for part, length, skip, begin in zip(parts, lengths, skipped, begins, strict=True):
            low, high = max(start, begin + (start - begin) % step), min(stop, begin + length)
            if low < high:
                found.append(part(slice(low - begin + skip, high - begin + skip, step), *channels))
        return np.concatenate(found) if found else parts[0](slice(0, 0), *channels)

    return read


def recording_of(
    form: str,
    files: tuple[Path, ...],
    slabs: Sequence[Slab],
    axes: tuple[Axis, ...],
    *,
    count: int = 0,
    clock: np.ndarray | None = None,
    scalars: Mapping[str, Sequence[float]] | None = None,
    series: Sequence[Slab] = (),
    split: str = "",
    **facts: Any,
) -> Recording:
    """The recording of arrays on one grid: those with time are channels, those without are conditioning fields.

    `count` is the number of trajectories where no array may have an axis for them; `scalars` have an entry for each of
    them; `clock` are the times of the states, (frames,) or (trajectory, frames); `facts` are other attributes of the
    recording, perhaps its dt and times.
    """
    slabs = [_real(slab) for slab in slabs]
    states, fixed = [s for s in slabs if "t" in s.axes], [s for s in slabs if "t" not in s.axes]
    frames, rows = (max(length_of(letter, s.axes, s.array.shape) for s in states) for letter in "tb")
    dt, times = time_step(clock)

    def reader(row: int, parts: Sequence[Slab]) -> Frames:
        return beside([(partial(slab.read, row), slab.components) for slab in parts])

    def fields(row: int) -> np.ndarray:
        return reader(row, fixed)(slice(0, 1), range(sum(slab.components for slab in fixed)))[0]

    return Recording(
        format=form,
        files=files,
        channels=tuple(channel for slab in states for channel in slab.channels),
        axes=axes,
        trajectories=[
            Trajectory(
                frames,
                reader(row, states),
                {name: float(values[row]) for name, values in (scalars or {}).items()},
                partial(fields, row) if fixed else None,
                split,
                series_of(series, row),
            )
            for row in range(count or rows)
        ],
        field_names=tuple(channel.name for slab in fixed for channel in slab.channels),
        **{"dt": dt, "times": times, **facts},
    )


def _real(slab: Slab) -> Slab:
    first, *others = real_parts(slab.array.name, slab.array)[0].values()
    if others:
        raise HeroError(f"{slab.array.path}: {slab.array.name} is complex; save its two parts as two channels.")
    return replace(slab, array=first)


def series_of(slabs: Sequence[Slab], row: int) -> dict[str, Callable[[slice], np.ndarray]]:
    """`Trajectory.series` of one trajectory: frames -> (time, *space) of each channel by name."""

    def read(slab: Slab, channel: int, frames: slice) -> np.ndarray:
        return slab.read(row, frames, [channel])[:, 0]

    return {one.name: partial(read, slab, i) for slab in slabs for i, one in enumerate(slab.channels)}


def channels_of(name: str, count: int) -> tuple[Channel, ...]:
    """`u`, or `u0`, `u1`, ... where there are several."""
    return (Channel(name),) if count == 1 else tuple(Channel(f"{name}{i}") for i in range(count))


def axes_of(
    space: Mapping[str, int], coordinates: Mapping[str, np.ndarray | None], names: str = SPACE
) -> tuple[Axis, ...]:
    """The axes of space, `names` in the order x, y, z; a coordinate that does not fit is left out."""
    axes = []
    for letter, points in space.items():
        given = coordinates.get(letter)
        found = np.asarray(given if given is not None and given.shape == (points,) else np.arange(points), np.float64)
        axes.append(Axis("point" if letter == "p" else names[SPACE.index(letter)], found))
    return tuple(axes)


def time_step(times: np.ndarray | None) -> tuple[float, tuple[np.ndarray, ...]]:
    """dt of the times of frames, (frames,) or (trajectory, frames), and `Recording.times`."""
    if times is None or not times.shape[-1]:
        return 1.0, ()
    given = np.asarray(times, dtype=np.float64)
    if given.shape[-1] == 1:
        return 1.0, (given,)  # a state of a series
    steps = np.diff(given)
    dt = float(np.median(steps))
    if np.isfinite(dt) and dt > 0:
        # The mean of many equal steps has less rounding than any of them.
        even = np.abs(steps - dt).max() <= 1e-3 * dt
        return float(f"{steps.mean():.9g}") if even else dt, (given,)
    return 1.0, (given,)  # times that do not increase: training refuses them


def columns_of(name: str, values: np.ndarray, count: int, path: Path) -> dict[str, list[float]]:
    """Conditioning numbers by name, an entry for each trajectory, of `values` (trajectory,) or (trajectory, number)."""
    table = np.asarray(values, dtype=np.float64)
    if table.size == 1:
        table = np.full((count, 1), table.item())
    elif table.ndim == 1 and count == 1:
        table = table[None]
    table = table.reshape(len(table), -1)
    if len(table) != count:
        raise HeroError(f"{path}: {name} has {len(table)} rows for {count} trajectories; save one for each.")
    names = [channel.name for channel in channels_of(name, table.shape[1])]
    return dict(zip(names, table.T.tolist(), strict=True))
