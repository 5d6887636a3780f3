"""What settings choose of a recording: channels, conditioning, and the part of each axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hero.data.files.recording import Recording, Trajectory
from hero.errors import HeroError, unknown_name

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings


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


def chosen_channels(recording: Recording, settings: FileSettings) -> list[int]:
    """The numbers of the named channels, by default all that are no forcing; a vector's name means its components."""
    names = [channel.name for channel in recording.channels]
    if not settings.fields:
        forcing = chosen_forcing(recording, settings.forcing)
        found = [i for i, name in enumerate(names) if name not in forcing]
        if not found:
            raise HeroError(f"data.forcing={','.join(settings.forcing)} leaves no channel to predict; name fewer.")
        return found
    found = []
    for field in settings.fields:
        hits = _components(field, names)
        if not hits:
            raise unknown_name(f"field of {recording.files[0]}:", field, names)
        found += [names.index(name) for name in hits if names.index(name) not in found]
    return found


def _components(name: str, names: Sequence[str]) -> list[str]:
    """The one that is called `name`, or the components of the vector of that name."""
    return [one for one in names if one == name or re.fullmatch(re.escape(name) + r"_[xyz0-9]+", one)]


def chosen_forcing(recording: Recording, names: Sequence[str]) -> tuple[str, ...]:
    """Channels and series that are known in advance; HeroError where there is no such name."""
    possible = [*(channel.name for channel in recording.channels), *recording.series_names]
    found: list[str] = []
    for name in names:
        hits = [name] if name in possible else _components(name, possible)
        if not hits:
            raise unknown_name(f"forcing of {recording.files[0]}:", name, possible)
        found += [one for one in hits if one not in found]
    return tuple(found)


def mask_of(recording: Recording, settings: FileSettings) -> np.ndarray | None:
    """The mask of the chosen channels on the part of the grid that is kept; None where it leaves nothing out."""
    if recording.mask is None:
        return None
    channels = recording.mask[chosen_channels(recording, settings)]
    mask = channels[(slice(None), *axis_slices(recording, settings))]
    return None if mask.all() else mask


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


def axis_slices(recording: Recording, settings: FileSettings) -> tuple[slice, ...]:
    """The part of each axis that is kept."""
    texts = each_axis("crop", settings.crop, len(recording.axes)) or (":",) * len(recording.axes)
    cuts = []
    for text, axis in zip(texts, recording.axes, strict=True):
        bounds = re.fullmatch(r"(\d*):(\d*)", text)
        start, stop = (int(bounds[1] or 0), int(bounds[2] or axis.points)) if bounds else (0, 0)
        if not 0 <= start < stop <= axis.points:
            raise HeroError(
                f"data.crop={text!r} is not a part of axis {axis.name} with {axis.points} points; write START:STOP, "
                f"as in 0:{axis.points // 2}."
            )
        cuts.append(slice(start, stop, settings.coarsen))
    return tuple(cuts)


def each_axis(name: str, values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """One value per axis; a single one stands for all; empty stays empty."""
    values = values * count if len(values) == 1 else values
    if values and len(values) != count:
        raise HeroError(f"data.{name} has {len(values)} values for {count} axes; give one or {count}.")
    return values


def length_of(coordinates: np.ndarray, periodic: bool) -> float:
    """The length of an axis: with the gap that closes it if it is periodic."""
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
