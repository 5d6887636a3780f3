"""Files as a source of data. A file is needed for training and evaluation only, and must not have changed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hero.data.files.arrays import is_as_given
from hero.data.files.opening import opened
from hero.data.files.recording import Axis, Recording
from hero.data.files.selection import Selection, last_point
from hero.data.files.settings import FileSettings
from hero.data.files.splits import divided
from hero.data.files.trajectories import FileTrajectories, Reading
from hero.data.source import Source
from hero.data.trajectories import Trajectories
from hero.errors import HeroError


@dataclass(frozen=True)
class Files:
    """The trajectories of a file or folder, by everything that was found in it."""

    settings: FileSettings

    def source(self) -> Source:
        """What is known of them without opening the file."""
        found = self.settings
        stem = Path(found.path).stem
        return Source(
            name=re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")[:40] or "data",
            title=stem,
            dt=found.dt,
            space=found.space,
            extents=found.extent,
            periodic=found.periodic,
            channel_names=found.channels,
            units=found.units,
            conditioning=found.condition,
            forcing=found.forcing,
            axes=tuple(self._axis(i) for i in range(len(found.axes))),
            time_unit=found.time_unit,
            cloud=found.cloud,
            masked=found.masked,
            files=self,
        )

    def _axis(self, i: int) -> Axis:
        found = self.settings
        ends = 0.0, last_point(found.extent[i], found.space[i], found.periodic[i])
        if found.axis_first and found.axis_last:  # earlier versions did not store them
            ends = found.axis_first[i], found.axis_last[i]
        x = np.linspace(*ends, found.space[i])
        x[1:-1] = np.nan if found.uneven else x[1:-1]
        return Axis(found.axes[i], x, found.periodic[i], found.axis_units[i] if found.axis_units else "")

    @property
    def recording(self) -> Recording:
        """The file, which must be the one that the run was made with."""
        recording = opened(self.settings)
        for path in recording.files:
            if not is_as_given(path):
                raise HeroError(
                    f"{path} is damaged (its checksum differs); repeat the call that handed its arrays over."
                )
        return recording

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The points of each axis that are kept."""
        return Selection(self.recording, self.settings).coordinates

    def points(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Coordinates (points, d) and quadrature weights of a point cloud."""
        recording = self.recording
        (cut,) = Selection(recording, self.settings).cuts
        assert recording.points is not None
        return recording.points[cut], None if recording.weights is None else recording.weights[cut]

    def is_streamed(self, name: str) -> bool:
        """Whether a split stays in its file, because it is larger than data.memory."""
        split, found = self.settings.split(name), self.settings
        size = 4 * split.trajectories * (split.steps + 1) * len(found.channels) * math.prod(found.space)
        return size > found.memory * 1e9

    def load(self, name: str) -> Trajectories:
        """The split `train`, `val` or `test`: in memory if it is small enough, else read as it is asked for."""
        recording = self.recording
        parts = tuple(divided(recording, self.settings)[name])
        trajectories = FileTrajectories(Reading(recording, self.settings), parts)
        return trajectories if self.is_streamed(name) else trajectories.in_memory(f"reading {name}")
