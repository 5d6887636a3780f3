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
from hero.data.boundaries import is_even
from hero.data.recording import Axis
from hero.errors import unknown_name
from hero.runs.rollouts import Rollout

SIGNED, UNSIGNED, ERROR = "RdBu_r", "viridis", "PuOr_r"
"""Colour maps of a channel that changes its sign, of one that does not, and of errors."""
GREY = "#b8b8b8"
"""Masked points, and predictions that are not finite."""
DECAY = 20.0
"""A state that decays further than this fades out of a fixed scale; it is drawn relative to its size at each step."""
SIGN_SHARE = 0.01
"""The lesser sign reaches this share of the largest value where a channel counts as changing its sign."""
FLATTEST = 4.0
"""Largest ratio of the sides of a picture."""

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
    """The channels with their units."""
    units = source.units or ("",) * source.channels
    return [named(*channel) for channel in zip(source.channel_names, units, strict=True)]


def channel_number(source: Source, name: str | None) -> int:
    """The place of a channel; the first one if none is named."""
    if name is not None and name not in source.channel_names:
        raise unknown_name(f"channel of {source.title}:", name, source.channel_names)
    return 0 if name is None else source.channel_names.index(name)


@dataclass(frozen=True)
class Side:
    """An axis as a picture shows it: from left to right, or from the bottom up."""

    axis: int
    label: str
    start: float
    end: float
    """Where the picture ends: half a cell beyond the points, or a whole one where the axis is periodic."""
    points: np.ndarray
    """Coordinates in the order of the picture; NaN where they are not known."""
    turned: bool
    """Whether the file has the points in the other order."""

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
        return cls(place, named(axis.name, axis.unit), *ends, x, turned)


@dataclass(frozen=True)
class View:
    """The picture of a grid: what is horizontal and what is vertical; a line has no vertical."""

    across: Side
    up: Side | None = None
    ratio: float = 1.0
    """Width over height."""

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

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top end of a picture of two axes."""
        assert self.up is not None
        return self.across.start, self.across.end, self.up.start, self.up.end

    @property
    def aspect(self) -> float:
        """Height of a unit upwards over the width of a unit across."""
        left, right, bottom, top = self.box
        return abs((right - left) / (top - bottom)) / self.ratio

    def arranged(self, field: np.ndarray) -> np.ndarray:
        """(.., first axis, second axis) -> (.., across, up), both in the order of the picture; a line (.., across)."""
        sides = [self.across, self.up] if self.up else [self.across]
        field = np.flip(field, tuple(side.axis - len(sides) for side in sides if side.turned))
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


class Scaled(NamedTuple):
    """A channel as drawn: truth, prediction and error (time, across[, up]), and their colours."""

    truth: np.ndarray
    prediction: np.ndarray
    error: np.ndarray
    low: float
    high: float
    colours: str
    error_limit: float
    title: str
    """Name and unit of the channel."""
    size: np.ndarray | None = None
    """The size of the truth at each step, if values are relative to it."""

    @property
    def label(self) -> str:
        """What the colours say."""
        name = self.title.partition(" [")[0]
        return self.title if self.size is None else f"{name} / max|{name}| at that step"

    @property
    def error_label(self) -> str:
        """What the colours of the error say."""
        unit = "" if self.size is not None else self.title[len(self.title.partition(" [")[0]) :]
        return f"prediction − truth{unit}"

    @property
    def valid(self) -> np.ndarray:
        """True at the points that are not masked."""
        return np.isfinite(self.truth[0])

    def parts(self) -> tuple[tuple[str, np.ndarray, tuple[float, float], str], ...]:
        """Name, field, ends of the colour scale and colour map of each of the three."""
        ends = self.low, self.high
        return (
            ("truth", self.truth, ends, self.colours),
            ("prediction", self.prediction, ends, self.colours),
            ("error", self.error, (-self.error_limit, self.error_limit), ERROR),
        )


def scale_channel(rollout: Rollout, channel: int, title: str, view: View) -> Scaled:
    """One channel of a rollout as it is drawn."""
    truth, prediction = (view.arranged(u[:, channel].astype(np.float64)) for u in (rollout.truth, rollout.prediction))
    size = np.nanmax(np.abs(truth), axis=tuple(range(1, truth.ndim)), keepdims=True)
    relative = bool(size.max() > DECAY * size.min() > 0)
    if relative:
        truth, prediction = truth / size, prediction / size
    prediction = np.where(np.isfinite(prediction), prediction, np.nan)
    error = prediction - truth
    low, high, colours = colour_scale(truth)
    finite = np.abs(error[np.isfinite(error)])
    # An exploding prediction must not blank out the steps before: the error scale ends at the range of the truth.
    range_of_truth = high if colours == SIGNED else high - low
    error_limit = min(float(finite.max(initial=0.0)), range_of_truth) or range_of_truth
    return Scaled(truth, prediction, error, low, high, colours, error_limit, title, size if relative else None)


def colour_scale(values: np.ndarray) -> tuple[float, float, str]:
    """Ends and map of the colours of a channel: symmetric about zero where it changes its sign."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if min(-low, high) > SIGN_SHARE * max(-low, high):
        limit = max(-low, high)
        return -limit, limit, SIGNED
    return low, high if high > low else low + (abs(low) or 1.0), UNSIGNED
