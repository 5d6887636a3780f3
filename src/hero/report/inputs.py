"""Everything that one report shows: runs and studies by name, read from disk and checked.

A file that only one picture needs may be missing or damaged: the report then says so. A run that was named must be
there and finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from hero.errors import HeroError
from hero.evaluation.records import Landscape, Probe
from hero.records import Record
from hero.runs.config import RunConfig
from hero.runs.folder import Run, find_run, list_runs
from hero.runs.records import Errors, Log, Metrics
from hero.runs.rollouts import Rollout
from hero.study.records import FILE, StudyResult

T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class ReportedRun:
    """An evaluated run and the files of it that could be read; `notices` name the others."""

    run: Run
    metrics: Metrics
    log: Log
    errors: Errors | None
    probe: Probe | None
    landscape: Landscape | None
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The id of the run."""
        return self.run.name

    @property
    def config(self) -> RunConfig:
        """Its configuration."""
        return self.run.config

    def errors_of(self, rollout: Rollout) -> np.ndarray | None:
        """nRMSE of the drawn rollout at each step; None if the two files are not of one evaluation."""
        nrmse = None if self.errors is None else self.errors.nrmse
        if nrmse is None or rollout.trajectory >= len(nrmse) or nrmse.shape[1] != len(rollout.truth):
            return None
        found: np.ndarray = nrmse[rollout.trajectory]
        return found


@dataclass(frozen=True)
class ReportedStudy:
    """The result of a study or a comparison, and the folder with its figures."""

    folder: Path
    result: StudyResult


@dataclass
class ReportInputs:
    """Runs and studies of one report; `notices` name everything that could not be read."""

    runs: list[ReportedRun] = field(default_factory=list)
    studies: list[ReportedStudy] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Runs that were asked for by themselves, not through a study."""

    def run(self, name: str) -> ReportedRun | None:
        """A run by its id."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def single(self) -> ReportedRun | None:
        """The run, where the report is about one run alone."""
        return self.runs[0] if len(self.runs) == 1 and not self.studies else None

    @property
    def folder(self) -> Path:
        """The folder of the first study, or else of the first run."""
        return self.studies[0].folder if self.studies else self.runs[0].run.path

    def add(self, folder: Path, named: bool = False, finished: bool = True) -> None:
        """One more run; HeroError if it is not evaluated, or not finished where it must be."""
        if self.run(folder.name) is None:
            self.runs.append(read_run(folder, finished))
            self.notices += self.runs[-1].notices
        if named:
            self.named.add(folder.name)

    def try_add(self, folder: Path, named: bool = False) -> None:
        """One more run, or one more notice."""
        try:
            self.add(folder, named)
        except HeroError as error:
            self.notices.append(str(error))

    def add_study(self, path: Path, runs_dir: Path) -> None:
        """A study or comparison with its finished runs; a run that is gone gives a notice."""
        result = StudyResult.read(path)
        self.studies.append(ReportedStudy(path.parent, result))
        for name in (name for name, run in result.runs.items() if run.status == "finished"):
            folders = [folder / name for folder in (path.parent.parent, runs_dir) if (folder / name).is_dir()]
            if folders:
                self.try_add(folders[0])
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
        inputs.try_add(run, named=True)
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
        raise HeroError(
            f"{name!r} fits {len(found)} folders ({', '.join(path.parent.name for path in found[:4])}); "
            "use more of the name."
        )
    return None


def read_run(folder: Path, finished: bool = True) -> ReportedRun:
    """A run folder; HeroError if it is not evaluated, or was evaluated before its end and must be `finished`."""
    run, notices = Run(folder), []
    metrics = run.stored_metrics
    resume = f"`hero train --resume {run.name}` continues it."
    if metrics is None:
        raise HeroError(f"run {run.name} is not finished; {resume}")
    if run.metrics is None:
        early = f"run {run.name} was measured at step {metrics.training.steps} of {run.config.train.steps}; {resume}"
        if finished:
            raise HeroError(early)
        notices.append(early)

    def read(reader: Callable[[], T], default: D) -> T | D:
        try:
            return reader()
        except HeroError as error:
            notices.append(str(error))
            return default

    return ReportedRun(
        run,
        metrics,
        read(lambda: run.log, Log()),
        read(lambda: run.errors, None),
        read(lambda: _optional(Probe, folder / "probe.json"), None),
        read(lambda: _optional(Landscape, folder / "landscape.json"), None),
        tuple(notices),
    )


def _optional(kind: type[R], path: Path) -> R | None:
    return kind.read(path) if path.is_file() else None


def readable_rollout(run: ReportedRun) -> tuple[Rollout | None, str]:
    """The drawn rollout of a run, which may be large and is read when it is drawn; or the reason why there is none."""
    try:
        found = run.run.rollout
    except HeroError as error:
        return None, str(error)
    return found, "" if found else f"run {run.name} has no rollout.npz; `hero evaluate {run.name}` draws its rollout."
