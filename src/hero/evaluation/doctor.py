"""Whether somebody's trajectories are fit for training, and the command to type: `hero doctor FILE`.

See docs/howto/doctor.md.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from hero.data.checks import tidy
from hero.data.recording import Recording
from hero.errors import HeroError
from hero.evaluation.doctor_findings import UNROLL, Facts, Finding, findings, stride
from hero.evaluation.doctor_measures import (
    Growth,
    Spectrum,
    extent,
    measure_growth,
    measure_spectrum,
    spread,
)
from hero.evaluation.doctor_scan import Scan, scan
from hero.models import BACKBONES
from hero.records import Record

HARDLY = 1e-3
"""Rate per step below which states are said not to part: a thousand steps would make a factor of e."""
DRAWN = 200
"""Points of the curve of the energy."""


class ChannelFacts(Record):
    """A channel and its numbers over all that was read."""

    name: str
    unit: str
    low: float
    high: float
    mean: float
    std: float


class AxisFacts(Record):
    """An axis of space."""

    name: str
    unit: str
    points: int
    extent: float
    periodic: bool
    known: bool
    """Whether the file says so; else the states were looked at, and a note says what they show."""


class Range(Record):
    """A conditioning number over the trajectories."""

    name: str
    low: float
    high: float
    values: int
    """Different values."""


class Diagnosis(Record):
    """All that `hero doctor FILE` says."""

    source: str
    format: str
    files: int
    bytes: int
    trajectories: int
    frames: tuple[int, int]
    """Of the shortest and the longest trajectory."""
    space: tuple[int, ...]
    dt: float
    time_unit: str
    channels: tuple[ChannelFacts, ...]
    axes: tuple[AxisFacts, ...]
    scalars: tuple[Range, ...]
    fields: tuple[str, ...]
    splits: dict[str, int]
    notes: tuple[str, ...]
    read_share: float
    """Of the frames; below 1 the numbers come from an evenly spread sample."""
    energy_frames: tuple[int, ...]
    energy: tuple[float, ...]
    """Mean square of the states, mean over the trajectories."""
    spectrum: Spectrum | None
    change: float
    """Relative change per step."""
    growth: Growth | None
    """None: no states are near each other, and nothing is known."""
    findings: tuple[Finding, ...]
    settings: dict[str, str]
    backbone: str
    """Empty: the default."""
    backbone_why: str

    @property
    def problems(self) -> list[Finding]:
        """Findings that must be solved before training."""
        return [one for one in self.findings if one.mark == "problem"]

    @property
    def command(self) -> str:
        """To type next."""
        words = ["hero", "train", self.source, *(["--backbone", self.backbone] if self.backbone else [])]
        return shlex.join([*words, *(word for item in self.settings.items() for word in ("--set", "=".join(item)))])


def diagnose(recording: Recording, source: str, layout: str = "") -> Diagnosis:
    """Read a recording and answer every question; `source` and `layout` are named in the command."""
    if not recording.trajectories or not all(one.frames for one in recording.trajectories):
        raise HeroError(f"{source} has no trajectories, or one without frames; give a file with at least one.")
    given, mismatch = fitted(recording)
    recording = tidy(given)
    found = scan(recording)
    spectrum = measure_spectrum(recording, found)
    facts = Facts(given, recording, found, spectrum, measure_growth(found), mismatch)
    backbone, why = suggested_backbone(recording)
    frames = [one.frames for one in recording.trajectories]
    energy_frames, energy = energy_curve(found)
    return Diagnosis(
        source=source,
        format=recording.format,
        files=len(recording.files),
        bytes=sum(path.stat().st_size for path in recording.files if Path(path).is_file()),
        trajectories=len(frames),
        frames=(min(frames), max(frames)),
        space=recording.space,
        dt=recording.dt,
        time_unit=recording.time_unit,
        channels=channel_facts(recording, found),
        axes=axis_facts(given, recording),
        scalars=scalar_ranges(recording),
        fields=recording.field_names,
        splits=dict(Counter(one.split for one in recording.trajectories if one.split)),
        notes=recording.notes,
        read_share=found.frames_read / found.frames,
        energy_frames=energy_frames,
        energy=energy,
        spectrum=spectrum,
        change=facts.change,
        growth=facts.growth,
        findings=tuple(findings(facts)),
        settings=suggested_settings(facts, layout),
        backbone=backbone,
        backbone_why=why,
    )


def fitted(recording: Recording) -> tuple[Recording, str]:
    """The recording with as many coordinates as its states have points, and what did not fit, in words."""
    state = recording.trajectories[0].read(slice(0, 1), range(len(recording.channels)))
    space = state.shape[2:]
    if space == recording.space:
        return recording, ""
    if len(space) != len(recording.space) or state.shape[1] != len(recording.channels):
        raise HeroError(
            f"the first state has the shape {state.shape[1:]}, but the file announces {len(recording.channels)} "
            f"channels on a grid of {recording.space}; name the order of the axes with --layout."
        )
    names = [
        f"{axis.name} has {axis.points} coordinates for {points} points"
        + (" (off by one: edges of cells?)" if abs(axis.points - points) == 1 else "")
        for axis, points in zip(recording.axes, space, strict=True)
        if axis.points != points
    ]
    axes = tuple(
        axis if axis.points == points else replace(axis, coordinates=np.arange(float(points)))
        for axis, points in zip(recording.axes, space, strict=True)
    )
    return replace(recording, axes=axes), "; ".join(names)


def channel_facts(recording: Recording, found: Scan) -> tuple[ChannelFacts, ...]:
    """Each channel with its numbers."""
    return tuple(
        ChannelFacts(name=one.name, unit=one.unit, low=low, high=high, mean=mean, std=std)
        for one, low, high, mean, std in zip(
            recording.channels, *(x.tolist() for x in (found.low, found.high, found.mean, found.std)), strict=True
        )
    )


def axis_facts(given: Recording, recording: Recording) -> tuple[AxisFacts, ...]:
    """Each axis as training sees it; a point cloud is one axis, as long as its longest side."""
    if recording.points is not None:
        span, points = float(np.ptp(recording.points, axis=0).max()), len(recording.points)
        return (AxisFacts(name="point", unit="", points=points, extent=span, periodic=False, known=True),)
    return tuple(
        AxisFacts(
            name=axis.name,
            unit=axis.unit,
            points=axis.points,
            extent=extent(axis),
            periodic=bool(axis.periodic),
            known=before.periodic is not None,
        )
        for before, axis in zip(given.axes, recording.axes, strict=True)
    )


def scalar_ranges(recording: Recording) -> tuple[Range, ...]:
    """Each conditioning number."""
    values = {name: [one.scalars[name] for one in recording.trajectories] for name in recording.scalar_names}
    return tuple(Range(name=name, low=min(v), high=max(v), values=len(set(v))) for name, v in values.items())


def energy_curve(found: Scan) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Frames and mean energy at them, thinned; frames that were not read are left out."""
    energy = found.energy()
    finite = np.isfinite(energy)
    known = np.flatnonzero(finite.any(axis=0))
    kept = known[spread(len(known), DRAWN)] if len(known) else known
    mean = np.where(finite, energy, 0).sum(axis=0)[kept] / finite.sum(axis=0)[kept]
    return tuple(kept.tolist()), tuple(mean.tolist())


def suggested_settings(facts: Facts, layout: str) -> dict[str, str]:
    """Settings that the findings ask for, as they are typed."""
    settings = {"data.layout": layout} if layout else {}
    names = [one.name for one in facts.recording.channels]
    varied = [name for name, std in zip(names, facts.scan.std, strict=True) if std > 0]
    if 0 < len(varied) < len(names):
        settings["data.fields"] = ",".join(varied)
    every = stride(facts)
    if every > 1:
        settings["data.stride"] = str(every)
    if facts.mixed:
        settings["train.normalise"] = "true"
    if facts.shortest <= UNROLL:
        settings["train.unroll"] = str(max(1, facts.shortest - 1))
    return settings


def suggested_backbone(recording: Recording) -> tuple[str, str]:
    """A backbone for the geometry, empty for the default, and why."""
    if recording.points is not None:
        return "transolver", "points are scattered"
    walls = [axis.name for axis in recording.axes if not axis.periodic]
    if not walls:
        return "", "every axis is periodic"
    return (
        "unet" if "unet" in BACKBONES else "transolver",
        f"{', '.join(walls)} is not periodic, and Fourier modes would wrap around",
    )


def doubling_text(growth: Growth | None) -> str:
    """The predictability in one sentence."""
    if growth is None:
        return "no close pairs of states: the file does not tell how fast nearby states part"
    if growth.rate < HARDLY:
        return f"nearby states do not part (rate {growth.rate:.2g} per step, {growth.pairs} close pairs): predictable"
    return (
        f"nearby states part at {growth.rate:.2g} per step and double their distance in {growth.doubling:.3g} steps "
        f"({growth.pairs} close pairs)"
    )
