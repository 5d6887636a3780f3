"""Trajectories in somebody's files, described once and read in parts: what every format returns.

    recording = open_recording(Path("flow.h5"))
    recording.trajectories[0].read(slice(0, 10), [0, 1])   # (10, 2, *space)

Nothing is read but what is asked for, so a recording may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hero.errors import HeroError

Frames = Callable[[slice, Sequence[int]], np.ndarray]
"""(frames, channels) -> (time, channel, *space), real numbers of any type; opens the file when called."""
Series = Callable[[slice], np.ndarray]
"""frames -> (time,) or (time, *space)."""

SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Names of splits as people write them, and ours."""
UNNAMED = ("hero", "npy", "npz", "splits", "array", "torch", "neuralop", "matlab", "matlab73", "zarr")
"""Formats whose channels are not named."""


@dataclass(frozen=True)
class Channel:
    """A physical quantity that the operator predicts, or a field that conditions it."""

    name: str
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis of space with its coordinates, as the file has them."""

    name: str
    coordinates: np.ndarray
    """(points,), float64; 0, 1, 2, .. where the file has none."""
    periodic: bool | None = None
    """None where the file does not say."""
    unit: str = ""

    @property
    def points(self) -> int:
        return len(self.coordinates)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One run of the system."""

    frames: int
    read: Frames
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Conditioning numbers by name; every trajectory of a recording has the same names."""
    fields: Callable[[], np.ndarray] | None = None
    """Conditioning fields that do not change in time: () -> (field, *space)."""
    split: str = ""
    """train, val or test where the file says so."""
    series: Mapping[str, Series] = field(default_factory=dict)
    """What else depends on time, by name. It may serve as forcing."""


def in_time(trajectory: Trajectory, frames: int, view: Callable[[Series, slice], np.ndarray]) -> Trajectory:
    """The trajectory with `frames` states, which `view` takes from a reader of the frames that there were."""
    return replace(
        trajectory,
        frames=frames,
        read=lambda wanted, channels: view(lambda part: trajectory.read(part, channels), wanted),
        series={name: partial(view, read) for name, read in trajectory.series.items()},
    )


def shortened(trajectory: Trajectory, frames: int) -> Trajectory:
    """The first `frames` states of a trajectory."""
    return in_time(trajectory, frames, lambda read, wanted: read(slice(*wanted.indices(frames))))


def strided(trajectory: Trajectory, stride: int) -> Trajectory:
    """Every n-th state of a trajectory."""
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
    axes: tuple[Axis, ...]
    """Axes of the grid; a point cloud has one axis named "point"."""
    dt: float
    """Time between two frames; 1 where the file does not say."""
    trajectories: Sequence[Trajectory]
    time_unit: str = ""
    times: tuple[np.ndarray, ...] = ()
    """Times of the frames of each file that has them, (frames,) or (trajectory, frames)."""
    field_names: tuple[str, ...] = ()
    """The conditioning fields, in the order of `Trajectory.fields`."""
    points: np.ndarray | None = None
    """Coordinates of a point cloud, (points, dimension)."""
    weights: np.ndarray | None = None
    """Quadrature weights of a point cloud, (points,)."""
    mask: np.ndarray | None = None
    """True where there is a value, (channel, *space); reading gives a constant elsewhere. None: everywhere."""
    notes: tuple[str, ...] = ()
    """Decisions in reading that a user should know, one sentence each."""

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
        """The conditioning numbers."""
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


@lru_cache(maxsize=2)
def resampled(recording: Recording, dt: float) -> Recording:
    """States at steps of `dt` from the first frame of each trajectory on, linear between the frames of the file, whose
    times may be uneven; the recording itself where dt is 0."""
    if not dt:
        return recording
    clocks = [row for times in recording.times for row in np.atleast_2d(times)]
    clocks = clocks * len(recording.trajectories) if len(clocks) == 1 else clocks
    lengths = [one.frames for one in recording.trajectories]
    if [len(clock) for clock in clocks] != lengths or any((np.diff(clock) <= 0).any() for clock in clocks):
        raise HeroError(f"{recording.files[0]} has no increasing times, so data.resample does not apply; leave it out.")
    runs = []
    for one, clock in zip(recording.trajectories, clocks, strict=True):
        frames = int((clock[-1] - clock[0]) / dt + 1e-6) + 1
        runs.append(in_time(one, frames, partial(_between, clock, clock[0] + dt * np.arange(frames))))
    times = tuple(dt * np.arange(run.frames) for run in runs)
    note = f"States are linear between the frames of the file, at steps of {dt:g}."
    return replace(recording, trajectories=runs, dt=dt, times=times, notes=(*recording.notes, note))


def _between(clock: np.ndarray, times: np.ndarray, read: Series, wanted: slice) -> np.ndarray:
    """u(t) = (1 - w) u_n + w u_{n+1} with w = (t - t_n) / (t_{n+1} - t_n)."""
    t = times[wanted]
    if not len(t):
        return read(slice(0, 0))
    n = np.clip(np.searchsorted(clock, t, side="right") - 1, 0, len(clock) - 2)
    block = read(slice(int(n.min()), int(n.max()) + 2))
    w = ((t - clock[n]) / (clock[n + 1] - clock[n])).clip(0, 1).reshape(-1, *(1,) * (block.ndim - 1))
    return (1 - w) * block[n - n.min()] + w * block[n + 1 - n.min()]
