"""What settings choose of a recording: channels, conditioning, and the part of each axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hero.data.files.recording import Recording, Trajectory
from hero.errors import HeroError, unknown_name

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings


@dataclass(eq=False)
class Selection:
    """What settings choose of a recording."""

    recording: Recording
    settings: FileSettings

    @property
    def names(self) -> list[str]:
        """Of all channels of the recording."""
        return [channel.name for channel in self.recording.channels]

    @cached_property
    def channels(self) -> list[int]:
        """The numbers of the named channels, by default of all that are no forcing; a vector's name means its parts."""
        names = self.names
        if self.settings.fields:
            return [names.index(name) for name in _named("field", self.settings.fields, names, self.recording)]
        found = [i for i, name in enumerate(names) if name not in self.forcing_names]
        if not found:
            raise HeroError(f"data.forcing={','.join(self.settings.forcing)} leaves no channel to predict; name fewer.")
        return found

    @cached_property
    def forcing_names(self) -> tuple[str, ...]:
        """Channels and series that are known in advance."""
        return chosen_forcing(self.recording, self.settings.forcing)

    @cached_property
    def cuts(self) -> tuple[slice, ...]:
        """The part of each axis that is kept."""
        axes, settings = self.recording.axes, self.settings
        texts = each_axis("crop", settings.crop, len(axes)) or (":",) * len(axes)
        cuts = []
        for text, axis in zip(texts, axes, strict=True):
            bounds = re.fullmatch(r"(\d*):(\d*)", text)
            start, stop = (int(bounds[1] or 0), int(bounds[2] or axis.points)) if bounds else (0, 0)
            if not 0 <= start < stop <= axis.points:
                raise HeroError(
                    f"data.crop={text!r} is not a part of axis {axis.name} with {axis.points} points; write "
                    f"START:STOP, as in 0:{axis.points // 2}."
                )
            cuts.append(slice(start, stop, settings.coarsen))
        return tuple(cuts)

    @property
    def whole(self) -> tuple[bool, ...]:
        """Whether each axis is kept from end to end."""
        pairs = zip(self.cuts, self.recording.space, strict=True)
        return tuple(cut.indices(points)[:2] == (0, points) for cut, points in pairs)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis is: as the user says, or the recording does of a whole one."""
        given = each_axis("periodic", self.settings.periodic, len(self.recording.axes))
        axes = zip(self.recording.axes, self.whole, strict=True)
        return given or tuple(bool(axis.periodic) and whole for axis, whole in axes)

    @property
    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The points of each axis."""
        return tuple(axis.coordinates[cut] for axis, cut in zip(self.recording.axes, self.cuts, strict=True))

    @property
    def space(self) -> tuple[int, ...]:
        """Points of each axis."""
        return tuple(map(len, self.coordinates))

    @cached_property
    def mask(self) -> Tensor | None:
        """True where there is a value, (channel, *space); None: everywhere."""
        if self.recording.mask is None:
            return None
        mask = self.recording.mask[self.channels][(slice(None), *self.cuts)]
        return None if mask.all() else torch.from_numpy(np.ascontiguousarray(mask))


def with_positions(recording: Recording) -> Recording:
    """A point cloud whose coordinates are conditioning fields: a network knows of points by their values alone."""
    assert recording.points is not None
    positions = recording.points.T  # (d, points)
    names = tuple("xyz"[: len(positions)])

    def fields(trajectory: Trajectory) -> np.ndarray:
        own = () if trajectory.fields is None else trajectory.fields()
        return np.stack([*own, *positions])

    trajectories = [replace(t, fields=partial(fields, t)) for t in recording.trajectories]
    return replace(recording, field_names=(*recording.field_names, *names), trajectories=trajectories)


def chosen_forcing(recording: Recording, names: Sequence[str]) -> tuple[str, ...]:
    """Channels and series that are known in advance; HeroError where there is no such name."""
    possible = [*(channel.name for channel in recording.channels), *recording.series_names]
    return tuple(_named("forcing", names, possible, recording))


def _named(what: str, names: Sequence[str], possible: Sequence[str], recording: Recording) -> list[str]:
    """The ones that are called so, or the components of the vectors of these names."""
    found: dict[str, None] = {}
    for name in names:
        components = re.compile(re.escape(name) + r"_[xyz0-9]+")
        hits = [name] if name in possible else [one for one in possible if components.fullmatch(one)]
        if not hits:
            raise unknown_name(f"{what} of {recording.files[0]}:", name, possible)
        found |= dict.fromkeys(hits)
    return list(found)


def renamed(names: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """The names of the chosen channels: the user's where there are any."""
    if names and (len(names) != len(found) or len(set(names)) < len(names)):
        raise HeroError(
            f"data.channels={','.join(names)} does not name the {len(found)} channels {', '.join(found)}; give each a "
            "name, or choose channels with data.fields."
        )
    return tuple(names or found)


def chosen_conditioning(recording: Recording, names: Sequence[str]) -> tuple[str, ...]:
    """The named numbers and fields; by default every number that differs between trajectories, and every field."""
    possible = (*recording.scalar_names, *recording.field_names)
    for name in names:
        if name not in possible and name != "none":
            raise unknown_name(f"conditioning of {recording.files[0]}:", name, [*possible, "none"])
    if names:
        return tuple(name for name in names if name != "none")
    first = recording.trajectories[0].scalars
    varying = [n for n in recording.scalar_names if any(t.scalars[n] != first[n] for t in recording.trajectories)]
    return (*varying, *recording.field_names)


def each_axis(name: str, values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """One value per axis; a single one stands for all; empty stays empty."""
    values = values * count if len(values) == 1 else values
    if values and len(values) != count:
        raise HeroError(f"data.{name} has {len(values)} values for {count} axes; give one or {count}.")
    return values


def length_of(coordinates: np.ndarray, periodic: bool) -> float:
    """The length of an axis: with the gap that closes it if it is periodic, a cell for each point."""
    if len(coordinates) < 2:
        return 1.0
    length = abs(float(coordinates[-1] - coordinates[0]))
    return length * len(coordinates) / (len(coordinates) - 1) if periodic else length


def last_point(length: float, points: int, periodic: bool) -> float:
    """The coordinate of the last point of an axis from 0 on."""
    return length * (points - 1) / points if periodic else length


UNNAMED = ("hero", "npy", "npz", "splits", "array", "torch", "neuralop", "matlab", "matlab73", "zarr", "apebench")
"""Formats whose channels are not named."""


def matched_channels(recording: Recording, names: Sequence[str], path: Path, owner: str) -> tuple[str, ...]:
    """The recording's own names of the channels `names`: equal ones, else in order where either has no real names."""
    found = [channel.name for channel in recording.channels]
    if set(names) <= set(found):
        return tuple(names)
    generic = recording.format in UNNAMED or all(name.rstrip("0123456789") == "u" for name in names)
    if len(found) == len(names) and (generic or len(names) == 1):
        return tuple(found)
    raise HeroError(
        f"{path} has the channels {', '.join(found)} and {owner} needs {', '.join(names)}; "
        "use a file with these channels."
    )
