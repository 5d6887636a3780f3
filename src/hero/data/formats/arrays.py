"""Arrays and the letters of their axes: b trajectory, t time, c d e components, x y z space, p points of a cloud.

    axes = layout_of("", array.shape, {"t": 201, "x": 512}, name="uu", path=path)   # "xt"
    slab = Slab(array, axes, space_of(axes, array.shape), channels_of("u", 1))
    recording_of("matlab", (path,), [slab], axes_of(slab.space, {}))   # one trajectory, which stays in its file

An array is anything with `shape`, `dtype` and slices, so that it may stay in its file until it is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import Axis, Channel, Recording, Trajectory
from hero.errors import HeroError

LETTERS = "btcxyzp"
SPACE = "xyzp"
COMPONENTS = "cde"
LISTED = 8  # arrays that an error names
ROUNDING = 1e-4
"""An imaginary part below this share of the real part is the rounding of a transform, of float32 too."""


@dataclass(frozen=True)
class FileArray:
    """An array that stays in its file until it is sliced."""

    read: Callable[[Path, str, Any], np.ndarray]
    """(path, name, a whole number or a slice for each axis) -> that part."""
    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.read(self.path, self.name, index)


LazyArray = FileArray | np.ndarray


def held(path: Path, name: str, values: np.ndarray) -> FileArray:
    """An array in memory that belongs to a file."""
    return FileArray(functools.partial(_part_of, values), path, name, values.shape, values.dtype)


def _part_of(values: np.ndarray, path: Path, name: str, index: Any) -> np.ndarray:
    return values[index]


def of_whole(load: Callable[[Path, str], np.ndarray], path: Path, name: str, index: Any) -> np.ndarray:
    """A part of an array that its library reads whole."""
    return np.array(kept(load, path, name)[index])


def kept(load: Callable[..., Any], path: Path, *name: str) -> Any:
    """What `load` returns for a file; the last two of a process stay in memory until their files change."""
    return _loaded(load, path.stat().st_mtime_ns, path, *name)


@functools.lru_cache(maxsize=2)
def _loaded(load: Callable[..., Any], changed: int, path: Path, *name: str) -> Any:
    return load(path, *name)


def stacked(read: Callable[[Any], LazyArray], states: Sequence[Any], like: FileArray) -> FileArray:
    """States of one shape, each read on its own, as an array with time first; `like` is the first of them."""
    shape = (len(states), *like.shape)
    return FileArray(functools.partial(_read_stack, read, states), like.path, like.name, shape, like.dtype)


def _read_stack(
    read: Callable[[Any], LazyArray], states: Sequence[Any], path: Path, name: str, index: Any
) -> np.ndarray:
    frames, *rest = index
    if not isinstance(frames, slice):
        return np.asarray(read(states[frames])[tuple(rest)])
    parts = [read(state)[tuple(rest)] for state in states[frames]]
    return np.stack(parts) if parts else np.empty((0, *read(states[0])[tuple(rest)].shape))


def layout_of(word: str, shape: Sequence[int], lengths: Mapping[str, int], *, name: str, path: Path) -> str:
    """A letter per axis: the user's word, else the one that fits the lengths of the coordinates, else ours by rank."""
    shape = tuple(shape)
    if word:
        _check_word(word, shape, name, path)
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


def _check_word(word: str, shape: tuple[int, ...], name: str, path: Path) -> None:
    space = [letter for letter in word if letter in SPACE]
    if len(word) != len(shape):
        raise HeroError(f"{path}: data.layout={word!r} names {len(word)} axes, but {name} has the shape {shape}.")
    if set(word) - set(LETTERS) or len(set(word)) != len(word):
        raise HeroError(f"data.layout={word!r} must have different letters out of b, t, c, x, y, z or p.")
    if "t" not in word or not space or ("p" in space and len(space) > 1):
        raise HeroError(f"data.layout={word!r} needs t for time and x, y, z for space, or p for points; as in btcxy.")


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

    array: LazyArray
    axes: str
    """A letter per axis of the array."""
    space: Mapping[str, int]
    """Points along the axes of the recording by letter; an axis that the array lacks is filled by repetition."""
    channels: tuple[Channel, ...] = ()

    @property
    def components(self) -> int:
        """Number of channels."""
        return length_of(COMPONENTS, self.axes, self.array.shape)

    def read(self, row: int, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space) of one trajectory; of an array without time, one frame."""
        one_axis = "c" in self.axes and "d" not in self.axes
        part = slice(min(channels), max(channels) + 1) if one_axis else slice(0, self.components)
        parts = {"b": row, "t": frames, "c": part if one_axis else slice(None)}
        index: Any = tuple(parts.get(letter, slice(None)) for letter in self.axes)
        block = np.asarray(self.array[index])
        left = self.axes.replace("b", "")
        ordered = [letter for letter in "t" + COMPONENTS + SPACE if letter in left]
        block = block.transpose([left.index(letter) for letter in ordered])
        lengths = dict(zip(ordered, block.shape, strict=True))
        shape = lengths.get("t", 1), part.stop - part.start
        block = block.reshape(*shape, *(lengths.get(letter, 1) for letter in self.space))
        block = np.broadcast_to(block, (*shape, *self.space.values()))
        return real(block)[slice(None) if "t" in left else frames, [channel - part.start for channel in channels]]

    def series(self, row: int, channel: int, frames: slice) -> np.ndarray:
        """(time, *space) of one channel; `Trajectory.series`."""
        return self.read(row, frames, [channel])[:, 0]


def real(values: np.ndarray) -> np.ndarray:
    """The real part of an array that is complex by rounding only."""
    if not np.iscomplexobj(values):
        return values
    if values.size and np.abs(values.imag).max() > ROUNDING * max(np.abs(values.real).max(), ROUNDING):
        raise HeroError("the array is complex; save its real and imaginary part as two channels.")
    return values.real


@dataclass(frozen=True, eq=False)
class States:
    """The channels of one trajectory, from several arrays one after the other; `Trajectory.read`."""

    slabs: Sequence[Slab]
    row: int = 0

    def __call__(self, frames: slice, channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space)."""
        if len(self.slabs) == 1:
            return self.slabs[0].read(self.row, frames, channels)
        blocks: list[np.ndarray] = []
        order: list[int] = []
        first = 0
        for slab in self.slabs:
            own = [channel for channel in dict.fromkeys(channels) if 0 <= channel - first < slab.components]
            if own:
                blocks.append(slab.read(self.row, frames, [channel - first for channel in own]))
            order, first = order + own, first + slab.components
        return np.concatenate(blocks, axis=1)[:, [order.index(channel) for channel in channels]]

    def fields(self) -> np.ndarray:
        """(field, *space) of arrays without time; `Trajectory.fields`."""
        return self(slice(0, 1), range(sum(slab.components for slab in self.slabs)))[0]


@dataclass(frozen=True)
class Sequel:
    """Parts of one trajectory that follow each other in time; `Trajectory.read`, or one of `Trajectory.series`."""

    parts: Sequence[Callable[..., np.ndarray]]
    lengths: Sequence[int]
    """Frames of each."""
    skipped: Sequence[int] = ()
    """Frames at the beginning of each that are left out and not counted."""

    def __call__(self, frames: slice, *channels: Sequence[int]) -> np.ndarray:
        """(time, channel, *space)."""
        start, stop, step = frames.indices(sum(self.lengths))
        found, begin = [], 0
        for part, length, skip in zip(self.parts, self.lengths, self.skipped or [0] * len(self.parts), strict=True):
            low = max(start, begin + (start - begin) % step)
            if low < min(stop, begin + length):
                own = slice(low - begin + skip, min(stop, begin + length) - begin + skip, step)
                found.append(part(own, *channels))
            begin += length
        return np.concatenate(found) if found else self.parts[0](slice(0, 0), *channels)


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
    states, fixed = [s for s in slabs if "t" in s.axes], [s for s in slabs if "t" not in s.axes]
    frames, rows = (max(length_of(letter, s.axes, s.array.shape) for s in states) for letter in "tb")
    dt, times = time_step(clock)
    return Recording(
        format=form,
        files=files,
        channels=tuple(channel for slab in states for channel in slab.channels),
        axes=axes,
        trajectories=[
            Trajectory(
                frames,
                States(states, row),
                {name: float(values[row]) for name, values in (scalars or {}).items()},
                States(fixed, row).fields if fixed else None,
                split,
                series_of(series, row),
            )
            for row in range(count or rows)
        ],
        field_names=tuple(channel.name for slab in fixed for channel in slab.channels),
        **{"dt": dt, "times": times, **facts},
    )


def series_of(slabs: Sequence[Slab], row: int) -> dict[str, Callable[[slice], np.ndarray]]:
    """`Trajectory.series` of one trajectory: frames -> (time, *space) of each channel by name."""
    places = [(channel.name, slab, i) for slab in slabs for i, channel in enumerate(slab.channels)]
    return {name: functools.partial(slab.series, row, i) for name, slab, i in places}


def without_time(axes: str, rank: int) -> str:
    """The axes of a field of `rank` axes that does not change in time: with components or without."""
    left = axes.replace("t", "")
    return left if len(left) == rank else left.replace("c", "")


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


def whole(array: LazyArray) -> np.ndarray:
    """All of an array."""
    return np.asarray(array[(slice(None),) * len(array.shape)])


def describe(arrays: Mapping[str, LazyArray]) -> str:
    """Names and shapes for an error, the first of them."""
    listed = [f"{name} {tuple(array.shape or ())}" for name, array in list(arrays.items())[:LISTED]]
    return ", ".join(listed) + (", ..." if len(arrays) > LISTED else "")
