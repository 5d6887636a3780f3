"""What the run folders of a study say: the groups, rows and cells of study.json, and nothing that is not in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hero.errors import HeroError
from hero.evaluation import shifts
from hero.evaluation.landscape import landscape
from hero.method.metrics import diverged
from hero.report.cells import cell, mark_best
from hero.report.tables import COMPARED, as_float
from hero.runs.checkpoint import kept_steps
from hero.runs.config import RunConfig
from hero.runs.old import read_errors, read_log, read_metrics
from hero.study.cost import table as cost
from hero.study.paired import mean_and_deviation
from hero.study.plans import Column, Paper, Plan, PlannedGroup
from hero.study.published import paper_row

COSTS = "costs.json"


class Measured(NamedTuple):
    """The numbers of one run, by column, and how many of its rollouts diverged; without rollouts, 0 of 0."""

    values: Mapping[str, float]
    diverged: int = 0
    rollouts: int = 0


class Line(NamedTuple):
    """A row of the table before it is read: its runs, and how to read one."""

    label: str
    strategy: str
    note: str
    paper: Paper | None
    configs: Sequence[RunConfig]
    read: Callable[[Path], Measured]


def study_groups(plan: Plan, runs_dir: Path, data_dir: Path, failed: Mapping[str, str], out: Path) -> list[Any]:
    """The groups of study.json. `failed` has the reason for each run, by id, that was tried in vain."""
    if plan.name == "cost":
        return [cost_group(plan, group, data_dir, out) for group in plan.groups]
    groups = []
    for group in plan.groups:
        lines: dict[shifts.Shift | None, list[Line]]
        if plan.name == "ood":
            lines = {shift: shift_lines(group, shift, data_dir) for shift in shifts.SHIFTS.values()}
        elif plan.name == "landscape":
            lines = {None: landscape_lines(group, data_dir)}
        else:
            lines = {None: [Line(*row, read_run) for row in group.rows]}
        for shift, found in lines.items():
            rows = [row_of(line, plan.study.columns, runs_dir, failed) for line in found]
            groups.append(group_of(group, rows, plan.study.columns, shift))
    return groups


def group_of(
    group: PlannedGroup, rows: list[dict[str, Any]], columns: Sequence[Column], shift: shifts.Shift | None = None
) -> dict[str, Any]:
    """A group of study.json, with its best rows marked."""
    for column in columns:
        mark_best([row["cells"][column.key] for row in rows], column.direction)
    return {
        "title": group.title + (f": {shift.title}" if shift else ""),
        "task": group.task,
        "backbone": group.backbone,
        "shift": shift.name if shift else None,
        "rows": rows,
    }


def row_of(line: Line, columns: Sequence[Column], runs_dir: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """A row of study.json: its finished runs summarised, the others named."""
    runs, measured = [], []
    for config in line.configs:
        run = runs_dir / config.run_id()
        entry: dict[str, Any] = {"seed": config.seed, "run": run.name}
        try:
            if run.name in failed:
                raise HeroError(failed[run.name])
            entry["status"] = state_of(run, config)
            if entry["status"] == "finished":
                measured.append(line.read(run))
        except HeroError as error:
            entry |= {"status": "failed", "failed": str(error)}
        runs.append(entry)
    return {
        "label": line.label,
        "strategy": line.strategy,
        "note": line.note,
        "cells": {column.key: cell_of(column.key, measured, line.paper) for column in columns},
        "runs": runs,
        "diverged": sum(run.diverged for run in measured),
        "rollouts": sum(run.rollouts for run in measured),
    }


def state_of(run: Path, config: RunConfig) -> str:
    """ "finished", "unfinished" or "not run"; finished means trained to the end and evaluated after it."""
    metrics = read_metrics(run)
    if metrics and metrics["training"]["steps"] == config.train.steps:
        return "finished"
    return "unfinished" if (run / "config.toml").is_file() else "not run"


def steps_done(run: Path) -> int:
    """Updates of an unfinished run, as it logged them."""
    return max((record["step"] for record in read_log(run)), default=0)


def cell_of(key: str, measured: Sequence[Measured], paper: Paper | None) -> dict[str, Any] | None:
    """Mean and deviation over the runs beside the published mean; None where no run has this number."""
    values = [run.values[key] for run in measured if key in run.values]
    if not values:
        return None
    return cell(mean_and_deviation(values), paper.get(key) if paper else None)


def read_run(run: Path) -> Measured:
    """The paper's five numbers of an evaluated run."""
    metrics = read_metrics(run)
    assert metrics is not None
    errors = read_errors(run)["nrmse"]  # of which the figures are: a run whose file is damaged is in neither
    try:
        values = {key: as_float(metrics[split][name]) for split, name, _, key in COMPARED}
        return Measured(values, diverged(errors), len(errors))
    except (LookupError, TypeError, ValueError):
        raise HeroError(f"{run / 'metrics.json'} is damaged; `hero evaluate {run.name}` writes it anew.") from None


def shift_lines(group: PlannedGroup, shift: shifts.Shift, data_dir: Path) -> list[Line]:
    """The rows of a group under a shift; a run that was not measured under it yet is."""

    def read(run: Path) -> Measured:
        result = shifts.shifted(run, data_dir, shift)
        test = result["test"]
        names = {"gm100": "gm100", "nrmse@200": "nrmse@200", "mean_stability_horizon": "stability_horizon_200"}
        values = {key: as_float(test[name]) for key, name in names.items() if name in test}
        return Measured(values, int(test["diverged"]), int(result["trajectories"]))

    def published(strategy: str) -> Paper | None:
        return paper_row("ood_kolmogorov_fno", shift.name, strategy) if group.backbone == "fno" else None

    return [Line(row.label, row.strategy, row.note, published(row.strategy), row.configs, read) for row in group.rows]


def landscape_lines(group: PlannedGroup, data_dir: Path) -> list[Line]:
    """A row for each kept checkpoint and one for the final model: E_s(t) of `hero.landscape`."""
    lines = []
    for row in group.rows:
        settings = row.configs[0].train

        def reader(step: int | None) -> Callable[[Path], Measured]:
            def read(run: Path) -> Measured:
                result = stored_landscape(run, data_dir)
                errors = result["final_errors"] if step is None else result["errors"][result["steps"].index(step)]
                return Measured({f"nrmse@{t}": as_float(error) for t, error in enumerate(errors, start=1)})

            return read

        for step in range(settings.keep_every, settings.steps + 1, settings.keep_every):
            lines.append(Line(f"{row.label}, step {step}", row.strategy, "", None, row.configs, reader(step)))
        lines.append(Line(f"{row.label}, final", row.strategy, "", None, row.configs, reader(None)))
    return lines


def stored_landscape(run: Path, data_dir: Path) -> dict[str, Any]:
    """`landscape.json` of a run, measured if it is not there or not of the checkpoints that are."""
    try:
        result: dict[str, Any] = json.loads((run / "landscape.json").read_text(encoding="utf-8"))
        if result["steps"] == kept_steps(run) and len(result["errors"]) == len(result["steps"]):
            return result
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return landscape(run, data_dir).plain()


def cost_group(plan: Plan, group: PlannedGroup, data_dir: Path, out: Path) -> dict[str, Any]:
    """The rows of a group measured now, or as an earlier command of the same study has measured them."""
    path = out / f"{group.task}-{group.backbone.rpartition(':')[2]}-{COSTS}"
    found = cost.measure({row.label: row.configs[0] for row in group.rows}, data_dir, path=path)
    rows = []
    for row in group.rows:
        values = {column.key: as_float(found[row.label][column.key]) for column in plan.study.columns}
        cells = {key: cell_of(key, [Measured(values)], row.paper) for key in values}
        rows.append({
            "label": row.label, "strategy": row.strategy, "note": row.note,
            "cells": cells, "runs": [], "diverged": 0, "rollouts": 0,
        })  # fmt: skip
    return {**group_of(group, rows, plan.study.columns), "how": found[cost.HOW]["note"]}
