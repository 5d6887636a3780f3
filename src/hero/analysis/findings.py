"""The findings of `hero doctor FILE`: one function per question, which yields what is worth a word, with a remedy.

Problems are the reasons for which training refuses a file, and come from `hero.data.files.checks` alone; the questions
here add what a file that trains could do better.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from hero.analysis.scan import Scan, Spectrum, shared_frames
from hero.data.files.checks import UnfitError
from hero.data.files.recording import Recording, is_even
from hero.records import Record

Mark = Literal["problem", "warning", "note", "ok"]
MARKS: tuple[Mark, ...] = ("problem", "warning", "note", "ok")

STEADY = 1e-7  # change per step in stds below which nothing moves, in float32
SMALL_STEP, WANTED_STEP, LARGE_STEP = 0.01, 0.05, 1.0
"""Change per step in stds: below the first a stride towards the second helps, above the third frames are far."""
KEPT_FRAMES, SPLIT_IN_TIME = 20, 5  # frames that a suggested stride leaves; times as many where the split is in time
FEW = 10
DECAY = 1e-4
UNRESOLVED = 0.01  # share of the power in the upper third of the wavenumbers; a shock on a fine grid has a fifth of it
JUMP = 10.0  # times the median change per step of its trajectory that one step alone may have


class Finding(Record):
    """A line of the diagnosis."""

    kind: str
    mark: Mark
    text: str = ""
    advice: str = ""


def train_command(source: str, settings: Mapping[str, str]) -> str:
    """`hero train` with settings, as it is typed."""
    options = [word for item in settings.items() for word in ("--set", "=".join(item))]
    return shlex.join(["hero", "train", source, *options])


@dataclass(frozen=True, eq=False)
class Examined:
    """All that the questions are answered from."""

    source: str
    layout: Mapping[str, str]  # the setting that names the axes, if the user did
    recording: Recording  # as training sees it
    unfit: Sequence[UnfitError]  # why training refuses it
    scan: Scan
    spectrum: Spectrum | None

    def typed(self, settings: Mapping[str, str]) -> str:
        return train_command(self.source, {**self.layout, **settings})

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
        """The setting that makes small steps larger: the largest stride s that leaves enough frames, with
        s ‖Δu‖/σ ≤ 5 % for the change per step, and s ω ≤ 1, so that waves turn by less than one radian in it.
        """
        if not 0 < self.change < SMALL_STEP or self.unfit:
            return {}
        frames, turn = [one.frames for one in self.recording.trajectories], self.scan.frequency()
        kept = KEPT_FRAMES if len(frames) > 2 else SPLIT_IN_TIME * KEPT_FRAMES
        every = min(WANTED_STEP / self.change, (min(frames) - 1) / kept, 1 / turn if turn > 0 else np.inf)
        return {"data.stride": str(int(every))} if every >= 2 else {}

    @cached_property
    def shared(self) -> list[tuple[str, set[str]]]:
        """Each pair of trajectories with common states in words, and the splits of the two."""
        found = []
        for first, second, pairs in shared_frames(self.recording, self.scan):
            splits = [self.recording.trajectories[i].split for i in (first, second)]
            one, other = (
                f"{i} ({split})" if split else str(i) for i, split in zip((first, second), splits, strict=True)
            )
            (a, b), frames = pairs[0], f"{len(pairs)} frame{'s' * (len(pairs) > 1)}"
            found.append((f"{other} shares {frames} with {one}, whose frame {a} is its frame {b}", set(splits)))
        return found


def problems(facts: Examined) -> Iterator[Finding]:
    """The reasons for which training refuses the file; a command that solves all of them, where settings can."""
    reasons: dict[str, UnfitError] = {}
    for one in facts.unfit:
        reasons.setdefault(one.kind, one)
    settings = {name: value for one in reasons.values() for name, value in one.settings.items()}
    command = f": {facts.typed(settings)}" if all(one.settings for one in reasons.values()) else ""
    for kind, one in reasons.items():
        more = facts.scan.bad_frames if kind in ("finite", "mask") else 0
        text = one.text + (f" ({more} frame{'s' * (more > 1)} in all)" if more else "")
        typed = ", ".join("=".join(item) for item in one.settings.items())
        yield Finding(kind=kind, mark="problem", text=text, advice=one.remedy + (command or (typed and f" ({typed})")))


Answers = Iterator[tuple[Mark, str, str]]  # mark, text and remedy of what is worth a word


def coordinates(facts: Examined) -> Answers:
    axes = facts.recording.axes if facts.recording.points is None else ()
    uneven = [axis.name for axis in axes if not is_even(np.diff(axis.coordinates))]
    if uneven:
        advice = "a backbone sees grid points as equally spaced: resample, or save a point cloud"
        yield "note", f"the grid is not uniform along {', '.join(uneven)}", advice


def steady(facts: Examined) -> Answers:
    changes = facts.scan.changes()
    still = [i for i, one in enumerate(changes) if one.size and np.max(one[np.isfinite(one)], initial=0) < STEADY]
    if still:
        numbers = ", ".join(map(str, still[:5])) + ", .." * (len(still) > 5)
        text = f"{len(still)} of {len(changes)} trajectories steady in time ({numbers})"
        mark: Mark = "warning" if 2 * len(still) > len(changes) else "note"
        yield mark, text, "leave them out of the file: an operator learns nothing from them"


def leakage(facts: Examined) -> Answers:
    leaks = [text for text, splits in facts.shared if len(splits) > 1]
    if leaks:
        text = f"pairs of trajectories with common states in two splits: {len(leaks)}; {leaks[0]}"
        yield "warning", text, "split by trajectory: errors on states that were trained on are no test"


def duplicates(facts: Examined) -> Answers:
    copies = [(text, splits) for text, splits in facts.shared if len(splits) == 1]
    if copies:
        text, splits = copies[0]
        text = f"pairs of trajectories with common states: {len(copies)}; {text}"
        if splits == {""}:
            yield "warning", text, "remove one of each: one may fall into train, the other into test"
        else:
            yield "note", text, "remove the copies"


def constant_channel(facts: Examined) -> Answers:
    if facts.constant:
        names = ", ".join(facts.recording.channels[c].name for c in facts.constant)
        command = f": {facts.typed(facts.fields)}" if facts.fields else ""
        yield "note", f"constant: {names}", f"leave it out{command}"


def jump(facts: Examined) -> Answers:
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
            yield "warning", text, "look for missing frames: every step has to be of one length"
            return


def step_size(facts: Examined) -> Answers:
    text = f"a state changes by {100 * facts.change:.2g} % of the std per step"
    if facts.change > LARGE_STEP:
        advice = "store frames more often, or expect an operator that is hard to learn"
        yield "note", f"{text}: frames are far apart", advice
    elif facts.stride:
        yield "note", f"{text}: little to learn from a step", facts.typed(facts.stride)


def decay(facts: Examined) -> Answers:
    ratios = []
    for row in facts.scan.energy():
        known = row[np.isfinite(row)]
        if known.size > 1 and known[0] > 0:
            ratios.append(known[-1] / known[0])
    ratio = float(np.median(ratios)) if ratios else 1.0
    if ratio < DECAY:
        advice = "nothing to do: the loss is relative to each state; train.loss=mse would not see late states"
        yield "note", f"the energy decays to {ratio:.1e} of its start", advice
    elif ratio > 1 / DECAY:
        yield "note", f"the energy grows to {ratio:.1e} of its start", "check the simulation"


def resolution(facts: Examined) -> Answers:
    spectrum = facts.spectrum
    if spectrum is None or facts.recording.mask is not None:
        yield "ok", "not judged: there is no spectrum, or the edges of a mask have power at every wavenumber", ""
    elif spectrum.upper_share > UNRESOLVED:
        share = f"{percent(spectrum.upper_share)} of the power of {spectrum.channel}"
        advice = "a finer simulation would differ; expect errors at small scales, and keep many backbone.modes"
        yield "note", f"under-resolved: {share} in the upper third of the wavenumbers", advice


def trajectories(facts: Examined) -> Answers:
    count = len(facts.recording.trajectories)
    if count == 1:
        yield "note", "one trajectory", "it is split in time: test states continue the training states"
    elif count < FEW:
        advice = "expect overfitting; a smaller backbone or more trajectories help"
        yield "note", f"only {count} trajectories", advice


QUESTIONS: tuple[Callable[[Examined], Answers], ...] = (coordinates, steady, leakage, duplicates, constant_channel)
QUESTIONS += (jump, step_size, decay, resolution, trajectories)
"""Each has the name of its kind of answers, and is not asked where a problem of this kind answers it."""
CHECKED = ("finite", "time step", "length")  # what else has been looked at where training takes the file


def findings(facts: Examined) -> list[Finding]:
    """Every answer: problems first, then warnings and notes, then what was looked at without a finding."""
    found = list(problems(facts))
    refused = {one.kind for one in found}
    for ask in QUESTIONS:
        kind = ask.__name__.replace("_", " ")
        if kind not in refused:
            answers = [Finding(kind=kind, mark=mark, text=text, advice=advice) for mark, text, advice in ask(facts)]
            found += answers or [Finding(kind=kind, mark="ok")]
    found += [] if refused else [Finding(kind=kind, mark="ok") for kind in CHECKED]
    return sorted(found, key=lambda one: MARKS.index(one.mark))


def percent(share: float) -> str:
    """A share that is small beyond interest is not spelled out."""
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.2g} %"
