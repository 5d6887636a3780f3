"""A study from its plan to its table: run what is missing, read the run folders, write table and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hero.evaluation.evaluate import evaluate
from hero.report.figures.of_study import study_figures
from hero.report.study import write_study, write_tables
from hero.study.collect import study_groups
from hero.study.plans import ROLLOUT_COLUMNS, Plan, plan
from hero.study.statistics import summarise
from hero.study.sweep import sweep
from hero.study.worker import Workers

TESTED = {"ood": "nrmse@200"}
"""The metric of the statistics where it is not nRMSE@100."""
UNTESTED = ("cost", "landscape")


def run_study(
    name: str,
    runs_dir: Path,
    data_dir: Path,
    *,
    preset: str = "paper",
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    tasks: Sequence[str] | None = None,
    backbones: Sequence[str] | None = None,
    strategies: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    workers: Workers | None = None,
    out: Path | None = None,
) -> dict[str, Any]:
    """Run what is missing of a study; returns what `study.json` in the folder `out` holds.

    None leaves tasks, backbones, strategies and seeds as the paper has them. `out` is `runs_dir/study-NAME-ID`.
    """
    planned = plan(name, preset, file, overrides, tasks, backbones, strategies, seeds)
    return carry_out(planned, runs_dir, data_dir, workers, out)


def carry_out(
    planned: Plan,
    runs_dir: Path,
    data_dir: Path,
    workers: Workers | None = None,
    out: Path | None = None,
    table_only: bool = False,
    measure: Callable[[Path, Path], object] = evaluate,
) -> dict[str, Any]:
    """Run what is missing unless `table_only`, and write all files of the study from the run folders.

    `measure(run, data_dir)` evaluates a run that was trained in this process.
    """
    out = out or runs_dir / planned.folder
    failed: dict[str, str] = {}
    if not table_only:
        try:
            outcomes = sweep(planned.configs, runs_dir, data_dir, workers, measure)
        except KeyboardInterrupt:
            if planned.study.columns is ROLLOUT_COLUMNS:  # others would have to measure first
                write_tables(out, study_result(planned, runs_dir, data_dir, {}, out))
            raise
        failed = {outcome.run.name: outcome.failed for outcome in outcomes if outcome.failed is not None}
    result = study_result(planned, runs_dir, data_dir, failed, out)
    write_study(out, result, study_figures(result, planned, runs_dir, data_dir))
    return result


def study_result(planned: Plan, runs_dir: Path, data_dir: Path, failed: Mapping[str, str], out: Path) -> dict[str, Any]:
    """The content of study.json, except for the names of the figures."""
    groups = study_groups(planned, runs_dir, data_dir, failed, out)
    statistics = None
    if planned.name not in UNTESTED:
        statistics = summarise(groups, TESTED.get(planned.name, "nrmse@100"))
    return {
        "study": planned.name,
        "title": planned.study.title,
        "folder": planned.folder,
        "preset": planned.preset,
        "seeds": list(planned.seeds),
        "changed": dict(planned.changed),
        "columns": [column._asdict() for column in planned.study.columns],
        "groups": groups,
        "statistics": statistics,
        "figures": [],
        "notes": study_notes(planned, groups),
    }


def study_notes(planned: Plan, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader of the table has to know, and which runs are not in it."""
    rows = [row for group in groups for row in group["rows"]]
    cells = [cell for row in rows for cell in row["cells"].values() if cell]
    found = ["In bold: the best of each group."]
    if len(planned.seeds) > 1:
        found.insert(0, "Mean ± standard deviation over seeds.")
    if any(cell["paper"] for cell in cells):
        what = "five seeds after 10,000 steps on its own data" if planned.seeds else "its own hardware"
        found.append(f"Paper: the published numbers, of {what}; ratio: ours over the paper's.")
    if planned.changed:
        changed = ", ".join(f"{key} = {value}" for key, value in planned.changed.items())
        found.append(f"Set here for all rows, so not as in the paper: {changed}.")
    if any(row["rollouts"] for row in rows):
        found.append("Diverged: test rollouts that left the finite range, over all seeds; they make a mean infinite.")
    found += dict.fromkeys(group["how"] for group in groups if "how" in group)
    runs = {run["run"]: run for row in rows for run in row["runs"]}
    missing = sum(run["status"] in ("not run", "unfinished") for run in runs.values())
    if missing:
        found.append(f"{missing} of {len(runs)} runs are not finished; the same command goes on with them.")
    found += failure_notes({name: run["failed"] for name, run in runs.items() if run["status"] == "failed"})
    if any(run["status"] != "finished" for run in runs.values()):
        found.append("Means are over the runs that finished.")
    return found


def failure_notes(failed: Mapping[str, str]) -> list[str]:
    """One sentence for each reason, with the runs that it stopped."""
    runs: dict[str, list[str]] = {}
    for name, reason in failed.items():
        runs.setdefault(reason, []).append(name)
    more = {reason: f" and {len(names) - 1} more" if len(names) > 1 else "" for reason, names in runs.items()}
    return [f"{names[0]}{more[reason]} failed: {reason}" for reason, names in runs.items()]
