"""Folders of files that are one recording: by layout, by the names of the files, or in time.

Where names say trajectory, channel or time, as in `sim_{b}/{c}_{t}.npy`, a file with {t} is one state: the first and
the last are opened to learn their shape, all others when their states are asked for. Without {t}, the files of one
trajectory are channels side by side. Other files follow each other in time or are trajectories.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from hero.data.files.recording import SPELLINGS, UNNAMED, Axis, Channel, Recording
from hero.data.formats.arrays import FileArray, stacked
from hero.data.formats.named import COORDINATES, coordinates_of, read_named
from hero.data.formats.names import NameRule
from hero.data.formats.plain import open_npy
from hero.data.formats.slabs import Slab, axes_of, beside, fits, in_turn, recording_of, space_of, time_step
from hero.errors import HeroError

FEW = 16  # components that a state may have along an axis that is shorter than the others


def split_files(folder: Path) -> dict[str, Path]:
    """NAME_train.npy, NAME_test.npy and perhaps NAME_val.npy, or without NAME, if the folder has one such set."""
    found: dict[str, list[Path]] = {"train": [], "val": [], "test": []}
    for path in folder.glob("*.npy"):
        found.get(SPELLINGS.get(path.stem.rpartition("_")[2], ""), []).append(path)
    several = max(map(len, found.values())) > 1
    return {split: paths[0] for split, paths in found.items() if paths} if found["train"] and not several else {}


def read_split_files(path: Path, folder: Path, layout: str) -> Recording:
    """An array per split, (trajectory, time, channel, *space) or as the layout says; and the scenario's JSON.

    The facts of a scenario are its dt and the width of its box, 1 where it has no units; all are periodic.
    """
    files = split_files(folder)
    described = files["train"].with_name(files["train"].name.removesuffix("_train.npy") + ".json")
    facts = json.loads(described.read_text(encoding="utf-8")).get("info", {}) if described.is_file() else {}
    arrays = {split: open_npy(file)[""] for split, file in files.items()}
    recording = replace(read_named(files["train"], arrays, layout, form="splits"), files=tuple(files.values()))
    if not isinstance(facts, dict) or "num_spatial_dims" not in facts:
        return recording
    width, dt = (float(facts.get(name, 1.0)) for name in ("domain_extent", "dt"))
    axes = [Axis(axis.name, np.arange(axis.points) * (width / axis.points), True) for axis in recording.axes]
    return replace(recording, axes=tuple(axes), dt=dt)


def case_folders(folder: Path) -> list[Path]:
    """The folders with a case of CFDBench: this one, or below it (problem/subset/case)."""
    return sorted(path.parent for path in folder.rglob("case.json") if (path.parent / "u.npy").is_file())


def read_cfdbench(path: Path, folder: Path, layout: str) -> Recording:
    """A trajectory per case: u.npy and v.npy, (time, height, width), and numbers in case.json."""
    cases = case_folders(folder)
    names = [name for name in ("u", "v") if (cases[0] / f"{name}.npy").is_file()]
    arrays = [[open_npy(case / f"{name}.npy")[""] for name in names] for case in cases]
    for case, parts in zip(cases, arrays, strict=True):
        shapes = {part.shape for part in parts}
        if len(shapes) > 1 or len(parts[0].shape) != 3:
            told = ", ".join(map(str, sorted(shapes)))
            raise HeroError(f"{case} holds {told}; name a folder whose cases are (time, height, width) on one grid.")
    facts = [json.loads((case / "case.json").read_text(encoding="utf-8")) for case in cases]
    scalars = [{name: float(n) for name, n in row.items() if type(n) in (int, float)} for row in facts]
    common = [name for name in scalars[0] if all(name in row for row in scalars)]
    dropped = sorted({name for row in scalars for name in row} - set(common))
    notes = [f"{', '.join(dropped)} of case.json are left out, because some cases do not have them."]
    runs = []
    for parts, row in zip(arrays, scalars, strict=True):
        space = space_of("txy", parts[0].shape)
        axes = [replace(axis, periodic=False) for axis in axes_of(space, {}, "yx")]  # walls, an inlet or an outlet
        slabs = [Slab(part, "txy", space, (Channel(name),)) for name, part in zip(names, parts, strict=True)]
        files, numbers = tuple(part.path for part in parts), {name: [row[name]] for name in common}
        runs.append(recording_of("cfdbench", files, slabs, tuple(axes), scalars=numbers))
    return replace(all_of(runs), notes=tuple(notes) if dropped else ())


def join(recordings: Sequence[Recording]) -> Recording:
    """One trajectory of recordings that continue each other in time, else the trajectories of all."""
    single = all(len(one.trajectories) == 1 and len(one.times) == 1 and one.times[0].ndim == 1 for one in recordings)
    if single and len(recordings) > 1:
        series = sorted(recordings, key=lambda one: float(one.times[0][0]))
        if all(b.times[0][0] >= a.times[0][-1] for a, b in pairwise(series)):
            return in_series(series)
    return all_of(recordings)


def in_series(series: Sequence[Recording]) -> Recording:
    """One trajectory of recordings that follow each other in time; a state at the end of one and the start of the next
    counts once.
    """
    clocks = [one.times[0] if one.times else None for one in series]
    pairs = pairwise(clocks)
    repeated = [0, *(int(a is not None and b is not None and b[0] == a[-1]) for a, b in pairs)]
    times = [clock[again:] for clock, again in zip(clocks, repeated, strict=True) if clock is not None]
    dt, found = time_step(np.concatenate(times) if len(times) == len(series) else None)
    check_alike([replace(one, dt=dt) for one in series])  # a file may have one state and no time step
    runs = [one.trajectories[0] for one in series]
    lengths = [run.frames - again for run, again in zip(runs, repeated, strict=True)]
    common = [name for name in runs[0].series if all(name in run.series for run in runs)]
    others = {name: in_turn([run.series[name] for run in runs], lengths, repeated) for name in common}
    note = f"{len(series)} files that continue each other are one trajectory"
    note += f"; {sum(repeated)} states that end one file and begin the next count once." if any(repeated) else "."
    whole = in_turn([run.read for run in runs], lengths, repeated)
    return replace(
        all_of([replace(one, dt=dt) for one in series]),
        dt=dt if found else series[0].dt,
        trajectories=[replace(runs[0], frames=sum(lengths), read=whole, series=others)],
        times=found,
        notes=(*dict.fromkeys(note for one in series for note in one.notes), note),
    )


def all_of(recordings: Sequence[Recording]) -> Recording:
    """The trajectories of all recordings, one after the other."""
    check_alike(recordings)
    together = zip(*(recording.axes for recording in recordings), strict=True)
    axes = [
        replace(same[0], periodic=same[0].periodic if len({axis.periodic for axis in same}) == 1 else False)
        for same in together
    ]
    return replace(
        recordings[0],
        files=tuple(path for recording in recordings for path in recording.files),
        axes=tuple(axes),
        trajectories=[trajectory for recording in recordings for trajectory in recording.trajectories],
        times=tuple(times for recording in recordings for times in recording.times),
        notes=tuple(dict.fromkeys(note for recording in recordings for note in recording.notes)),
    )


def check_alike(recordings: Sequence[Recording]) -> None:
    """Refuse files that cannot be one recording, naming two of them."""
    first = recordings[0]
    for other in recordings[1:]:
        both = f"{first.files[0]} and {other.files[0]}"
        for name, ours in _facts(first).items():
            if ours != (theirs := _facts(other)[name]):
                differing = " and ".join(f"({', '.join(names)})" for names in (ours, theirs))
                raise HeroError(f"{both} have different {name}, {differing}; open them separately.")
        pairs = [(ours.coordinates, theirs.coordinates) for ours, theirs in zip(first.axes, other.axes, strict=True)]
        if not all(np.allclose(ours, theirs, rtol=0, atol=1e-5 * (np.ptp(ours) or 1)) for ours, theirs in pairs):
            raise HeroError(f"the coordinates of {both} differ; open them separately.")
        if abs(other.dt - first.dt) > 1e-3 * first.dt:
            raise HeroError(f"the dt of {both} differ, {first.dt:.4g} and {other.dt:.4g}; open them separately.")


def _facts(recording: Recording) -> dict[str, tuple[str, ...]]:
    """What files of one recording have in common."""
    return {
        "layouts": (recording.format,),
        "grids": tuple(f"{axis.name}: {axis.points}" for axis in recording.axes),
        "channels": tuple(channel.name for channel in recording.channels),
        "conditioning fields": recording.field_names,
        "conditioning numbers": recording.scalar_names,
    }


def read_snapshots(
    folder: Path, rule: NameRule, axes: str, opened: Callable[[Path], Mapping[str, FileArray]]
) -> Recording:
    """The recording of files with one state each; `axes` are those of a state, "" where they are to be found.

    `opened` gives the arrays of one state by name, "" where the file is the array.
    """
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
    raise HeroError(f"{folder}: the axes of states {shape} are not known; add them to the pattern, as in '... cxyz'.")


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
