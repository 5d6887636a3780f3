"""A comparison of strategies for people: the table in the terminal, as Markdown and as CSV, and the figure.

`cells` decides what the table says; the terminal and Markdown only lay it out. CSV holds the bare numbers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import JustifyMethod
from rich.table import Table

from hero.files import write_atomic, write_json
from hero.report.tables import COMPARED, MISSING, as_float, format_number

# The validation score selects checkpoints and is left to the CSV: the table shows what was tested.
SHOWN = tuple((label.removeprefix("Test "), key) for split, _, label, key in COMPARED if split == "test")

Result = Mapping[str, Any]
Row = Mapping[str, Any]


def write_comparison(folder: Path, result: Result, errors: Mapping[str, np.ndarray]) -> None:
    """All files of a comparison; `errors` is the nRMSE (seed, trajectory, step) of each strategy that has runs."""
    write_atomic(folder / "comparison.md", markdown(result).encode())
    write_atomic(folder / "comparison.csv", csv_text(result).encode())
    write_json(folder / "comparison.json", result)


def cells(row: Row, with_steps: bool) -> list[str]:
    """One line of the table; a cell is a stack of short lines, so that the table fits a terminal of 80 columns."""
    published = row["paper"] or {}
    cost, failed = as_float(row["cost"]), len(row["runs"]) - finished(row)
    return [
        row["strategy"] + (f"\n{failed} of {len(row['runs'])} failed" if failed else ""),
        *([str(row["steps"])] if with_steps else []),
        *(spread(row["metrics"][key], published.get(key)) for _, key in SHOWN),
        difference_text(row["difference"]),
        MISSING if math.isnan(cost) else f"{cost:.2f}",
        f"{row['diverged']} of {row['rollouts']}",
    ]


def lines_of(result: Result) -> list[list[str]]:
    """The headings and all cells; the steps have a column where they differ."""
    differ = len({row["steps"] for row in result["rows"]}) > 1
    metrics = (label.replace("@", "\n@").replace(" ", "\n") for label, _ in SHOWN)
    steps = ["steps"] if differ else []
    headings = ["strategy", *steps, *metrics, f"nRMSE@100 vs\n{result['baseline']}", "cost", "diverged"]
    return [headings, *(cells(row, differ) for row in result["rows"])]


def finished(row: Row) -> int:
    """Runs that came to an end."""
    return sum("failed" not in run for run in row["runs"])


def spread(values: Mapping[str, Any], published: Mapping[str, float] | None) -> str:
    """Mean, standard deviation over the seeds if there are several, and the paper's mean in parentheses."""
    deviation = "" if values["std"] is None else f"\n±{format_number(values['std'])}"
    return format_number(values["mean"]) + deviation + (f"\n({published['mean']:g})" if published else "")


def difference_text(difference: Mapping[str, Any] | None) -> str:
    """ "−3.1 %" and its interval below; "diverged" where an error is infinite."""
    if difference is None:
        return MISSING
    if difference["interval"] is None:
        return "diverged"
    low, high = difference["interval"]
    return f"{signed(difference['percent'])} %\n[{signed(low)}, {signed(high)}]"


def signed(value: float) -> str:
    """A percentage with its sign and one digit, as many as a few seeds support."""
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")  # + 0.0: no minus before a zero


def comparison_table(result: Result) -> Table:
    """The table for the terminal."""
    table = Table(title=title(result), box=box.SIMPLE_HEAD, padding=0)
    headings, *lines = lines_of(result)
    for heading in headings:
        # Only the interval may be broken: half a number is worse than a line more.
        side: JustifyMethod = "left" if heading == "strategy" else "right"
        table.add_column(heading, justify=side, no_wrap=" vs" not in heading, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def title(result: Result) -> str:
    """What was compared: "burgers, fno: equal steps (1000), 3 seeds"."""
    steps, seeds = {row["steps"] for row in result["rows"]}, len(result["seeds"])
    each = f" ({steps.pop()})" if len(steps) == 1 else ""
    counted = f"{seeds} seed{'s' if seeds > 1 else ''}"
    return f"{result['task']}, {result['backbone']}: equal {result['budget']}{each}, {counted}"


def notes(result: Result) -> list[str]:
    """What a reader of the table has to know, and which runs failed."""
    baseline, rows = result["baseline"], result["rows"]
    single = any(row["difference"] and len(row["difference"]["seeds"]) == 1 for row in rows)
    over = "trajectories only, as there is one seed" if single else "seeds and trajectories"
    found = [
        "Mean ± standard deviation over seeds. Smaller is better, except for the stable step.",
        f"Difference from {baseline}: same seeds, same test trajectories, with a 95 % bootstrap interval over {over}.",
        f"Cost: time of an update over that of {baseline}, "
        + ("measured before the runs." if result["budget"] == "compute" else "as logged by the runs."),
    ]
    ways = {tuple(run["training"][key] for key in ("compiled", "device", "threads")) for run in _finished_runs(rows)}
    if len(ways) > 1:
        found.append("The runs differ in compilation, device or threads (see comparison.json): logged costs mislead.")
    if any(row["paper"] for row in rows):
        found.append("In parentheses: the paper's means, of five seeds after 10,000 steps on its own data.")
    failed = [(row["strategy"], run) for row in rows for run in row["runs"] if "failed" in run]
    if failed:
        found.append("Means are over the runs that finished.")
    return found + [f"{name}, seed {run['seed']} failed: {run['failed']}" for name, run in failed]


def _finished_runs(rows: list[Row]) -> list[Mapping[str, Any]]:
    return [run for row in rows for run in row["runs"] if "failed" not in run]


def markdown(result: Result) -> str:
    """The table and its notes, ready for a document."""
    headings, *lines = [[cell.replace("\n@", "@").replace("\n", " ") for cell in line] for line in lines_of(result)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *lines))
    return f"{title(result)}\n\n{table}\n\n" + "\n".join(f"- {note}" for note in notes(result)) + "\n"


def csv_text(result: Result) -> str:
    """One line per strategy, every number in a column of its own, unrounded."""
    lines = []
    for row in result["rows"]:
        difference = row["difference"] or {"percent": None, "interval": None}
        low, high = difference["interval"] or (None, None)
        line = {"strategy": row["strategy"], "steps": row["steps"], "finished": finished(row)}
        for _, _, _, key in COMPARED:
            published = (row["paper"] or {}).get(key, {})
            line |= {f"{key}_{name}": row["metrics"][key][name] for name in ("mean", "std")}
            line |= {f"paper_{key}_{name}": published.get(name) for name in ("mean", "std")}
        line |= {"difference_percent": difference["percent"], "difference_low": low, "difference_high": high}
        lines.append(line | {name: row[name] for name in ("cost", "diverged", "rollouts")})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()
