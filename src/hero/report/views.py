"""How states are laid out and coloured in pictures, which page, figures and animation share.

Axes are as their coordinates say: east is to the right and north is up, whatever the order in the file; of a grid x, y
the first axis is horizontal. Truth and prediction of a channel share a colour scale, which is symmetric about zero only
where the channel changes its sign; the error has its own. Masked points are grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hero.data import Source
from hero.data.files.recording import Axis, is_even
from hero.runs.records import Rollout

SIGNED, UNSIGNED, ERROR = "RdBu_r", "viridis", "PuOr_r"
"""Colour maps of a channel that changes its sign, of one that does not, and of errors."""
GREY = "#b8b8b8"
"""Masked points, and predictions that are not finite."""
DECAY = 20.0
"""A state that decays further than this fades out of a fixed scale; it is drawn relative to its size at each step."""
SIGN_SHARE = 0.01  # the lesser sign reaches this share of the largest value where a channel counts as changing its sign
FLATTEST = 4.0  # largest ratio of the sides of a picture

PLACES = (("lon", "x"), (), ("lat", "y"), ("height", "altitude", "depth", "z"))
"""Beginnings of the names of axes, or whole letters, from those that lie across to those that stand upright."""
DEGREES = {"north": "°N", "n": "°N", "east": "°E", "e": "°E"}


def named(name: str, unit: str) -> str:
    """ "temperature [K]", "lat [°N]"."""
    unit = unit.strip()
    word, _, rest = unit.lower().partition("_")
    if word in ("degree", "degrees"):
        unit = DEGREES.get(rest, "°")
    return f"{name} [{unit}]" if unit not in ("", "1", "-") else name


def channel_titles(source: Source) -> list[str]:
    units = source.units or ("",) * source.channels
    return [named(*channel) for channel in zip(source.channel_names, units, strict=True)]


@dataclass(frozen=True)
class Side:
    """An axis as a picture shows it: from left to right, or from the bottom up."""

    axis: int
    name: str
    label: str  # the name with its unit
    start: float
    end: float  # where the picture ends: half a cell beyond the points, or a whole one where the axis is periodic
    points: np.ndarray  # coordinates in the order of the picture; NaN where they are not known
    turned: bool  # whether the file has the points in the other order

    @property
    def even(self) -> bool:
        """Whether coordinates between the ends can be read off."""
        return bool(np.isfinite(self.points).all()) and is_even(np.diff(self.points))

    @property
    def drawn(self) -> np.ndarray:
        """Where the points are drawn: at their coordinates, else evenly between the ends."""
        return self.points if self.even else np.linspace(self.points[0], self.points[-1], len(self.points))

    @classmethod
    def of(cls, place: int, axis: Axis) -> Side:
        x = axis.coordinates
        turned = bool(x[0] > x[-1]) != axis.name.lower().startswith("depth")
        x = x[::-1] if turned else x
        step = (x[-1] - x[0]) / max(1, len(x) - 1) or 1.0
        before, after = (0.0, 1.0) if axis.periodic else (0.5, 0.5)
        ends = float(x[0] - before * step), float(x[-1] + after * step)
        return cls(place, axis.name, named(axis.name, axis.unit), *ends, x, turned)


@dataclass(frozen=True)
class View:
    """The picture of a grid: what is horizontal and what is vertical; a line has no vertical."""

    across: Side
    up: Side | None = None
    ratio: float = 1.0  # width over height; 0 where it is as the page has room

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> View:
        """The view of a grid; of three axes the last is cut."""
        sides = [Side.of(i, axis) for i, axis in enumerate(axes[:2])]
        if len(sides) == 1:
            return cls(sides[0])
        if _place(axes[0]) > _place(axes[1]):
            sides.reverse()
        across, up = sides
        same = _kind(axes[0].unit) == _kind(axes[1].unit)
        lengths = [abs(side.end - side.start) if same else len(side.points) for side in sides]
        return cls(across, up, float(np.clip(lengths[0] / lengths[1], 1 / FLATTEST, FLATTEST)))

    def against(self, label: str, start: float, end: float) -> View:
        """A line with time across: the view of (time, line)."""
        return View(Side(0, label, label, start, end, np.array([start, end]), False), self.across, 0.0)

    @property
    def sides(self) -> list[Side]:
        """Across, and up if there is one."""
        return [self.across, self.up] if self.up else [self.across]

    def arranged(self, field: np.ndarray) -> np.ndarray:
        """(.., first axis, second axis) -> (.., across, up), both in the order of the picture; a line (.., across)."""
        field = np.flip(field, tuple(side.axis - len(self.sides) for side in self.sides if side.turned))
        return field.swapaxes(-1, -2) if self.up and self.across.axis else field


def _place(axis: Axis) -> int:
    """How upright an axis is."""
    name, unit = axis.name.lower().removeprefix("r"), axis.unit.lower()
    for place, names in enumerate(PLACES):
        if any(name == start or (len(start) > 1 and name.startswith(start)) for start in names):
            return place
    return 2 if unit.endswith("_north") else 0 if unit.endswith("_east") else 1


def _kind(unit: str) -> str:
    """Degrees north and east are the same unit."""
    return unit.lower().partition("_")[0].rstrip("s")


class Scale(NamedTuple):
    """The colours of values between two ends."""

    low: float
    high: float
    colours: str
    label: str = ""

    @classmethod
    def of(cls, values: np.ndarray, label: str = "") -> Scale:
        """The scale of a channel: symmetric about zero where it changes its sign."""
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if min(-low, high) > SIGN_SHARE * max(-low, high):
            limit = max(-low, high)
            return cls(-limit, limit, SIGNED, label)
        return cls(low, high if high > low else low + (abs(low) or 1.0), UNSIGNED, label)


class Picture(NamedTuple):
    """A field (across, up) as it is drawn, or several of them; points that are not `valid` are masked."""

    title: str
    field: np.ndarray
    scale: Scale
    valid: np.ndarray

    @classmethod
    def of(cls, title: str, fields: np.ndarray, scale: Scale) -> Picture:
        """Several fields of data, in which points without a number are masked."""
        return cls(title, fields, scale, np.isfinite(fields).all(axis=0))


class Scaled(NamedTuple):
    """A channel as it is drawn, each part (time, across[, up])."""

    truth: Picture
    prediction: Picture
    error: Picture
    size: np.ndarray | None = None  # the size of the truth at each step, if values are relative to it


def scale_channel(rollout: Rollout, source: Source, channel: int, view: View) -> Scaled:
    truth, prediction = (view.arranged(u[:, channel].astype(np.float64)) for u in (rollout.truth, rollout.prediction))
    name, unit = source.channel_names[channel], (source.units or ("",) * source.channels)[channel]
    size = np.nanmax(np.abs(truth), axis=tuple(range(1, truth.ndim)), keepdims=True)
    relative = bool(size.max() > DECAY * size.min() > 0)
    if relative:
        truth, prediction = truth / size, prediction / size
        name, unit = f"{name} / max|{name}| at that step", ""
    prediction = np.where(np.isfinite(prediction), prediction, np.nan)
    error, scale = prediction - truth, Scale.of(truth, named(name, unit))
    finite = np.abs(error[np.isfinite(error)])
    # An exploding prediction must not blank out the steps before: the error scale ends at the range of the truth.
    range_of_truth = scale.high if scale.colours == SIGNED else scale.high - scale.low
    limit = min(float(finite.max(initial=0.0)), range_of_truth) or range_of_truth
    of_error, valid = Scale(-limit, limit, ERROR, named("prediction − truth", unit)), np.isfinite(truth[0])
    return Scaled(
        Picture("truth", truth, scale, valid),
        Picture("prediction", prediction, scale, valid),
        Picture("error", error, of_error, valid),
        size if relative else None,
    )
