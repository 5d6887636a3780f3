"""Checks after reading: lengths, masks, doubled end points and periodic axes, and what cannot be trained on.

    recording = tidy(open_recording(path))
    for problem in problems(selected(recording, settings), settings):
        raise problem

`tidy` reads a few states of a few trajectories, so that it takes seconds on files of any size. `problems` is the one
list of reasons to refuse a file: training raises the first, `hero doctor` shows them all. It reads all states of a file
of at most `SAMPLED_VALUES` numbers and the same few of a larger one, whose other states are checked as they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hero.data.files.recording import Recording, Trajectory, decide_boundaries, is_even, shortened
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings

SAMPLED_VALUES = 1 << 23  # numbers that are read, if three states are not more
SAMPLED_TRAJECTORIES = 4
SAMPLED_FRAMES = 8
SHORTEST = 3  # frames from which on a trajectory has an input, a target and a step to unroll
UNEVEN_STEPS = 1e-2  # differences of time steps, relative to their mean, that are taken for rounding of the times
SPLIT_FRAMES = 20  # frames of one or two trajectories that can always be split in time
STRIDED_FRAMES = 10  # frames from which on equal time steps are no accident of a stride
FAR_OUT = 10  # distance from all others, in their greatest deviations, at which a number stands for a missing value


class UnfitError(HeroError):
    """A reason for which training refuses a recording; `hero doctor` shows it as a problem of this kind."""

    def __init__(
        self, kind: str, file: str, text: str, remedy: str, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`settings` do what `remedy` says, where settings can."""
        self.kind, self.file, self.text, self.remedy, self.settings = kind, file, text, remedy, dict(settings)
        super().__init__(kind, file, text, remedy, self.settings)

    def __str__(self) -> str:
        typed = ", ".join("=".join(item) for item in self.settings.items())
        return f"{self.file}: {self.text}; {self.remedy}{typed and f' ({typed})'}."


@dataclass(frozen=True, eq=False)
class Sampled:
    """Some states of one trajectory."""

    trajectory: int
    frames: Sequence[int]
    values: np.ndarray  # (frame, channel, *space)


def sample(recording: Recording) -> list[Sampled]:
    """States from the first to the last of a few trajectories."""
    channels = list(range(len(recording.channels)))
    states = max(3, SAMPLED_VALUES // max(1, len(channels) * math.prod(recording.space)))
    rows = spread(len(recording.trajectories), min(SAMPLED_TRAJECTORIES, states // 3))
    found = []
    for row in rows:
        trajectory = recording.trajectories[row]
        frames = spread(trajectory.frames, min(SAMPLED_FRAMES, states // len(rows)))
        parts = [trajectory.read(slice(frame, frame + 1), channels) for frame in frames]
        found.append(Sampled(row, frames, np.concatenate(parts)))
    return found


def spread(count: int, most: int) -> list[int]:
    """At most `most` evenly spread numbers below `count`, with both ends."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most))})


def tidy(recording: Recording) -> Recording:
    """The recording with trajectories of one length, its mask, and every axis periodic or not; noted."""
    if not recording.trajectories or not all(trajectory.frames for trajectory in recording.trajectories):
        raise HeroError(f"{named(recording)} holds no trajectory, or one without states; name another file.")
    # Cut to the shortest of a split: test trajectories may be longer than the ones to train on.
    trajectories, notes = list(recording.trajectories), list(recording.notes)
    for split in sorted({trajectory.split for trajectory in trajectories}):
        lengths = [trajectory.frames for trajectory in trajectories if trajectory.split == split]
        if (least := min(lengths)) < max(lengths):
            trajectories = [shortened(t, least) if t.split == split else t for t in trajectories]
            told = f"Trajectories{f' of {split}' if split else ''} have {least} to {max(lengths)} states"
            notes.append(f"{told}; all are cut to {least}.")
    recording = replace(recording, trajectories=trajectories, notes=tuple(notes))
    sampled = [part.values for part in sample(recording)]
    found, announced = sampled[0].shape[1:], (len(recording.channels), *recording.space)
    if found != announced:
        raise HeroError(
            f"{named(recording)} has states of shape {found}, but its channels and coordinates say {announced}; "
            "correct the coordinates, or name the order of its axes."
        )
    recording, states = _masked(*without_stand_ins(recording, sampled))
    return recording if recording.points is not None else decide_boundaries(recording, states)


def without_stand_ins(recording: Recording, sampled: Sequence[np.ndarray]) -> tuple[Recording, Sequence[np.ndarray]]:
    """The recording and its sampled states with NaN for a number that stands for it undeclared, as -9999; noted."""
    numbers = np.array([stand_in(channel) for channel in np.concatenate(sampled).swapaxes(0, 1)])
    if np.isnan(numbers).all():
        return recording, sampled

    def with_nan(values: np.ndarray, channels: Sequence[int]) -> np.ndarray:
        return np.where(values == numbers[list(channels)].reshape(-1, *(1,) * (values.ndim - 2)), np.nan, values)

    def read(trajectory: Trajectory, frames: slice, channels: Sequence[int]) -> np.ndarray:
        return with_nan(trajectory.read(frames, channels), channels)

    named_numbers = zip(recording.channels, numbers, strict=True)
    notes = [f"{channel.name}: {n:g} is taken for a missing value." for channel, n in named_numbers if not np.isnan(n)]
    trajectories = [replace(one, read=partial(read, one)) for one in recording.trajectories]
    recording = replace(recording, trajectories=trajectories, notes=(*recording.notes, *notes))
    return recording, [with_nan(part, range(len(numbers))) for part in sampled]


def stand_in(states: np.ndarray) -> float:
    """The number that stands for a missing value in states of one channel; NaN if there is none.

    At some points every state is this number; at the others none is, and they differ by far less than from it.
    """
    still = (states == states[0]).all(axis=0)
    if not still.any() or still.all():
        return math.nan
    numbers, counts = np.unique(states[0][still], return_counts=True)
    number = float(numbers[counts.argmax()])
    others = states[:, ~still | (states[0] != number)]
    others = others[np.isfinite(others)].astype(np.float64)
    middle = np.median(others) if others.size else 0.0
    reach = np.abs(others - middle).max(initial=0)
    is_apart = 0 < FAR_OUT * reach <= abs(number - middle) and number not in others
    return number if is_apart else math.nan


def _masked(recording: Recording, sampled: Sequence[np.ndarray]) -> tuple[Recording, list[np.ndarray]]:
    """The recording and its sampled states in float64, with a mask.

    Points that are NaN in every sampled state are outside of the domain, as land is of an ocean. They are read as the
    mean of the others, so that what looks at whole fields meets no cliff.
    """
    states = np.concatenate(sampled).astype(np.float64)  # (state, channel, *space)
    missing = np.isnan(states)
    outside = np.logical_and.reduce(missing)
    for c in range(len(outside)):  # NaN in every state, nowhere in all: a mask that moves, found where it leaves this
        if not outside[c].any() and missing[:, c].reshape(len(states), -1).any(axis=1).all():
            outside[c] = missing[0, c]
    if not outside.any():
        return recording, [part.astype(np.float64) for part in sampled]
    valid = [states[:, c][np.isfinite(states[:, c]) & ~outside[c]] for c in range(len(outside))]
    fill = np.array([values.mean() if values.size else 0.0 for values in valid])

    def filled(values: np.ndarray, channels: Sequence[int]) -> np.ndarray:
        """NaN where a state has a value outside, because then the mask moves."""
        filling = fill[list(channels)].reshape(-1, *(1,) * (values.ndim - 2)).astype(values.dtype)
        return np.where(outside[list(channels)], np.where(np.isnan(values), filling, values.dtype.type(np.nan)), values)

    def read(trajectory: Trajectory, frames: slice, channels: Sequence[int]) -> np.ndarray:
        return filled(trajectory.read(frames, channels), channels)

    trajectories = [replace(one, read=partial(read, one)) for one in recording.trajectories]
    names = [channel.name for channel, part in zip(recording.channels, outside, strict=True) if part.any()]
    note = f"{', '.join(names)}: {outside.mean():.1%} of the points are NaN in every state and are left out (a mask)."
    recording = replace(recording, trajectories=trajectories, mask=~outside, notes=(*recording.notes, note))
    return recording, [filled(part, range(len(fill))).astype(np.float64) for part in sampled]


def problems(recording: Recording, settings: FileSettings) -> Iterator[UnfitError]:
    """Reasons to refuse what settings chose of a tidy recording; where the user says `dt`, its times do not matter."""
    yield from too_short(recording, settings.stride)
    if not settings.dt:
        yield from uneven_times(recording, settings.stride)
    if math.prod(recording.space) < 2:
        text = "its states have one point"
        yield UnfitError("grid", named(recording), text, "name a file of fields, or keep more points")
    for place, axis in enumerate(recording.axes if recording.points is None else ()):  # or no integral can be computed
        gaps = np.diff(axis.coordinates)
        if not ((gaps > 0).all() or (gaps < 0).all()):
            text = f"the coordinates of {axis.name} neither rise nor fall throughout"
            yield UnfitError("coordinates", named(recording), text, "sort its points, and the states with them")
        elif axis.periodic and not is_even(gaps):
            text = f"{axis.name} is periodic and its points are not evenly spaced"
            around = [str(bool(one.periodic) and i != place).lower() for i, one in enumerate(recording.axes)]
            remedy = "interpolate the states to an even grid, or declare the axis as not periodic"
            yield UnfitError("coordinates", named(recording), text, remedy, {"data.periodic": f"[{','.join(around)}]"})
    mask, names = recording.mask, [channel.name for channel in recording.channels]
    empty = [name for c, name in enumerate(names) if mask is not None and not mask[c].any()]
    if empty:
        text = f"it has no value of {', '.join(empty)}, only NaN"
        left = {"data.fields": ",".join(name for name in names if name not in empty)}
        others = len(empty) < len(names)
        remedy = "leave it out" if others else "choose other points or another file"
        yield UnfitError("empty channel", named(recording), text, remedy, left if others else {})
    if len(empty) < len(names):
        unfit = bad_states(recording)
        yield from [unfit] if unfit else []


def too_short(recording: Recording, stride: int = 1) -> Iterator[UnfitError]:
    """Fewer states than a step and its continuation need."""
    frames = min(trajectory.frames for trajectory in recording.trajectories)
    if frames < SHORTEST:
        states = f"{frames} state{'s' * (frames != 1)}"
        names = ", ".join(channel.name for channel in recording.channels[:6])
        text = f"too short, it has {states} per trajectory, of {names} on {recording.space}"
        longer = "lower data.stride" if stride > 1 else "name a longer file"
        yield UnfitError("length", named(recording), text, f"training needs {SHORTEST} at least, so {longer}")


def time_steps(recording: Recording, stride: int = 1) -> np.ndarray:
    """The times from each state that a stride keeps to the next, where the file says so; else dt · stride."""
    steps = [np.diff(times[..., ::stride]).ravel() for times in recording.times if times.shape[-1] > stride]
    return np.concatenate(steps) if steps else np.array([recording.dt * stride])


def are_equal_steps(steps: np.ndarray) -> bool:
    """Whether time steps are equal but for rounding, and lead forward."""
    return is_even(steps, UNEVEN_STEPS) and bool(steps.size and steps.mean() > 0)


def dt_at(recording: Recording, stride: int) -> float:
    """Time between two states that a stride keeps: of uneven frames, the step that it makes even."""
    steps = time_steps(recording, stride)
    return recording.dt * stride if are_equal_steps(time_steps(recording)) else float(steps.mean())


def uneven_times(recording: Recording, stride: int = 1) -> Iterator[UnfitError]:
    """Times of states that are not evenly spaced; a larger stride may skip the frames that are too many."""
    steps = time_steps(recording)
    if are_equal_steps(steps):
        return
    forward, unit = bool((steps > 0).all()), f" {recording.time_unit}" if recording.time_unit else ""
    text = f"the time steps between its frames differ, from {steps.min():g} to {steps.max():g}{unit}"
    text += f" (the longest after frame {int(steps.argmax()) * stride})" if len(recording.trajectories) == 1 else ""
    frames = min(trajectory.frames for trajectory in recording.trajectories)
    least = STRIDED_FRAMES if len(recording.trajectories) > 2 else SPLIT_FRAMES
    strides = range(2, (frames - 1) // (least - 1) + 1)
    every = stride * next((n for n in strides if are_equal_steps(time_steps(recording, n))), 0)
    if every:
        remedy, settings = f"take one frame in {every}, which makes them equal", {"data.stride": str(every)}
    else:
        even = f"interpolate its states with data.resample={np.median(steps):.6g}, or, " if forward else ""
        remedy = f"{even}if its times are wrong, say what the time step is"
        settings = {"data.dt": f"{np.median(steps) if forward else 1:.6g}"}
    yield UnfitError("time step", named(recording), text if forward else "its times do not increase", remedy, settings)


@lru_cache(maxsize=8)
def bad_states(recording: Recording) -> UnfitError | None:
    """States that are not finite in float32, as training reads them, or the same at all times; looked for once."""
    steady = True
    for part in _looked_at(recording):
        with np.errstate(over="ignore"):
            values = part.values.astype(np.float32)
        broken = ~np.isfinite(values)
        if broken.any():
            frame, channel = (int(places[0]) for places in np.nonzero(broken)[:2])
            return not_finite(recording, part.trajectory, part.frames[frame], channel)
        steady = steady and len(values) > 1 and bool((values == values[:1]).all())
    if steady:
        text = "steady, all states of a trajectory are equal, so there is nothing to predict"
        return UnfitError("steady", named(recording), text, "name a file of trajectories in time")
    return None


def _looked_at(recording: Recording) -> Iterator[Sampled]:
    """All states of a small file, the sample of a larger one."""
    channels = range(len(recording.channels))
    frames = sum(trajectory.frames for trajectory in recording.trajectories)
    if frames * len(channels) * math.prod(recording.space) > SAMPLED_VALUES:
        yield from sample(recording)
        return
    for i, one in enumerate(recording.trajectories):
        yield Sampled(i, range(one.frames), one.read(slice(0, one.frames), channels))


def not_finite(recording: Recording, trajectory: int, frame: int, channel: int) -> UnfitError:
    """A value that is not finite at a point that no mask leaves out, or the reverse."""
    name, masked = recording.channels[channel].name, recording.mask is not None and not recording.mask[channel].all()
    place = f"trajectory {trajectory} is not finite in {name} at frame {frame}"
    remedy = "fill the values, or leave such trajectories out, and save it again"
    if masked:
        text = f"the mask of {name} moves: trajectory {trajectory} has NaN at other points at frame {frame}"
        return UnfitError("mask", named(recording), text, remedy)
    return UnfitError("finite", named(recording), place, remedy)


def named(recording: Recording) -> str:
    """The file of a recording in an error."""
    first = str(recording.files[0]) if recording.files else recording.format
    return first + (f" (and {len(recording.files) - 1} more)" if len(recording.files) > 1 else "")
