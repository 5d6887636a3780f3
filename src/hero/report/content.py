"""The tables of runs and studies: which rows and columns each has and what its cells say. `tables.py` writes them.

Terminal, files and page show these same tables, so a number has one rounding and a statistic one set of columns. The
sentences below them are in `sentences.py`.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hero.files import write_atomic
from hero.method.metrics import Metric, scoring_of
from hero.report.listing import (
    BASELINE_MEANINGS,
    BASELINE_TITLES,
    column_of,
    find_metric,
    method_title,
    metric_definition,
    metric_title,
    study_number,
)
from hero.report.sentences import (
    finetuning_sentence,
    notes_on_tests,
    numbered,
    run_shortfalls,
    study_notes,
    study_shortfalls,
)
from hero.report.tables import (
    MISSING,
    Cell,
    Column,
    Number,
    Row,
    Table,
    Text,
    format_number,
    format_p,
    format_published,
)
from hero.runs.config import RunConfig
from hero.runs.records import Before, Metrics
from hero.study import records
from hero.study.collect import differences, published_numbers
from hero.study.records import StudyResult, Summary, rollout_columns

PAPER_NOTE = (
    "The paper’s values are its published means over five seeds, on its own data; they are printed for reference. "
    "Ratio is ours divided by the paper’s mean. ∞ means that at least one rollout diverged."
)


def metrics_tables(metrics: Metrics, config: RunConfig, before: Before | None = None) -> list[Table]:
    """One run: its numbers, and the errors of each channel where there are several."""
    channels = [channels_table(metrics)] if len(metrics.channels) > 1 else []
    return [metrics_table(metrics, config, before), *channels]


def metrics_table(metrics: Metrics, config: RunConfig, before: Before | None = None) -> Table:
    """One run: the five numbers of every table, then everything else that was measured on the test set."""
    published, scoring = published_numbers(config), metrics.scoring
    shared, of_files = rollout_columns(scoring), scoring.measure == "vrmse"
    lines = [(column.label, column.split, column.metric, published.get(column.key)) for column in shared]
    known = {column.metric for column in shared if column.split == "test"}
    known |= {name for name in metrics.test if of_files and name.startswith(("nrmse@", "apebench"))}
    lines += [(metric_title(name, scoring), "test", name, None) for name in metrics.test if name not in known]
    rows = []
    for label, split, name, paper in lines:
        value, old = (getattr(found, split).get(name) if found else None for found in (metrics, before))
        shown = f"{value:.0f} of {metrics.trajectories}" if name == "diverged" else ""
        cells: list[Cell] = [Text(label, detail=metric_definition(name, scoring)), Number(value, shown=shown)]
        cells += [Number(old), _change(find_metric(name, scoring), old, value)]
        for baseline in metrics.baselines.values():
            cells.append(Number(baseline.test.get(name) if split == "test" else None))
        if paper and value is not None:
            cells.append(Number(paper.mean, shown=format_published(paper.mean, paper.std)))
            cells.append(Number(value / paper.mean if paper.mean else None))
        else:
            cells += [Number(None), Number(None)]
        rows.append(Row(cells))
    columns = [
        Column("Metric", words=True),
        Column("This run"),
        Column("Before fine-tuning", optional=True),
        Column("Change", optional=True),
        *(Column(BASELINE_TITLES[name], meaning=BASELINE_MEANINGS[name]) for name in metrics.baselines),
        Column("Paper", optional=True),
        Column("Ratio", optional=True),
    ]
    title = f"{metrics.run}: {metrics.task}, {metrics.backbone}, {metrics.strategy}"
    differs = [] if of_files else differences(config)
    left_out = [f"The paper’s numbers are left out: {'; '.join(differs[:3])}."] if differs else []
    notes, warnings = [PAPER_NOTE] if published else left_out, run_shortfalls(metrics)
    if before:
        helped, sentence = finetuning_sentence(metrics, before)
        (notes if helped else warnings).append(sentence)
    return Table(title, columns, rows, notes, warnings).compact()


def _change(metric: Metric | None, old: float | None, new: float | None) -> Text:
    """ "-70.0%, better"."""
    if metric is None or not old or new is None or old == new or not math.isfinite(old) or not math.isfinite(new):
        return Text("")
    verdict = "better" if (new < old) == (metric.direction == "lower") else "worse"
    return Text(f"{new / old - 1:+.1%}, {verdict}", verdict=verdict)


def channels_table(metrics: Metrics) -> Table:
    """A row per channel: its errors on the test set, and what doing nothing gives."""
    scoring = metrics.scoring
    steps = sorted({step for step in (1, 10, scoring.steps) if step <= scoring.steps})
    keys = [scoring.gm, *map(scoring.at, steps)]
    idle = [(name, scoring.at(1 if name == "persistence" else scoring.steps)) for name in metrics.baselines]
    columns = [Column("Channel", words=True)]
    columns += [Column(metric_title(key, scoring), meaning=metric_definition(key, scoring)) for key in keys]
    for name, key in idle:
        columns.append(Column(f"{BASELINE_TITLES[name]}: {metric_title(key)}", meaning=BASELINE_MEANINGS[name]))
    rows = []
    for channel, numbers in metrics.channels.items():
        own = [Number(numbers.get(key)) for key in keys]
        base = [Number(metrics.baselines[name].channels[channel].get(key)) for name, key in idle]
        rows.append(Row([Text(channel), *own, *base]))
    return Table("Errors by channel", columns, rows)


def study_title(result: StudyResult) -> str:
    """ "Main results (study main, preset quick, 2 seeds)"."""
    facts = [f"study {result.study}"]
    facts += [f"preset {result.preset}"] if result.preset else []
    facts += [numbered(len(result.seeds), "seed")] if result.seeds else []
    return f"{result.title} ({', '.join(facts)})"


def study_tables(result: StudyResult) -> list[Table]:
    """A table for each task, with a section for each of its backbones, losses or shifts; the last one has the notes."""
    tasks = itertools.groupby(result.groups, key=lambda group: group.task)
    tables = []
    for groups in (list(found) for _, found in tasks):
        tables.append(group_table(groups, result.columns))
        tables += [channel_table(group, result.columns) for group in groups if any(r.channels for r in group.rows)]
    tables[-1] = replace(tables[-1], notes=study_notes(result), warnings=study_shortfalls(result))
    return tables


def group_table(groups: Sequence[records.Group], columns: Sequence[records.MetricColumn]) -> Table:
    """Groups of a study: a row per method, a column per metric, each number next to the paper's."""
    scoring = scoring_of(column.metric for column in columns)
    shown = [
        Column("Method", words=True),
        Column("Note", words=True, optional=True),
        *(column_of(column, scoring) for column in columns),
        Column("Diverged", meaning=metric_definition("diverged"), optional=True, minor=True),
    ]
    rows = []
    for group in groups:
        section = group.title if len(groups) > 1 else ""
        best = {column.key: group.best(column) for column in columns}
        for row in group.rows:
            numbers = [study_number(row.cells.get(key), row, mean) for key, mean in best.items()]
            lost = Number(row.diverged, shown=f"{row.diverged} of {row.rollouts}" if row.rollouts else MISSING)
            rows.append(Row([Text(row_label(row)), Text(row.note), *numbers, lost], section))
        if group.persistence:
            idle = [Number(group.persistence.get(column.key)) for column in columns]
            rows.append(Row([Text(BASELINE_TITLES["persistence"]), Text(""), *idle, Number(None)], section))
    common = groups[0].title if len(groups) == 1 else groups[0].title.partition(", ")[0]
    return Table(common, shown, rows).compact()


def channel_table(group: records.Group, columns: Sequence[records.MetricColumn]) -> Table:
    """The error of each channel at the last step: a row per method."""
    scoring = scoring_of(column.metric for column in columns)
    rows = [row for row in group.rows if row.channels]
    names = list(rows[0].channels)
    shown = [Column("Method", words=True), *(Column(name, direction="lower") for name in names)]
    lines = [Row([Text(row_label(row)), *(study_number(row.channels.get(n), row) for n in names)]) for row in rows]
    if idle := group.persistence_channels:
        lines.append(Row([Text(BASELINE_TITLES["persistence"]), *(Number(idle.get(name)) for name in names)]))
    return Table(f"{group.title}: {metric_title(scoring.last, scoring)} by channel", shown, lines)


def row_label(row: records.MethodRow) -> str:
    """The name of a row, and how many of its runs the means are over unless it is all or none."""
    finished, count = len(row.finished), len(row.runs)
    return row.label + (f" ({finished} of {count} seeds)" if 0 < finished < count else "")


def write_tables(out: Path, result: StudyResult) -> None:
    """Write the tables of a study into `out` as Markdown, LaTeX and CSV."""
    for suffix, form in (("md", study_markdown), ("tex", study_latex), ("csv", study_csv)):
        write_atomic(out / f"table.{suffix}", form(result).encode())


def study_markdown(result: StudyResult) -> str:
    """The tables of a study and of its statistics, each with its notes."""
    parts = [f"# {study_title(result)}"]
    for table in (*study_tables(result), *map(paired_table, result.statistics)):
        parts += [f"## {table.title}", table.to_markdown().rstrip()]
        notes = [*(f"warning: {sentence}" for sentence in table.warnings), *table.notes]
        parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def study_latex(result: StudyResult) -> str:
    """All tables; they need the package booktabs."""
    return "% \\usepackage{booktabs}\n" + "\n".join(table.to_latex() for table in study_tables(result))


def study_csv(result: StudyResult) -> str:
    """All rows with unrounded numbers: for each column its mean, std, seeds, the paper's number and the ratio."""
    lines: list[dict[str, Any]] = []
    for group in result.groups:
        best = {column.key: group.best(column) for column in result.columns}
        for row in group.rows:
            lines.append({"group": group.title, "method": row.label, "note": row.note or None})
            for key, cell in row.cells.items():
                if cell:
                    mean, std = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
                    own = {"": cell.mean, "_std": cell.std, "_n": cell.n, "_paper": mean, "_paper_std": std}
                    own |= {"_ratio": cell.mean / mean if mean else None, "_best": cell.mean == best.get(key) or None}
                    lines[-1] |= {key + suffix: number for suffix, number in own.items()}
            lines[-1] |= {"diverged": row.diverged, "rollouts": row.rollouts} if row.rollouts else {}
        if group.persistence:
            lines.append({"group": group.title, "method": BASELINE_TITLES["persistence"], **group.persistence})
    names = dict.fromkeys(name for line in lines for name, value in line.items() if value is not None)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(names), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def paired_table(summary: Summary) -> Table:
    """The paired tests of one loss: ratio to the baseline with its interval, the p of each test, and the verdict."""
    columns = [
        Column("Method", words=True),
        Column("Ratio", meaning="Geometric mean over seeds of the ratio to the baseline."),
        Column("95 % interval"),
        Column("p t-test"),
        Column("p sign-flip"),
        Column("p Holm", meaning="The p that decides, corrected for the number of tests."),
        Column("Verdict", words=True),
    ]
    rows = []
    for test in summary.tests:
        lost = [f"{test.diverged} diverged"] * bool(test.diverged)
        lost += [f"base: {test.baseline_diverged} diverged"] * bool(test.baseline_diverged)
        cells: list[Cell] = [
            Text(test.label),
            Number(test.ratio),
            Number(test.interval[0], shown=" to ".join(map(format_number, test.interval)))
            if test.interval
            else Text(", ".join(lost) or MISSING),
            *(Number(p, shown=format_p(p)) for p in (test.t_p, test.sign_flip_p, test.p_holm)),
            Text(test.verdict, verdict=test.verdict),
        ]
        rows.append(Row(cells, section=f"{test.group}, {numbered(test.n, 'seed')}"))
    loss = f", {summary.loss} loss" if summary.loss else ""
    title = f"{metric_title(summary.metric)}: ratio to {method_title(summary.baseline)}{loss}"
    return Table(title, columns, rows, notes_on_tests(summary))
