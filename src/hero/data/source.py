"""What everything downstream knows of the data, be it a benchmark with its solver or somebody's files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hero.data.files.recording import Axis


class Source(Protocol):
    """A benchmark task or people's files."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """Of the task, or of the file."""

    @property
    def title(self) -> str:
        """Display name."""

    @property
    def dt(self) -> float:
        """Time between two states."""

    @property
    def space(self) -> tuple[int, ...]:
        """Grid points per axis; of a point cloud, (points,)."""

    @property
    def extents(self) -> tuple[float, ...]:
        """Length of each axis."""

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis is periodic."""

    @property
    def cloud(self) -> bool:
        """Whether states are on scattered points."""

    @property
    def masked(self) -> bool:
        """Whether some points have no value; the trajectories say which."""

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The quantities that make up a state."""

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the channels, empty where they are not known."""

    @property
    def time_unit(self) -> str:
        """Unit of `dt`, empty where it is not known."""

    def axes(self) -> tuple[Axis, ...]:
        """The axes as pictures label them; of unevenly spaced points the ends alone are known, NaN between them."""

    @property
    def conditioning(self) -> tuple[str, ...]:
        """The channels of μ."""

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The points of each axis."""

    def points(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Coordinates (points, d) and quadrature weights of scattered points; None on a grid."""

    @property
    def dims(self) -> int:
        """Axes of space."""

    @property
    def channels(self) -> int:
        """Number of quantities."""

    @property
    def has_solver(self) -> bool:
        """Whether the truth can be continued from any state."""

    def stepper(self, device: torch.device | str = "cpu") -> Callable[[Tensor], Tensor]:
        """The solver for one `dt`; HeroError where there is none."""

    def settings(self) -> dict[str, Any]:
        """Its coefficients and numerics, ready for JSON."""
