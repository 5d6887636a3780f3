"""A bare array and a word for its axes: letters b (trajectory), t (time), c (channel), x y z (space), p (point).

    layout = layout_of("", array.shape, {"t": 201, "x": 512}, name="uu", path=path)   # "xt"
    slabs(array, "xt")   # one trajectory, which stays in its file

An array is anything with `shape`, `dtype` and slices, so that it may stay in its file until it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hero.data.recording import Axis, Channel, Frames, Trajectory
from hero.errors import HeroError

LETTERS = "btcxyzp"
REAL_PART = 1e-6
"""A complex array whose imaginary part is smaller than this share of its real part is real."""


class LazyArray(Protocol):
    """An array in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its axes."""
        ...

    @property
    def dtype(self) -> Any:
        """Type of its numbers."""
        ...

    def __getitem__(self, index: Any) -> Any:
        """A part of it, read when called."""
        ...


def layout_of(word: str, shape: Sequence[int], lengths: Mapping[str, int], *, name: str, path: Path) -> str:
    """A letter per axis: the user's word, else the one that fits the lengths of the coordinates, else ours by rank."""
    shape = tuple(shape)
    if word:
        _check_word(word, shape, name, path)
        return word
    fitting = _fitting(shape, lengths) if lengths and len(shape) <= 6 else []
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
        raise HeroError(
            f"{path}: {name} has the shape {shape}, which cannot be trajectories; save (time, space) at least."
        )
    raise HeroError(
        f"{path}: which axes of {name} {shape} are trajectory (b), time (t), channel (c) and space (x, y, z) is not "
        f"known; say it with one letter per axis, as in `--set data.layout={example}`."
    )


def _check_word(word: str, shape: tuple[int, ...], name: str, path: Path) -> None:
    space = [letter for letter in word if letter in "xyzp"]
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
    words = set()
    for rest in others:
        for order in permutations(known + rest):
            word = "".join(order)
            if _in_order(word, rest) and all(lengths.get(a, n) == n for a, n in zip(word, shape, strict=True)):
                words.add(word)
    if "t" in known and missing == 1:
        # One axis without a coordinate: first, it counts trajectories; elsewhere, channels.
        words = {word for word in words if ("b" in word) == (word[0] in "bc")}
    return sorted({word for word in words if _in_order(word, "xyz")} or words)


def _in_order(word: str, letters: str) -> bool:
    places = [word.index(letter) for letter in letters if letter in word]
    return places == sorted(places)


def length(array: LazyArray, layout: str, letter: str) -> int:
    """Points along an axis; 1 where the layout does not have it."""
    return array.shape[layout.index(letter)] if letter in layout else 1


def space_letters(layout: str) -> list[str]:
    """The axes of space in our order."""
    return [letter for letter in "xyzp" if letter in layout]


def frames_of(array: LazyArray, layout: str, row: int) -> Frames:
    """Reads a trajectory of the array as (time, channel, *space)."""
    order = [layout.index(letter) for letter in ["b", "t", "c", *space_letters(layout)] if letter in layout]

    def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
        low, high = (min(channels), max(channels) + 1) if len(channels) else (0, 0)
        parts = {"b": slice(row, row + 1), "t": frames, "c": slice(low, high)}
        values = np.asarray(array[tuple(parts.get(letter, slice(None)) for letter in layout)])
        values = values.transpose(order)
        if "b" in layout:
            values = values[0]
        if "c" not in layout:
            values = values[:, None]
            low = 0
        return real(values[:, [channel - low for channel in channels]])

    return read


def real(values: np.ndarray) -> np.ndarray:
    """The real part of an array that is complex by rounding only."""
    if not np.iscomplexobj(values):
        return values
    if values.size and np.abs(values.imag).max() > REAL_PART * max(np.abs(values.real).max(), REAL_PART):
        raise HeroError(
            "the array is complex with an imaginary part that matters; save real and imaginary part as two channels."
        )
    return values.real


def slabs(array: LazyArray, layout: str, split: str = "") -> list[Trajectory]:
    """The trajectories of an array, which stays where it is."""
    return [
        Trajectory(length(array, layout, "t"), frames_of(array, layout, row), split=split)
        for row in range(length(array, layout, "b"))
    ]


def channels_of(name: str, count: int) -> tuple[Channel, ...]:
    """`u`, or `u0`, `u1`, ... where there are several."""
    return (Channel(name),) if count == 1 else tuple(Channel(f"{name}{i}") for i in range(count))


def axes_of(array: LazyArray, layout: str, coordinates: Mapping[str, np.ndarray]) -> tuple[Axis, ...]:
    """The axes of space; a coordinate that does not fit is left out."""
    axes = []
    for letter in space_letters(layout):
        n = length(array, layout, letter)
        given = coordinates.get(letter)
        points = given if given is not None and given.shape == (n,) else np.arange(n, dtype=np.float64)
        axes.append(Axis("point" if letter == "p" else letter, points))
    return tuple(axes)


def time_step(times: np.ndarray | None) -> tuple[float, tuple[str, ...]]:
    """dt of the times of frames, and a note where they are not uniform."""
    if times is None or times.size < 2:
        return 1.0, ()
    steps = np.diff(np.asarray(times, dtype=np.float64))
    dt = float(np.median(steps))
    if not np.isfinite(dt) or dt <= 0:
        return 1.0, ("The times of the frames do not increase; dt is taken as 1.",)
    if np.abs(steps - dt).max() > 1e-3 * dt:
        return dt, (f"Frames are not uniform in time (dt from {steps.min():g} to {steps.max():g}); {dt:g} is taken.",)
    # The mean of many equal steps has less rounding than any of them.
    return float(f"{steps.mean():.9g}"), ()


def with_scalars(trajectories: Sequence[Trajectory], name: str, values: np.ndarray, path: Path) -> list[Trajectory]:
    """Conditioning numbers `values`, (trajectory,) or (trajectory, number), added to the trajectories."""
    table = np.asarray(values, dtype=np.float64)
    if table.size == 1:
        table = np.full((len(trajectories), 1), table.item())
    elif table.ndim == 1 and len(trajectories) == 1:
        table = table[None]
    table = table.reshape(len(table), -1)
    if len(table) != len(trajectories):
        raise HeroError(
            f"{path}: {name} has {len(table)} rows for {len(trajectories)} trajectories; save one row per trajectory."
        )
    names = [name] if table.shape[1] == 1 else [f"{name}{i}" for i in range(table.shape[1])]
    return [
        replace(trajectory, scalars={**trajectory.scalars, **dict(zip(names, row.tolist(), strict=True))})
        for trajectory, row in zip(trajectories, table, strict=True)
    ]


def describe(arrays: Mapping[str, LazyArray]) -> str:
    """Names and shapes for an error, the first eight."""
    listed = [f"{name} {tuple(array.shape)}" for name, array in list(arrays.items())[:8]]
    return ", ".join(listed) + (", ..." if len(arrays) > 8 else "")
