"""Whether somebody's trajectories are fit for training, and the command to type: `hero doctor FILE`.

See docs/howto/doctor.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from hero.analysis.findings import Examined, Finding, findings, train_command
from hero.analysis.scan import Scan, Spectrum, finite_mean, measure_spectrum, read_block, scan
from hero.config import parse_override
from hero.config.settings import words
from hero.data.files.checks import not_finite, spread
from hero.data.files.recording import Axis, Recording
from hero.data.files.selection import divided, length_of, selected
from hero.data.files.settings import FileSettings, tidied, unfit
from hero.errors import HeroError
from hero.method.domain import geometry_on
from hero.method.measures import HORIZON
from hero.method.norm import Norm
from hero.method.rollout_errors import baseline_errors
from hero.parts import RECOMMENDED
from hero.records import Record
from hero.runs.config import make_config

DRAWN = 200  # points of the curve of the energy
ROLLOUT_VALUES = 2**25  # numbers of test rollouts from which baselines are measured, if one rollout is not more


class ChannelFacts(Record):
    """A channel and its numbers over the valid points of all that was read."""

    name: str
    unit: str
    low: float
    high: float
    mean: float
    std: float
    masked: int  # points without a value


class AxisFacts(Record):
    """An axis of space."""

    name: str
    unit: str
    points: int
    extent: float
    periodic: bool
    known: bool  # whether the file says so; else the states were looked at, and a note says what they show


class ScalarRange(Record):
    """A conditioning number over the trajectories."""

    name: str
    low: float
    high: float
    values: int  # different values


class Baselines(Record):
    """VRMSE of doing nothing on test rollouts, at the steps `steps`: what an operator has to beat."""

    steps: tuple[int, ...]
    persistence: tuple[float, ...]  # the first state stays
    mean: tuple[float, ...]  # the mean state of the training data


class Diagnosis(Record):
    """All that `hero doctor FILE` says."""

    version: ClassVar[int] = 4
    source: str
    format: str
    files: int
    bytes: int
    trajectories: int
    frames: tuple[int, int]  # frames of the shortest and the longest trajectory
    space: tuple[int, ...]
    dt: float
    time_unit: str
    channels: tuple[ChannelFacts, ...]
    axes: tuple[AxisFacts, ...]
    scalars: tuple[ScalarRange, ...]
    fields: tuple[str, ...]
    splits: dict[str, int]
    notes: tuple[str, ...]
    read_share: float  # share of the frames that was read; below 1 the numbers come from an evenly spread sample
    energy_frames: tuple[int, ...]
    energy: tuple[float, ...]  # mean square about the mean of each channel in its stds, averaged over the trajectories
    spectrum: Spectrum | None
    change: float  # RMSE of keeping a state for one step, in stds of the channels
    baselines: Baselines | None  # None where training refuses the file
    findings: tuple[Finding, ...]
    settings: dict[str, str]  # settings of the command to type

    @property
    def problems(self) -> list[Finding]:
        """Findings that must be solved before training."""
        return [one for one in self.findings if one.mark == "problem"]

    @property
    def command(self) -> str:
        return train_command(self.source, self.settings)


def diagnose(recording: Recording, source: str, layout: str = "") -> Diagnosis:
    """Read a recording and answer every question; `source` and `layout` are named in the command."""
    plain, given = FileSettings(path=source, layout=layout), recording.axes
    facts = examined(tidied(recording), plain)
    recording, found = facts.recording, facts.scan
    settings = {**facts.layout, **facts.fields, **facts.stride}
    answers, baselines = findings(facts), None
    if not facts.unfit:
        fields, stride = words(facts.fields.get("data.fields", "")), int(facts.stride.get("data.stride", 1))
        baselines = measure_baselines(recording, found, plain.model_copy(update={"fields": fields, "stride": stride}))
        answers = [*refused_settings(source, settings), *answers]
    frames = [one.frames for one in recording.trajectories]
    energy = finite_mean(found.energy(), 0)
    known = np.flatnonzero(np.isfinite(energy))  # frames that were not read are left out
    drawn = known[spread(len(known), DRAWN)] if len(known) else known
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
        read_share=found.frames_read / sum(frames),
        energy_frames=tuple(drawn.tolist()),
        energy=tuple(energy[drawn].tolist()),
        spectrum=facts.spectrum,
        change=facts.change,
        baselines=baselines,
        findings=tuple(answers),
        settings=settings,
    )


def examined(recording: Recording, settings: FileSettings) -> Examined:
    """Whether training refuses the recording, its numbers and its spectrum."""
    refused = list(unfit(recording, settings))
    training = {} if refused else {one.trajectory: one for one in divided(recording, settings)["train"]}
    found = scan(recording, {i: range(one.first, one.first + one.frames) for i, one in training.items()})
    if found.bad and not any(one.kind in ("finite", "mask") for one in refused):  # beyond the states that were sampled
        refused.append(not_finite(recording, *found.bad[0]))
    layout = {"data.layout": settings.layout} if settings.layout else {}
    return Examined(settings.path, layout, recording, refused, found, measure_spectrum(recording, found))


def refused_settings(source: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """What training refuses of the command to type, be it for the network or the protocol."""
    typed = dict(parse_override("=".join(item)) for item in settings.items())
    try:
        if Path(source).exists():
            make_config(RECOMMENDED, overrides={"data.path": source, **typed})
    except HeroError as error:
        yield Finding(kind="settings", mark="problem", text=str(error))


def channel_facts(recording: Recording, found: Scan) -> tuple[ChannelFacts, ...]:
    channels, mask = recording.channels, recording.mask
    masked = np.zeros(len(channels), int) if mask is None else (~mask.reshape(len(channels), -1)).sum(axis=1)
    columns = (found.low, found.high, found.mean, found.std, masked)
    return tuple(
        ChannelFacts(name=one.name, unit=one.unit, low=low, high=high, mean=mean, std=std, masked=points)
        for one, low, high, mean, std, points in zip(channels, *(x.tolist() for x in columns), strict=True)
    )


def axis_facts(given: Sequence[Axis], recording: Recording) -> tuple[AxisFacts, ...]:
    """Each axis as training sees it; a point cloud is one axis, as long as its longest side."""
    if recording.points is not None:
        span, points = float(np.ptp(recording.points, axis=0).max()), len(recording.points)
        return (AxisFacts(name="point", unit="", points=points, extent=span, periodic=False, known=True),)
    return tuple(
        AxisFacts(
            name=axis.name,
            unit=axis.unit,
            points=axis.points,
            extent=length_of(axis.coordinates, True),
            periodic=bool(axis.periodic),
            known=before.periodic is not None,
        )
        for before, axis in zip(given, recording.axes, strict=True)
    )


def scalar_ranges(recording: Recording) -> tuple[ScalarRange, ...]:
    values = {name: [one.scalars[name] for one in recording.trajectories] for name in recording.scalar_names}
    return tuple(ScalarRange(name=name, low=min(v), high=max(v), values=len(set(v))) for name, v in values.items())


def measure_baselines(recording: Recording, found: Scan, settings: FileSettings) -> Baselines | None:
    """VRMSE of keeping the first state and of the mean state, averaged over test rollouts; None without training data.

    It is measured as training does, with its norm, on evenly spread rollouts.
    """
    if found.mean_state is None:
        return None
    chosen = selected(recording, settings)
    parts = divided(chosen, settings)["test"]
    steps = sorted({1, min(HORIZON, parts[0].frames - 1)})
    values = math.prod(recording.space) * len(chosen.channels) * (1 + len(steps))
    rollouts = [parts[j] for j in spread(len(parts), max(1, ROLLOUT_VALUES // values))]
    blocks = [[(one.trajectory, one.first + n, one.first + n + 1) for n in (0, *steps)] for one in rollouts]
    states = np.stack([np.concatenate([read_block(chosen, block) for block in some]) for some in blocks])
    norm = Norm(geometry_on(recording.axes, recording.points, recording.weights).weights, by_channel=True)
    mean_state = found.mean_state.reshape(-1, *recording.space)
    arrays = {"mean": found.mean, "std": found.std, "mean_state": mean_state}
    arrays |= {} if recording.mask is None else {"mask": recording.mask}
    kept = [c for c, channel in enumerate(recording.channels) if channel in chosen.channels]
    norm.load({name: values[kept] for name, values in arrays.items()})
    errors = baseline_errors(torch.from_numpy(states.astype(np.float32)), len(steps), 1, norm)
    curves = {name: tuple(one["vrmse"].mean(dim=0).tolist()) for name, one in errors.items()}
    return Baselines(steps=tuple(steps), **curves)
