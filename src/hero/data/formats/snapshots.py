"""Folders of many files whose names are trajectory, channel or time: `sim_{b}/{c}_{t}.npy`.

With {t}, a file is one state; the first and the last are opened to learn their shape, all others when their states are
asked for. Without {t}, the files of one trajectory are channels side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from hero.data.files.recording import UNNAMED, Channel, Recording
from hero.data.formats.arrays import FileArray, stacked
from hero.data.formats.folders import check_alike, join
from hero.data.formats.named import COORDINATES, coordinates_of, read_named
from hero.data.formats.names import NameRule
from hero.data.formats.slabs import beside, fits, time_step
from hero.errors import HeroError

Open = Callable[[Path], Mapping[str, FileArray]]
"""The arrays of one state by name, "" where the file is the array."""
FEW = 16
"""Components that a state may have along an axis that is shorter than the others."""


def read_snapshots(folder: Path, rule: NameRule, axes: str, opened: Open) -> Recording:
    """The recording of files with one state each; `axes` are those of a state, "" where they are to be found."""
    runs = _runs(folder, rule)
    first = {field: dict(opened(next(iter(states.values())))) for field, states in next(iter(runs.values())).items()}
    word = axes or _state_axes(first, folder)

    def state(like: FileArray, name: str, file: Path) -> FileArray:
        arrays = opened(file)
        if name not in arrays or arrays[name].shape != like.shape:
            told = f"{name or 'a state'} {arrays[name].shape}" if name in arrays else f"no {name}"
            raise HeroError(
                f"{file} has {told} and other states {like.shape}; files of one recording have one shape: remove it, "
                "or name the others with a pattern in data.layout."
            )
        return arrays[name]

    def in_time(fields: Mapping[str, Mapping[float, Path]]) -> dict[str, FileArray]:
        """The arrays of a trajectory with time first; coordinates, numbers and points are those of the first state."""
        found: dict[str, FileArray] = {}
        for field, states in fields.items():
            numeric = {name: array for name, array in first[field].items() if array.dtype.kind in "fiubc"}
            moving = {name: array for name, array in numeric.items() if not _is_fixed(name, array)}
            fixed = {name: numeric[name] for name in numeric if name not in (*moving, *COORDINATES["t"])}
            found = {**fixed, **found}
            for name, array in moving.items():
                shown = name if not field else field if len(moving) == 1 else f"{field}_{name}"
                found[shown] = stacked(partial(state, array, name), list(states.values()), array)
        return found

    parts = []
    for fields in runs.values():
        numbers = np.array(list(next(iter(fields.values()))))
        parts.append(_with_times(read_named(folder, in_time(fields), f"t{word}", form="snapshots"), numbers, rule))
    whole = join(parts)
    last, place = list(rule.places.items())[-1]
    for name, array in first[place.field].items():
        if not _is_fixed(name, array):
            state(array, name, folder / last)
    notes = (f"Names are read as {rule.sentence()}", *whole.notes)
    return replace(whole, files=tuple(folder / name for name in rule.places), notes=notes)


def _runs(folder: Path, rule: NameRule) -> dict[str, dict[str, dict[float, Path]]]:
    """Files by trajectory, channel and time; HeroError where a trajectory lacks a file that another has."""
    runs: dict[str, dict[str, dict[float, Path]]] = {}
    for name, place in rule.places.items():
        runs.setdefault(place.run, {}).setdefault(place.field, {})[place.time or 0.0] = folder / name
    expected = list(next(iter(runs.values())))
    for run, fields in runs.items():
        times = {field: list(states) for field, states in fields.items()}
        if list(times) != expected or len({tuple(one) for one in times.values()}) > 1:
            counts = ", ".join(f"{field} {len(times.get(field, ()))}" for field in dict.fromkeys([*expected, *times]))
            raise HeroError(
                f"{folder}: trajectory {run or 1} has different numbers of files of its channels ({counts}), read as "
                f"data.layout='{rule.pattern}'; add the missing files, or name a pattern that leaves a channel out."
            )
    return runs


def _state_axes(first: Mapping[str, Mapping[str, FileArray]], folder: Path) -> str:
    """The axes of a state by the lengths of its coordinates, else by its shape: few components, first or last."""
    arrays = {name: array for part in first.values() for name, array in part.items()}
    lengths = {letter: len(values) for letter, values in coordinates_of(arrays).items() if letter != "t"}
    fields = [array for name, array in arrays.items() if not _is_fixed(name, array)]
    ranks = {len(array.shape) for array in fields if sum(n > 1 for n in array.shape)}
    if not ranks:
        raise HeroError(f"{folder}: {next(iter(first))} files hold no array; name the pattern of others.")
    rank = max(ranks)
    shape = next(array.shape for array in fields if len(array.shape) == rank)
    if "coords" in arrays and rank <= 2:
        return "p" if rank == 1 else "pc" if shape[0] == arrays["coords"].shape[0] else "cp"
    if lengths:
        space = "".join(letter for letter in "xyz" if letter in lengths)
        found = [w for w in (space, f"c{space}", f"{space}c") if len(w) == rank and fits(w, shape, lengths)]
        if found:
            return found[0]
    few, space = FEW // 4 if rank == 2 else FEW, "xyz"[: rank - 1]
    if rank > 1 and shape[0] < min(*shape[1:], few + 1):
        return f"c{space}"
    if rank > 1 and shape[-1] < min(*shape[:-1], few + 1):
        return f"{space}c"
    if rank <= 3:
        return "xyz"[:rank]
    raise HeroError(
        f"{folder}: the axes of states {shape} are not known; say them after the pattern, as in '... cxyz'."
    )


def _is_fixed(name: str, array: FileArray) -> bool:
    size, named = math.prod(array.shape), any(name in names for names in COORDINATES.values())
    return (named and max(array.shape, default=1) == size) or name in ("coords", "weights", "dt") or size == 1


def _with_times(recording: Recording, numbers: np.ndarray, rule: NameRule) -> Recording:
    """The recording with the times that its names say: dates in days, fractions as they are, counters as steps of 1."""
    counted = rule.counted and not rule.dated and bool((numbers == np.round(numbers)).all())
    step = float(np.diff(numbers).min()) if len(numbers) > 1 else 1.0
    dt, times = time_step((numbers - numbers[0]) / step if counted else numbers)
    note = f"A time step is {step:g} in the numbers of the names; data.dt says how long it is."
    notes = (*recording.notes, note) if counted and step != 1 else recording.notes
    return replace(recording, dt=dt, times=times, time_unit="d" if rule.dated else "", notes=notes)


def read_channels(folder: Path, rule: NameRule, read: Callable[[Path], Recording]) -> Recording:
    """The recording of files with one channel each; the rule names trajectory and channel."""
    runs = _runs(folder, rule).values()
    whole = join([_merged([read(file) for (file,) in map(dict.values, run.values())], list(run)) for run in runs])
    return replace(whole, notes=(f"Names are read as {rule.sentence()}", *whole.notes))


def _merged(recordings: Sequence[Recording], names: Sequence[str]) -> Recording:
    """Recordings of the same trajectories with other channels, side by side."""
    first = recordings[0]
    check_alike([replace(one, channels=first.channels) for one in recordings])
    if len({tuple(run.frames for run in one.trajectories) for one in recordings}) > 1:
        both = " and ".join(f"{one.files[0]} ({len(one.trajectories)})" for one in recordings[:2])
        raise HeroError(f"the trajectories or states of {both} differ in number; open them separately.")
    channels = []  # by the name of the file where the file has no names of its own
    for one, name in zip(recordings, names, strict=True):
        several = len(one.channels) > 1
        labels = [Channel(f"{name}_{i}" if several else name, own.unit) for i, own in enumerate(one.channels)]
        channels.append(labels if one.format in UNNAMED else list(one.channels))
    rows = range(len(first.trajectories))
    runs = [beside([(one.trajectories[i].read, len(one.channels)) for one in recordings]) for i in rows]
    return replace(
        first,
        files=tuple(path for one in recordings for path in one.files),
        channels=tuple(channel for part in channels for channel in part),
        trajectories=[replace(run, read=read) for run, read in zip(first.trajectories, runs, strict=True)],
    )
