"""Runs put in order. Runs that were named by themselves become a study too, so that a report has one kind of content.

Runs are seeds of one method if their configurations differ in nothing but the seed. Where a method appears with several
configurations, its label names the settings in which they differ. No two lines of a page have the same name: what would
have, is told apart by a folder or an id. A panel is a group of a study with its runs.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hero.method.metrics import Scoring
from hero.models import BACKBONES
from hero.report.inputs import Curves, ReportedRun, ReportInputs
from hero.report.listing import method_title, title_of
from hero.strategies import STRATEGIES
from hero.study.collect import PlannedRow, finished_row, numbers_of, published_numbers
from hero.study.records import Group, MethodRow, MetricColumn, Published, RunEntry, StudyResult, rollout_columns
from hero.training.loggers import plain_settings

NAMED_SETTINGS = 3  # so many differing settings are named in a label


@dataclass(frozen=True)
class Method:
    """A row of a study with the runs of its seeds that could be read."""

    row: MethodRow
    runs: tuple[ReportedRun, ...]

    @property
    def curves(self) -> list[Curves]:
        return [run.curves for run in self.runs if run.curves]

    @property
    def published(self) -> dict[int, Published]:
        """The paper's nRMSE by rollout step."""
        cells = {step: self.row.cells.get(f"nrmse@{step}") for step in (1, 100)}
        return {step: cell.paper for step, cell in cells.items() if cell and cell.paper}


@dataclass(frozen=True)
class Panel:
    """The methods that are drawn into one pair of axes."""

    title: str
    methods: tuple[Method, ...]

    @property
    def curves(self) -> list[Curves]:
        return [curves for method in self.methods for curves in method.curves]

    @property
    def channels(self) -> list[str]:
        """The channels that are measured one by one in every run."""
        found = [curves.baselines for curves in self.curves]
        return [name for name in found[0] if name and all(name in one for one in found)] if found else []


def results_of(inputs: ReportInputs) -> list[StudyResult]:
    """The studies, and one more, or one for each horizon, of the runs that were named by themselves.

    A group whose title another result has as well has the folder of its study in it.
    """
    own = [inputs.runs[name] for name in inputs.named if name in inputs.runs]
    results = [*inputs.studies.values(), *studies_of_runs(own)]
    held = Counter(title for result in results for title in {group.title for group in result.groups})
    return [_renamed(result, {title for title, count in held.items() if count > 1}) for result in results]


def _renamed(result: StudyResult, titles: Container[str]) -> StudyResult:

    def new(title: str) -> str:
        place, comma, rest = title.partition(", ")
        return f"{place} ({result.folder or 'single runs'}){comma}{rest}" if title in titles else title

    groups = tuple(group.model_copy(update={"title": new(group.title)}) for group in result.groups)
    statistics = tuple(
        summary.model_copy(
            update={"tests": tuple(test.model_copy(update={"group": new(test.group)}) for test in summary.tests)}
        )
        for summary in result.statistics
    )
    return result.model_copy(update={"groups": groups, "statistics": statistics})


def panels_of(inputs: ReportInputs, results: Sequence[StudyResult]) -> Iterator[Panel]:
    """The groups with runs, except shifted ones: those are other data than the runs' own error curves."""
    for group in (group for result in results for group in result.groups if not group.shift):
        methods = [
            Method(row, tuple(inputs.runs[run.run] for run in row.runs if run.run in inputs.runs)) for row in group.rows
        ]
        if any(one.runs for one in methods):
            yield Panel(group.title, tuple(one for one in methods if one.runs))


def studies_of_runs(runs: Sequence[ReportedRun]) -> list[StudyResult]:
    """A group per task and backbone with a row per method, in the order in which they appear.

    Runs of a group that were scored over different numbers of steps are compared over the least; groups of one scoring
    share a table.
    """
    named: dict[tuple[str, str], list[ReportedRun]] = {}
    for run in runs:
        named.setdefault((run.config.task.name, run.config.backbone.name), []).append(run)
    by_scoring: dict[Scoring, list[tuple[Group, list[ReportedRun]]]] = {}
    for (task, backbone), some in named.items():
        scoring = min((run.metrics.scoring for run in some), key=lambda one: one.steps)
        columns, first = rollout_columns(scoring), some[0]
        rows = tuple(_row(label, seeds, columns, scoring) for label, seeds in _methods(some))
        title = f"{first.config.source.title}, {title_of(BACKBONES, backbone)}"
        idle = numbers_of(first.metrics, first.errors_in(scoring), columns, scoring).persistence
        group = Group(title=title, task=task, backbone=backbone, rows=rows).model_copy(update=idle)
        by_scoring.setdefault(scoring, []).append((group, some))
    found = []
    for scoring, pairs in by_scoring.items():
        own, groups = [run for _, some in pairs for run in some], tuple(group for group, _ in pairs)
        count = f"{len(own)} runs" if len(own) > 1 else method_title(own[0].config.strategy)
        title = count if len(groups) > 1 else f"{groups[0].title}{':' if len(own) > 1 else ','} {count}"
        seeds = tuple(sorted({run.config.seed for run in own}))
        columns = rollout_columns(scoring)
        found.append(StudyResult(study="runs", title=title, folder="", seeds=seeds, columns=columns, groups=groups))
    return found


def _row(label: str, runs: Sequence[ReportedRun], columns: Sequence[MetricColumn], scoring: Scoring) -> MethodRow:
    paper = published_numbers(runs[0].config) if runs[0].metrics.scoring == scoring else {}
    planned = PlannedRow(label, label, runs[0].config.strategy, tuple(run.config for run in runs))
    entries = [RunEntry(seed=run.config.seed, run=run.name, status="finished") for run in runs]
    return finished_row(
        planned,
        columns,
        [numbers_of(run.metrics, run.errors_in(scoring), columns, scoring) for run in runs],
        entries,
        (paper, ()),
    )


def _methods(runs: Sequence[ReportedRun]) -> Iterator[tuple[str, list[ReportedRun]]]:
    """The runs by label, strategies in the order of their registry, a user's own last."""
    order = {name: place for place, name in enumerate(STRATEGIES)}

    def place(run: ReportedRun) -> tuple[int, str, str]:
        return order.get(run.config.strategy, len(order)), run.config.strategy, run.config.recipe_name

    labels: list[str] = []
    methods: list[list[ReportedRun]] = []
    for (_, strategy, recipe), some in groupby(sorted(runs, key=place), key=place):
        found = _seeds_of_methods(some)
        settings = _settings_told([plain_settings(seeds[0].config) for seeds in found])
        told = [", ".join(filter(None, (recipe, text))) for text in settings]
        titles = [method_title(strategy) + (f" ({text})" if text else "") for text in told]
        labels += titles
        methods += found
    twice = {label for label, count in Counter(labels).items() if count > 1}
    for label, seeds in zip(labels, methods, strict=True):
        yield f"{label} ({seeds[0].name})" if label in twice else label, seeds


def _seeds_of_methods(runs: Iterable[ReportedRun]) -> list[list[ReportedRun]]:
    """The runs that differ in nothing but the seed; a second run of the same seed, such as a copy, is apart."""
    found: dict[tuple[str, int], list[ReportedRun]] = {}
    copies: Counter[tuple[str, int]] = Counter()
    for run in sorted(runs, key=lambda run: run.config.seed):
        method, seed = dataclasses.replace(run.config, seed=0).run_id(), run.config.seed
        found.setdefault((method, copies[method, seed]), []).append(run)
        copies[method, seed] += 1
    return list(found.values())


def _settings_told(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """In which settings each differs from the others, as "train.steps=300"; nothing where none does."""
    keys = dict.fromkeys(key for one in settings for key in one)
    differing = [key for key in keys if key != "seed" and len({repr(one.get(key)) for one in settings}) > 1]
    shown = differing[:NAMED_SETTINGS]
    more = ", …" if len(differing) > len(shown) else ""
    return [", ".join(f"{key}={one[key]}" if key in one else f"{key} not set" for key in shown) + more
            for one in settings]  # fmt: skip
