"""Runs put in order: a panel is a task and a backbone (or a group of a study), a series in it the seeds of one method.

Runs are seeds of one series if their configurations differ in nothing but the seed. Where a method appears with several
configurations, the settings in which they differ are named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hero.method.metrics import diverged
from hero.report.content import published_numbers
from hero.report.inputs import ReportedRun, ReportedStudy, ReportInputs
from hero.report.names import backbone_title, method_title
from hero.strategies import STRATEGIES
from hero.study.records import ROLLOUT_COLUMNS, Cell, Group, Published, Row, RunEntry, best_marked

NAMED_SETTINGS = 3
"""So many differing settings are named in a label."""


@dataclass(frozen=True)
class Series:
    """The seeds of one method; `paper` has its published numbers by key of their column."""

    label: str
    strategy: str
    runs: tuple[ReportedRun, ...]
    paper: Mapping[str, Published]

    def stacked(self, name: str) -> list[np.ndarray]:
        """The arrays (trajectory, step) of the runs that have them."""
        return [run.errors.test[name] for run in self.runs if run.errors]


@dataclass(frozen=True)
class Panel:
    """The series in one pair of axes."""

    title: str
    task: str
    backbone: str
    series: tuple[Series, ...]


def panels_of(inputs: ReportInputs) -> list[Panel]:
    """Panels of the studies and of the runs that were named by themselves."""
    found = [panel for study in inputs.studies for panel in _study_panels(study, inputs)]
    return [panel for panel in (*found, *own_panels(inputs)) if panel.series]


def own_panels(inputs: ReportInputs) -> list[Panel]:
    """The panels of runs that were named by themselves."""
    return run_panels([run for run in inputs.runs if run.name in inputs.named])


def task_title(run: ReportedRun) -> str:
    return run.config.make_task().title


def run_panels(runs: Sequence[ReportedRun]) -> list[Panel]:
    """One panel per task and backbone, in the order in which they appear."""
    found: dict[tuple[str, str], list[ReportedRun]] = {}
    for run in runs:
        found.setdefault((run.config.task.name, run.config.backbone.name), []).append(run)
    return [
        Panel(f"{task_title(some[0])}, {backbone_title(backbone)}", task, backbone, tuple(_series(some)))
        for (task, backbone), some in found.items()
    ]


def group_of(panel: Panel) -> Group:
    """The panel as a group of a study."""
    rows = []
    for series in panel.series:
        cells: dict[str, Cell | None] = {}
        for column in ROLLOUT_COLUMNS:
            found = [getattr(run.metrics, column.split).get(column.metric) for run in series.runs]
            values = [value for value in found if value is not None]
            cells[column.key] = Cell.of(values, series.paper.get(column.key)) if values else None
        errors = series.stacked("nrmse")
        rows.append(Row(
            label=series.label,
            method=series.strategy,
            strategy=series.strategy,
            cells=cells,
            runs=tuple(RunEntry(seed=run.config.seed, run=run.name, status="finished") for run in series.runs),
            diverged=sum(map(diverged, errors)),
            rollouts=sum(map(len, errors)),
        ))  # fmt: skip
    return Group(title=panel.title, task=panel.task, backbone=panel.backbone, rows=best_marked(rows, ROLLOUT_COLUMNS))


def _series(runs: Sequence[ReportedRun]) -> list[Series]:
    order = {name: place for place, name in enumerate(STRATEGIES)}  # a user's own strategies follow
    classes: dict[str, list[ReportedRun]] = {}
    for run in sorted(runs, key=lambda run: (order.get(run.config.strategy, len(order)), run.config.seed)):
        classes.setdefault(dataclasses.replace(run.config, seed=0).run_id(), []).append(run)
    by_strategy: dict[str, list[list[ReportedRun]]] = {}
    for seeds in classes.values():
        by_strategy.setdefault(seeds[0].config.strategy, []).append(seeds)
    found = []
    for strategy, methods in by_strategy.items():
        labels = [method_title(strategy) + suffix for suffix in _suffixes([seeds[0] for seeds in methods])]
        for label, seeds in zip(labels, methods, strict=True):
            found.append(Series(label, strategy, tuple(seeds), published_numbers(seeds[0].config)))
    return found


def _suffixes(runs: Sequence[ReportedRun]) -> list[str]:
    """In which settings each run differs from the others, as " (train.steps=300)"; nothing for a single one."""
    flat = [_flat(run.config.to_dict()) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    differing = [key for key in keys if key != "seed" and len({repr(settings.get(key)) for settings in flat}) > 1]
    if not differing:
        return [""] * len(runs)
    shown = differing[:NAMED_SETTINGS]
    more = ", …" if len(differing) > len(shown) else ""
    texts = [", ".join(f"{key}={settings.get(key)}" for key in shown) + more for settings in flat]
    if len(set(texts)) < len(texts):  # what is shown does not tell them apart
        texts = [f"{text}, {run.name.rpartition('-')[2]}" for text, run in zip(texts, runs, strict=True)]
    return [f" ({text})" for text in texts]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _study_panels(study: ReportedStudy, inputs: ReportInputs) -> Iterable[Panel]:
    """The groups of a study, except shifted ones: those are other data than the runs' own error curves."""
    for group in study.result.groups:
        if not group.shift:
            series = (_row_series(row, inputs) for row in group.rows)
            yield Panel(group.title, group.task, group.backbone, tuple(one for one in series if one.runs))


def _row_series(row: Row, inputs: ReportInputs) -> Series:
    runs = [inputs.run(run.run) for run in row.runs]
    paper = {key: cell.paper for key, cell in row.cells.items() if cell and cell.paper}
    return Series(row.label, row.strategy, tuple(run for run in runs if run is not None), paper)
