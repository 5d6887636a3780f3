"""Several recordings as one: the files of a folder, or the splits of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hero.data.recording import Axis, Recording
from hero.errors import HeroError


def join(recordings: Sequence[Recording]) -> Recording:
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
        notes=tuple(dict.fromkeys(note for recording in recordings for note in recording.notes)),
    )


def check_alike(recordings: Sequence[Recording]) -> None:
    """Refuse files that cannot be one recording, naming two of them."""
    first = recordings[0]
    for other in recordings[1:]:
        both = f"{first.files[0]} and {other.files[0]}"
        for name, ours, theirs in zip(_FACTS, _facts(first), _facts(other), strict=True):
            if ours != theirs:
                differing = " and ".join(f"({', '.join(names)})" for names in (ours, theirs))
                raise HeroError(f"{both} have different {name}, {differing}; open them separately.")
        if not all(_is_same(*pair) for pair in zip(first.axes, other.axes, strict=True)):
            raise HeroError(f"the coordinates of {both} differ; open them separately.")
        if abs(other.dt - first.dt) > 1e-3 * first.dt:
            raise HeroError(
                f"the time steps of {both} differ, {first.dt:.4g} and {other.dt:.4g}; open them separately."
            )


_FACTS = ("layouts", "grids", "channels", "conditioning fields", "conditioning numbers")


def _facts(recording: Recording) -> tuple[tuple[str, ...], ...]:
    """What files of one recording have in common, in the order of `_FACTS`."""
    return (
        (recording.format,),
        tuple(f"{axis.name}: {axis.points}" for axis in recording.axes),
        tuple(channel.name for channel in recording.channels),
        recording.field_names,
        recording.scalar_names,
    )


def _is_same(ours: Axis, theirs: Axis) -> bool:
    extent = float(np.ptp(ours.coordinates)) or 1.0
    return bool(np.abs(ours.coordinates - theirs.coordinates).max() <= 1e-5 * extent)
