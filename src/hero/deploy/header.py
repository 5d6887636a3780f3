"""What a rollout says of itself: names, units and coordinates, for its file and for xarray."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hero.data.files.recording import Axis
from hero.data.formats.xarray import PERIODIC, PLACE, PREDICTED
from hero.errors import HeroError, install_hint


@dataclass(frozen=True)
class Labelled:
    """Numbers along some dimensions, with their attributes."""

    dims: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RolloutHeader:
    """The description of a rollout in its file, so that it can be read as a recording."""

    run: str
    channels: tuple[str, ...]
    axes: tuple[str, ...]
    extent: tuple[float, ...]
    periodic: tuple[bool, ...]
    dt: float
    history: int
    conditioning: tuple[str, ...] = ()
    mu: np.ndarray | None = None
    """Numbers of the conditioning, (trajectory, p)."""
    units: tuple[str, ...] = ()
    """Units of the channels."""
    time_unit: str = ""
    grid: tuple[Axis, ...] = ()
    """The axes with their own names, units and coordinates; where they are not known, `axes` from 0 to `extent`."""
    positions: np.ndarray | None = None
    """Coordinates of a point cloud, (points, d)."""

    def labels(self, shape: tuple[int, ...]) -> dict[str, Labelled]:
        """The dimensions of a rollout of that shape, then the numbers and positions that belong to it."""
        facts = zip(self.axes, self.extent, self.periodic, shape[3:], strict=True)
        plain = (Axis(n, np.linspace(0, width, points, endpoint=not wraps), wraps) for n, width, wraps, points in facts)
        time = self.dt * (self.history + np.arange(shape[1]))
        found = {"trajectory": Labelled(("trajectory",), np.arange(shape[0], dtype=np.int32))}
        found["time"] = Labelled(("time",), time, {"units": self.time_unit} if self.time_unit else {})
        for axis in self.grid if tuple(axis.points for axis in self.grid) == shape[3:] else plain:
            told: dict[str, Any] = {"units": axis.unit} if axis.unit else {}
            told |= {} if axis.periodic is None or axis.name == "point" else {PERIODIC: int(axis.periodic)}
            found[axis.name] = Labelled((axis.name,), axis.coordinates, told)
        own = {} if self.positions is None else dict(zip("xyz", self.positions.T, strict=False))
        found |= {name: Labelled(("point",), values) for name, values in own.items()}
        numbers = () if self.mu is None else zip(self.conditioning, self.mu.T, strict=True)
        return found | {n: Labelled(("trajectory",), values) for n, values in numbers if n not in found}

    def variables(self, taken: Collection[str]) -> dict[str, dict[str, Any]]:
        """The attributes of a variable for each channel, whose name is neither a path nor one of those `taken`."""
        names = [re.sub(r"[^\w.+-]+", "_", name) for name in self.channels]
        units = self.units or ("",) * len(names)
        return {
            f"{name}_" if name in taken else name: {PLACE: place} | ({"units": unit} if unit else {})
            for place, (name, unit) in enumerate(zip(names, units, strict=True))
        }

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes of a NetCDF file."""
        return {"Conventions": "CF-1.8", "source": PREDICTED, "run": self.run, "history_states": self.history}


def as_dataset(rollout: np.ndarray, about: RolloutHeader) -> Any:
    """An xarray.Dataset of a rollout (trajectory, time, channel, *space), with a variable for each channel."""
    try:
        import xarray
    except ImportError as error:
        raise HeroError(f"`as_xarray` needs xarray; {install_hint('xarray')}.") from error
    labels = about.labels(rollout.shape)
    dims = [name for name, label in labels.items() if label.dims == (name,)]
    variables = zip(about.variables(labels).items(), np.moveaxis(rollout, 2, 0), strict=True)
    data: dict[str, Any] = {name: (dims, values, told) for (name, told), values in variables}
    data |= {n: (part.dims, part.values, part.attributes) for n, part in labels.items() if n not in dims}
    coordinates = {name: (name, labels[name].values, labels[name].attributes) for name in dims}
    return xarray.Dataset(data, coordinates, about.facts)
