"""People's files as a source of data: what is learned from them, how they are split, and how they are read.

A stored configuration holds everything that was found in the file, so a run can be opened, exported and rolled out
where the file is not; the file itself is needed for training and evaluation only, and must not have changed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor

from hero.config import Facts, Settings, setting
from hero.config.settings import flagged
from hero.console import progress_bar
from hero.data.files.arrays import is_as_given
from hero.data.files.boundaries import is_even
from hero.data.files.checks import (
    SPLIT_FRAMES,
    UnfitError,
    are_equal_steps,
    fitted,
    not_finite,
    problems,
    tidy,
    time_steps,
    too_short,
)
from hero.data.files.recording import Axis, Recording, Trajectory
from hero.data.formats import open_recording
from hero.data.tasks.store import SCORED, SPLITS, Split
from hero.data.windows import Statistics, Trajectories
from hero.errors import HeroError, unknown_name
from hero.parallel import from_first

LONGEST_ROLLOUT = 200
"""Steps of validation and test rollouts unless set; longer trajectories give several of them."""
HASHED = 2**20
"""Bytes at either end of a file that its fingerprint covers, in addition to its size."""


def words(value: Any) -> Any:
    """A tuple from a list, or from one text with commas."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def per_axis(value: Any) -> Any:
    """A tuple of numbers or truth values from one or a list."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Words = Annotated[tuple[str, ...], BeforeValidator(words)]


class FileSettings(Settings):
    """Trajectories from files; `hero doctor FILE` shows what is in them."""

    path: str = setting("", "File or folder of trajectories.", identity=False)
    layout: str = setting("", "Axes of a bare array, in the letters b t c x y z, as in btcxy.", carried=True)
    fields: Words = setting((), "Channels to learn, by name (default: all).", carried=True)
    condition: Words = setting((), "Conditioning by name (default: every number that varies, and all fixed fields).")
    stride: int = setting(1, "Take every n-th state of a trajectory.", ge=1, carried=True)
    crop: Words = setting((), "Part of each axis in points, as 0:64,32:96 (default: all).", carried=True)
    coarsen: int = setting(1, "Take every n-th grid point along each axis.", ge=1, carried=True)
    dt: float = setting(0.0, "Time between two states (default: from the file).", ge=0, found=True)
    extent: Annotated[tuple[float, ...], BeforeValidator(per_axis)] = setting(
        (), "Length of each axis (default: from the file).", found=True
    )
    periodic: Annotated[tuple[bool, ...], BeforeValidator(per_axis)] = setting(
        (), "Whether each axis is periodic (default: from the file).", found=True
    )
    train_share: float = setting(0.8, "Share of the trajectories to train on, if the file has no splits.", gt=0, lt=1)
    val_share: float = setting(0.1, "Share for validation; the rest is the test set.", gt=0, lt=1)
    split_seed: int = setting(0, "Which trajectories go where.", ge=0)
    rollout: int = setting(0, f"Steps of a test rollout (default: all there are, at most {LONGEST_ROLLOUT}).", ge=0)
    memory: float = setting(
        4.0, "GB of a split held in memory; a larger one is read from the file as needed.", gt=0, identity=False
    )
    format: str = setting("", "Found: the layout of the file.", found=True)
    channels: Words = setting((), "Found: the names of the channels; set them to rename.", carried=True, found=True)
    units: Annotated[tuple[str, ...], BeforeValidator(per_axis)] = setting((), "Found: their units.", found=True)
    time_unit: str = setting("", "Found: the unit of dt.", found=True, identity=False)
    axes: Words = setting((), "Found: the names of the axes.", found=True)
    axis_units: Annotated[tuple[str, ...], BeforeValidator(per_axis)] = setting(
        (), "Found: their units.", found=True, identity=False
    )
    axis_first: Annotated[tuple[float, ...], BeforeValidator(per_axis)] = setting(
        (), "Found: the coordinate of the first point of each axis.", found=True, identity=False
    )
    axis_last: Annotated[tuple[float, ...], BeforeValidator(per_axis)] = setting(
        (), "Found: the coordinate of the last point of each axis.", found=True, identity=False
    )
    space: Annotated[tuple[int, ...], BeforeValidator(per_axis)] = setting(
        (), "Found: grid points per axis.", found=True
    )
    cloud: bool = setting(False, "Found: whether the states are on scattered points.", found=True)
    uneven: bool = setting(False, "Found: whether the points of an axis are unevenly spaced.", found=True)
    masked: bool = setting(False, "Found: whether some points have no value in any state.", found=True)
    train_trajectories: int = setting(0, "Found: training trajectories; set it to use fewer.", ge=0, found=True)
    train_steps: int = setting(0, "Found: steps of each.", ge=0, found=True)
    val_trajectories: int = setting(0, "Found: validation rollouts.", ge=0, found=True)
    val_steps: int = setting(0, "Found: steps of each.", ge=0, found=True)
    test_trajectories: int = setting(0, "Found: test rollouts.", ge=0, found=True)
    test_steps: int = setting(0, "Found: steps of each.", ge=0, found=True)
    fingerprint: str = setting("", "Found: a hash of the file, which must stay the same.", found=True)

    @classmethod
    def from_values(cls, section: str, values: Mapping[str, Any], facts: Facts) -> Self:
        settings = super().from_values(section, values, facts)
        if not settings.fingerprint:
            return settings.found()
        settings.check_found()
        return settings

    def check_found(self) -> None:
        """Refuse what cannot have been found in a file, as in a stored configuration that somebody changed."""
        dims = 1 if self.cloud else len(self.space)
        per_axis = [len(part) == dims for part in (self.space, self.axes, self.extent, self.periodic)]
        per_axis += [len(part) in (0, dims) for part in (self.axis_units, self.axis_first, self.axis_last)]
        lengths = [
            *self.space,
            *(size for name in SPLITS for size in (self.split(name).trajectories, self.split(name).steps)),
        ]
        if not 1 <= dims <= 3 or not all(per_axis) or not self.channels or min(lengths) < 1 or not self.dt > 0:
            raise HeroError(
                "data.fingerprint is set with values that no file has; leave it out, and the file is read again."
            )

    def found(self) -> Self:
        """The same with everything that the file says."""
        recording = opened(self)
        kept = chosen_channels(recording, self.fields)
        axes = recording.axes
        cuts = axis_slices(recording, self)
        space = tuple(len(range(*cut.indices(axis.points))) for cut, axis in zip(cuts, axes, strict=True))
        whole = [cut.indices(axis.points)[:2] == (0, axis.points) for cut, axis in zip(cuts, axes, strict=True)]
        periodic = each_axis("periodic", self.periodic, len(axes)) or tuple(
            bool(axis.periodic) and complete for axis, complete in zip(axes, whole, strict=True)
        )
        extent = each_axis("extent", self.extent, len(axes)) or tuple(
            length_of(axis.coordinates[cut], around) for axis, cut, around in zip(axes, cuts, periodic, strict=True)
        )
        values = self.model_copy(update={"periodic": periodic, "extent": extent, "space": space})
        parts = divided(recording, values)
        sizes = {}
        for name in SPLITS:
            sizes[f"{name}_trajectories"] = len(parts[name])
            sizes[f"{name}_steps"] = parts[name][0].frames - 1
        return values.model_copy(
            update={
                "path": str(Path(self.path).resolve()) if Path(self.path).exists() else self.path,
                "format": recording.format,
                "fields": tuple(recording.channels[i].name for i in kept),
                "channels": renamed(self.channels, [recording.channels[i].name for i in kept]),
                "units": tuple(recording.channels[i].unit for i in kept),
                "time_unit": "" if self.dt else recording.time_unit,
                "axes": tuple(axis.name for axis in axes),
                "axis_units": tuple(axis.unit for axis in axes),
                **self.ends([axis.coordinates[cut] for axis, cut in zip(axes, cuts, strict=True)], periodic),
                "condition": chosen_conditioning(recording, self.condition),
                "dt": self.dt or dt_of(recording, self.stride),
                "cloud": recording.points is not None,
                "uneven": not all(
                    is_even(np.diff(axis.coordinates[cut])) for axis, cut in zip(axes, cuts, strict=True)
                ),
                "masked": mask_of(recording, values) is not None,
                "fingerprint": fingerprint(recording.files),
                **sizes,
            }
        )

    def ends(self, coordinates: Sequence[np.ndarray], periodic: Sequence[bool]) -> dict[str, tuple[float, ...]]:
        """The coordinates of the first and the last point of each axis; from 0 on where the user gives its length."""
        lengths = each_axis("extent", self.extent, len(coordinates)) or (None,) * len(coordinates)
        found = []
        for x, wraps, length in zip(coordinates, periodic, lengths, strict=True):
            rising = (float(x[0]), float(x[-1])) if length is None else (0.0, last_point(length, len(x), wraps))
            found.append(rising if length is None or x[0] <= x[-1] else rising[::-1])
        first, last = zip(*found, strict=True)
        return {"axis_first": first, "axis_last": last}

    def split(self, name: str) -> Split:
        """The size of the split `train`, `val` or `test`."""
        return Split(name, getattr(self, f"{name}_trajectories"), getattr(self, f"{name}_steps"), self.split_seed)


FOUND = flagged(FileSettings, "found")
"""Settings that are taken from the file again when others of a stored configuration change."""


@dataclass(frozen=True)
class Part:
    """Consecutive states of one trajectory; frames are counted after the stride."""

    trajectory: int
    first: int
    frames: int


@dataclass(frozen=True)
class FileSource:
    """The trajectories of a file or folder."""

    given: FileSettings

    @property
    def name(self) -> str:
        """The stem of the file in safe characters."""
        return re.sub(r"[^A-Za-z0-9_]+", "_", Path(self.given.path).stem).strip("_")[:40] or "data"

    @property
    def title(self) -> str:
        return Path(self.given.path).stem

    @property
    def dt(self) -> float:
        return self.given.dt

    @property
    def space(self) -> tuple[int, ...]:
        return self.given.space

    @property
    def extents(self) -> tuple[float, ...]:
        return self.given.extent

    @property
    def periodic(self) -> tuple[bool, ...]:
        return self.given.periodic

    @property
    def cloud(self) -> bool:
        return self.given.cloud

    @property
    def masked(self) -> bool:
        return self.given.masked

    @property
    def channel_names(self) -> tuple[str, ...]:
        return self.given.channels

    @property
    def units(self) -> tuple[str, ...]:
        return self.given.units

    @property
    def time_unit(self) -> str:
        return self.given.time_unit

    def axes(self) -> tuple[Axis, ...]:
        given, found = self.given, []
        for i, (name, points, wraps) in enumerate(zip(given.axes, self.space, self.periodic, strict=True)):
            ends = 0.0, last_point(self.extents[i], points, wraps)
            if given.axis_first and given.axis_last:  # earlier versions did not store them
                ends = given.axis_first[i], given.axis_last[i]
            x = np.linspace(*ends, points)
            x[1:-1] = np.nan if given.uneven else x[1:-1]
            found.append(Axis(name, x, wraps, given.axis_units[i] if given.axis_units else ""))
        return tuple(found)

    @property
    def conditioning(self) -> tuple[str, ...]:
        return self.given.condition

    @property
    def dims(self) -> int:
        return len(self.space)

    @property
    def channels(self) -> int:
        return len(self.channel_names)

    def coordinates(self) -> tuple[np.ndarray, ...]:
        if not self.given.uneven:
            steps = zip(self.extents, self.space, self.periodic, strict=True)
            return tuple(np.arange(n) * extent / max(1, n if wraps else n - 1) for extent, n, wraps in steps)
        cuts = axis_slices(self.recording, self.given)
        return tuple(axis.coordinates[cut] for axis, cut in zip(self.recording.axes, cuts, strict=True))

    def points(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        if not self.cloud:
            return None
        (cut,) = axis_slices(self.recording, self.given)
        found, weights = self.recording.points, self.recording.weights
        assert found is not None
        return found[cut], None if weights is None else weights[cut]

    @property
    def has_solver(self) -> bool:
        return False

    def stepper(self, device: torch.device | str = "cpu") -> Any:
        """There is none."""
        raise HeroError(f"data from files ({self.given.path}) have no solver; choose a benchmark.")

    def settings(self) -> dict[str, Any]:
        return self.given.plain()

    @cached_property
    def recording(self) -> Recording:
        """The file, which must be the one that the run was made with."""
        recording = opened(self.given)
        if fingerprint(recording.files) != self.given.fingerprint:
            raise HeroError(
                f"{self.given.path} is not the file that this run was trained on (its fingerprint differs); restore "
                "it, or train again."
            )
        for path in recording.files:
            if not is_as_given(path):
                raise HeroError(
                    f"{path} is damaged (its checksum differs); repeat the call that handed its arrays over."
                )
        return recording

    def size(self, name: str) -> int:
        """Bytes of the states of a split."""
        split = self.given.split(name)
        return 4 * split.trajectories * (split.steps + 1) * self.channels * math.prod(self.space)

    def is_streamed(self, name: str) -> bool:
        """Whether a split stays in its file, because it is larger than data.memory."""
        return self.size(name) > self.given.memory * 1e9

    def load(self, name: str) -> Trajectories:
        """The split `train`, `val` or `test`: in memory if it is small enough, else read as it is asked for."""
        reading = Reading(self.recording, self.given)
        trajectories = FileTrajectories(reading, tuple(divided(self.recording, self.given)[name]), name)
        return trajectories if self.is_streamed(name) else trajectories.in_memory(f"reading {name}")


class Reading:
    """Reads what the settings choose from a recording: channels, stride, crop, grid points."""

    def __init__(self, recording: Recording, settings: FileSettings) -> None:
        self.recording, self.settings = recording, settings
        self.channels = chosen_channels(recording, settings.fields)
        self.cuts = axis_slices(recording, settings)
        mask = mask_of(recording, settings)
        self.mask = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask))

    def states(self, trajectory: int, first: int, count: int) -> np.ndarray:
        """(time, channel, *space), float32."""
        stride = self.settings.stride
        frames = slice(first * stride, (first + count - 1) * stride + 1, stride)
        found = self.recording.trajectories[trajectory].read(frames, self.channels)
        return np.ascontiguousarray(found[(slice(None), slice(None), *self.cuts)], dtype=np.float32)

    def conditioning(self, trajectories: Sequence[int]) -> Tensor | None:
        """μ of each: numbers (trajectories, p), or fields (trajectories, p, *space) if there are fields."""
        names, recording = self.settings.condition, self.recording
        if not names:
            return None
        fields = [name for name in names if name in recording.field_names]
        rows = []
        for number in trajectories:
            trajectory = recording.trajectories[number]
            values = {name: np.float32(trajectory.scalars[name]) for name in names if name not in fields}
            if fields:
                assert trajectory.fields is not None
                found = self.filled(trajectory.fields()[(slice(None), *self.cuts)], number)
                values |= {name: found[recording.field_names.index(name)] for name in fields}
                rows.append(np.stack([np.broadcast_to(values[name], self.settings.space) for name in names]))
            else:
                rows.append(np.array([values[name] for name in names]))
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    def filled(self, fields: np.ndarray, trajectory: int) -> np.ndarray:
        """Conditioning fields with their mean where no channel has a value; HeroError where others are not finite."""
        outside = np.zeros(fields.shape[1:], bool) if self.mask is None else ~self.mask.numpy().any(axis=0)
        fields = fields.astype(np.float32)
        for name in set(self.settings.condition) & set(self.recording.field_names):
            field = fields[self.recording.field_names.index(name)]
            if not np.isfinite(field[~outside]).all():
                raise HeroError(
                    f"the field {name} of trajectory {trajectory} in {self.settings.path} is not finite where states "
                    "have values; fill it, or leave it out with data.condition."
                )
            field[outside & ~np.isfinite(field)] = field[~outside].mean()
        return fields


class FileTrajectories(Trajectories):
    """Trajectories that stay in their file: windows and μ are read when they are asked for."""

    def __init__(
        self, reading: Reading, parts: tuple[Part, ...], split: str, target: str | torch.device = "cpu"
    ) -> None:
        object.__setattr__(self, "reading", reading)
        object.__setattr__(self, "kept", parts)
        object.__setattr__(self, "split", split)
        object.__setattr__(self, "target", torch.device(target))

    reading: Reading
    kept: tuple[Part, ...]
    split: str
    target: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        settings = self.reading.settings
        return (len(self.kept), self.kept[0].frames, len(settings.channels), *settings.space)

    @property
    def is_in_memory(self) -> bool:
        return False

    @property
    def is_conditioned(self) -> bool:
        return bool(self.reading.settings.condition)

    @property
    def device(self) -> torch.device:
        return self.target

    def __getitem__(self, part: slice) -> Trajectories:
        return FileTrajectories(self.reading, self.kept[part], self.split, self.target).in_memory()

    def frames(self, part: slice) -> Tensor:
        first, stop, _ = part.indices(self.shape[1])
        return self.read([(row, first) for row in range(len(self))], stop - first).to(self.target)

    def gather(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor:
        """On the host, in pinned memory if batches are wanted on a GPU."""
        return self._ready(self.read(list(zip(trajectory.tolist(), start.tolist(), strict=True)), count))

    def conditioning(self, trajectory: Tensor) -> Tensor | None:
        """On the host as well."""
        mu = self.reading.conditioning([self.kept[row].trajectory for row in trajectory.tolist()])
        return None if mu is None else self._ready(mu)

    def _ready(self, found: Tensor) -> Tensor:
        return found.pin_memory() if self.target.type == "cuda" else found

    def read(self, rows: Sequence[tuple[int, int]], count: int) -> Tensor:
        """`count` states from each (row, first state), on the host."""
        found = np.empty((len(rows), count, *self.shape[2:]), np.float32)
        for i in sorted(range(len(rows)), key=rows.__getitem__):  # in the order of the file
            row, first = rows[i]
            part = self.kept[row]
            found[i] = self.reading.states(part.trajectory, part.first + first, count)
            if not np.isfinite(found[i]).all():
                frame, channel = (int(places[0]) for places in np.nonzero(~np.isfinite(found[i]))[:2])
                place = (part.first + first + frame) * self.reading.settings.stride
                raise not_finite(self.reading.recording, part.trajectory, place, self.reading.channels[channel])
        return torch.from_numpy(found)

    def in_memory(self, title: str = "") -> Trajectories:
        """All of them; `title` names a progress bar."""
        states = torch.empty(self.shape)
        for row, part in enumerate(self.each(title)):
            states[row] = part[0]
        mu = self.reading.conditioning([part.trajectory for part in self.kept])
        return Trajectories(states, mu, self.mask).to(self.target)

    def each(self, title: str = "measuring") -> Iterator[Tensor]:
        with progress_bar(title, len(self)) if title else nullcontext(lambda n: None) as advance:
            for row in range(len(self)):
                yield self.read([(row, 0)], self.shape[1])
                advance(1)

    def to(self, device: torch.device | str) -> Trajectories:
        return FileTrajectories(self.reading, self.kept, self.split, device)

    @property
    def mask(self) -> Tensor | None:
        return self.reading.mask

    def statistics(self) -> Statistics:
        return from_first(super().statistics)  # one process reads the whole file

    def step_std(self) -> Tensor:
        return from_first(super().step_std)

    def each_mu(self) -> Iterator[Tensor]:
        return (mu for part in self.kept if (mu := self.reading.conditioning([part.trajectory])) is not None)


def opened(settings: FileSettings) -> Recording:
    """The recording that the settings name, tidied and fit for training."""
    recording, unfit = examined(open_recording(Path(settings.path), settings.layout), settings)
    for problem in unfit:
        raise problem
    return recording if recording.points is None else with_positions(recording)


def examined(given: Recording, settings: FileSettings) -> tuple[Recording, Iterator[UnfitError]]:
    """The recording as training sees it, and every reason to refuse it: training raises the first of them, and `hero
    doctor` shows them all."""
    given, misfit = fitted(given)
    recording = tidy(given)
    around = each_axis("periodic", settings.periodic, len(recording.axes))
    declared = [replace(axis, periodic=wraps) for axis, wraps in zip(recording.axes, around, strict=False)]
    chosen = replace(recording, axes=tuple(declared) or recording.axes)

    def unfit() -> Iterator[UnfitError]:
        yield from misfit
        channels, cuts = chosen_channels(chosen, settings.fields), axis_slices(chosen, settings)
        yield from problems(chosen, channels, cuts, settings.stride, settings.dt)
        try:
            divided(chosen, settings)
        except UnfitError as problem:
            yield problem

    return recording, unfit()


def dt_of(recording: Recording, stride: int) -> float:
    """Time between two states that a stride keeps: of uneven frames, the step that it makes even."""
    steps = time_steps(recording, stride)
    return recording.dt * stride if are_equal_steps(time_steps(recording)) else float(steps.mean())


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


def chosen_channels(recording: Recording, fields: Sequence[str]) -> list[int]:
    """The numbers of the named channels, all by default; a vector's name stands for its components."""
    names = [channel.name for channel in recording.channels]
    if not fields:
        return list(range(len(names)))
    found: list[int] = []
    for field in fields:
        hits = [
            i for i, name in enumerate(names) if name == field or re.fullmatch(re.escape(field) + r"_[xyz0-9]+", name)
        ]
        if not hits:
            raise unknown_name(f"field of {recording.files[0]}:", field, names)
        found += [i for i in hits if i not in found]
    return found


def mask_of(recording: Recording, settings: FileSettings) -> np.ndarray | None:
    """The mask of the chosen channels on the part of the grid that is kept; None where it leaves nothing out."""
    if recording.mask is None:
        return None
    kept = recording.mask[chosen_channels(recording, settings.fields)]
    mask = kept[(slice(None), *axis_slices(recording, settings))]
    for c, part in zip(chosen_channels(recording, settings.fields), mask, strict=True):
        if not recording.mask[c].any():
            raise HeroError(
                f"{recording.files[0]} has no value of {recording.channels[c].name}, only NaN; leave it out with "
                "data.fields."
            )
        if not part.any():
            raise HeroError(
                f"every point of {recording.channels[c].name} that data.crop and data.coarsen keep is masked; keep "
                "other points."
            )
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


def divided(recording: Recording, settings: FileSettings) -> dict[str, list[Part]]:
    """The parts of each split: the file's own splits where it has them, whole trajectories by share otherwise.

    Fewer than three trajectories are split in time. Validation and test trajectories are cut into rollouts.
    """
    frames = -(-min(t.frames for t in recording.trajectories) // settings.stride)
    for problem in too_short(recording, settings.stride):
        raise problem
    if settings.train_share + settings.val_share >= 1:
        raise HeroError(
            f"data.train_share={settings.train_share:g} and data.val_share={settings.val_share:g} leave nothing for "
            "the test set; lower one."
        )
    whole = whole_parts(recording, settings, frames)
    if settings.train_trajectories:
        whole["train"] = whole["train"][: settings.train_trajectories]
    shortest = min(part.frames for name in SCORED for part in whole[name]) - 1
    steps = settings.rollout or settings.test_steps or min(shortest, LONGEST_ROLLOUT)
    if steps > shortest:
        raise HeroError(f"data.rollout={steps} is longer than the {shortest} steps that there are; lower it.")
    return whole | {name: list(rollouts(whole[name], steps)) for name in SCORED}


def whole_parts(recording: Recording, settings: FileSettings, frames: int) -> dict[str, list[Part]]:
    """The trajectories, or parts in time, of each split."""
    labels = [trajectory.split for trajectory in recording.trajectories]
    count = len(labels)
    if count < 3 and not {"train", "test"} <= set(labels):
        cuts = [0, round(frames * settings.train_share)]
        cuts += [cuts[1] + round(frames * settings.val_share), frames]
        if min(np.diff(cuts)) < 2:
            states = (
                f"{count} {'trajectory' if count == 1 else 'trajectories'} of {frames} states, too few to split in time"
            )
            longer = "lower data.stride" if settings.stride > 1 else "name a file with more"
            remedy = f"at least {SPLIT_FRAMES} states or 3 trajectories are needed, so {longer}"
            raise UnfitError("split", settings.path, states, remedy)
        bounds = zip(SPLITS, cuts[:-1], cuts[1:], strict=True)
        return {name: [Part(i, a, b - a) for i in range(count)] for name, a, b in bounds}
    order = np.random.default_rng(settings.split_seed).permutation(count)
    groups: dict[str, list[int]] = {name: [i for i in range(count) if labels[i] == name] for name in SPLITS}
    free = [int(i) for i in order if labels[i] not in SPLITS]
    if not groups["train"]:
        groups["train"], free = free, []
    for name, share in (("test", 1 - settings.train_share - settings.val_share), ("val", settings.val_share)):
        if not groups[name]:
            taken = max(1, round(share * count))
            left = set(groups["train"])
            pool = [int(i) for i in order if i in left]
            groups[name], groups["train"] = sorted(pool[:taken]), sorted(pool[taken:])
    if not groups["train"]:
        labels_of = ", ".join(f"{labels.count(name)} for {name or 'any split'}" for name in dict.fromkeys(labels))
        text = f"{count} trajectories ({labels_of}) leave none to train on"
        raise UnfitError("split", settings.path, text, "add trajectories, or raise data.train_share")
    kept = [-(-trajectory.frames // settings.stride) for trajectory in recording.trajectories]
    shortest = {name: min(kept[i] for i in groups[name]) for name in SPLITS}
    return {name: [Part(i, 0, shortest[name]) for i in groups[name]] for name in SPLITS}


def rollouts(parts: Sequence[Part], steps: int) -> Iterator[Part]:
    """Each part cut into stretches of `steps` steps; the last state of one is the first of the next."""
    for part in parts:
        for start in range(0, part.frames - steps, steps):
            yield Part(part.trajectory, part.first + start, steps + 1)


def fingerprint(files: Sequence[Path]) -> str:
    """A hash of the sizes of the files and of their first and last MiB."""
    digest = hashlib.sha256()
    for path in files:
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as file:
            digest.update(file.read(HASHED))
            if size > HASHED:
                file.seek(max(HASHED, size - HASHED))
                digest.update(file.read(HASHED))
    return digest.hexdigest()[:16]
