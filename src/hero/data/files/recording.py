"""Trajectories in somebody's files, described once and read in parts: what every format returns.

    recording = open_recording(Path("flow.h5"))
    recording.trajectories[0].read(slice(0, 10), [0, 1])   # (10, 2, *space)

Nothing is read but what is asked for, so a recording may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

Frames = Callable[[slice, Sequence[int]], np.ndarray]
"""(frames, channels) -> (time, channel, *space), real numbers of any type; opens the file when called."""

SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Names of splits as people write them, and ours."""


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
        """Grid points."""
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
    series: Mapping[str, Callable[[slice], np.ndarray]] = field(default_factory=dict)
    """What else depends on time, by name: frames -> (time,) or (time, *space). It may serve as forcing."""


def shortened(trajectory: Trajectory, frames: int) -> Trajectory:
    """The first `frames` states of a trajectory."""

    def read(wanted: slice, channels: Sequence[int]) -> np.ndarray:
        return trajectory.read(slice(*wanted.indices(frames)), channels)

    return trajectory if trajectory.frames == frames else replace(trajectory, frames=frames, read=read)


@dataclass(frozen=True, eq=False)
class Recording:
    """All trajectories of a file or folder, on one grid or one cloud of points."""

    format: str
    """The name of its format."""
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
