"""Numbers as people read them: the rows of one run beside the paper's, and the list of runs.

`metric_rows` decides what is compared with what; the terminal tables here and the HTML page only lay it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from hero.method.metrics import METRICS
from hero.study.published import paper_value

MISSING = "–"
_VERDICT_STYLE = {"better": "green", "worse": "red"}

# (split of metrics.json, name of the metric, label, name in the paper's table), in the order of the paper's columns.
COMPARED = (
    ("val", "gm100", "Val GM100", "val_gm100"),
    ("test", "gm100", "Test GM100", "test_gm100"),
    ("test", "nrmse@1", "nRMSE@1", "nrmse@1"),
    ("test", "nrmse@100", "nRMSE@100", "nrmse@100"),
    ("test", "stable_step", "Stable step", "stable_step"),
)


class MetricRow(NamedTuple):
    """One line of the comparison; `verdict` is "better", "worse", "within" one std of the paper, or "".

    `value`, `published` and `quotient` are the numbers behind `ours`, `paper` and `ratio`; NaN for a missing one.
    """

    label: str
    ours: str
    paper: str
    ratio: str
    verdict: str
    definition: str
    value: float
    published: float
    quotient: float


def as_float(value: Any) -> float:
    """A number of metrics.json or log.jsonl, where infinity is the string "inf"; NaN for what is missing."""
    return math.nan if value is None else float(value)


def format_number(value: Any) -> str:
    """Three significant digits: 0.0310, 80.8, 1234, 1.00e-12; ∞ for a diverged value and – for a missing one."""
    x = as_float(value)
    if math.isnan(x):
        return MISSING
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0 or 999.5 <= abs(x) < 1e6:
        return f"{x:.0f}"
    return f"{x:#.3g}".removesuffix(".")


def diverged_of(metrics: Mapping[str, Any]) -> str:
    """Diverged rollouts of the test set, as "2 of 30"; the total is `metrics["trajectories"]`, left out if unknown."""
    count = as_float(metrics.get("test", {}).get("diverged"))
    if math.isnan(count):
        return MISSING
    total = metrics.get("trajectories")
    return f"{count:.0f}" if total is None else f"{count:.0f} of {total}"


def metric_rows(metrics: Mapping[str, Any]) -> list[MetricRow]:
    """The paper's five numbers first, each beside ours, then whatever else this run has measured on the test set."""
    published = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"]) or {}
    rows = [
        _row(label, METRICS[name].direction, metrics.get(split, {}).get(name), published.get(key), name)
        for split, name, label, key in COMPARED
    ]
    compared = {name for split, name, *_ in COMPARED if split == "test"}
    for name, metric in METRICS.items():
        if name in compared or name not in metrics.get("test", {}):
            continue
        row = _row(metric.title, metric.direction, metrics["test"][name], None, name)
        rows.append(row._replace(ours=diverged_of(metrics)) if name == "diverged" else row)
    return rows


def metrics_table(metrics: Mapping[str, Any]) -> Table:
    """The comparison of one run for the terminal: Metric | ours | paper | ratio."""
    table = Table(title=f"{metrics['run']}: {metrics['task']}, {metrics['backbone']}, {metrics['strategy']}")
    table.add_column("Metric")
    for column in ("ours", "paper (mean ± std)", "ratio"):
        table.add_column(column, justify="right")
    for row in metric_rows(metrics):
        table.add_row(row.label, row.ours, row.paper, row.ratio, style=_VERDICT_STYLE.get(row.verdict))
    return table


def runs_table(runs: Iterable[Mapping[str, Any]]) -> Table:
    """One line per run; a run without test metrics is shown as unfinished unless its `status` says otherwise."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("steps", justify="right", no_wrap=True)
    for column in ("val\nGM100", "test\nGM100", "nRMSE\n@100", "stable\nstep"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("status")
    for run in runs:
        val, test = run.get("val") or {}, run.get("test") or {}
        steps = run.get("training", {}).get("steps")
        numbers = (val.get("gm100"), test.get("gm100"), test.get("nrmse@100"), test.get("stable_step"))
        table.add_row(
            str(run.get("run", MISSING)),
            MISSING if steps is None else str(steps),
            *map(format_number, numbers),
            _status(run),
        )
    return table


def _row(label: str, direction: str, value: Any, published: Mapping[str, float] | None, name: str) -> MetricRow:
    ours, definition = as_float(value), METRICS[name].definition
    if not published:
        return MetricRow(label, format_number(ours), MISSING, MISSING, "", definition, ours, math.nan, math.nan)
    mean, std = published["mean"], published["std"]
    ratio = ours / mean if mean else math.nan
    return MetricRow(
        label=label,
        ours=format_number(ours),
        paper=f"{mean:g} ± {std:g}",
        ratio=format_number(ratio),
        verdict=_verdict(ours, mean, std, direction),
        definition=definition,
        value=ours,
        published=mean,
        quotient=ratio,
    )


def _verdict(ours: float, mean: float, std: float, direction: str) -> str:
    if math.isnan(ours):
        return ""
    if abs(ours - mean) <= std:
        return "within"
    return "better" if (ours < mean) == (direction == "lower") else "worse"


def _status(run: Mapping[str, Any]) -> str:
    if "status" in run:
        return str(run["status"])
    if not run.get("test"):
        return "unfinished"
    count = as_float(run["test"].get("diverged"))
    return f"{diverged_of(run)} diverged" if count > 0 else "finished"
