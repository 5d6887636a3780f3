"""The table of runs, for the terminal and the page. It needs no torch: `hero runs` shows a thousand in a moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hero.method.metrics import Scoring
from hero.report.names import metric_definition
from hero.report.tables import MISSING, Cell, Column, Number, Row, Table, Text
from hero.runs.records import Metrics
from hero.runs.stored import Label
from hero.study import records
from hero.study.records import rollout_columns


class ListedRun(NamedTuple):
    """A run as the table shows it: its metrics if it has results."""

    name: str
    metrics: Metrics | None
    status: str = ""
    label: Label = Label()


def runs_table(runs: Iterable[ListedRun], title: str = "") -> Table:
    """One line per run."""
    runs = list(runs)
    scorings = {run.metrics.scoring for run in runs if run.metrics}
    in_order = sorted(scorings, key=lambda one: (one.measure, -one.steps))
    measured = _measured_columns(in_order or [Scoring()])
    columns = [
        Column("Run", "run", words=True),
        Column("Name", "name", words=True, optional=True),
        Column("Seed", "seed", minor=True),
        Column("Updates", "updates", meaning="Optimiser steps that the run has made.", minor=True),
        *(replace(column_of(column, of[0]), minor=not _is_main(column, of)) for column, of in measured),
        Column("Diverged", "diverged", meaning=metric_definition("diverged"), optional=True, minor=True),
        Column("Seconds", "seconds", meaning="Time of the training.", optional=True, minor=True),
        Column("Status", "status", words=True, optional=True),
    ]
    rows = []
    for name, found, status, label in runs:
        cells: list[Cell] = [Number(None) for _ in columns[2:-1]]
        if found:
            splits, steps, lost = {"val": found.val, "test": found.test}, found.training.steps, found.test["diverged"]
            cells = [Number(found.seed, shown=str(found.seed)), Number(steps, shown=str(steps))]
            cells += [
                Number(splits[column.split].get(column.metric) if found.scoring in of else None)
                for column, of in measured
            ]
            cells.append(Number(lost, n=found.trajectories, shown=f"{lost:.0f} of {found.trajectories}"))
            cells.append(Number(found.training.seconds))
        rows.append(Row([Text(name), Text(label.name), *cells, Text(status)]))
    return Table(title, columns, rows).compact()


def _measured_columns(scorings: Sequence[Scoring]) -> list[tuple[records.MetricColumn, list[Scoring]]]:
    """The columns of runs that were scored over different numbers of steps, each with the scorings that have it."""
    found: dict[str, tuple[records.MetricColumn, list[Scoring]]] = {}
    for same in itertools.zip_longest(*map(rollout_columns, scorings)):
        for scoring, column in zip(scorings, same, strict=True):
            if column:
                found.setdefault(column.label, (column, []))[1].append(scoring)
    return list(found.values())


def _is_main(column: records.MetricColumn, scorings: Sequence[Scoring]) -> bool:
    """Whether a narrow screen shows the column too."""
    return any(column.key in (f"test_{scoring.gm}", scoring.last) for scoring in scorings)


def column_of(column: records.MetricColumn, scoring: Scoring) -> Column:
    """The column of a stored number, with the definition of its metric."""
    meaning = metric_definition(column.metric or column.key, scoring)
    return Column(column.label, column.key, column.direction, meaning)


def study_number(cell: records.SeedCell | None, row: records.MethodRow) -> Number:
    """Mean and std over seeds next to the published mean; a word where there is nothing."""
    if cell is None:
        return Number(None, missing=missing_word(row))
    mean, std = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
    return Number(cell.mean, cell.std, cell.n, mean, std, cell.best)


def missing_word(row: records.MethodRow) -> str:
    """Why a cell is empty; of several reasons the one that explains most."""
    states = {run.status for run in row.runs}
    return next((word for word in ("failed", "unfinished", "not run") if word in states), MISSING)
