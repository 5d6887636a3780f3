"""Everything that one report shows: runs and studies by name, read from disk and checked.

A file that only one picture needs may be missing or damaged: the report then says so. A run that was named must be
there and finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure

from hero import parts
from hero.config.registry import Registry
from hero.errors import HeroError
from hero.method.measures import diverged
from hero.method.metrics import Scoring
from hero.records import Record
from hero.report.tables import Table
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.log import Log
from hero.runs.records import Before, Errors, Metrics, Rollout
from hero.runs.stored import find_run, list_runs
from hero.study.records import FILE, Group, StudyResult

T = TypeVar("T")


@dataclass(frozen=True)
class Analysis:
    """How an analysis of a trained run, kept as `NAME.json` in its folder, is read and shown."""

    record: type[Record]
    title: str  # the heading on the page
    caption: str  # how to read the figure
    figure: Callable[[Any, RunConfig], Figure]
    sentences: Callable[[Any], Sequence[str]]
    table: Callable[[Any], Table] | None = None


ANALYSES: Registry[Analysis] = parts.ANALYSES
StudyFigures = Callable[[StudyResult, Group, str, Path], Iterator[tuple[str, Figure]]]
"""The figures of a group by name, from the result, the group, a name for it and the folder of runs."""
STUDY_FIGURES: Registry[StudyFigures] = parts.STUDY_FIGURES


def tried(read: Callable[[], T], notices: list[str]) -> T | None:
    """The result of `read`; a notice and None where it fails."""
    try:
        return read()
    except HeroError as error:
        notices.append(str(error))
        return None


@dataclass(frozen=True)
class Curves:
    """The errors of a run at each step, the mean over its trajectories.

    They are of all channels as "", and of each by its name where channels are measured one by one.
    """

    scores: dict[str, np.ndarray]  # an error that is not a number is infinite
    baselines: dict[str, dict[str, np.ndarray]]
    """By channel in the same way, the mean scores of doing nothing by the name of the baseline."""
    lost: tuple[int, int]  # how many rollouts diverged, and of how many
    scoring: Scoring

    @classmethod
    def of(cls, errors: Errors, channels: Sequence[str] = ()) -> Curves:
        scores, idle = {"": errors.score}, {"": errors.baselines}
        for c, name in enumerate(channels if errors.has_channels and len(channels) > 1 else ()):
            scores[name] = errors.of_channel(c)
            idle[name] = {baseline: values[..., c] for baseline, values in errors.channel_baselines.items()}
        return cls(
            {name: np.where(np.isnan(score), np.inf, score).mean(axis=0) for name, score in scores.items()},
            {name: {one: values.mean(axis=0) for one, values in found.items()} for name, found in idle.items()},
            (diverged(errors.score), len(errors.score)),
            Scoring(errors.score.shape[1], errors.measure),
        )


@dataclass(frozen=True)
class ReportedRun:
    """An evaluated run and the files of it that could be read.

    Log, errors and rollout are read again when they are drawn: a report of hundreds of runs holds a few kilobytes each.
    """

    run: Run
    metrics: Metrics
    curves: Curves | None  # None where the errors could not be read
    analyses: Mapping[str, Record]  # by name, those of `ANALYSES` that were made of the run
    before: Before | None  # the checkpoint that it was fine-tuned from

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def config(self) -> RunConfig:
        return self.run.config

    @property
    def log(self) -> Log:
        """Log of the run; an empty one if it cannot be read."""
        return tried(lambda: self.run.log, []) or Log()

    @property
    def errors(self) -> Errors | None:
        return self.run.errors if self.curves else None

    def errors_in(self, scoring: Scoring) -> Errors | None:
        """Errors of the run, where its metrics are in another scoring and numbers must be computed from errors."""
        return None if scoring == self.metrics.scoring else self.errors

    def rollout(self, notices: list[str], first: bool = False) -> tuple[Rollout | None, np.ndarray | None]:
        """The drawn rollout, which is large and read when it is drawn, and its errors (step, channel).

        With `first` it is the rollout of the first test trajectory, which all runs share, where it is stored. `notices`
        gets the reason why there is none. The errors are None if they are not of the same evaluation; where channels
        are measured together, they are equal.
        """
        if self.config.source.cloud:
            notices.append(
                f"run {self.name} is on scattered points; its rollout is not drawn, for pictures show grids."
            )
            return None, None
        told = len(notices)
        found = tried(lambda: (self.run.first_rollout if first else None) or self.run.rollout, notices)
        if found is None:
            missing = f"run {self.name} has no rollout.npz; `hero evaluate {self.name}` draws its rollout."
            notices += [missing] * (told == len(notices))
            return None, None
        errors, (steps, channels) = self.errors, found.truth.shape[:2]
        if errors is None or found.trajectory >= len(errors.score) or errors.score.shape[1] != steps:
            return found, None
        return found, np.stack([errors.of_channel(c)[found.trajectory] for c in range(channels)], axis=-1)


@dataclass
class ReportInputs:
    """Runs and studies of one report; `notices` name everything that could not be read."""

    runs: dict[str, ReportedRun] = field(default_factory=dict)  # by id
    studies: dict[Path, StudyResult] = field(default_factory=dict)  # results of studies and comparisons by folder
    notices: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)  # runs that were asked for by themselves, not through a study

    @property
    def single(self) -> ReportedRun | None:
        """The run, where the report is about one run alone."""
        return next(iter(self.runs.values())) if len(self.runs) == 1 and not self.studies else None

    @property
    def folder(self) -> Path:
        """The folder of the first study, or else of the first run."""
        return next(iter(self.studies), None) or next(iter(self.runs.values())).run.path

    def add(self, folder: Path, named: bool = False, finished: bool = True) -> None:
        """One more run; HeroError if it is not evaluated, or was evaluated before its end and must be `finished`."""
        if named:
            self.named.append(folder.name)
        if folder.name in self.runs:
            return
        run = Run(folder)
        metrics, resume = run.stored_metrics, f"`hero train --resume {run.name}` continues it."
        if metrics is None:
            raise HeroError(f"run {run.name} is not finished; {resume}")
        if outdated := run.outdated(metrics):
            if finished:
                raise HeroError(f"{outdated}; {resume}")
            self.notices.append(f"{outdated}; {resume}")
        log = tried(lambda: run.log, self.notices)
        self.notices += [log.notice] if log and log.notice else []
        before = tried(lambda: run.before, self.notices)
        if before:
            tried(lambda: run.before_errors, self.notices)
        stored = {name: path for name in ANALYSES if (path := folder / f"{name}.json").is_file()}
        analyses = {name: tried(partial(ANALYSES[name].record.read, p), self.notices) for name, p in stored.items()}
        self.runs[run.name] = ReportedRun(
            run,
            metrics,
            tried(lambda: Curves.of(run.errors, run.config.source.channel_names), self.notices),
            {name: found for name, found in analyses.items() if found},
            before,
        )

    def add_study(self, path: Path, runs_dir: Path) -> None:
        """A study or comparison with its finished runs; a run that is gone gives a notice."""
        result = self.studies[path.parent] = StudyResult.read(path)
        for name in (name for name, run in result.runs.items() if run.status == "finished"):
            folders = [folder / name for folder in (path.parent.parent, runs_dir) if (folder / name).is_dir()]
            if folders:
                tried(partial(self.add, folders[0]), self.notices)
            else:
                self.notices.append(f"run {name} of {path.parent.name} is not in {runs_dir}; its curves are left out.")


def gather(names: Sequence[str], runs_dir: Path) -> ReportInputs:
    """Runs, studies and comparisons by folder, id or part of an id; all finished runs if nothing is named."""
    inputs = ReportInputs()
    for name in names:
        study = find_study(name, runs_dir)
        if study is None:
            inputs.add(find_run(name, runs_dir), named=True)
        else:
            inputs.add_study(study, runs_dir)
    for run in list_runs(runs_dir) if not names else ():
        tried(partial(inputs.add, run, named=True), inputs.notices)
    if not (inputs.runs or inputs.studies):
        first = f" ({inputs.notices[0]})" if inputs.notices else ""
        raise HeroError(f"there are no finished runs in {runs_dir}; start one with `hero train burgers`{first}.")
    return inputs


def find_study(name: str, runs_dir: Path) -> Path | None:
    """`study.json` of the folder that `name` means, or None if it means a run."""
    similar = [path for path in sorted(runs_dir.iterdir()) if name in path.name] if runs_dir.is_dir() else []
    folders = [Path(name), runs_dir / name, *similar]
    found = [folder / FILE for folder in folders if (folder / FILE).is_file()]
    exact = [path for path in found if path.parent in folders[:2]]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found and not any(name in run.name for run in list_runs(runs_dir)):
        named = ", ".join(path.parent.name for path in found[:4])
        raise HeroError(f"{name!r} fits {len(found)} folders ({named}); use more of the name.")
    return None
