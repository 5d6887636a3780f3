"""Files as a source of data: what a user may say of them, and what is found in the file when it is opened.

A stored configuration holds everything that was found, so a run can be opened, exported and rolled out where the file
is not. The file is needed for training and evaluation only, and must not have changed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator

from hero.config import Facts, Settings, setting
from hero.config.settings import Words, flagged, words
from hero.data.files import selection
from hero.data.files.checks import UnfitError, problems, tidy
from hero.data.files.handed import is_as_given
from hero.data.files.recording import Axis, Recording, is_even
from hero.data.files.trajectories import FileTrajectories, watched
from hero.data.formats import open_recording
from hero.data.source import Source
from hero.data.tasks.store import SPLITS, Split
from hero.data.trajectories import Trajectories
from hero.errors import HeroError

HASHED = 2**20  # bytes at either end of a file that its fingerprint covers, in addition to its size


Floats = Annotated[tuple[float, ...], BeforeValidator(words)]
Ints = Annotated[tuple[int, ...], BeforeValidator(words)]
Bools = Annotated[tuple[bool, ...], BeforeValidator(words)]


class FileSettings(Settings):
    """Trajectories from files: what a user may say of them, then what is found; `hero doctor FILE` shows it."""

    path: str = setting("", "File or folder of trajectories.", identity=False)
    layout: str = setting(
        "",
        "Axes of an array, in the letters b t c x y z, as in btcxy; names of files, as in sim_{b}/{c}_{t}.npy.",
        carried=True,
    )
    fields: Words = setting((), "Channels to learn, by name (default: all).", carried=True)
    condition: Words = setting((), "Conditioning by name (default: every number that varies, and all fixed fields).")
    forcing: Words = setting((), "Variables in time that are known in advance: seen, never predicted.", carried=True)
    stride: int = setting(1, "Take every n-th state of a trajectory.", ge=1, carried=True)
    resample: float = setting(
        0.0, "Interpolate states to this time step (default: as in the file).", ge=0, carried=True
    )
    crop: Words = setting((), "Part of each axis in points, as 0:64,32:96 (default: all).", carried=True)
    coarsen: int = setting(1, "Take every n-th grid point along each axis.", ge=1, carried=True)
    dt: float = setting(0.0, "Time between two states (default: from the file).", ge=0, found=True)
    extent: Floats = setting((), "Length of each axis (default: from the file).", found=True)
    periodic: Bools = setting((), "Whether each axis is periodic (default: from the file).", found=True)
    train_share: float = setting(0.8, "Share of the trajectories to train on, if the file has no splits.", gt=0, lt=1)
    val_share: float = setting(0.1, "Share for validation; the rest is the test set.", gt=0, lt=1)
    split_seed: int = setting(0, "Which trajectories go where.", ge=0)
    rollout: int = setting(
        0, f"Steps of a test rollout (default: all there are, at most {selection.LONGEST_ROLLOUT}).", ge=0
    )
    memory: float = setting(
        4.0, "GB of a split held in memory; a larger one is read from the file as needed.", gt=0, identity=False
    )
    format: str = setting("", "Found: the layout of the file.", found=True)
    channels: Words = setting((), "Found: the names of the channels; set them to rename.", carried=True, found=True)
    units: Words = setting((), "Found: their units.", found=True)
    time_unit: str = setting("", "Found: the unit of dt.", found=True, identity=False)
    axes: Words = setting((), "Found: the names of the axes.", found=True)
    axis_units: Words = setting((), "Found: their units.", found=True, identity=False)
    axis_first: Floats = setting((), "Found: the first coordinate of each axis.", found=True, identity=False)
    axis_last: Floats = setting((), "Found: the last coordinate of each axis.", found=True, identity=False)
    space: Ints = setting((), "Found: grid points per axis.", found=True)
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
        # A stored configuration that somebody changed may hold what cannot have been found in a file.
        dims = 1 if settings.cloud else len(settings.space)
        per_axis = [len(part) == dims for part in (settings.space, settings.axes, settings.extent, settings.periodic)]
        per_axis += [len(part) in (0, dims) for part in (settings.axis_units, settings.axis_first, settings.axis_last)]
        splits = [settings.split(name) for name in SPLITS]
        lengths = [*settings.space, *(one.trajectories for one in splits), *(one.steps for one in splits)]
        if not (1 <= dims <= 3 and all(per_axis) and settings.channels and min(lengths) >= 1 and settings.dt > 0):
            raise HeroError("data.fingerprint is set with values that no file has; leave it out.")
        return settings

    def found(self) -> Self:
        """The settings with everything that the file says."""
        recording = opened(self)
        axes, names = recording.axes, tuple(channel.name for channel in recording.channels)
        lengths = selection.each_axis("extent", self.extent, len(axes))
        ends = [(float(axis.coordinates[0]), float(axis.coordinates[-1])) for axis in axes]
        if lengths:  # from 0 on, in the direction of the file
            last = [
                selection.last_point(n, axis.points, bool(axis.periodic)) for n, axis in zip(lengths, axes, strict=True)
            ]
            ends = [(0.0, x) if low <= high else (x, 0.0) for x, (low, high) in zip(last, ends, strict=True)]
        parts = selection.divided(recording, self)
        sizes = {f"{name}_trajectories": len(parts[name]) for name in SPLITS}
        sizes |= {f"{name}_steps": parts[name][0].frames - 1 for name in SPLITS}
        return self.model_copy(
            update={
                "path": str(Path(self.path).resolve()),
                "format": recording.format,
                "fields": names,
                "channels": selection.renamed(self.channels, names),
                "units": tuple(channel.unit for channel in recording.channels),
                "time_unit": "" if self.dt else recording.time_unit,
                "axes": tuple(axis.name for axis in axes),
                "axis_units": tuple(axis.unit for axis in axes),
                "axis_first": tuple(first for first, _ in ends),
                "axis_last": tuple(last for _, last in ends),
                "space": recording.space,
                "extent": lengths or tuple(selection.length_of(axis.coordinates, bool(axis.periodic)) for axis in axes),
                "periodic": tuple(bool(axis.periodic) for axis in axes),
                "condition": selection.chosen_conditioning(recording, self.condition),
                "forcing": recording.series_names,
                "dt": self.dt or recording.dt,
                "cloud": recording.points is not None,
                "uneven": not all(is_even(np.diff(axis.coordinates)) for axis in axes),
                "masked": recording.mask is not None,
                "fingerprint": fingerprint(open_recording(Path(self.path), self.layout)),
                **sizes,
            }
        )

    def split(self, name: str) -> Split:
        """The size of the split `train`, `val` or `test`."""
        return Split(name, getattr(self, f"{name}_trajectories"), getattr(self, f"{name}_steps"), self.split_seed)

    def source(self) -> Source:
        """What is known of the data without opening the file."""
        stem = Path(self.path).stem
        return Source(
            name=re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")[:40] or "data",
            title=stem,
            dt=self.dt,
            space=self.space,
            extents=self.extent,
            periodic=self.periodic,
            channel_names=self.channels,
            units=self.units,
            conditioning=self.condition,
            forcing=self.forcing,
            axes=tuple(self._axis(i) for i in range(len(self.axes))),
            time_unit=self.time_unit,
            cloud=self.cloud,
            masked=self.masked,
            files=self,
        )

    def _axis(self, i: int) -> Axis:
        ends = 0.0, selection.last_point(self.extent[i], self.space[i], self.periodic[i])
        if self.axis_first and self.axis_last:  # earlier versions did not store them
            ends = self.axis_first[i], self.axis_last[i]
        x = np.linspace(*ends, self.space[i])
        x[1:-1] = np.nan if self.uneven else x[1:-1]
        return Axis(self.axes[i], x, self.periodic[i], self.axis_units[i] if self.axis_units else "")

    @property
    def recording(self) -> Recording:
        """What the settings choose of the file, which must be the one that the run was made with."""
        recording = opened(self)
        for path in recording.files:
            if not is_as_given(path):
                raise HeroError(f"{path} is damaged (its checksum differs); hand its arrays over again.")
        return recording

    def is_streamed(self, name: str) -> bool:
        """Whether a split stays in its file, because it is larger than data.memory."""
        split = self.split(name)
        size = 4 * split.trajectories * (split.steps + 1) * len(self.channels) * math.prod(self.space)
        return size > self.memory * 1e9

    def load(self, name: str) -> Trajectories:
        """The split `train`, `val` or `test`: in memory if it is small enough, else read as it is asked for."""
        recording = self.recording
        parts = selection.divided(recording, self)[name]
        trajectories = FileTrajectories(watched(recording), parts, self.condition)
        return trajectories if self.is_streamed(name) else trajectories.in_memory(f"reading {name}")


FOUND = flagged(FileSettings, "found")  # taken from the file again when others of a stored configuration change


def opened(settings: FileSettings) -> Recording:
    """What the settings choose of the recording that they name: tidied, and fit for training.

    HeroError if it is not, or has changed since the settings were found in it.
    """
    given = open_recording(Path(settings.path), settings.layout)
    recording = tidied(selection.resampled(given, settings.resample))
    for problem in unfit(recording, settings):
        raise problem
    if settings.fingerprint and fingerprint(given) != settings.fingerprint:
        raise HeroError(f"{settings.path} is not the file that this run was trained on; restore it, or train again.")
    return selection.selected(recording, settings)


def unfit(recording: Recording, settings: FileSettings) -> Iterator[UnfitError]:
    """Every reason to refuse what the settings choose of a tidy recording: training raises the first of them, and `hero
    doctor` shows them all.
    """
    chosen = selection.selected(recording, settings)
    yield from problems(chosen, settings)
    try:
        selection.divided(chosen, settings)
    except UnfitError as problem:
        yield problem


tidied = lru_cache(maxsize=2)(tidy)  # as training sees it; done once for each, since states are read for it


@lru_cache(maxsize=2)
def fingerprint(recording: Recording) -> str:
    """A hash of the sizes of the files and of their first and last MiB."""
    digest = hashlib.sha256()
    for path in filter(Path.is_file, recording.files):
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as file:
            digest.update(file.read(HASHED))
            if size > HASHED:
                file.seek(max(HASHED, size - HASHED))
                digest.update(file.read(HASHED))
    return digest.hexdigest()[:16]


def all_trajectories(path: Path, forcing: Sequence[str] = ()) -> Trajectories:
    """Every trajectory of a file with all of its channels, its conditioning and the named forcing, in memory."""
    recording = selection.selected(tidy(open_recording(path)), FileSettings(path=str(path), forcing=tuple(forcing)))
    frames = min(trajectory.frames for trajectory in recording.trajectories)
    parts = [selection.Part(i, 0, frames) for i in range(len(recording.trajectories))]
    return FileTrajectories(recording, parts, selection.chosen_conditioning(recording, ())).in_memory()
