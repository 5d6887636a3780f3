"""Names of parts and metrics, and the table of runs, for terminal and page; it needs no torch.

A part carries its display name itself; one that is not registered is called by its own name. `hero runs` shows a
thousand runs in a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hero.errors import HeroError
from hero.method.metrics import Metric, Scoring, metric_named
from hero.report.tables import MISSING, Cell, Column, Number, Row, Table, Text
from hero.runs.records import Metrics
from hero.study.records import MethodRow, MetricColumn, SeedCell, rollout_columns

BASELINE_TITLES = {"persistence": "First state kept", "mean": "Mean state"}
BASELINE_MEANINGS = {
    "persistence": "The error of predicting that nothing changes: the last given state stays.",
    "mean": "The error of predicting the mean over all training trajectories and times.",
}


def title_of(registry: Mapping[str, Any], name: str) -> str:
    """The title of a registered part; of a user's own `package.module:Name` the name."""
    return getattr(registry.get(name), "title", "") or name.rpartition(":")[2]


def titles_of(registry: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """The titles of these parts, in the order of the registry and then of the names."""
    names = set(names)
    ordered = [*(name for name in registry if name in names), *sorted(names - registry.keys())]
    return {name: title_of(registry, name) for name in ordered}


def method_title(strategy: str) -> str:
    from hero.strategies import STRATEGIES  # which loads torch; titles of metrics need none

    return title_of(STRATEGIES, strategy)


def find_metric(name: str, scoring: Scoring | None = None) -> Metric | None:
    """The metric `name` in a scoring; None for other columns, and for a metric that is not registered here."""
    try:
        return metric_named(name, scoring)
    except HeroError:
        return None


def metric_title(name: str, scoring: Scoring | None = None) -> str:
    found = find_metric(name, scoring)
    return found.title if found else name


def metric_definition(name: str, scoring: Scoring | None = None) -> str:
    found = find_metric(name, scoring)
    return found.definition if found else ""


class ListedRun(NamedTuple):
    """A run as the table shows it: its metrics if it has results."""

    name: str
    metrics: Metrics | None
    status: str = ""


def runs_table(runs: Iterable[ListedRun], title: str = "") -> Table:
    runs = list(runs)
    scorings = {run.metrics.scoring for run in runs if run.metrics} or {Scoring()}
    by_label: dict[str, tuple[MetricColumn, list[Scoring]]] = {}  # runs may be scored over different numbers of steps
    for scoring in sorted(scorings, key=lambda one: (one.measure, -one.steps)):
        for column in rollout_columns(scoring):
            by_label.setdefault(column.label, (column, []))[1].append(scoring)
    measured = list(by_label.values())
    main = {key for scoring in scorings for key in (f"test_{scoring.gm}", scoring.last)}  # on a narrow screen too
    columns = [
        Column("Run", words=True),
        Column("Seed", minor=True),
        Column("Updates", meaning="Optimiser steps that the run has made.", minor=True),
        *(replace(column_of(column, of[0]), minor=column.key not in main) for column, of in measured),
        Column("Diverged", meaning=metric_definition("diverged"), optional=True, minor=True),
        Column("Seconds", meaning="Time of the training.", optional=True, minor=True),
        Column("Status", words=True, optional=True),
    ]
    rows = []
    for name, found, status in runs:
        cells: list[Cell] = [Number(None) for _ in columns[1:-1]]
        if found:
            splits, steps, lost = {"val": found.val, "test": found.test}, found.training.steps, found.test["diverged"]
            cells = [Number(found.seed, shown=str(found.seed)), Number(steps, shown=str(steps))]
            cells += [
                Number(splits[column.split].get(column.metric) if found.scoring in of else None)
                for column, of in measured
            ]
            cells.append(Number(lost, shown=f"{lost:.0f} of {found.trajectories}"))
            cells.append(Number(found.training.seconds))
        rows.append(Row([Text(name), *cells, Text(status)]))
    return Table(title, columns, rows).compact()


def column_of(column: MetricColumn, scoring: Scoring) -> Column:
    meaning = metric_definition(column.metric or column.key, scoring)
    return Column(column.label, column.direction, meaning)


def study_number(cell: SeedCell | None, row: MethodRow, best: float | None = None) -> Number:
    """Mean and std over seeds next to the published mean, marked if it is `best`; a word where there is nothing."""
    if cell is not None:
        return Number(cell.mean, cell.std, cell.paper, cell.mean == best)
    states = {run.status for run in row.runs}  # of several reasons the one that explains most
    return Number(None, missing=next((word for word in ("failed", "unfinished", "not run") if word in states), MISSING))
