"""From run folders to groups, rows and cells of study.json. A study names the reader that makes its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hero.errors import HeroError
from hero.method.metrics import Scoring, diverged
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.records import Baseline, Errors, Metrics, Shortfall
from hero.study.records import Group, MethodRow, MetricColumn, Published, RunEntry, SeedCell, Status, best_marked
from hero.study.registries import differences, published_row

STATUSES: Mapping[str, Status] = {"finished": "finished", "not run": "not run"}
"""States of a run that a study tells apart; every other one is unfinished."""


@dataclass(frozen=True)
class PlannedRow:
    """A row of one group, with a configuration for each seed; without seeds, one with seed 0."""

    label: str
    method: str
    strategy: str
    configs: tuple[RunConfig, ...]
    note: str = ""
    published: str = ""
    """The name of the row in the paper's table."""
    own: tuple[str, ...] = ()
    """Settings that the row has in addition to the study's."""
    setting: float | None = None
    repeats: str | None = None


@dataclass(frozen=True)
class PlannedGroup:
    """The rows of one task, backbone and loss; `table` is the paper's table with their numbers."""

    title: str
    task: str
    backbone: str
    loss: str
    table: str
    rows: tuple[PlannedRow, ...]


@dataclass(frozen=True)
class Places:
    """Where a study is read from, the runs that failed just now with their reasons, and the scoring of its numbers."""

    runs: Path
    data: Path
    out: Path
    failed: Mapping[str, str] = field(default_factory=dict)
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class RunNumbers:
    """The numbers of one run, by column, and how many of its rollouts diverged; without rollouts, 0 of 0."""

    values: Mapping[str, float]
    diverged: int = 0
    rollouts: int = 0
    channels: Mapping[str, float] = field(default_factory=dict)
    """The error at the last step of each channel."""
    shortfalls: tuple[Shortfall, ...] = ()


Paper = Mapping[str, Published]
Reader = Callable[[PlannedGroup, Sequence[MetricColumn], Places], Iterator[Group]]


def read_rollouts(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """Numbers of metrics.json."""
    idle: dict[str, dict[str, float]] = {}

    def read(run: Run) -> RunNumbers:
        metrics, errors = run.metrics, run.errors  # figures need the errors: a run without them is in neither
        assert metrics is not None
        idle.update(idle or persistence_of(metrics, errors, columns, places.scoring))  # the same for every run
        return numbers_of(metrics, errors, columns, places.scoring)

    rows = [read_row(row, columns, places, read, paper_of(group, row)) for row in group.rows]
    yield group_of(group, columns, rows).model_copy(update=idle)


def numbers_of(
    metrics: Metrics, errors: Errors | None, columns: Sequence[MetricColumn], scoring: Scoring
) -> RunNumbers:
    """The numbers of one run in a scoring."""
    found = metrics.over(scoring, errors)
    splits = {"val": found.val, "test": found.test}
    return RunNumbers(
        {c.key: splits[c.split][c.metric] for c in columns if c.split and c.metric in splits[c.split]},
        diverged(errors.score) if errors else 0,
        len(errors.score) if errors else 0,
        at_last(found.channels, scoring),
        tuple(metrics.shortfalls),
    )


def at_last(channels: Mapping[str, Mapping[str, float]], scoring: Scoring) -> dict[str, float]:
    """The error of each channel at the last step."""
    return {name: numbers[scoring.last] for name, numbers in channels.items() if scoring.last in numbers}


def persistence_of(
    metrics: Metrics, errors: Errors | None, columns: Sequence[MetricColumn], scoring: Scoring
) -> dict[str, dict[str, float]]:
    """The fields of a group with the numbers of keeping the first state on the test set of a run."""
    baseline = metrics.over(scoring, errors).baselines.get("persistence", Baseline(test={}))
    found = {c.key: baseline.test[c.metric] for c in columns if c.split == "test" and c.metric in baseline.test}
    return {"persistence": found, "persistence_channels": at_last(baseline.channels, scoring)} if found else {}


def group_of(group: PlannedGroup, columns: Sequence[MetricColumn], rows: Sequence[MethodRow]) -> Group:
    """A group with the best of each column marked."""
    return Group(
        title=group.title,
        task=group.task,
        backbone=group.backbone,
        loss=group.loss,
        rows=best_marked(rows, columns),
    )


def paper_of(group: PlannedGroup, row: PlannedRow, table: str = "", task: str = "") -> tuple[Paper, tuple[str, ...]]:
    """The published numbers of a row if its runs are the paper's, else the settings in which they differ."""
    found = published_row(table or group.table, task or group.task, group.backbone, row.published)
    differs = tuple(differences(row.configs[0], row.own)) if found else ()
    return {} if differs else found, differs


def read_row(
    row: PlannedRow,
    columns: Sequence[MetricColumn],
    places: Places,
    read: Callable[[Run], RunNumbers],
    paper: tuple[Paper, tuple[str, ...]],
) -> MethodRow:
    """A row from its finished runs; the others are named."""
    runs: list[RunEntry] = []
    measured: list[RunNumbers] = []
    for config in row.configs:
        run = Run(places.runs / config.run_id())
        status: Status = "failed"
        reason = places.failed.get(run.name)
        try:
            if not reason:
                status = STATUSES.get(run.status, "unfinished")
            if status == "finished":
                measured.append(read(run))
        except HeroError as error:
            status, reason = "failed", str(error)
        runs.append(RunEntry(seed=config.seed, run=run.name, status=status, reason=reason))
    return finished_row(row, columns, measured, runs, paper)


def finished_row(
    row: PlannedRow,
    columns: Sequence[MetricColumn],
    measured: Sequence[RunNumbers],
    runs: Sequence[RunEntry],
    paper: tuple[Paper, tuple[str, ...]],
) -> MethodRow:
    """A row of numbers over seeds, next to the published ones."""
    numbers, differs = paper
    keys = [column.key for column in columns]
    values = {key: [run.values[key] for run in measured if key in run.values] for key in keys}
    return MethodRow(
        label=row.label,
        method=row.method,
        strategy=row.strategy,
        note=row.note,
        cells={key: SeedCell.of(found, numbers.get(key)) if found else None for key, found in values.items()},
        runs=tuple(runs),
        diverged=sum(run.diverged for run in measured),
        rollouts=sum(run.rollouts for run in measured),
        setting=row.setting,
        repeats=row.repeats,
        differs=differs,
        channels=channel_cells([run.channels for run in measured]),
        shortfalls=tuple(dict.fromkeys(one for run in measured for one in run.shortfalls)),
    )


def channel_cells(found: Sequence[Mapping[str, float]]) -> dict[str, SeedCell]:
    """The numbers of each channel over seeds; none where there is a single channel."""
    names = [name for name in (found[0] if found else ()) if all(name in one for one in found)]
    return {name: SeedCell.of([one[name] for one in found]) for name in names} if len(names) > 1 else {}
