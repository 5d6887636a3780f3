"""Several files of a folder as one recording."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hero.data.formats.containers import is_hdf5
from hero.data.recording import SPELLINGS, Axis, Channel, Recording
from hero.errors import HeroError


def hdf5_files(folder: Path) -> list[Path]:
    """The HDF5 files in a folder, data_2 before data_10; where it has none, the files in folders below it."""
    for pattern in ("*", "**/*"):
        found = [path for path in folder.glob(pattern) if path.is_file() and path.name[0] != "." and is_hdf5(path)]
        if found:
            return sorted(found, key=_numbers_by_value)
    return []


def _numbers_by_value(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def split_of(path: Path, folder: Path) -> str:
    """The split that a folder between these two is named after."""
    return next((SPELLINGS[part] for part in path.relative_to(folder).parts[:-1] if part in SPELLINGS), "")


def with_split(recording: Recording, split: str) -> Recording:
    """The split of the folder that a file is in, for trajectories whose file does not say."""
    return replace(
        recording,
        trajectories=[replace(trajectory, split=trajectory.split or split) for trajectory in recording.trajectories],
    )


def check_formats(recordings: Sequence[Recording]) -> None:
    """Refuse files of several layouts, naming two of them."""
    first = recordings[0]
    other = next((recording for recording in recordings if recording.format != first.format), None)
    if other is not None:
        raise HeroError(
            f"{first.files[0]} and {other.files[0]} have different layouts, {first.format} and {other.format}; "
            "open them separately."
        )


def check_alike(recordings: Sequence[Recording]) -> None:
    """Refuse files that cannot be one recording, naming two of them."""
    first = recordings[0]
    for other in recordings[1:]:
        both = f"{first.files[0]} and {other.files[0]}"
        for name, ours, theirs in (
            ("grids", _grid(first), _grid(other)),
            ("channels", _names(first.channels), _names(other.channels)),
            ("conditioning fields", first.field_names, other.field_names),
            ("conditioning numbers", first.scalar_names, other.scalar_names),
        ):
            if ours != theirs:
                raise HeroError(
                    f"{both} have different {name}, {_told(ours)} and {_told(theirs)}; open them separately."
                )
        if any(not _same(*pair) for pair in zip(first.axes, other.axes, strict=True)):
            raise HeroError(f"the coordinates of {both} differ; open them separately.")
        if abs(other.dt - first.dt) > 1e-3 * first.dt:
            raise HeroError(
                f"the time steps of {both} differ, {first.dt:.4g} and {other.dt:.4g}; open them separately."
            )


def _grid(recording: Recording) -> tuple[str, ...]:
    return tuple(f"{axis.name}: {axis.points}" for axis in recording.axes)


def _names(channels: Sequence[Channel]) -> tuple[str, ...]:
    return tuple(channel.name for channel in channels)


def _told(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"


def _same(ours: Axis, theirs: Axis) -> bool:
    extent = float(np.ptp(ours.coordinates)) or 1.0
    return bool(np.abs(ours.coordinates - theirs.coordinates).max() <= 1e-5 * extent)


def join(recordings: Sequence[Recording]) -> Recording:
    """The trajectories of all files, one after the other."""
    check_alike(recordings)
    axes = tuple(
        replace(
            axis, periodic=axis.periodic if len({other.axes[index].periodic for other in recordings}) == 1 else False
        )
        for index, axis in enumerate(recordings[0].axes)
    )
    return replace(
        recordings[0],
        files=tuple(path for recording in recordings for path in recording.files),
        axes=axes,
        trajectories=[trajectory for recording in recordings for trajectory in recording.trajectories],
        notes=tuple(dict.fromkeys(note for recording in recordings for note in recording.notes)),
    )
