"""The tables of the product: which rows and columns each has and what its cells say. `tables.py` writes them.

Terminal, files and page show these same tables, so a number has one rounding and a statistic one set of columns. The
sentences below them are in `notes.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hero.method.metrics import METRICS
from hero.report.figures.analysis import probe_lines
from hero.report.notes import PAPER_NOTE, statistics_notes, study_notes
from hero.report.tables import (
    MISSING,
    Cell,
    Column,
    Number,
    Row,
    Table,
    Text,
    as_float,
    format_p,
    format_published,
)
from hero.study import records
from hero.study.published import paper_value
from hero.study.records import ROLLOUT_COLUMNS, StudyResult, Summary

VERDICTS = {"better": "better", "worse": "worse", "within": "within one std"}

Data = Mapping[str, Any]


def metrics_table(metrics: Data) -> Table:
    """One run: the paper's five numbers next to ours, then all else that was measured on the test set."""
    published = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"]) or {}
    rows = [
        _metric_row(one.label, one.metric, metrics.get(one.split, {}).get(one.metric), published.get(one.key))
        for one in ROLLOUT_COLUMNS
    ]
    compared = {column.metric for column in ROLLOUT_COLUMNS if column.split == "test"}
    for name, metric in METRICS.items():
        if name in metrics.get("test", {}) and name not in compared:
            shown = diverged_text(metrics) if name == "diverged" else ""
            rows.append(_metric_row(metric.title, name, metrics["test"][name], None, shown))
    columns = [
        Column("Metric", "metric", words=True),
        Column("Ours", "ours"),
        Column("Paper", "paper", optional=True),
        Column("Ratio", "ratio", optional=True),
        Column("Ours is", "verdict", words=True, optional=True),
    ]
    title = f"{metrics['run']}: {metrics['task']}, {metrics['backbone']}, {metrics['strategy']}"
    return Table(title, columns, rows, ["Ours is this one run. " + PAPER_NOTE]).compact()


def _metric_row(label: str, name: str, value: Any, published: Mapping[str, float] | None, shown: str = "") -> Row:
    metric, ours = METRICS[name], Number(as_float(value), shown=shown)
    first = Text(label, detail=metric.definition)
    if not published:
        return Row([first, ours, Number(None), Number(None), Text("")])
    mean, std = published["mean"], published["std"]
    verdict = _verdict(as_float(value), mean, std, metric.direction)
    return Row([
        first,
        ours,
        Number(mean, std, shown=format_published(mean, std)),
        Number(as_float(value) / mean if mean else None),
        Text(VERDICTS.get(verdict, MISSING), verdict=verdict),
    ])  # fmt: skip


def _verdict(ours: float, mean: float, std: float, direction: str) -> str:
    """ "better" or "worse" than the paper's mean, or "within" one of its stds."""
    if math.isnan(ours):
        return ""
    if abs(ours - mean) <= std:
        return "within"
    return "better" if (ours < mean) == (direction == "lower") else "worse"


def diverged_text(metrics: Data) -> str:
    """Diverged rollouts of the test set, as "2 of 30"; the total is left out if it is unknown."""
    count = as_float(metrics.get("test", {}).get("diverged"))
    if math.isnan(count):
        return MISSING
    total = metrics.get("trajectories")
    return f"{count:.0f}" if total is None else f"{count:.0f} of {total}"


def runs_table(runs: Iterable[Data], title: str = "") -> Table:
    """One line per run; a run without results says its `status`."""
    columns = [
        Column("Run", "run", words=True),
        Column("Seed", "seed"),
        Column("Updates", "updates", meaning="Optimiser steps that the run has made."),
        *map(_column, ROLLOUT_COLUMNS),
        Column("Diverged", "diverged", meaning=METRICS["diverged"].definition, optional=True),
        Column("Seconds", "seconds", meaning="Time of the training.", optional=True),
        Column("Status", "status", words=True),
    ]
    rows = []
    for run in runs:
        training = run.get("training") or {}
        found = {split: run.get(split) or {} for split in ("val", "test")}
        count = found["test"].get("diverged")
        status = run.get("status") or ("finished" if found["test"] else "unfinished")
        rows.append(Row([
            Text(str(run.get("run", MISSING))),
            _whole(run.get("seed")),
            _whole(training.get("steps")),
            *(Number(as_float(found[column.split].get(column.metric))) for column in ROLLOUT_COLUMNS),
            Number(as_float(count), shown=diverged_text(run)),
            Number(as_float(training.get("seconds"))),
            Text(str(status)),
        ]))  # fmt: skip
    return Table(title, columns, rows).compact()


def _whole(value: int | None) -> Number:
    return Number(value, shown="" if value is None else str(value))


def _column(column: records.Column) -> Column:
    """The column of a stored number, with the definition of its metric."""
    name = column.metric or column.key
    return Column(column.label, column.key, column.direction, METRICS[name].definition if name in METRICS else "")


def study_title(result: StudyResult) -> str:
    """ "Main results (study main, preset quick, 2 seeds)"."""
    count = len(result.seeds)
    facts = [f"study {result.study}", f"preset {result.preset}" if result.preset else ""]
    facts.append(f"{count} seed{'s' if count > 1 else ''}" if count else "")
    return f"{result.title} ({', '.join(filter(None, facts))})"


def study_tables(result: StudyResult) -> list[Table]:
    """A table for each task, with a section for each of its backbones, losses or shifts: one for all would be long."""
    tasks = itertools.groupby(result.groups, key=lambda group: group.task)
    return [group_table(list(groups), result.columns) for _, groups in tasks]


def group_table(groups: Sequence[records.Group], columns: Sequence[records.Column], title: str = "") -> Table:
    """Groups of a study: a row per method, a column per metric, each number next to the paper's."""
    shown = [
        Column("Method", "method", words=True),
        Column("Note", "note", words=True, optional=True),
        *map(_column, columns),
        Column("Diverged", "diverged", meaning=METRICS["diverged"].definition, optional=True),
    ]
    rows = []
    for group in groups:
        for row in group.rows:
            numbers = [study_number(row.cells.get(column.key), row) for column in columns]
            lost = f"{row.diverged} of {row.rollouts}" if row.rollouts else MISSING
            last = Number(row.diverged, n=row.rollouts, shown=lost)
            section = group.title if len(groups) > 1 else ""
            rows.append(Row([Text(row_label(row)), Text(row.note), *numbers, last], section))
    common = groups[0].title if len(groups) == 1 else groups[0].title.partition(", ")[0]
    return Table(title or common, shown, rows).compact()


def study_number(cell: records.Cell | None, row: records.Row) -> Number:
    """Mean and std over seeds next to the published mean; a word where there is nothing."""
    if cell is None:
        return Number(None, missing=missing_word(row))
    mean, std = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
    return Number(cell.mean, cell.std, cell.n, mean, std, cell.best)


def missing_word(row: records.Row) -> str:
    """Why a cell is empty; of several reasons the one that explains most."""
    states = {run.status for run in row.runs}
    return next((word for word in ("failed", "unfinished", "not run") if word in states), MISSING)


def row_label(row: records.Row) -> str:
    """The name of a row, and how many of its runs the means are over unless it is all or none."""
    finished, count = len(row.finished), len(row.runs)
    return row.label + (f" ({finished} of {count} seeds)" if 0 < finished < count else "")


def study_markdown(result: StudyResult) -> str:
    """A table for each task, the notes, and the statistics."""
    parts = [f"# {study_title(result)}"]
    for table in study_tables(result):
        parts += [f"## {table.title}", table.to_markdown().rstrip()]
    parts.append("\n".join(f"- {note}" for note in study_notes(result)))
    for summary in result.statistics:
        parts.append(f"## Statistics{f', loss {summary.loss}' if summary.loss else ''}")
        for table in statistics_tables(summary):
            parts += [f"### {table.title}", table.to_markdown().rstrip()]
        parts.append("\n".join(f"- {note}" for note in statistics_notes(summary, result.groups)))
    return "\n\n".join(parts) + "\n"


def study_latex(result: StudyResult) -> str:
    """All tables; they need the package booktabs."""
    return "% \\usepackage{booktabs}\n" + "\n".join(table.to_latex() for table in study_tables(result))


def study_csv(result: StudyResult) -> str:
    """All groups in one table, with unrounded numbers."""
    table = group_table(result.groups, result.columns)
    if len(result.groups) == 1:
        table = replace(table, rows=[replace(row, section=result.groups[0].title) for row in table.rows])
    return table.to_csv()


def statistics_tables(summary: Summary) -> list[Table]:
    """Paired tests, win rates and average ranks, those of them that there are."""
    tables = [tests_table(summary), wins_table(summary), ranks_table(summary)]
    return [table for table in tables if table.rows]


def tests_table(summary: Summary) -> Table:
    """One line per comparison: ratio to the baseline with its interval, the p of each test, and the verdict."""
    columns = [
        Column("Method", "method", words=True),
        Column("Ratio", "ratio", meaning="Geometric mean over seeds of the ratio to the baseline."),
        Column("95 % interval", "interval"),
        Column("p t-test", "t_p"),
        Column("p sign-flip", "sign_flip_p"),
        Column("p Holm", "p_holm", meaning="The p that decides, corrected for the number of tests."),
        Column("Verdict", "verdict", words=True),
    ]
    rows = []
    for test in summary.tests:
        lost = [f"{test.diverged} diverged"] * bool(test.diverged)
        lost += [f"base: {test.baseline_diverged} diverged"] * bool(test.baseline_diverged)
        cells: list[Cell] = [
            Text(test.label),
            Number(test.ratio, n=test.n),
            Number(None, interval=test.interval, missing=", ".join(lost) or MISSING),
            *(Number(p, shown=format_p(p)) for p in (test.t_p, test.sign_flip_p, test.p_holm)),
            Text(test.verdict, verdict=test.verdict),
        ]
        rows.append(Row(cells, section=f"{test.group}, {test.n} seed{'s' if test.n != 1 else ''}"))
    return Table(f"{summary.metric}: ratio to {summary.baseline}", columns, rows)


def wins_table(summary: Summary) -> Table:
    """Wins of the row against the column, of the groups in which both were run; ties count half."""
    pairs = {(pair.method, pair.against): pair for pair in summary.wins}
    methods = list(dict.fromkeys(pair.method for pair in summary.wins))
    letters = [_letter(i) for i in range(len(methods))]

    def cell(a: str, b: str) -> Number:
        pair = pairs.get((a, b))
        if pair is None or not pair.groups:
            return Number(None)
        wins = pair.wins + pair.ties / 2
        return Number(wins, n=pair.groups, shown=f"{wins:g}/{pair.groups}")

    columns = [Column("Method", "method", words=True), *map(Column, letters)]
    names = [f"{letter}: {method}" for letter, method in zip(letters, methods, strict=True)]
    rows = [Row([Text(name), *(cell(a, b) for b in methods)]) for name, a in zip(names, methods, strict=True)]
    return Table("groups won by the row against the column", columns, rows, sortable=False)


def ranks_table(summary: Summary) -> Table:
    """The methods and their average ranks, best first."""
    columns = [Column("Method", "method", words=True), Column("Average rank", "rank")]
    rows = [Row([Text(one.method), Number(one.rank, shown=f"{one.rank:.2f}")]) for one in summary.ranks.methods]
    return Table("average ranks", columns, rows)


def probe_table(points: Sequence[Data]) -> Table:
    """The quantities of the theory, a column for each checkpoint."""
    columns = [Column("Quantity", words=True), *(Column(f"step {point['step']}") for point in points)]
    rows = [Row([Text(label), *(Text(show(point)) for point in points)]) for label, show in probe_lines()]
    return Table("The theory, measured", columns, rows, sortable=False)


def _letter(i: int) -> str:
    """A, B, ..., Z, AA, ...: names of columns that fit a narrow screen."""
    return (_letter(i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)
