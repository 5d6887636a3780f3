"""Checks after reading: lengths, masks, doubled end points and periodic axes, and what cannot be trained on.

    recording = tidy(open_recording(path))
    refuse_unfit(recording)

A few states of a few trajectories are read, so that both take seconds on files of any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """The recording with trajectories of one length, masked points filled, and every axis periodic or not; noted."""
    if not recording.trajectories:
        raise HeroError(f"{_named(recording)} holds no trajectory; name another file.")
    recording = _filled_masks(_equal_lengths(recording))
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


def _filled_masks(recording: Recording) -> Recording:
    """Points that are NaN in every sampled state are outside of the domain, as land is of an ocean: read as 0."""
    states = [state for part in sample(recording) for state in part.values]
    if not states:
        return recording
    mask = np.isnan(states[0])
    if not mask.any() or mask.all() or any((np.isnan(state) != mask).any() for state in states):
        return recording

    def fill(trajectory: Trajectory) -> Trajectory:
        def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
            values = np.array(trajectory.read(frames, channels))
            outside = np.broadcast_to(mask[list(channels)], values.shape)
            values[outside & np.isnan(values)] = 0
            return values

        return replace(trajectory, read=read)

    names = ", ".join(channel.name for channel, part in zip(recording.channels, mask, strict=True) if part.any())
    note = f"{names}: {mask.mean():.1%} of the points are NaN in every state (a mask) and are read as 0."
    return replace(recording, trajectories=[fill(t) for t in recording.trajectories], notes=(*recording.notes, note))


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
    for part in parts:
        broken = ~np.isfinite(part.values)
        if broken.any():
            frame, channel = (int(places[0]) for places in np.nonzero(broken)[:2])
            raise HeroError(
                f"{name}: trajectory {part.trajectory} is not finite in {recording.channels[channel].name} at "
                f"frame {part.frames[frame]}; leave such trajectories out or fill the values, and save it again."
            )
    if all((part.values == part.values[:1]).all() for part in parts):
        raise HeroError(
            f"{name} is steady: all states of a trajectory are equal, so there is nothing to predict; name a file of "
            "trajectories in time."
        )


def _named(recording: Recording) -> str:
    first = str(recording.files[0]) if recording.files else recording.format
    return first + (f" (and {len(recording.files) - 1} more)" if len(recording.files) > 1 else "")
