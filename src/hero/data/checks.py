"""Checks after reading: lengths, masks, doubled end points and periodic axes, and what cannot be trained on.

    recording = tidy(open_recording(path))
    refuse_unfit(recording)

A few states of a few trajectories are read, so that both take seconds on files of any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hero.data.boundaries import decide_boundaries
from hero.data.recording import Recording, Trajectory
from hero.errors import HeroError

SAMPLED_VALUES = 1 << 23
"""Numbers that are read, if three states are not more."""
SAMPLED_TRAJECTORIES = 4
SAMPLED_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Sampled:
    """Some states of one trajectory."""

    trajectory: int
    frames: list[int]
    values: np.ndarray
    """(frame, channel, *space)"""


def sample(recording: Recording) -> list[Sampled]:
    """States from the first to the last of a few trajectories."""
    channels = list(range(len(recording.channels)))
    states = max(3, SAMPLED_VALUES // max(1, len(channels) * math.prod(recording.space)))
    rows = _spread(len(recording.trajectories), min(SAMPLED_TRAJECTORIES, states // 3))
    found = []
    for row in rows:
        trajectory = recording.trajectories[row]
        frames = _spread(trajectory.frames, min(SAMPLED_FRAMES, states // len(rows)))
        parts = [trajectory.read(slice(frame, frame + 1), channels) for frame in frames]
        found.append(Sampled(row, frames, np.concatenate(parts).astype(np.float64)))
    return found


def _spread(count: int, wanted: int) -> list[int]:
    """`wanted` of the numbers 0 .. count-1, with both ends."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, wanted))})


def tidy(recording: Recording) -> Recording:
    """The recording with trajectories of one length, its mask, and every axis periodic or not; noted."""
    if not recording.trajectories:
        raise HeroError(f"{_named(recording)} holds no trajectory; name another file.")
    recording = _masked(_equal_lengths(recording))
    if recording.points is not None or min(t.frames for t in recording.trajectories) < 1:
        return recording
    return decide_boundaries(recording, [part.values for part in sample(recording)])


def _equal_lengths(recording: Recording) -> Recording:
    """Cut to the shortest of a split: test trajectories may be longer than the ones to train on."""
    trajectories, notes = list(recording.trajectories), []
    for split in sorted({trajectory.split for trajectory in trajectories}):
        lengths = [trajectory.frames for trajectory in trajectories if trajectory.split == split]
        if min(lengths) < max(lengths):
            trajectories = [_cut(t, min(lengths)) if t.split == split else t for t in trajectories]
            of_split = f" of {split}" if split else ""
            notes.append(
                f"Trajectories{of_split} have {min(lengths)} to {max(lengths)} states; all are cut to {min(lengths)}."
            )
    return replace(recording, trajectories=trajectories, notes=(*recording.notes, *notes)) if notes else recording


def _cut(trajectory: Trajectory, frames: int) -> Trajectory:
    def read(wanted: slice, channels: Sequence[int]) -> np.ndarray:
        return trajectory.read(slice(*wanted.indices(frames)), channels)

    return trajectory if trajectory.frames == frames else replace(trajectory, frames=frames, read=read)


def _masked(recording: Recording) -> Recording:
    """Points that are NaN in every sampled state are outside of the domain, as land is of an ocean: a mask.

    They are read as the mean of the others, so that what looks at whole fields meets no cliff.
    """
    states = [state for part in sample(recording) for state in part.values]
    outside = np.isnan(states[0]) if states else np.zeros(1, bool)
    if not outside.any() or any((np.isnan(state) != outside).any() for state in states):
        return recording
    if outside.all():
        raise HeroError(f"{_named(recording)} has no value, only NaN; name another file.")
    names = [channel.name for channel in recording.channels]
    inside = [[state[c][~outside[c]] for state in states] for c in range(len(names))]
    fill = np.array([np.mean(values) if values[0].size else 0.0 for values in inside])
    trajectories = [
        replace(one, read=partial(_read_masked, one, i, outside, fill, names, _named(recording)))
        for i, one in enumerate(recording.trajectories)
    ]
    with_mask = ", ".join(name for name, part in zip(names, outside, strict=True) if part.any())
    note = f"{with_mask}: {outside.mean():.1%} of the points are NaN in every state and are left out (a mask)."
    return replace(recording, trajectories=trajectories, mask=~outside, notes=(*recording.notes, note))


def _read_masked(
    trajectory: Trajectory,
    number: int,
    outside: np.ndarray,
    fill: np.ndarray,
    names: Sequence[str],
    file: str,
    frames: slice,
    channels: Sequence[int],
) -> np.ndarray:
    """States with the masked points filled; HeroError where the mask moves."""
    values = np.array(trajectory.read(frames, channels))
    mask = np.broadcast_to(outside[list(channels)], values.shape)
    moved = mask & ~np.isnan(values)
    if moved.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(moved))
        frame = range(*frames.indices(trajectory.frames))[place[0]]
        raise HeroError(
            f"{file}: the mask of {names[channels[place[1]]]} moves, trajectory {number} has values at frame {frame} "
            "where other states have NaN; fill the values, or leave such trajectories out."
        )
    filling = fill[list(channels)].reshape(-1, *(1,) * (values.ndim - 2))
    return np.where(mask, filling.astype(values.dtype), values)


def refuse_unfit(recording: Recording) -> None:
    """Refuse states that are too few, steady, or not finite."""
    name = _named(recording)
    shortest = min((trajectory.frames for trajectory in recording.trajectories), default=0)
    if shortest < 3:
        raise HeroError(
            f"{name} is too short: its trajectories have {shortest} state{'s' * (shortest != 1)} of "
            f"{', '.join(channel.name for channel in recording.channels[:6])} on {recording.space}, and training needs "
            "3 at least; name a file with more."
        )
    parts = sample(recording)
    _refuse_not_finite(recording, parts)
    if all((part.values == part.values[:1]).all() for part in parts):
        raise HeroError(
            f"{name} is steady: all states of a trajectory are equal, so there is nothing to predict; name a file of "
            "trajectories in time."
        )


def _refuse_not_finite(recording: Recording, parts: Sequence[Sampled]) -> None:
    """Refuse NaN and infinity that are no mask: not at the points where most states have them."""
    usual = np.mean([np.isnan(state) for part in parts for state in part.values], axis=0) > 0.5
    for part in parts:
        for found, fault, remedy in (
            (~np.isfinite(part.values) & ~usual, "is not finite in", "leave such trajectories out or fill the values"),
            (~np.isnan(part.values) & usual, "has a value of", "give the mask to every state"),
        ):
            if found.any():
                frame, channel = (int(places[0]) for places in np.nonzero(found)[:2])
                raise HeroError(
                    f"{_named(recording)}: trajectory {part.trajectory} {fault} {recording.channels[channel].name} at "
                    f"frame {part.frames[frame]}, and not at the same points in every state, as a mask would be; "
                    f"{remedy}, and save it again."
                )


def _named(recording: Recording) -> str:
    first = str(recording.files[0]) if recording.files else recording.format
    return first + (f" (and {len(recording.files) - 1} more)" if len(recording.files) > 1 else "")
