"""The findings of `hero doctor`: one function per question, each with its mark, a sentence and a remedy.

Problems are the reasons for which training refuses a file, and come from `hero.data.files.checks` alone; the questions
here add what a file that trains could do better.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np

from hero.analysis.measures import Spectrum
from hero.analysis.scan import Scan, Shared, are_equal, shared_frames
from hero.data.files.boundaries import is_even
from hero.data.files.checks import UnfitError
from hero.data.files.recording import Recording
from hero.records import Record

Mark = Literal["ok", "note", "warning", "problem"]

STEADY = 1e-7
"""Change per step in stds below which nothing moves, in float32."""
SMALL_STEP, WANTED_STEP, LARGE_STEP = 0.01, 0.05, 1.0
"""Change per step in stds: below the first a stride towards the second helps, above the third frames are far."""
KEPT_FRAMES, SPLIT_IN_TIME = 20, 5
"""Frames of a trajectory that a suggested stride leaves; times as many where its last tenth is the test set."""
FEW = 10
MIXED = 10.0
"""Ratio between scales of channels, or of a mean to its std, that is worth a word."""
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


def _finding(mark: Mark, kind: str, text: str, advice: str = "") -> Finding:
    return Finding(kind=kind, mark=mark, text=text, advice=advice)


ok, note, warning, problem = (partial(_finding, mark) for mark in ("ok", "note", "warning", "problem"))


def train_command(source: str, settings: Mapping[str, str]) -> str:
    """`hero train` with settings, as it is typed."""
    options = [word for item in settings.items() for word in ("--set", "=".join(item))]
    return shlex.join(["hero", "train", source, *options])


@dataclass(frozen=True, eq=False)
class Examined:
    """All that the questions are answered from."""

    source: str
    layout: str
    given: Recording
    """As its reader returns it."""
    recording: Recording
    """As training sees it."""
    unfit: Sequence[UnfitError]
    """Why training refuses it."""
    scan: Scan
    spectrum: Spectrum | None

    def typed(self, settings: Mapping[str, str]) -> str:
        """The command that trains with these settings."""
        return train_command(self.source, ({"data.layout": self.layout} if self.layout else {}) | dict(settings))

    @cached_property
    def change(self) -> float:
        """RMSE of keeping a state for one step in stds: mean over time, median over trajectories; 0 if unknown."""
        means = [np.mean(finite) for one in self.scan.changes() if (finite := one[np.isfinite(one)]).size]
        return float(np.median(means)) if means else 0.0

    @property
    def constant(self) -> list[int]:
        """Channels that do not vary, if others do."""
        varied, known = self.scan.varied, np.flatnonzero(np.isfinite(self.scan.std))
        return [c for c in known.tolist() if c not in varied] if len(varied) else []

    @property
    def fields(self) -> dict[str, str]:
        """The setting that leaves constant channels out."""
        kept = [one.name for c, one in enumerate(self.recording.channels) if c not in self.constant]
        return {"data.fields": ",".join(kept)} if self.constant and not self.unfit else {}

    @property
    def stride(self) -> dict[str, str]:
        """The setting that makes small steps larger.

        The stride s is as large as the change per step allows, s ‖Δu‖/σ ≤ 5 %, as long as waves turn by less than one
        radian in a step, s ω ≤ 1, and enough frames remain.
        """
        if not 0 < self.change < SMALL_STEP or self.unfit:
            return {}
        frames, turn = [one.frames for one in self.recording.trajectories], self.scan.frequency()
        kept = KEPT_FRAMES if len(frames) > 2 else SPLIT_IN_TIME * KEPT_FRAMES
        every = min(WANTED_STEP / self.change, (min(frames) - 1) / kept, 1 / turn if turn > 0 else np.inf)
        return {"data.stride": str(int(every))} if every >= 2 else {}


def unfit(facts: Examined) -> Iterator[Finding]:
    """The reasons for which training refuses the file; a command that solves all of them, where settings can."""
    reasons = [one for n, one in enumerate(facts.unfit) if one.kind not in {other.kind for other in facts.unfit[:n]}]
    settings = {name: value for one in reasons for name, value in one.settings.items()}
    command = f": {facts.typed(settings)}" if all(one.settings for one in reasons) else ""
    for one in reasons:
        more = facts.scan.bad_frames if one.kind in ("finite", "mask") else 0
        text = one.text + (f" ({_count(more, 'frame')} in all)" if more else "")
        typed = ", ".join("=".join(item) for item in one.settings.items())
        yield problem(one.kind, text, one.remedy + (command or (typed and f" ({typed})")))


def finite(facts: Examined) -> Iterator[Finding]:
    masked = facts.recording.mask is not None
    yield ok("finite", f"no NaN or infinity{' outside of the mask' if masked else ''}")


def constant_channels(facts: Examined) -> Iterator[Finding]:
    if facts.constant:
        names = ", ".join(facts.recording.channels[c].name for c in facts.constant)
        command = f": {facts.typed(facts.fields)}" if facts.fields else ""
        yield note("constant channel", f"constant: {names}", f"leave it out{command}")
    elif len(facts.scan.varied):
        yield ok("constant channel", "every channel varies")


def steady(facts: Examined) -> Iterator[Finding]:
    changes = facts.scan.changes()
    still = [i for i, one in enumerate(changes) if one.size and np.max(one[np.isfinite(one)], initial=0) < STEADY]
    if still:
        text = (
            f"{_count(len(still), 'trajectory', 'trajectories')} of {len(changes)} steady in time ({_numbers(still)})"
        )
        mark = warning if 2 * len(still) > len(changes) else note
        yield mark("steady", text, "leave them out of the file: an operator learns nothing from them")
    else:
        yield ok("steady", "every trajectory changes in time")


def duplicates(facts: Examined) -> Iterator[Finding]:
    """Equal trajectories, and trajectories of different splits that share frames."""
    recording, scan = facts.recording, facts.scan
    splits = [one.split for one in recording.trajectories]
    named = any(splits)
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
        yield warning(
            "leakage",
            f"{_trajectories(leaks)} in two splits: {one.second} ({splits[one.second]}) {how} {one.first} "
            f"({splits[one.first]}), whose frame {a} is its frame {b}",
            "split by trajectory: errors on states that were trained on are no test",
        )
    elif named:
        yield ok("leakage", "no state is in two splits")
    copies = [pair for pair in same if pair not in leaks]
    if copies:
        text = f"{_trajectories(copies)} twice in the file: {copies[0].second} is {copies[0].first}"
        why = "" if named else ": one may fall into train, the other into test"
        yield (note if named else warning)("duplicates", text, f"remove the copies{why}")
    else:
        yield ok("duplicates", "no trajectory is there twice")
    rest = [pair for pair in overlapping if pair not in leaks]
    if rest:
        pair = f"{rest[0].first} and {rest[0].second}"
        text = f"{_count(len(rest), 'pair')} of trajectories of one split share frames, such as {pair}"
        yield note("overlap", text, "" if named else "keep overlapping trajectories in one split")
    crossing = [pair for pair in starts if splits[pair.first] != splits[pair.second]]
    if crossing:
        pairs = _count(len(crossing), "pair")
        text = f"{pairs} of trajectories of two splits start from one state and differ later"
        yield note("overlap", text, "fine where only their parameters are to be new")


def coordinates(facts: Examined) -> Iterator[Finding]:
    axes = facts.recording.axes if facts.recording.points is None else ()
    uneven = [axis.name for axis in axes if not is_even(np.diff(axis.coordinates))]
    if uneven:
        advice = "a backbone sees grid points as equally spaced: resample, or save a point cloud"
        yield note("coordinates", f"the grid is not uniform along {', '.join(uneven)}", advice)
    else:
        yield ok("coordinates", "coordinates fit the states")


def end_points(facts: Examined) -> Iterator[Finding]:
    if facts.recording.points is not None:
        return
    both = zip(facts.given.axes, facts.recording.axes, strict=True)
    doubled = [axis.name for axis, left in both if left.points < axis.points]
    if doubled:
        text = f"the last point repeats the first along {', '.join(doubled)}"
        yield note("end points", text, "nothing to do: the last point is left out")
    else:
        yield ok("end points", "no end point is doubled")


def time_steps(facts: Examined) -> Iterator[Finding]:
    yield ok("time step", "equal time steps" if facts.recording.times else "no times in the file")


def jumps(facts: Examined) -> Iterator[Finding]:
    """A step that is much larger than its neighbours betrays missing frames."""
    for i, one in enumerate(facts.scan.changes()):
        known = one[np.isfinite(one) & (one > STEADY)]
        if known.size < 8:
            continue
        large = np.flatnonzero(one > JUMP * np.median(known))
        lone = [int(n) for n in large if not {n - 1, n + 1} & set(large.tolist()) and 0 < n < len(one) - 1]
        if lone:
            times = one[lone[0]] / np.median(known)
            text = f"trajectory {i} jumps at frame {lone[0] + 1}: {times:.0f} times the median change per step"
            yield warning("jump", text, "look for missing frames: every step has to be of one length")
            return
    yield ok("jump", "no jump between frames")


def length(facts: Examined) -> Iterator[Finding]:
    frames = [one.frames for one in facts.given.trajectories]
    if max(frames) > min(frames):
        text = f"trajectories have {min(frames)} to {max(frames)} frames, and all are cut to the shortest"
        yield note("length", text, "leave short trajectories out to keep the others whole")
    else:
        yield ok("length", f"{min(frames)} frames per trajectory")


def scales(facts: Examined) -> Iterator[Finding]:
    scan, varied = facts.scan, facts.scan.varied
    size = np.hypot(scan.mean, scan.std)[varied]
    offset = np.abs(scan.mean[varied]) > MIXED * scan.std[varied]
    mixed = size.size and (size.max() > MIXED * size.min() or offset.any())
    text = "channels differ in scale, or lie far from zero" if mixed else "channels have similar scales"
    yield ok("scales", f"{text}: each is measured about its mean in units of its std")


def decay(facts: Examined) -> Iterator[Finding]:
    ratios = []
    for row in facts.scan.energy():
        known = row[np.isfinite(row)]
        if known.size > 1 and known[0] > 0:
            ratios.append(known[-1] / known[0])
    ratio = float(np.median(ratios)) if ratios else 1.0
    if ratio < DECAY:
        advice = "nothing to do: the loss is relative to each state; train.loss=mse would not see late states"
        yield note("decay", f"the energy decays to {ratio:.1e} of its start", advice)
    elif ratio > 1 / DECAY:
        yield note("decay", f"the energy grows to {ratio:.1e} of its start", "check the simulation")
    else:
        yield ok("decay", f"the energy ends at {ratio:.2g} of its start")


def enough(facts: Examined) -> Iterator[Finding]:
    count = len(facts.recording.trajectories)
    if count == 1:
        yield note("trajectories", "one trajectory", "it is split in time: test states continue the training states")
    elif count < FEW:
        advice = "expect overfitting; a smaller backbone or more trajectories help"
        yield note("trajectories", f"only {count} trajectories", advice)
    else:
        yield ok("trajectories", f"{count} trajectories")


def resolution(facts: Examined) -> Iterator[Finding]:
    spectrum = facts.spectrum
    if spectrum is None:
        return
    if facts.recording.mask is not None:
        yield ok("resolution", "not judged: the edges of the mask have power at every wavenumber")
        return
    text = (
        f"{percent(spectrum.upper_share)} of the power of {spectrum.channel} in the upper third of the wavenumbers, "
        f"the spectrum falls by {min(spectrum.decades, 12):.1f} decades{' or more' * (spectrum.decades > 12)}"
    )
    if spectrum.upper_share > UNRESOLVED:
        advice = "a finer simulation would differ; expect errors at small scales, and keep many backbone.modes"
        yield note("resolution", f"under-resolved: {text}", advice)
    else:
        yield ok("resolution", f"resolved: {text}")


def step_size(facts: Examined) -> Iterator[Finding]:
    text = f"a state changes by {100 * facts.change:.2g} % of the std per step"
    if facts.change > LARGE_STEP:
        advice = "store frames more often, or expect an operator that is hard to learn"
        yield note("step size", f"{text}: frames are far apart", advice)
    elif facts.stride:
        yield note("step size", f"{text}: little to learn from a step", facts.typed(facts.stride))
    elif facts.change:
        yield ok("step size", text)


QUESTIONS: dict[Callable[[Examined], Iterator[Finding]], tuple[str, ...]] = {
    unfit: (),
    finite: ("finite", "mask", "empty channel"),
    coordinates: ("coordinates",),
    end_points: (),
    length: ("length",),
    steady: ("steady",),
    duplicates: (),
    constant_channels: (),
    scales: (),
    time_steps: ("time step",),
    jumps: (),
    step_size: (),
    decay: (),
    resolution: (),
    enough: ("split",),
}
"""Each with the kinds of problems that answer it already."""


def findings(facts: Examined) -> list[Finding]:
    """Every answer: problems first, then warnings and notes."""
    order = {"problem": 0, "warning": 1, "note": 2, "ok": 3}
    refused = {one.kind for one in facts.unfit}
    asked = [ask for ask, kinds in QUESTIONS.items() if not refused.intersection(kinds)]
    return sorted((found for ask in asked for found in ask(facts)), key=lambda one: order[one.mark])


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share that is small beyond interest is not spelled out."""
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.2g} %"


def _trajectories(pairs: Sequence[Shared]) -> str:
    return _count(len({pair.second for pair in pairs}), "trajectory", "trajectories")


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", .." if len(values) > 5 else "")
