"""Folders: CFDBench's cases, an array per split as APEBench writes them, and several recordings joined into one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import SPELLINGS, Axis, Channel, Recording
from hero.data.formats.arrays import FileArray, held
from hero.data.formats.named import read_named
from hero.data.formats.plain import open_npy
from hero.data.formats.slabs import Slab, axes_of, in_turn, recording_of, space_of, time_step
from hero.errors import HeroError, unknown_name


def read_apebench(path: Path, name: str, layout: str) -> Recording:
    """A scenario such as `apebench:2d_phy_kolm_flow`, with its training and test trajectories, solved when opened."""
    try:
        from apebench.scenarios import scenario_dict
    except ImportError as error:
        raise HeroError(
            f"{name} needs the package apebench; install it with `pip install apebench==0.1.1`, in an environment "
            "without the tests of hero, because it pins exponax 0.1.0."
        ) from error
    found = re.fullmatch(r"apebench:(?:([123])d_)?(\w+)", name)
    dims, scenario_name = (int(found[1] or 1), found[2]) if found else (1, "")
    if scenario_name not in scenario_dict:
        raise unknown_name("scenario of apebench", scenario_name, scenario_dict)
    scenario = scenario_dict[scenario_name](num_spatial_dims=dims)
    arrays = {"train": scenario.get_train_data(), "test": scenario.get_test_data()}
    solved = {split: held(path, split, np.asarray(array)) for split, array in arrays.items()}
    return replace(_of_splits((path,), solved, vars(scenario), "btc" + "xyz"[:dims]), files=())


def split_files(folder: Path) -> dict[str, Path]:
    """NAME_train.npy, NAME_test.npy and perhaps NAME_val.npy, or without NAME, if the folder has one such set."""
    found: dict[str, Path] = {}
    for split, words in {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}.items():
        patterns = [pattern for word in words for pattern in (f"{word}.npy", f"*_{word}.npy")]
        paths = [path for pattern in patterns for path in folder.glob(pattern)]
        if len(paths) > 1:
            return {}
        found |= dict(zip([split], paths, strict=False))
    return found if "train" in found else {}


def read_split_files(path: Path, folder: Path, layout: str) -> Recording:
    """An array per split, (trajectory, time, channel, *space) or as the layout says; and the scenario's JSON."""
    files = split_files(folder)
    described = files["train"].with_name(files["train"].name.removesuffix("_train.npy") + ".json")
    facts = json.loads(described.read_text(encoding="utf-8")).get("info", {}) if described.is_file() else {}
    arrays = {split: open_npy(file)[""] for split, file in files.items()}
    return _of_splits(tuple(files.values()), arrays, facts, layout)


def _of_splits(files: tuple[Path, ...], arrays: dict[str, FileArray], facts: Any, layout: str) -> Recording:
    """The facts of a scenario are its dt and the width of its box, 1 where it has no units; all are periodic."""
    recording = replace(read_named(files[0], arrays, layout, form="apebench"), files=files)
    if not isinstance(facts, dict) or "num_spatial_dims" not in facts:
        return recording
    width, dt = (float(facts.get(name, 1.0)) for name in ("domain_extent", "dt"))
    axes = [Axis(axis.name, np.arange(axis.points) * (width / axis.points), True) for axis in recording.axes]
    return replace(recording, axes=tuple(axes), dt=dt)


def case_folders(folder: Path) -> list[Path]:
    """The folders with a case of CFDBench: this one, or below it (problem/subset/case)."""
    found = {path.parent for depth in ("", "*/", "*/*/", "*/*/*/") for path in folder.glob(f"{depth}case.json")}
    return sorted(case for case in found if (case / "case.json").is_file() and (case / "u.npy").is_file())


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


def with_split(recording: Recording, path: Path, folder: Path) -> Recording:
    """The split that a folder between these two is named after, for trajectories whose file does not say."""
    split = next((SPELLINGS[part] for part in path.relative_to(folder).parts[:-1] if part in SPELLINGS), "")
    return replace(
        recording,
        trajectories=[replace(trajectory, split=trajectory.split or split) for trajectory in recording.trajectories],
    )


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
    counts once."""
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
        if not all(_is_same(*pair) for pair in zip(first.axes, other.axes, strict=True)):
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


def _is_same(ours: Axis, theirs: Axis) -> bool:
    extent = float(np.ptp(ours.coordinates)) or 1.0
    return bool(np.abs(ours.coordinates - theirs.coordinates).max() <= 1e-5 * extent)
