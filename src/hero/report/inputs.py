"""Everything that one report shows: runs and studies by name, read from disk and checked.

A file that only one picture needs may be missing or damaged: the report then says so. A run that was named must be
there and finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from hero.errors import HeroError
from hero.method.metrics import Scoring, diverged
from hero.records import Record
from hero.report.registries import ANALYSES
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.records import Before, Errors, Log, Metrics
from hero.runs.rollouts import Rollout
from hero.runs.stored import Label, find_run, list_runs
from hero.study.records import FILE, StudyResult

T = TypeVar("T")


@dataclass(frozen=True)
class Curves:
    """The errors of a run as the page shows them: over its trajectories at each step."""

    lines: dict[str, dict[str, np.ndarray]]
    """`mean` and `median` of the score, by the name of the channel where channels are measured one by one and of all as
    "", and the `correlation` of all."""
    baselines: dict[str, dict[str, np.ndarray]]
    """By channel in the same way, the mean scores of doing nothing by the name of the baseline."""
    diverged: int
    rollouts: int
    scoring: Scoring

    @classmethod
    def of(cls, errors: Errors, channels: Sequence[str]) -> Curves:
        """The curves of these arrays; an error that is not a number is infinite."""
        scores, idle = {"": errors.score}, {"": errors.baselines}
        for c, name in enumerate(channels if errors.has_channels and len(channels) > 1 else ()):
            scores[name] = errors.of_channel(c)
            idle[name] = {baseline: values[..., c] for baseline, values in errors.channel_baselines.items()}
        scores = {name: np.where(np.isnan(score), np.inf, score) for name, score in scores.items()}
        lines = {
            "mean": {name: score.mean(axis=0) for name, score in scores.items()},
            # A rank without interpolation: between a finite and an infinite value there is nothing to interpolate.
            "median": {name: np.quantile(u, 0.5, axis=0, method="inverted_cdf") for name, u in scores.items()},
            "correlation": {"": errors.correlation.mean(axis=0)},
        }
        means = {name: {one: values.mean(axis=0) for one, values in found.items()} for name, found in idle.items()}
        scoring = Scoring(errors.score.shape[1], errors.measure)
        return cls(lines, means, diverged(errors.score), len(errors.score), scoring)


@dataclass(frozen=True)
class ReportedRun:
    """An evaluated run and the files of it that could be read.

    Log, errors and rollout are read again when they are drawn: a report of hundreds of runs holds a few kilobytes each.
    """

    run: Run
    metrics: Metrics
    has_log: bool
    curves: Curves | None
    """None where the errors could not be read."""
    analyses: Mapping[str, Record]
    """By name, those of `ANALYSES` that were made of the run."""
    before: Before | None = None
    """The checkpoint that it was fine-tuned from."""
    has_before_errors: bool = False
    label: Label = field(default_factory=Label)
    """What people call it."""

    @property
    def name(self) -> str:
        """The id of the run."""
        return self.run.name

    @property
    def log(self) -> Log:
        """Log of the run; an empty one if it could not be read."""
        return self.run.log if self.has_log else Log()

    @property
    def errors(self) -> Errors | None:
        """Errors per test trajectory and step."""
        return self.run.errors if self.curves else None

    @property
    def before_errors(self) -> Errors | None:
        """Errors of the checkpoint that the run was fine-tuned from."""
        return self.run.before_errors if self.has_before_errors else None

    def errors_in(self, scoring: Scoring) -> Errors | None:
        """Errors of the run, where its metrics are in another scoring and numbers must be computed from errors."""
        return None if scoring == self.metrics.scoring else self.errors

    @cached_property
    def method(self) -> str:
        """What it shares with the runs that differ from it in nothing but the seed."""
        return replace(self.config, seed=0).run_id()

    @property
    def config(self) -> RunConfig:
        """Configuration of the run."""
        return self.run.config

    @property
    def weighs_error(self) -> bool:
        """Whether a balanced loss takes its weights from the error, and not, as a control, from the data."""
        return getattr(self.config.loss, "spectrum", "error") == "error"

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
        try:
            found = (self.run.first_rollout if first else None) or self.run.rollout
        except HeroError as error:
            notices.append(str(error))
            return None, None
        if found is None:
            notices.append(f"run {self.name} has no rollout.npz; `hero evaluate {self.name}` draws its rollout.")
            return None, None
        errors, (steps, channels) = self.errors, found.truth.shape[:2]
        if errors is None or found.trajectory >= len(errors.score) or errors.score.shape[1] != steps:
            return found, None
        return found, np.stack([errors.of_channel(c)[found.trajectory] for c in range(channels)], axis=-1)


@dataclass
class ReportInputs:
    """Runs and studies of one report; `notices` name everything that could not be read."""

    runs: dict[str, ReportedRun] = field(default_factory=dict)
    """By id."""
    studies: dict[Path, StudyResult] = field(default_factory=dict)
    """Results of studies and comparisons by folder."""
    notices: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """Runs that were asked for by themselves, not through a study."""

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
        log = self._read(lambda: run.log)
        self.notices += [log.notice] if log and log.notice else []
        stored = {name: path for name in ANALYSES if (path := folder / f"{name}.json").is_file()}
        analyses = {name: self._read(partial(ANALYSES[name].record.read, path)) for name, path in stored.items()}
        self.runs[run.name] = ReportedRun(
            run,
            metrics,
            log is not None,
            self._read(lambda: Curves.of(run.errors, run.config.source.channel_names)),
            {name: found for name, found in analyses.items() if found},
            self._read(lambda: run.before),
            self._read(lambda: run.before_errors if run.before else None) is not None,
            self._read(lambda: run.label) or Label(),
        )

    def _read(self, reader: Callable[[], T]) -> T | None:
        """The result of `reader`; a notice and None where it fails."""
        try:
            return reader()
        except HeroError as error:
            self.notices.append(str(error))
            return None

    def add_study(self, path: Path, runs_dir: Path) -> None:
        """A study or comparison with its finished runs; a run that is gone gives a notice."""
        result = self.studies[path.parent] = StudyResult.read(path)
        for name in (name for name, run in result.runs.items() if run.status == "finished"):
            folders = [folder / name for folder in (path.parent.parent, runs_dir) if (folder / name).is_dir()]
            if folders:
                self._read(lambda folder=folders[0]: self.add(folder))  # type: ignore[misc]
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
        inputs._read(lambda folder=run: inputs.add(folder, named=True))  # type: ignore[misc]
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
