"""Runs put in order. Runs that were named by themselves become a study too, so that a report has one kind of content.

Runs are seeds of one method if their configurations differ in nothing but the seed. Where a method appears with several
configurations, its label names the settings in which they differ. A panel is a group of a study with its runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from hero.method.metrics import HORIZON, diverged
from hero.models import BACKBONES
from hero.report.content import published_numbers
from hero.report.inputs import ReportedRun, ReportInputs
from hero.report.names import method_title, title_of
from hero.strategies import STRATEGIES
from hero.study.records import Cell, Column, Group, Row, RunEntry, StudyResult, best_marked, rollout_columns
from hero.training.loggers import flat

NAMED_SETTINGS = 3
"""So many differing settings are named in a label."""


@dataclass(frozen=True)
class Series:
    """A row of a study with the runs of its seeds that could be read."""

    row: Row
    runs: tuple[ReportedRun, ...]

    def stacked(self, name: str) -> list[np.ndarray]:
        """The arrays (trajectory, step) of the runs that have them."""
        return [run.errors.test[name] for run in self.runs if run.errors]


@dataclass(frozen=True)
class Panel:
    """The series that are drawn into one pair of axes."""

    title: str
    series: tuple[Series, ...]


def results_of(inputs: ReportInputs) -> list[StudyResult]:
    """The studies, and one more, or one for each horizon, of the runs that were named by themselves."""
    own = [inputs.runs[name] for name in inputs.named if name in inputs.runs]
    return [*inputs.studies.values(), *studies_of_runs(own)]


def panels_of(inputs: ReportInputs) -> Iterator[Panel]:
    """The groups with runs, except shifted ones: those are other data than the runs' own error curves."""
    for group in (group for result in results_of(inputs) for group in result.groups if not group.shift):
        series = [
            Series(row, tuple(inputs.runs[run.run] for run in row.runs if run.run in inputs.runs)) for row in group.rows
        ]
        if any(one.runs for one in series):
            yield Panel(group.title, tuple(one for one in series if one.runs))


def studies_of_runs(runs: Sequence[ReportedRun]) -> list[StudyResult]:
    """A group per task and backbone, in the order in which they appear; groups of one horizon share a table.

    Runs of a group that were scored over different numbers of steps are compared over the least.
    """
    found: dict[tuple[str, str], list[ReportedRun]] = {}
    for run in runs:
        found.setdefault((run.config.task.name, run.config.backbone.name), []).append(run)
    by_horizon: dict[int, list[ReportedRun]] = {}
    for some in found.values():
        by_horizon.setdefault(min(run.metrics.horizon for run in some), []).extend(some)
    return [study_of_runs(some, horizon) for horizon, some in by_horizon.items()]


def study_of_runs(runs: Sequence[ReportedRun], horizon: int = HORIZON) -> StudyResult:
    """A group per task and backbone with a row per method; numbers are over `horizon` steps."""
    found: dict[tuple[str, str], list[ReportedRun]] = {}
    for run in runs:
        found.setdefault((run.config.task.name, run.config.backbone.name), []).append(run)
    groups, columns = [], rollout_columns(horizon)
    for (task, backbone), some in found.items():
        rows = best_marked([_row(label, seeds, columns, horizon) for label, seeds in _methods(some)], columns)
        title = f"{some[0].config.make_source().title}, {title_of(BACKBONES, backbone)}"
        groups.append(Group(title=title, task=task, backbone=backbone, rows=rows))
    count = f"{len(runs)} runs" if len(runs) > 1 else method_title(runs[0].config.strategy)
    title = count if len(groups) > 1 else f"{groups[0].title}{':' if len(runs) > 1 else ','} {count}"
    seeds = tuple(sorted({run.config.seed for run in runs}))
    return StudyResult(study="runs", title=title, folder="", seeds=seeds, columns=columns, groups=tuple(groups))


def _row(label: str, runs: Sequence[ReportedRun], columns: Sequence[Column], horizon: int) -> Row:
    paper = published_numbers(runs[0].config) if runs[0].metrics.horizon == horizon else {}
    numbers, cells = [run.metrics.over(horizon, run.errors) for run in runs], {}
    for column in columns:
        values = [of[column.split].get(column.metric) for of in numbers]
        known = [value for value in values if value is not None]
        cells[column.key] = Cell.of(known, paper.get(column.key)) if known else None
    errors = [run.errors.nrmse for run in runs if run.errors]
    return Row(
        label=label,
        method=label,
        strategy=runs[0].config.strategy,
        cells=cells,
        runs=tuple(RunEntry(seed=run.config.seed, run=run.name, status="finished") for run in runs),
        diverged=sum(map(diverged, errors)),
        rollouts=sum(map(len, errors)),
    )


def _methods(runs: Sequence[ReportedRun]) -> Iterator[tuple[str, list[ReportedRun]]]:
    """The runs by label, strategies in the order of their registry, a user's own last."""
    order = {name: place for place, name in enumerate(STRATEGIES)}

    def place(run: ReportedRun) -> tuple[int, str]:
        return order.get(run.config.strategy, len(order)), run.config.strategy

    for (_, strategy), some in groupby(sorted(runs, key=place), key=place):
        methods: dict[str, list[ReportedRun]] = {}
        for run in sorted(some, key=lambda run: run.config.seed):
            methods.setdefault(dataclasses.replace(run.config, seed=0).run_id(), []).append(run)
        suffixes = _suffixes([seeds[0] for seeds in methods.values()])
        yield from zip((method_title(strategy) + suffix for suffix in suffixes), methods.values(), strict=True)


def _suffixes(runs: Sequence[ReportedRun]) -> list[str]:
    """In which settings each run differs from the others, as " (train.steps=300)"; nothing for a single one."""
    settings = [flat(run.config.to_dict()) for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    differing = [key for key in keys if key != "seed" and len({repr(one.get(key)) for one in settings}) > 1]
    if not differing:
        return [""] * len(runs)
    shown = differing[:NAMED_SETTINGS]
    more = ", …" if len(differing) > len(shown) else ""
    texts = [", ".join(f"{key}={one.get(key)}" for key in shown) + more for one in settings]
    if len(set(texts)) < len(texts):  # the named settings do not tell them apart
        texts = [f"{text}, {run.name.rpartition('-')[2]}" for text, run in zip(texts, runs, strict=True)]
    return [f" ({text})" for text in texts]
