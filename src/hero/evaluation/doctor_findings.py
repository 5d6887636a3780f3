"""The findings of `hero doctor`: one function per question, each with its mark, a sentence and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hero.data.boundaries import is_even
from hero.data.recording import Recording
from hero.evaluation.doctor_measures import Growth, Spectrum
from hero.evaluation.doctor_scan import Scan, Shared, are_equal, shared_frames
from hero.records import Record

Mark = Literal["ok", "note", "problem"]

UNROLL = 5
"""Default of train.unroll."""
SHORTEST = 3
"""Frames from which on a trajectory has an input, a target and a step to unroll."""
STEADY = 1e-7
"""Relative change per step below which nothing moves, in float32."""
SMALL_STEP, WANTED_STEP, LARGE_STEP = 0.01, 0.05, 1.0
"""Relative change per step: below the first a stride towards the second helps, above the third frames are far."""
FEW = 10
MIXED = 10.0
"""Ratio between scales of channels, or of a mean to its std, from which on normalising helps."""
DECAY = 1e-4
UNRESOLVED = 0.01
"""Share of the power in the upper third of the wavenumbers; a shock on a fine grid has a fifth of it."""
JUMP = 10.0
"""Times the median change per step of its trajectory that one step alone may have."""


class Finding(Record):
    """A line of the diagnosis."""

    kind: str
    mark: Mark
    text: str
    advice: str = ""


@dataclass(frozen=True, eq=False)
class Facts:
    """All that the questions are answered from."""

    given: Recording
    """As its reader returns it."""
    recording: Recording
    """As training sees it."""
    scan: Scan
    spectrum: Spectrum | None
    growth: Growth | None
    mismatch: str
    """Where the coordinates do not fit the states, in words."""

    @property
    def mixed(self) -> bool:
        """Whether channels differ in scale, or lie far from zero."""
        scan, varied = self.scan, self.scan.std > 0
        size = np.hypot(scan.mean, scan.std)[varied]
        offset = np.abs(scan.mean[varied]) > MIXED * scan.std[varied]
        return bool(size.size and (size.max() > MIXED * size.min() or offset.any()))

    @property
    def change(self) -> float:
        """Mean relative change per step, median over trajectories; 0 where nothing is known."""
        means = [np.mean(finite) for one in self.scan.changes(self.mixed) if (finite := one[np.isfinite(one)]).size]
        return float(np.median(means)) if means else 0.0

    @property
    def shortest(self) -> int:
        """Frames of the shortest trajectory."""
        return min(one.frames for one in self.recording.trajectories)


def stride(facts: Facts) -> int:
    """Every how many frames are suggested; at least 20 frames, and some windows, remain."""
    if not 0 < facts.change < SMALL_STEP:
        return 1
    return max(1, min(int(WANTED_STEP / facts.change), (facts.shortest - 1) // max(20, 4 * UNROLL)))


def finite(facts: Facts) -> Iterator[Finding]:
    bad, scan = facts.scan.bad, facts.scan
    if not bad:
        yield Finding(kind="finite", mark="ok", text="no NaN or infinity")
        return
    trajectory, frame, channel = bad[0]
    name = facts.recording.channels[channel].name
    yield Finding(
        kind="finite",
        mark="problem",
        text=f"NaN or infinity in {_count(scan.bad_frames, 'frame')}, first in trajectory {trajectory}, frame {frame}, "
        f"channel {name}",
        advice="fill or cut these values in the file, or leave the trajectories out",
    )


def constant_channels(facts: Facts) -> Iterator[Finding]:
    names = [channel.name for channel in facts.recording.channels]
    still = [name for name, std in zip(names, facts.scan.std, strict=True) if std == 0]
    if not still:
        yield Finding(kind="constant channel", mark="ok", text="every channel varies")
    elif len(still) == len(names):
        yield Finding(
            kind="constant channel",
            mark="problem",
            text="every channel is constant",
            advice="check the fields of the file",
        )
    else:
        yield Finding(
            kind="constant channel",
            mark="note",
            text=f"constant: {', '.join(still)}",
            advice="leave it out with data.fields",
        )


def steady(facts: Facts) -> Iterator[Finding]:
    still = [
        i
        for i, one in enumerate(facts.scan.changes(False))
        if one.size and np.max(one[np.isfinite(one)], initial=0) < STEADY
    ]
    if not still:
        yield Finding(kind="steady", mark="ok", text="every trajectory changes in time")
        return
    many = 2 * len(still) > len(facts.scan.trajectories)
    yield Finding(
        kind="steady",
        mark="problem" if many else "note",
        text=f"{_count(len(still), 'trajectory', 'trajectories')} of {len(facts.scan.trajectories)} steady in time "
        f"({_numbers(still)})",
        advice="an operator for time steps needs trajectories that move" if many else "leave them out of the file",
    )


def duplicates(facts: Facts) -> Iterator[Finding]:
    """Equal trajectories, and trajectories of different splits that share frames."""
    recording, scan = facts.recording, facts.scan
    splits = [one.split for one in recording.trajectories]
    named = len(set(splits)) > 1
    same: list[Shared] = []
    overlapping: list[Shared] = []
    starts: list[Shared] = []
    for shared in shared_frames(recording, scan):
        aligned = all(a == b for a, b in shared.pairs)
        if aligned and (0, 0) in shared.pairs and are_equal(recording, shared.first, shared.second):
            same.append(shared)
        else:
            (starts if shared.only_starts else overlapping).append(shared)
    leaks = [pair for pair in same + overlapping if splits[pair.first] != splits[pair.second]]
    if leaks:
        one = leaks[0]
        a, b = one.pairs[0]
        how = "is" if one in same else f"shares {_count(len(one.pairs), 'frame')} with"
        yield Finding(
            kind="leakage",
            mark="problem",
            text=f"{_trajectories(leaks)} in two splits: {one.second} ({splits[one.second]}) {how} {one.first} "
            f"({splits[one.first]}), whose frame {a} is its frame {b}",
            advice="split by trajectory, so that no state of val or test is in train",
        )
    elif named:
        yield Finding(kind="leakage", mark="ok", text="no state is in two splits")
    copies = [pair for pair in same if pair not in leaks]
    if copies:
        yield Finding(
            kind="duplicates",
            mark="note" if named else "problem",
            text=f"{_trajectories(copies)} twice in the file: {copies[0].second} is {copies[0].first}",
            advice="remove the copies" + ("" if named else ": one may fall into train, the other into test"),
        )
    else:
        yield Finding(kind="duplicates", mark="ok", text="no trajectory is there twice")
    rest = [pair for pair in overlapping if pair not in leaks]
    if rest:
        yield Finding(
            kind="overlap",
            mark="note",
            text=f"{_count(len(rest), 'pair')} of trajectories of one split share frames, such as {rest[0].first} and "
            f"{rest[0].second}",
            advice="" if named else "keep overlapping trajectories in one split",
        )
    crossing = [pair for pair in starts if splits[pair.first] != splits[pair.second]]
    if crossing:
        yield Finding(
            kind="overlap",
            mark="note",
            text=f"{_count(len(crossing), 'pair')} of trajectories of two splits start from one state and differ later",
            advice="fine where only their parameters are to be new",
        )


def coordinates(facts: Facts) -> Iterator[Finding]:
    axes = facts.recording.axes if facts.recording.points is None else ()
    uneven = [axis.name for axis in axes if not is_even(np.diff(axis.coordinates))]
    if facts.mismatch:
        yield Finding(
            kind="coordinates", mark="problem", text=facts.mismatch, advice="correct the coordinates in the file"
        )
    elif uneven:
        yield Finding(
            kind="coordinates",
            mark="note",
            text=f"the grid is not uniform along {', '.join(uneven)}",
            advice="a backbone sees grid points as equally spaced: resample, or use a point cloud",
        )
    else:
        yield Finding(kind="coordinates", mark="ok", text="coordinates fit the states")


def end_points(facts: Facts) -> Iterator[Finding]:
    if facts.recording.points is not None:
        return
    both = zip(facts.given.axes, facts.recording.axes, strict=True)
    doubled = [axis.name for axis, left in both if left.points < axis.points]
    if doubled:
        yield Finding(
            kind="end points",
            mark="note",
            text=f"the last point repeats the first along {', '.join(doubled)}",
            advice="nothing to do: the last point is left out",
        )
    else:
        yield Finding(kind="end points", mark="ok", text="no end point is doubled")


def time_steps(facts: Facts) -> Iterator[Finding]:
    """A reader hands over one dt; a step that is much larger than its neighbours betrays missing frames."""
    for i, one in enumerate(facts.scan.changes(facts.mixed)):
        known = one[np.isfinite(one) & (one > STEADY)]
        if known.size < 8:
            continue
        large = np.flatnonzero(one > JUMP * np.median(known))
        lone = [int(n) for n in large if not {n - 1, n + 1} & set(large.tolist()) and 0 < n < len(one) - 1]
        if lone:
            yield Finding(
                kind="time step",
                mark="note",
                text=f"trajectory {i} jumps at frame {lone[0] + 1}: {one[lone[0]] / np.median(known):.0f} times the "
                "median change per step",
                advice="look for missing frames or a time step that is not uniform",
            )
            return
    yield Finding(kind="time step", mark="ok", text="no jump between frames")


def length(facts: Facts) -> Iterator[Finding]:
    short, longest = facts.shortest, max(one.frames for one in facts.given.trajectories)
    if short < SHORTEST:
        yield Finding(
            kind="length",
            mark="problem",
            text=f"a trajectory has {_count(short, 'frame')}",
            advice=f"give trajectories of {SHORTEST} frames or more",
        )
    elif short <= UNROLL:
        yield Finding(
            kind="length",
            mark="note",
            text=f"the shortest trajectory has {short} frames, too few for train.unroll={UNROLL}",
            advice=f"set train.unroll={short - 1}",
        )
    elif longest > short:
        yield Finding(
            kind="length",
            mark="note",
            text=f"trajectories have {short} to {longest} frames, and all are cut to the shortest",
            advice="leave short trajectories out to keep the others whole",
        )
    else:
        yield Finding(kind="length", mark="ok", text=f"{short} frames or more per trajectory")


def scales(facts: Facts) -> Iterator[Finding]:
    if facts.mixed:
        yield Finding(
            kind="scales",
            mark="note",
            text="channels differ in scale, or lie far from zero",
            advice="set train.normalise=true",
        )
    else:
        yield Finding(kind="scales", mark="ok", text="channels have similar scales")


def decay(facts: Facts) -> Iterator[Finding]:
    energy = facts.scan.energy()
    ratios = []
    for row in energy:
        known = row[np.isfinite(row)]
        if known.size > 1 and known[0] > 0:
            ratios.append(known[-1] / known[0])
    ratio = float(np.median(ratios)) if ratios else 1.0
    if ratio < DECAY:
        yield Finding(
            kind="decay",
            mark="note",
            text=f"the energy decays to {ratio:.1e} of its start",
            advice="keep train.loss=relative, which weighs late states as early ones; mse would not see them",
        )
    elif ratio > 1 / DECAY:
        yield Finding(
            kind="decay",
            mark="note",
            text=f"the energy grows to {ratio:.1e} of its start",
            advice="check the simulation; keep train.loss=relative",
        )
    else:
        yield Finding(kind="decay", mark="ok", text=f"the energy ends at {ratio:.2g} of its start")


def enough(facts: Facts) -> Iterator[Finding]:
    count = len(facts.recording.trajectories)
    if count == 1:
        yield Finding(
            kind="trajectories",
            mark="note",
            text="one trajectory",
            advice="it is split in time: test states then continue the training states",
        )
    elif count < FEW:
        yield Finding(
            kind="trajectories",
            mark="note",
            text=f"only {count} trajectories",
            advice="expect overfitting; a smaller backbone or more trajectories help",
        )
    else:
        yield Finding(kind="trajectories", mark="ok", text=f"{count} trajectories")


def resolution(facts: Facts) -> Iterator[Finding]:
    spectrum = facts.spectrum
    if spectrum is None:
        return
    text = (
        f"{percent(spectrum.upper_share)} of the power of {spectrum.channel} in the upper third of the wavenumbers, "
        f"the spectrum falls by {min(spectrum.decades, 12):.1f} decades{' or more' * (spectrum.decades > 12)}"
    )
    if spectrum.upper_share > UNRESOLVED:
        yield Finding(
            kind="resolution",
            mark="note",
            text=f"under-resolved: {text}",
            advice="a finer simulation would differ; expect errors at small scales, and keep many backbone.modes",
        )
    else:
        yield Finding(kind="resolution", mark="ok", text=f"resolved: {text}")


def step_size(facts: Facts) -> Iterator[Finding]:
    change = facts.change
    text = f"a state changes by {100 * change:.2g} % per step"
    if change == 0:
        return
    if change < SMALL_STEP:
        every = stride(facts)
        advice = f"set data.stride={every}" if every > 1 else "fewer output frames would do, but there are few"
        yield Finding(kind="step size", mark="note", text=f"{text}: little to learn from a step", advice=advice)
    elif change > LARGE_STEP:
        yield Finding(
            kind="step size",
            mark="note",
            text=f"{text}: frames are far apart",
            advice="store frames more often, or expect an operator that is hard to learn",
        )
    else:
        yield Finding(kind="step size", mark="ok", text=text)


QUESTIONS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    finite,
    coordinates,
    end_points,
    length,
    steady,
    duplicates,
    constant_channels,
    scales,
    time_steps,
    step_size,
    decay,
    resolution,
    enough,
)


def findings(facts: Facts) -> list[Finding]:
    """Every answer, problems first, then notes."""
    order = {"problem": 0, "note": 1, "ok": 2}
    return sorted((found for ask in QUESTIONS for found in ask(facts)), key=lambda one: order[one.mark])


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share that is small beyond interest is not spelled out."""
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.2g} %"


def _trajectories(pairs: Sequence[Shared]) -> str:
    return _count(len({pair.second for pair in pairs}), "trajectory", "trajectories")


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", .." if len(values) > 5 else "")
