"""The tables of the product: which rows and columns each has and what its cells say. `tables.py` writes them.

Terminal, files and page show these same tables, so a number has one rounding and a statistic one set of columns. The
sentences below them are in `sentences.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hero.method.metrics import Metric, Scoring, scoring_of
from hero.report.listing import column_of, study_number
from hero.report.names import (
    BASELINE_MEANINGS,
    BASELINE_TITLES,
    find_metric,
    method_title,
    metric_definition,
    metric_title,
)
from hero.report.sentences import (
    PAPER_NOTE,
    change_words,
    shortfall_sentences,
    statistics_notes,
    study_notes,
    study_shortfalls,
)
from hero.report.tables import MISSING, Cell, Column, Number, Row, Table, Text, format_number, format_p
from hero.report.tables import format_published as format_paper
from hero.runs.config import RunConfig
from hero.runs.records import Before, Metrics
from hero.runs.structure import Structure
from hero.study import records
from hero.study.cost.count import Description, Measurement, readable
from hero.study.records import Published, StudyResult, Summary, rollout_columns
from hero.study.registries import differences, published_numbers

VERDICTS = {"better": "better", "worse": "worse", "within": "within one std"}


def metrics_tables(metrics: Metrics, config: RunConfig) -> list[Table]:
    """One run: its numbers, and the errors of each channel where there are several."""
    channels = [channels_table(metrics)] if len(metrics.channels) > 1 else []
    return [metrics_table(metrics, config), *channels]


def metrics_table(metrics: Metrics, config: RunConfig) -> Table:
    """One run: the five numbers of every table, then everything else that was measured on the test set.

    A benchmark stands next to the paper's numbers and has one row for doing nothing; people's data have a column for
    each baseline.
    """
    published, scoring = published_numbers(config), metrics.scoring
    splits, shared = {"val": metrics.val, "test": metrics.test}, rollout_columns(scoring)
    of_files = scoring.measure == "vrmse"
    baselines = list(metrics.baselines) if of_files else []
    rows = []

    def add(label: str, name: str, split: str, shown: str = "", paper: Published | None = None) -> None:
        idle = [metrics.baselines[b].test.get(name) if split == "test" else None for b in baselines]
        rows.append(_metric_row(label, name, scoring, splits[split].get(name), idle, paper, shown))

    for column in shared:
        add(column.label, column.metric, column.split, paper=published.get(column.key))
    known = {column.metric for column in shared if column.split == "test"}
    hidden = {name for name in metrics.test if of_files and name.startswith(("nrmse@", "apebench"))}
    for name, value in metrics.test.items():
        if name not in known | hidden:
            shown = f"{value:.0f} of {metrics.trajectories}" if name == "diverged" else ""
            add(metric_title(name, scoring), name, "test", shown)
    if "persistence" in metrics.baselines and not of_files:
        rows.append(_persistence_row(metrics))
    columns = [
        Column("Metric", "metric", words=True),
        Column("This run", "run") if of_files else Column("Ours", "ours"),
        *(Column(BASELINE_TITLES[name], name, meaning=BASELINE_MEANINGS[name]) for name in baselines),
        Column("Paper", "paper", optional=True),
        Column("Ratio", "ratio", optional=True),
        Column("Ours is", "verdict", words=True, optional=True),
    ]
    title = f"{metrics.run}: {metrics.task}, {metrics.backbone}, {metrics.strategy}"
    differs = [] if of_files else differences(config)
    note = PAPER_NOTE if published else f"The paper’s numbers are left out: {'; '.join(differs[:3])}."
    notes = [f"Ours is this one run. {note}"] if published or differs else []
    return Table(title, columns, rows, notes, shortfall_sentences(metrics)).compact()


def _persistence_row(metrics: Metrics) -> Row:
    """One line for doing nothing."""
    scoring, idle = metrics.scoring, metrics.baselines["persistence"].test
    steps = [step for step in (1, scoring.steps) if scoring.at(step) in idle]
    label = f"First state kept: {', '.join(metric_title(scoring.at(step)) for step in steps)}"
    shown = ", ".join(format_number(idle[scoring.at(step)]) for step in steps)
    detail = BASELINE_MEANINGS["persistence"]
    value = Number(idle[scoring.at(steps[0])], shown=shown)
    return Row([Text(label, detail=detail), value, Number(None), Number(None), Text("")])


def channels_table(metrics: Metrics) -> Table:
    """A row per channel: its errors on the test set, and what doing nothing gives."""
    scoring = metrics.scoring
    steps = sorted({step for step in (1, 10, scoring.steps) if step <= scoring.steps})
    keys = [scoring.gm, *map(scoring.at, steps)]
    idle = [(name, 1 if name == "persistence" else scoring.steps) for name in metrics.baselines]
    columns = [Column("Channel", "channel", words=True)]
    columns += [Column(metric_title(key, scoring), key, meaning=metric_definition(key, scoring)) for key in keys]
    for name, step in idle:
        label = f"{BASELINE_TITLES[name]}: {metric_title(scoring.at(step))}"
        columns.append(Column(label, f"{name}_{scoring.at(step)}", meaning=BASELINE_MEANINGS[name]))
    rows = []
    for channel, numbers in metrics.channels.items():
        own = [Number(numbers.get(key)) for key in keys]
        base = [Number(metrics.baselines[name].channels[channel].get(scoring.at(step))) for name, step in idle]
        rows.append(Row([Text(channel), *own, *base]))
    return Table("Errors by channel", columns, rows)


def change_table(before: Before, metrics: Metrics) -> Table:
    """A fine-tuned run next to the checkpoint that it started from: every number of the test set, and the change."""
    scoring, shared = metrics.scoring, rollout_columns(metrics.scoring)
    labels = {(column.split, column.metric): column.label for column in shared}
    labels |= {("test", name): metric_title(name, scoring) for name in metrics.test if ("test", name) not in labels}
    found = {"val": (before.val, metrics.val), "test": (before.test, metrics.test)}
    rows = []
    for (split, name), label in labels.items():
        old, new = (numbers.get(name) for numbers in found[split])
        if old is not None and new is not None:
            rows.append(_change_row(label, find_metric(name, scoring), old, new))
    columns = [
        Column("Metric", "metric", words=True),
        Column("Before", "before"),
        Column("After", "after"),
        Column("Change", "change", meaning="Of the value before, in percent."),
        Column("After is", "verdict", words=True),
    ]
    title = f"{metrics.run}: before and after fine-tuning"
    helped, warning = change_words(before, metrics)
    return Table(title, columns, rows, [*filter(None, [helped])], [*filter(None, [warning])])


def _change_row(label: str, metric: Metric | None, old: float, new: float) -> Row:
    ratio = new / old if old and math.isfinite(old) and math.isfinite(new) else None
    percent = Number(None if ratio is None else 100 * (ratio - 1), shown="" if ratio is None else f"{ratio - 1:+.1%}")
    better = metric is not None and (new < old) == (metric.direction == "lower")
    verdict = "" if new == old or metric is None else "better" if better else "worse"
    detail = metric.definition if metric else ""
    return Row([Text(label, detail=detail), Number(old), Number(new), percent, Text(verdict, verdict=verdict)])


def _metric_row(
    label: str,
    name: str,
    scoring: Scoring,
    value: float | None,
    idle: Sequence[float | None],
    published: Published | None,
    shown: str = "",
) -> Row:
    metric = find_metric(name, scoring)
    cells: list[Cell] = [Text(label, detail=metric.definition if metric else ""), Number(value, shown=shown)]
    cells += map(Number, idle)
    if metric is None or published is None or value is None:
        return Row([*cells, Number(None), Number(None), Text("")])
    verdict = "better" if (value < published.mean) == (metric.direction == "lower") else "worse"
    if abs(value - published.mean) <= (published.std or 0):
        verdict = "within"
    paper = Number(published.mean, published.std, shown=format_paper(published.mean, published.std))
    ratio = Number(value / published.mean if published.mean else None)
    return Row([*cells, paper, ratio, Text(VERDICTS[verdict], verdict=verdict)])


def study_title(result: StudyResult) -> str:
    """ "Main results (study main, preset quick, 2 seeds)"."""
    count = len(result.seeds)
    facts = [f"study {result.study}", f"preset {result.preset}" if result.preset else ""]
    facts.append(f"{count} seed{'s' if count > 1 else ''}" if count else "")
    return f"{result.title} ({', '.join(filter(None, facts))})"


def study_tables(result: StudyResult) -> list[Table]:
    """A table for each task, with a section for each of its backbones, losses or shifts: one for all would be long."""
    tasks = itertools.groupby(result.groups, key=lambda group: group.task)
    tables = []
    for groups in (list(found) for _, found in tasks):
        tables.append(group_table(groups, result.columns))
        tables += [channel_table(group, result.columns) for group in groups if any(r.channels for r in group.rows)]
    return tables


def group_table(groups: Sequence[records.Group], columns: Sequence[records.MetricColumn], title: str = "") -> Table:
    """Groups of a study: a row per method, a column per metric, each number next to the paper's.

    Below them stands what keeping the first state gives, where it is measured.
    """
    scoring = scoring_of(column.metric for column in columns)
    shown = [
        Column("Method", "method", words=True),
        Column("Note", "note", words=True, optional=True),
        *(column_of(column, scoring) for column in columns),
        Column("Diverged", "diverged", meaning=metric_definition("diverged"), optional=True, minor=True),
    ]
    rows = []
    for group in groups:
        section = group.title if len(groups) > 1 else ""
        for row in group.rows:
            numbers = [study_number(row.cells.get(column.key), row) for column in columns]
            lost = f"{row.diverged} of {row.rollouts}" if row.rollouts else MISSING
            last = Number(row.diverged, n=row.rollouts, shown=lost)
            rows.append(Row([Text(row_label(row)), Text(row.note), *numbers, last], section))
        if group.persistence:
            idle = [Number(group.persistence.get(column.key)) for column in columns]
            rows.append(Row([Text(BASELINE_TITLES["persistence"]), Text(""), *idle, Number(None)], section))
    common = groups[0].title if len(groups) == 1 else groups[0].title.partition(", ")[0]
    return Table(title or common, shown, rows).compact()


def channel_table(group: records.Group, columns: Sequence[records.MetricColumn]) -> Table:
    """The error of each channel at the last step: a row per method."""
    scoring = scoring_of(column.metric for column in columns)
    rows = [row for row in group.rows if row.channels]
    names = list(rows[0].channels)
    shown = [Column("Method", "method", words=True), *(Column(name, name, "lower") for name in names)]
    lines = [Row([Text(row_label(row)), *(study_number(row.channels.get(n), row) for n in names)]) for row in rows]
    if idle := group.persistence_channels:
        lines.append(Row([Text(BASELINE_TITLES["persistence"]), *(Number(idle.get(name)) for name in names)]))
    return Table(f"{group.title}: {metric_title(scoring.last, scoring)} by channel", shown, lines)


def row_label(row: records.MethodRow) -> str:
    """The name of a row, and how many of its runs the means are over unless it is all or none."""
    finished, count = len(row.finished), len(row.runs)
    return row.label + (f" ({finished} of {count} seeds)" if 0 < finished < count else "")


def study_markdown(result: StudyResult) -> str:
    """A table for each task, the notes, and the statistics."""
    parts = [f"# {study_title(result)}"]
    for table in study_tables(result):
        parts += [f"## {table.title}", table.to_markdown().rstrip()]
    warned = [f"warning: {sentence}" for sentence in study_shortfalls(result)]
    parts.append("\n".join(f"- {note}" for note in (*warned, *study_notes(result))))
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
    """Paired tests, win rates and average ranks, as far as there are any."""
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
    loss = f", {summary.loss} loss" if summary.loss else ""
    return Table(f"{metric_title(summary.metric)}: ratio to {method_title(summary.baseline)}{loss}", columns, rows)


def wins_table(summary: Summary) -> Table:
    """Wins of the row against the column where both were run; ties count half. It is empty for a single group."""
    pairs = {(pair.method, pair.against): pair for pair in summary.wins if pair.groups + pair.left_out > 1}
    methods = list(dict.fromkeys(method for method, _ in pairs))
    letters = [_letter(i) for i in range(len(methods))]

    def cell(a: str, b: str) -> Number:
        pair = pairs.get((a, b))
        if pair is None or not pair.groups:
            return Number(None)
        wins = pair.wins + pair.ties / 2
        return Number(wins, n=pair.groups, shown=f"{wins:g}/{pair.groups}")

    columns = [Column("Method", "method", words=True), *map(Column, letters)]
    names = [f"{letter}: {method_title(method)}" for letter, method in zip(letters, methods, strict=True)]
    rows = [Row([Text(name), *(cell(a, b) for b in methods)]) for name, a in zip(names, methods, strict=True)]
    return Table("Groups won by the row against the column", columns, rows, sortable=False)


def ranks_table(summary: Summary) -> Table:
    """The methods and their average ranks, best first."""
    columns = [Column("Method", "method", words=True), Column("Average rank", "rank")]
    rows = [
        Row([Text(method_title(one.method)), Number(one.rank, shown=f"{one.rank:.2f}")])
        for one in summary.ranks.methods
    ]
    return Table("Average ranks", columns, rows)


def structure_table(found: Structure) -> Table:
    """What the training data keep, how well, and what an operator with `backbone.keep=auto` makes of it."""
    columns = [
        Column("Quantity", words=True),
        Column("Largest change", meaning="Along any trajectory, relative to the norm of the state about its mean."),
        Column("Precision", meaning="The change that the precision of the data explains."),
        Column("Kept", words=True),
        Column("Why", words=True),
    ]
    rows = []
    for one in found.invariants:
        numbers = (one.violation, one.tolerance) if one.kind not in ("low", "high") else (None, None)
        kept = "yes" if one.word in found.kept else "no"
        why = one.why if (one.word in found.kept) == one.kept else NOT_KEPT
        rows.append(Row([Text(one.title), *map(Number, numbers), Text(kept), Text(why)]))
    target = "the change of the state" if found.predicts_change else "the next state"
    note = f"A state changes by {100 * found.step_change:.2g} % per step: backbone.residual=auto predicts {target}."
    return Table("What the data keep (backbone.keep=auto)", columns, rows, [note], sortable=False)


NOT_KEPT = "holds, but states change much per step, and a network that may add any constant then overfits"


def description_table(found: Description) -> Table:
    """Parameters, FLOPs, memory and files of a run, as they were counted."""
    settings = ", ".join(f"{name} {value}" for name, value in found.settings.items())
    shapes = " -> ".join("×".join(map(str, shape)) for shape in (found.input, found.output))
    updates = {f"one update, {phase.name}": f"{readable(phase.flops, 'FLOP')}, {phase.updates:,} times"
               for phase in found.phases}  # fmt: skip
    sections = {
        "": {
            "backbone": f"{found.backbone}: {settings}",
            "parameters": f"{found.parameters:,}",
            **{f"  {name}": f"{count:,}" for name, count in found.parts.items()},
            "input, output": shapes,
            "windows": f"{found.windows:,} of {found.unroll} steps, {found.batch} per update",
        },
        "compute": {
            "one step of one sample": readable(found.step_flops, "FLOP"),
            **updates,
            "all updates": readable(found.run_flops, "FLOP"),
        },
        "memory": {name: readable(count, "B") for name, count in found.memory.items()},
        "files": {name: readable(count, "B") for name, count in found.files.items()},
        "measured": _measured_lines(found.measured) if found.measured else {},
    }
    rows = [Row([Text(key), Text(text)], section) for section, lines in sections.items() for key, text in lines.items()]
    columns = [Column("Quantity", words=True), Column("Value", words=True)]
    notes = [
        "FLOP: matrix products and convolutions only, twice their multiplications; no FFT, activation or validation.",
        "Memory: without PyTorch itself and temporary values; activations as kept without torch.compile.",
    ]
    if found.streamed:
        notes.append(f"Larger than data.memory, so read from the file as needed: {', '.join(found.streamed)}.")
    return Table(f"{found.task}: {found.backbone} with {found.strategy}", columns, rows, notes, sortable=False)


def _measured_lines(found: Measurement) -> dict[str, str]:
    """What was measured, for the table of a run."""
    lines = {
        f"one update, {phase.name}": f"{1e3 * phase.seconds:,.1f} ms, {phase.updates:,} times" for phase in found.phases
    }
    lines["all updates"] = f"{found.run_seconds / 60:.1f} minutes, without validation"
    if found.peak_memory is not None:
        available = "" if found.available_memory is None else f", {readable(found.available_memory, 'B')} are available"
        lines["peak memory"] = readable(found.peak_memory, "B") + available
    lines["on"] = f"{found.device}, {found.threads} threads, {'compiled' if found.compiled else 'eager'}"
    return lines


def schedule_table(runs: Mapping[str, str]) -> Table:
    """The runs of a study with their state."""
    columns = [Column("run", words=True), Column("state")]
    if not runs:
        return Table("", columns, [], ["This study trains nothing: it measures, about a minute for each row."])
    finished = sum(state == "finished" for state in runs.values())
    rows = [Row([Text(run), Text(state)]) for run, state in runs.items()]
    return Table("", columns, rows, [f"{len(runs)} runs, {finished} finished."])


def _letter(i: int) -> str:
    """A, B, ..., Z, AA, ...: names of columns that fit a narrow screen."""
    return (_letter(i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)
