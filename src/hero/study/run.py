"""A study from its plan to study.json: run what is missing, then read the run folders.

Tables and figures are written from the result by `hero.report`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.runs.stored import StoredRun
from hero.study.collect import Places
from hero.study.plans import Plan
from hero.study.records import FILE, StudyResult, distinct
from hero.study.statistics import summarise
from hero.study.sweep import sweep
from hero.study.worker import Workers


class InterruptedStudy(KeyboardInterrupt):
    """A study was interrupted; `result` has what is there, None where reading it would have to measure first."""

    def __init__(self, result: StudyResult | None) -> None:
        super().__init__()
        self.result = result


def schedule(planned: Plan, runs_dir: Path) -> dict[str, str]:
    """The state of every run of a study by its id. Touches nothing."""
    found = {}
    for name in (config.run_id() for config in planned.configs):
        try:
            found[name] = StoredRun(runs_dir / name).status
        except HeroError:
            found[name] = "unreadable"
    return found


def run(
    planned: Plan,
    runs_dir: Path,
    data_dir: Path,
    workers: Workers | None = None,
    out: Path | None = None,
    table_only: bool = False,
    measure: Callable[[Path, Path], object] = evaluate,
) -> StudyResult:
    """Run what is missing unless `table_only`, read the run folders and write study.json.

    `measure(run, data_dir)` evaluates a run that was trained in this process. A failed run is a part of the result.
    """
    out = out or runs_dir / planned.folder
    failed: dict[str, str] = {}
    if not table_only:
        try:
            failed = sweep(planned.configs, runs_dir, data_dir, workers, measure, planned.study.needs_kept)
        except KeyboardInterrupt:
            places = Places(runs_dir, data_dir, out, scoring=planned.scoring)
            raise InterruptedStudy(None if planned.study.measures else collect(planned, places)) from None
    return collect(planned, Places(runs_dir, data_dir, out, failed, planned.scoring))


def collect(planned: Plan, places: Places) -> StudyResult:
    """The result of a study as its run folders have it now; written to study.json."""
    study = planned.study
    columns = {column.key: column.at(planned.scoring) for column in study.columns}
    shown, tested = distinct(columns.values()), columns.get(study.tested or "")
    groups = tuple(found for group in planned.groups for found in study.read(group, shown, places))
    result = StudyResult(
        study=planned.name,
        title=study.title,
        folder=planned.folder,
        preset=planned.preset,
        seeds=planned.seeds,
        changed=dict(planned.changed),
        columns=shown,
        groups=groups,
        statistics=summarise(groups, tested.key, study.baseline, tested.direction) if tested else (),
        figures=study.figures,
        setting=study.setting,
    )
    result.write(places.out / FILE)
    return result
