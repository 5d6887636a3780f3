"""The tables of the page as plain data, so that page and tests see the same numbers.

A table is {"title", "columns": [{"label", "title"}], "rows": [[cell]], "notes": [sentence]}. A cell has its "text", the
"value" that it sorts by and that is shown unrounded on demand, "small" lines below, and is "best" or of a "kind".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hero.method.metrics import METRICS
from hero.report.cells import cell
from hero.report.comparison import notes as comparison_notes
from hero.report.comparison import title as comparison_title
from hero.report.page.panels import METHODS, Panel, group_of, mark_columns, run_panels
from hero.report.page.sources import Sources, StoredRun
from hero.report.ranks import win_lines
from hero.report.study import deviation, diverged_text, missing_word, published_deviation
from hero.report.tables import COMPARED, MISSING, as_float, diverged_of, format_number, metric_rows
from hero.study.published import paper_value

Data = dict[str, Any]

COLUMNS = [
    {"key": key, "label": label, "direction": METRICS[name].direction, "definition": METRICS[name].definition}
    for _, name, label, key in COMPARED
]
PAPER_NOTE = (
    "The paper’s values are its published means over five seeds, on its own data; they are printed for reference. "
    "Ratio is ours divided by the paper’s mean. ∞ means that at least one rollout diverged."
)
FOLDED_RUNS = 10
"""Of more runs than this the table is opened on demand: the methods above it sum them up."""
UNFINISHED = ("failed", "unfinished", "not run")
VERDICTS = {"better": "better", "worse": "worse", "within": "within one std", "": MISSING}


def result_tables(sources: Sources) -> list[Data]:
    """One run beside the paper; or the groups of studies, comparisons and runs, and then every run."""
    if len(sources.runs) == 1 and not (sources.studies or sources.comparisons):
        return [_metrics_table(sources.runs[0].metrics)]
    tables = []
    for study in sources.studies:
        tables += [group_table(group, study.content["columns"]) for group in study.content["groups"]]
        if tables:  # said once, below the last
            tables[-1]["notes"] = [str(note) for note in study.content.get("notes") or ()]
    groups = [comparison_group(document.content) for document in sources.comparisons]
    groups += [group_of(panel) for panel in own_panels(sources)]
    tables += [group_table(group, COLUMNS) for group in groups]
    if groups:
        tables[-1]["notes"] = ["Mean ± standard deviation over seeds; bold is the best of its column. " + PAPER_NOTE]
    tables += [_difference_table(document.content) for document in sources.comparisons]
    return [*tables, _runs_table(sources.runs)] if sources.runs else tables


def own_panels(sources: Sources) -> list[Panel]:
    """The panels of runs that were named by themselves."""
    return run_panels([run for run in sources.runs if run.name in sources.named])


def text_cell(text: Any, **more: Any) -> Data:
    return {"text": str(text), "value": str(text), **more}


def number_cell(value: Any, text: str | None = None, **more: Any) -> Data:
    """A rounded number with the unrounded one behind it."""
    x = as_float(value)
    return {"text": format_number(value) if text is None else text, "value": None if np.isnan(x) else x, **more}


def _metrics_table(metrics: Mapping[str, Any]) -> Data:
    """One run beside the paper."""
    rows = []
    for row in metric_rows(metrics):
        kind = row.verdict if row.verdict in ("better", "worse") else ""
        cells = [
            number_cell(number, text)
            for number, text in ((row.value, row.ours), (row.published, row.paper), (row.quotient, row.ratio))
        ]
        rows.append([text_cell(row.label, small=row.definition), *cells, text_cell(VERDICTS[row.verdict], kind=kind)])
    labels = ("Metric", "Ours", "Paper (mean ± std)", "Ratio", "Ours is")
    note = "Ours is this one run. " + PAPER_NOTE
    return {"title": "Metrics", "columns": [{"label": label} for label in labels], "rows": rows, "notes": [note]}


def group_table(group: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> Data:
    """One group of a study: a row per method, a column per metric, with the paper and the ratio below each number."""
    rows = []
    counts = any(row["rollouts"] for row in group["rows"])  # a measurement of costs has none
    for row in group["rows"]:
        small = "\n".join(part for part in (row.get("note"), _states(row["runs"])) if part)
        cells = [_group_cell(row["cells"].get(column["key"]), row) for column in columns]
        if counts:
            cells.append(number_cell(row["diverged"], diverged_text(row)))
        rows.append([text_cell(row["label"], small=small), *cells])
    shown = [{"label": "Method"}, *({"label": column["label"], "title": _meaning(column)} for column in columns)]
    shown += [{"label": "Diverged", "title": METRICS["diverged"].definition}] if counts else []
    return {"title": group["title"], "columns": shown, "rows": rows, "notes": []}


def _meaning(column: Mapping[str, Any]) -> str:
    definition = column.get("definition") or (METRICS[column["key"]].definition if column["key"] in METRICS else "")
    return f"{definition} {column.get('direction', 'lower').capitalize()} is better.".strip()


def _group_cell(found: Mapping[str, Any] | None, row: Mapping[str, Any]) -> Data:
    if not found or found.get("mean") is None:
        return {"text": missing_word(row), "value": None, "kind": "none"}
    paper = found.get("paper")
    small = ""
    if paper:
        small = f"paper {paper['mean']:g}" + published_deviation(paper.get("std"))
        small += f"\nratio {format_number(found.get('ratio'))}"
    return number_cell(found["mean"], spread(found), small=small, best=bool(found.get("best")))


def spread(found: Mapping[str, Any]) -> str:
    return format_number(found["mean"]) + deviation(found.get("std"))


def _states(runs: Sequence[Mapping[str, Any]]) -> str:
    """ "3 seeds", and how many of them are not there."""
    states = [run["status"] for run in runs]
    done = states.count("finished")
    rest = [f"{states.count(state)} {state}" for state in UNFINISHED if state in states]
    return ", ".join([f"{done} seed{'s' if done != 1 else ''}", *rest]) if runs else ""


def comparison_group(content: Mapping[str, Any]) -> Data:
    """A comparison in the shape of a group of study.json."""
    rows = []
    for row in content["rows"]:
        added = {
            "label": METHODS.get(row["strategy"], row["strategy"]),
            "note": f"{row['steps']} steps",
            "cells": {key: cell(row["metrics"][key], (row["paper"] or {}).get(key)) for _, _, _, key in COMPARED},
            "runs": [{**run, "status": "failed" if "failed" in run else "finished"} for run in row["runs"]],
        }
        rows.append({**row, **added})
    mark_columns(rows)
    return {"title": comparison_title(content), "rows": rows}


def _difference_table(content: Mapping[str, Any]) -> Data:
    """Paired differences and cost of a comparison."""
    rows = []
    for row in content["rows"]:
        difference = row["difference"] or {}
        low, high = difference.get("interval") or (None, None)
        numbers = [number_cell(value) for value in (difference.get("percent"), low, high, row["cost"])]
        rows.append([text_cell(METHODS.get(row["strategy"], row["strategy"])), *numbers])
    labels = ("Method", "Difference, %", "95 % low", "95 % high", "Cost")
    title = f"nRMSE@100 against {content['baseline']}, paired"
    return {
        "title": title,
        "columns": [{"label": label} for label in labels],
        "rows": rows,
        "notes": comparison_notes(content),
    }


def _runs_table(runs: Sequence[StoredRun]) -> Data:
    """One line per run, with ours, the paper's and the ratio."""
    rows = []
    for run in runs:
        metrics, paper = run.metrics, paper_value(*(run.metrics[key] for key in ("task", "backbone", "strategy"))) or {}
        numbers = [
            _group_cell(cell({"mean": metrics[split].get(name), "std": None}, paper.get(key)), {"runs": []})
            for split, name, _, key in COMPARED
        ]
        rows.append([
            text_cell(run.name),
            text_cell(METHODS.get(metrics["strategy"], metrics["strategy"])),
            number_cell(metrics["seed"], str(metrics["seed"])),
            number_cell(metrics["training"]["steps"], str(metrics["training"]["steps"])),
            *numbers,
            number_cell(metrics["test"].get("diverged"), diverged_of(metrics)),
            number_cell(metrics["training"].get("seconds")),
        ])  # fmt: skip
    columns = [{"label": label} for label in ("Run", "Method", "Seed", "Steps")]
    columns += [{"label": column["label"], "title": _meaning(column)} for column in COLUMNS]
    columns += [{"label": "Diverged"}, {"label": "Seconds", "title": "Time of the training."}]
    folded = len(runs) > FOLDED_RUNS
    return {"title": "Runs", "columns": columns, "rows": rows, "notes": [PAPER_NOTE], "folded": folded}


def statistics_tables(statistics: Mapping[str, Any]) -> list[Data]:
    """Paired tests, win rates and average ranks, as `hero.significance` found them."""
    if not statistics:
        return []
    ranks = statistics.get("ranks") or {}
    friedman = ranks.get("friedman") or {}
    facts = []
    if friedman:
        facts.append(f"Friedman χ² = {format_number(friedman.get('chi2'))}, p = {format_number(friedman.get('p'))}.")
    if ranks.get("critical_difference") is not None:
        facts.append(f"Critical difference of Nemenyi: {format_number(ranks['critical_difference'])}.")
    facts += [f"Not separated: {', '.join(names)}." for names in ranks.get("joined") or ()]
    tests = [_flat_test(test) for test in statistics.get("tests") or ()]
    found = []
    if ranks.get("methods"):
        found.append(records_table("Average ranks", ranks["methods"], facts))
    if statistics.get("wins"):
        found.append(_wins_table(statistics))
    if tests:
        title = f"Paired tests of {statistics.get('metric', '')} against {statistics.get('baseline', '')}"
        found.append(records_table(title, tests, statistics.get("notes") or ()))
    return found


def _wins_table(statistics: Mapping[str, Any]) -> Data:
    """In how many groups the method of the row is better than that of the column."""
    _, *lines = win_lines(statistics)
    names = [METHODS.get(line[1], line[1]) for line in lines]
    rows = [[text_cell(name), *map(text_cell, line[2:])] for name, line in zip(names, lines, strict=True)]
    columns = [{"label": "better than …"}, *({"label": name} for name in names)]
    note = "In how many of the groups in which both were run; a tie counts half."
    return {"title": "Wins over groups", "columns": columns, "rows": rows, "notes": [note], "sortable": False}


def _flat_test(test: Mapping[str, Any]) -> Data:
    low, high = test.get("interval") or (None, None)
    shown = ("group", "label", "n", "ratio", "p", "p_holm", "test", "verdict")
    flat = {key: test.get(key) for key in shown}
    return {**dict(list(flat.items())[:4]), "95 % low": low, "95 % high": high, **dict(list(flat.items())[4:])}


def records_table(title: str, records: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Data:
    """A table of records that share their keys."""
    keys = list(records[0])
    rows = [[_any_cell(record.get(key)) for key in keys] for record in records]
    columns = [{"label": key.replace("_", " ").capitalize()} for key in keys]
    return {"title": title, "columns": columns, "rows": rows, "notes": list(notes)}


def _any_cell(value: Any) -> Data:
    if value is None or isinstance(value, float) or value in ("inf", "-inf", "nan"):
        return number_cell(value)
    return number_cell(value, str(value)) if isinstance(value, int) else text_cell(METHODS.get(str(value), value))
