"""What everything downstream knows of the data, be it a benchmark with its solver or somebody's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hero.data.files.recording import Axis
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings
    from hero.data.tasks.task import Task


@dataclass(frozen=True)
class Source:
    """Facts of the data. `task` or `files` is where they come from; the other one is None."""

    name: str
    title: str
    dt: float  # time between two states
    space: tuple[int, ...]  # grid points per axis; of a point cloud, (points,)
    extents: tuple[float, ...]  # length of each axis
    periodic: tuple[bool, ...]
    channel_names: tuple[str, ...]  # the quantities that make up a state
    units: tuple[str, ...]  # units of the channels, empty where they are not known
    conditioning: tuple[str, ...]  # the channels of μ
    axes: tuple[Axis, ...] = field(compare=False)  # as pictures label them; NaN between the ends of uneven ones
    time_unit: str = ""  # unit of `dt`, empty where it is not known
    cloud: bool = False  # whether states are on scattered points
    masked: bool = False  # whether some points have no value; the trajectories say which
    forcing: tuple[str, ...] = ()  # quantities that depend on time and are known in advance
    task: Task | None = None
    files: FileSettings | None = None

    @property
    def dims(self) -> int:
        return len(self.space)

    @property
    def channels(self) -> int:
        return len(self.channel_names)

    @property
    def known(self) -> tuple[str, ...]:
        """The inputs of an operator that it does not predict, in their order after the states."""
        return (*self.conditioning, *self.forcing)

    @property
    def has_solver(self) -> bool:
        """Whether the truth can be continued from any state, with one set of coefficients for all trajectories."""
        return self.task is not None and not self.task.ranges

    def stepper(self, device: torch.device | str = "cpu") -> Callable[[Tensor], Tensor]:
        """The solver for one `dt`; HeroError where there is none."""
        if self.task is None:
            raise HeroError(f"{self.title} is data from files and has no solver; choose a benchmark.")
        return self.task.stepper(device)

    def exact_axes(self) -> tuple[Axis, ...]:
        """The axes with all their points; where they are unevenly spaced, the file has them."""
        return self.files.recording.axes if self.files is not None and self.files.uneven else self.axes

    def points(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Coordinates (points, d) and quadrature weights of scattered points; None on a grid."""
        if not self.cloud or self.files is None:
            return None
        recording = self.files.recording
        assert recording.points is not None
        return recording.points, recording.weights

    def settings(self) -> dict[str, Any]:
        """Coefficients and numerics of a benchmark, or what was found in the file; ready for JSON."""
        if self.files is not None:
            return self.files.model_dump()
        return {} if self.task is None else self.task.settings()
