"""What settings choose of a recording: channels, conditioning, forcing, states, the part of each axis; and which states
of which trajectories are trained on, validated on and tested on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hero.data.files.checks import SPLIT_FRAMES, UnfitError, dt_at, too_short
from hero.data.files.recording import UNNAMED, Axis, Recording, Series, Trajectory, cut, in_time, strided
from hero.data.tasks.store import SCORED, SPLITS
from hero.errors import HeroError, unknown_name

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings

LONGEST_ROLLOUT = 200  # steps of validation and test rollouts unless set; longer trajectories give several of them


def selected(recording: Recording, settings: FileSettings) -> Recording:
    """The recording with the channels, states and grid points that settings choose, and the forcing as its series."""
    names, axes = [channel.name for channel in recording.channels], recording.axes
    forcing = tuple(_named("forcing", settings.forcing, [*names, *recording.series_names], recording))
    fields = _named("field", settings.fields, names, recording) or [name for name in names if name not in forcing]
    if not fields:
        raise HeroError(f"data.forcing={','.join(settings.forcing)} leaves no channel to predict; name fewer.")
    if both := [name for name in fields if name in forcing]:
        raise HeroError(f"{both[0]} is in data.fields and in data.forcing; it is either predicted or known.")
    texts = each_axis("crop", settings.crop, len(axes)) or (":",) * len(axes)
    cuts = tuple((*_bounds(text, axis), settings.coarsen) for text, axis in zip(texts, axes, strict=True))
    whole = [cut[:2] == (0, axis.points) for cut, axis in zip(cuts, axes, strict=True)]
    given = each_axis("periodic", settings.periodic, len(axes))
    periodic = given or tuple(bool(axis.periodic) and all_ for axis, all_ in zip(axes, whole, strict=True))
    return _selected(recording, tuple(names.index(name) for name in fields), forcing, settings.stride, cuts, periodic)


def _bounds(text: str, axis: Axis) -> tuple[int, int]:
    bounds = re.fullmatch(r"(\d*):(\d*)", text)
    start, stop = (int(bounds[1] or 0), int(bounds[2] or axis.points)) if bounds else (0, 0)
    if not 0 <= start < stop <= axis.points:
        raise HeroError(f"data.crop={text!r} is no part of {axis.name} with {axis.points} points; write START:STOP.")
    return start, stop


@lru_cache(maxsize=8)
def _selected(
    recording: Recording,
    channels: tuple[int, ...],
    forcing: tuple[str, ...],
    stride: int,
    cuts: tuple[tuple[int, int, int], ...],
    periodic: tuple[bool, ...],
) -> Recording:
    """The same object for the same choices, since whether it is fit is looked for once for each."""
    names = [channel.name for channel in recording.channels]
    part = cut(recording, [slice(*bounds) for bounds in cuts], periodic)
    mask = None if part.mask is None else part.mask[list(channels)]
    positions = () if part.points is None else tuple(part.points.T)

    def chosen(one: Trajectory) -> Trajectory:
        def channel(c: int, frames: slice) -> np.ndarray:
            return one.read(frames, [c])[:, 0]

        series = {n: one.series.get(n) or partial(channel, names.index(n)) for n in forcing}
        found = strided(replace(one, series=series), stride)

        def read(frames: slice, wanted: Sequence[int]) -> np.ndarray:
            return found.read(frames, [channels[c] for c in wanted])

        def fields() -> np.ndarray:
            """A network knows of scattered points by their values alone, so their positions condition it."""
            return np.stack([*(() if found.fields is None else found.fields()), *positions])

        return replace(found, read=read, fields=fields if positions else found.fields)

    return replace(
        part,
        channels=tuple(recording.channels[c] for c in channels),
        dt=dt_at(recording, stride),
        times=tuple(times[..., ::stride] for times in recording.times),
        trajectories=[chosen(one) for one in part.trajectories],
        field_names=(*recording.field_names, *"xyz"[: len(positions)]),
        mask=None if mask is None or mask.all() else mask,
    )


@lru_cache(maxsize=2)
def resampled(recording: Recording, dt: float) -> Recording:
    """States at steps of `dt` from the first frame of each trajectory on, linear between the frames of the file, whose
    times may be uneven; the recording itself where dt is 0.
    """
    if not dt:
        return recording
    clocks = [row for times in recording.times for row in np.atleast_2d(times)]
    clocks = clocks * len(recording.trajectories) if len(clocks) == 1 else clocks
    lengths = [one.frames for one in recording.trajectories]
    if [len(clock) for clock in clocks] != lengths or any((np.diff(clock) <= 0).any() for clock in clocks):
        raise HeroError(f"{recording.files[0]} has no increasing times, so data.resample does not apply; leave it out.")
    runs = []
    for one, clock in zip(recording.trajectories, clocks, strict=True):
        frames = int((clock[-1] - clock[0]) / dt + 1e-6) + 1
        runs.append(in_time(one, frames, partial(_between, clock, clock[0] + dt * np.arange(frames))))
    times = tuple(dt * np.arange(run.frames) for run in runs)
    note = f"States are linear between the frames of the file, at steps of {dt:g}."
    return replace(recording, trajectories=runs, dt=dt, times=times, notes=(*recording.notes, note))


def _between(clock: np.ndarray, times: np.ndarray, read: Series, wanted: slice) -> np.ndarray:
    """u(t) = (1 - w) u_n + w u_{n+1} with w = (t - t_n) / (t_{n+1} - t_n)."""
    t = times[wanted]
    if not len(t):
        return read(slice(0, 0))
    n = np.clip(np.searchsorted(clock, t, side="right") - 1, 0, len(clock) - 2)
    block = read(slice(int(n.min()), int(n.max()) + 2))
    w = ((t - clock[n]) / (clock[n + 1] - clock[n])).clip(0, 1).reshape(-1, *(1,) * (block.ndim - 1))
    return (1 - w) * block[n - n.min()] + w * block[n + 1 - n.min()]


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


@dataclass(frozen=True)
class Part:
    """Consecutive states of one trajectory."""

    trajectory: int
    first: int
    frames: int


def divided(recording: Recording, settings: FileSettings) -> dict[str, list[Part]]:
    """The parts of each split: the file's own splits where it has them, whole trajectories by share otherwise.

    Fewer than three trajectories are split in time. Validation and test trajectories are cut into rollouts.
    """
    for problem in too_short(recording, settings.stride):
        raise problem
    if settings.train_share + settings.val_share >= 1:
        raise HeroError("data.train_share and data.val_share leave nothing for the test set; lower one.")
    whole = whole_parts(recording, settings)
    if settings.train_trajectories:
        whole["train"] = whole["train"][: settings.train_trajectories]
    shortest = min(part.frames for name in SCORED for part in whole[name]) - 1
    steps = settings.rollout or settings.test_steps or min(shortest, LONGEST_ROLLOUT)
    if steps > shortest:
        raise HeroError(f"data.rollout={steps} is longer than the {shortest} steps that there are; lower it.")
    return whole | {name: list(rollouts(whole[name], steps)) for name in SCORED}


def whole_parts(recording: Recording, settings: FileSettings) -> dict[str, list[Part]]:
    """The trajectories, or parts in time, of each split."""
    labels, lengths = zip(*((one.split, one.frames) for one in recording.trajectories), strict=True)
    count, frames = len(labels), min(lengths)
    if count < 3 and not {"train", "test"} <= set(labels):
        cuts = [0, round(frames * settings.train_share)]
        cuts += [cuts[1] + round(frames * settings.val_share), frames]
        if min(np.diff(cuts)) < 2:
            runs = "trajectory" if count == 1 else "trajectories"
            states = f"{count} {runs} of {frames} states, too few to split in time"
            longer = "lower data.stride" if settings.stride > 1 else "name a file with more"
            remedy = f"at least {SPLIT_FRAMES} states or 3 trajectories are needed, so {longer}"
            raise UnfitError("split", settings.path, states, remedy)
        bounds = zip(SPLITS, cuts[:-1], cuts[1:], strict=True)
        return {name: [Part(i, a, b - a) for i in range(count)] for name, a, b in bounds}
    order = np.random.default_rng(settings.split_seed).permutation(count)
    groups: dict[str, list[int]] = {name: [i for i in range(count) if labels[i] == name] for name in SPLITS}
    if not groups["train"]:
        groups["train"] = [int(i) for i in order if labels[i] not in SPLITS]
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
    shortest = {name: min(lengths[i] for i in groups[name]) for name in SPLITS}
    return {name: [Part(i, 0, shortest[name]) for i in groups[name]] for name in SPLITS}


def rollouts(parts: Sequence[Part], steps: int) -> Iterator[Part]:
    """Each part cut into stretches of `steps` steps; the last state of one is the first of the next."""
    for part in parts:
        for start in range(0, part.frames - steps, steps):
            yield Part(part.trajectory, part.first + start, steps + 1)
