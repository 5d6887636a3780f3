"""Trajectories in somebody's files, described once and read in parts: what every format returns.

    recording = open_recording(Path("flow.h5"))
    recording.trajectories[0].read(slice(0, 10), [0, 1])   # (10, 2, *space)

Nothing is read but what is asked for, so a recording may be larger than the memory.

Whether an axis is periodic is judged from states where the file does not say: it is if states continue across its
boundary as smoothly as they do next to it, and if values or slopes at the boundary change in time. The zeros at two
fixed walls are equal as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Frames = Callable[[slice, Sequence[int]], np.ndarray]  # (frames, channels) -> (time, channel, *space); opens the file
Series = Callable[[slice], np.ndarray]  # frames -> (time,) or (time, *space)

SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Names of splits as people write them, and ours."""
UNNAMED = ("hero", "npy", "npz", "splits", "array", "torch", "neuralop", "matlab", "matlab73", "zarr")
"""Formats whose channels are not named."""

UNEVEN = 1e-3  # differences of the spacing, relative to it, that are taken for rounding of the coordinates
EQUAL = 1e-6  # difference of equal values, as a share of the range of their channel
SMOOTH = 2.0  # differences across a periodic boundary are at most this times the largest ones next to it, ..
MOSTLY = 0.8  # .. in this share of states: now and then a shock stands exactly on the boundary
NEAR = 4  # points next to a boundary
MOVING_VALUES = 1e-2  # of the range of a channel
MOVING_SLOPES = 1e-1  # of the largest difference of neighbours


@dataclass(frozen=True)
class Channel:
    """A physical quantity that the operator predicts, or a field that conditions it."""

    name: str
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis of space with its coordinates, as the file has them."""

    name: str
    coordinates: np.ndarray  # (points,), float64; 0, 1, 2, .. where the file has none
    periodic: bool | None = None  # None where the file does not say
    unit: str = ""

    @property
    def points(self) -> int:
        return len(self.coordinates)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One run of the system."""

    frames: int
    read: Frames
    scalars: Mapping[str, float] = field(default_factory=dict)  # conditioning numbers; every trajectory has the same
    fields: Callable[[], np.ndarray] | None = None  # conditioning fields, fixed in time: () -> (field, *space)
    split: str = ""  # train, val or test where the file says so
    series: Mapping[str, Series] = field(default_factory=dict)  # what else depends on time; it may serve as forcing


def in_time(trajectory: Trajectory, frames: int, view: Callable[[Series, slice], np.ndarray]) -> Trajectory:
    """The trajectory with `frames` states, which `view` takes from a reader of the frames that there were."""
    return replace(
        trajectory,
        frames=frames,
        read=lambda wanted, channels: view(lambda part: trajectory.read(part, channels), wanted),
        series={name: partial(view, read) for name, read in trajectory.series.items()},
    )


def shortened(trajectory: Trajectory, frames: int) -> Trajectory:
    return in_time(trajectory, frames, lambda read, wanted: read(slice(*wanted.indices(frames))))


def strided(trajectory: Trajectory, stride: int) -> Trajectory:
    frames = -(-trajectory.frames // stride)

    def view(read: Series, wanted: slice) -> np.ndarray:
        start, stop, step = wanted.indices(frames)
        return read(slice(start * stride, stop * stride, step * stride))

    return in_time(trajectory, frames, view)


def on_grid(trajectory: Trajectory, cut: Callable[[np.ndarray], np.ndarray]) -> Trajectory:
    """The trajectory with `cut` of all that it reads on its grid: arrays that end with *space."""

    def series(read: Series, frames: slice) -> np.ndarray:
        values = read(frames)
        return cut(values) if values.ndim > 1 else values

    fields = trajectory.fields
    return replace(
        trajectory,
        read=lambda frames, channels: cut(trajectory.read(frames, channels)),
        fields=None if fields is None else lambda: cut(fields()),
        series={name: partial(series, read) for name, read in trajectory.series.items()},
    )


@dataclass(frozen=True, eq=False)
class Recording:
    """All trajectories of a file or folder, on one grid or one cloud of points."""

    format: str
    files: tuple[Path, ...]
    channels: tuple[Channel, ...]
    axes: tuple[Axis, ...]  # axes of the grid; a point cloud has one axis named "point"
    dt: float  # time between two frames; 1 where the file does not say
    trajectories: Sequence[Trajectory]
    time_unit: str = ""
    times: tuple[np.ndarray, ...] = ()  # of the frames of each file that has them, (frames,) or (trajectory, frames)
    field_names: tuple[str, ...] = ()  # the conditioning fields, in the order of `Trajectory.fields`
    points: np.ndarray | None = None  # coordinates of a point cloud, (points, dimension)
    weights: np.ndarray | None = None  # quadrature weights of a point cloud, (points,)
    mask: np.ndarray | None = None  # true where there is a value, (channel, *space), else a constant is read; None: all
    notes: tuple[str, ...] = ()  # decisions in reading that a user should know, one sentence each

    @property
    def space(self) -> tuple[int, ...]:
        """Grid points per axis."""
        return tuple(axis.points for axis in self.axes)

    @property
    def series_names(self) -> tuple[str, ...]:
        """The series that every trajectory has."""
        first, *others = self.trajectories or [Trajectory(0, lambda frames, channels: np.empty(0))]
        return tuple(name for name in first.series if all(name in one.series for one in others))

    @property
    def scalar_names(self) -> tuple[str, ...]:
        return tuple(self.trajectories[0].scalars) if self.trajectories else ()


def cut(recording: Recording, parts: Sequence[slice], periodic: Sequence[bool | None]) -> Recording:
    """The recording on a part of each axis, which is periodic, not, or unknown."""
    grid: tuple[Any, ...] = tuple(parts)
    points, weights = (None if values is None else values[grid[0]] for values in (recording.points, recording.weights))
    return replace(
        recording,
        axes=tuple(
            replace(axis, coordinates=axis.coordinates[part], periodic=wraps)
            for axis, part, wraps in zip(recording.axes, grid, periodic, strict=True)
        ),
        trajectories=[on_grid(one, lambda values: values[..., *grid]) for one in recording.trajectories],
        mask=None if recording.mask is None else recording.mask[:, *grid],
        points=points,
        weights=weights,
    )


def decide_boundaries(recording: Recording, states: Sequence[np.ndarray]) -> Recording:
    """`periodic` of every axis decided, and doubled end points dropped; `states` are (frame, channel, *space) parts."""
    for place, axis in enumerate(recording.axes):
        lines = [np.moveaxis(values, place + 2, -1) for values in states]
        doubled = axis.periodic is not False and is_doubled(axis, lines)
        if doubled:
            periodic = True
            note = f"{axis.name}: the last point repeats the first and is dropped; the axis is periodic."
        elif axis.periodic is None:
            fault = _seam(axis, lines)
            periodic, reason = not fault, fault or "states continue smoothly across its boundary"
            note = f"{axis.name} is taken as {'periodic' if periodic else 'not periodic'}: {reason}."
        else:
            continue
        known = [periodic if i == place else one.periodic for i, one in enumerate(recording.axes)]
        parts = [slice(-1 if doubled and i == place else None) for i in range(len(known))]
        recording = replace(cut(recording, parts, known), notes=(*recording.notes, note))
        states = [values[..., *parts] for values in states]
    return recording


def is_doubled(axis: Axis, lines: Sequence[np.ndarray]) -> bool:
    """Whether the last point of a uniform axis is the first one again; `lines` are (frame, channel, ..., points)."""
    if axis.points < 2 * NEAR or not is_even(np.diff(axis.coordinates)) or not _varies(lines):
        return False
    states = np.concatenate(lines)
    apart = np.abs(states[..., 0] - states[..., -1]) > EQUAL * _scale(states)[..., 0]  # False where something is NaN
    if apart.any():
        return False
    return axis.periodic is True or (_continues([part[..., :-1] for part in lines]) and _ends_move(lines))


def _seam(axis: Axis, lines: Sequence[np.ndarray]) -> str:
    """Why an axis without a doubled end point is not periodic; "" where it is."""
    if axis.points < 2 * NEAR:
        return f"it has fewer than {2 * NEAR} points"
    if not _varies(lines):
        return "states do not vary along it"
    if not _continues(lines):
        return "states jump or bend at its boundary"
    if not _ends_move(lines):
        return "its ends are fixed in time"
    return "" if is_even(np.diff(axis.coordinates)) else "its points are not evenly spaced"


def is_even(values: Any, tolerance: float = UNEVEN) -> bool:
    """Whether all values of an array or tensor are equal but for rounding, as the gaps of a uniform axis."""
    array = np.asarray(values)
    return not array.size or bool(np.abs(array - array.mean()).max() <= tolerance * abs(array.mean()))


def _scale(states: np.ndarray) -> np.ndarray:
    """The range of each channel over all finite values, (1, channel, 1, ...); tiny where it is zero."""
    ranges = np.ma.masked_invalid(states).ptp(axis=(0, *range(2, states.ndim)), keepdims=True)
    return np.maximum(ranges.filled(0), 1e-300)


def _varies(lines: Sequence[np.ndarray]) -> bool:
    """Whether states change along the axis at all."""
    states = np.concatenate(lines)
    return bool((np.abs(np.diff(states)) > EQUAL * EQUAL * _scale(states)).any())


def _continues(lines: Sequence[np.ndarray]) -> bool:
    """First and second differences across the boundary are like those next to it, in most states of every channel."""
    states = np.concatenate(lines)
    for order in (1, 2):
        seam = np.concatenate([states[..., -order:], states[..., :order]], axis=-1)
        across, left, right = (
            np.abs(np.diff(part, order)).max(axis=-1) for part in (seam, states[..., :NEAR], states[..., -NEAR:])
        )
        fits = ~(across > SMOOTH * np.maximum(left, right) + EQUAL * _scale(states)[..., 0])  # True where one is NaN
        if (fits.mean(axis=(0, *range(2, fits.ndim))) < MOSTLY).any():
            return False
    return True


def _ends_move(lines: Sequence[np.ndarray]) -> bool:
    """Whether values or slopes at the boundary change within a trajectory."""
    scale = _scale(np.concatenate(lines))[0]
    for part in lines:
        values = np.ptp(part[..., [0, -1]], axis=0) / scale
        steps = np.diff(part)
        largest = np.nanmax(np.abs(steps), axis=(0, *range(2, part.ndim)), initial=0, keepdims=True)[0]
        slopes = np.ptp(steps[..., [0, -1]], axis=0) / np.maximum(largest, 1e-300)
        if (values > MOVING_VALUES).any() or (slopes > MOVING_SLOPES).any():
            return True
    return False
