"""From run folders to groups, rows and cells of study.json. A study names the reader that makes its groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hero import parts
from hero.config.registry import Registry
from hero.errors import HeroError
from hero.method.metrics import Scoring
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.records import Baseline, Errors, Metrics, Shortfall
from hero.study.records import FILE, Group, MethodRow, MetricColumn, Published, RunEntry, SeedCell, Status, StudyResult
from hero.study.statistics import summarise

if TYPE_CHECKING:
    from hero.study.plans import Study

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
    published: str = ""  # the name of the row in the paper's table
    own: tuple[str, ...] = ()  # settings that the row has in addition to the study's
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
class Plan:
    """All runs of a study; `folder` is the name of the folder of its table."""

    name: str
    folder: str
    study: Study
    groups: tuple[PlannedGroup, ...]
    seeds: tuple[int, ...]
    preset: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)  # settings that are not the paper's

    @property
    def scoring(self) -> Scoring:
        """How all rollouts are scored: where the data of groups differ in length, over the fewest steps."""
        found = [config.scoring for group in self.groups for row in group.rows for config in row.configs]
        return min(found, key=lambda one: one.steps)

    @property
    def configs(self) -> list[RunConfig]:
        """Every run, seed by seed: a study that is stopped early has all rows with the first seeds."""
        rows = [row for group in self.groups for row in group.rows]
        return [row.configs[i] for i in range(len(self.seeds)) for row in rows]


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
    channels: Mapping[str, float] = field(default_factory=dict)  # the error at the last step of each channel
    shortfalls: tuple[Shortfall, ...] = ()
    persistence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The fields of a group with the numbers of keeping the first state of the test rollouts."""


Paper = Mapping[str, Published]  # the published numbers of a row by the key of their column


@dataclass(frozen=True)
class Publication:
    """Published numbers by table, and the protocol behind them. They are references, never targets."""

    row: Callable[[str, str, str, str], Paper | None]
    """A row by table, task, backbone and name; None where there is none."""
    differences: Callable[[RunConfig, Collection[str]], list[str]]
    """How a run departs from the protocol, apart from the named settings, which the published row changes as well."""


PUBLICATIONS: Registry[Publication] = parts.PUBLICATIONS
Reader = Callable[[PlannedGroup, Sequence[MetricColumn], Places], Iterator[Group]]


def read_rollouts(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """Numbers of metrics.json."""
    idle: dict[str, Mapping[str, float]] = {}

    def read(run: Run) -> RunNumbers:
        metrics, errors = run.metrics, run.errors  # figures need the errors: a run without them is in neither
        assert metrics is not None
        found = numbers_of(metrics, errors, columns, places.scoring)
        idle.update(idle or found.persistence)  # the same for every run
        return found

    rows = [read_row(row, columns, places, read, paper_of(group, row)) for row in group.rows]
    yield group_of(group, rows).model_copy(update=idle)


def numbers_of(
    metrics: Metrics, errors: Errors | None, columns: Sequence[MetricColumn], scoring: Scoring
) -> RunNumbers:

    def at_last(channels: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        return {name: numbers[scoring.last] for name, numbers in channels.items() if scoring.last in numbers}

    found = metrics.over(scoring, errors)
    splits = {"val": found.val, "test": found.test}
    kept = found.baselines.get("persistence", Baseline(test={}))
    idle = {c.key: kept.test[c.metric] for c in columns if c.split == "test" and c.metric in kept.test}
    return RunNumbers(
        {c.key: splits[c.split][c.metric] for c in columns if c.split and c.metric in splits[c.split]},
        int(metrics.test["diverged"]),
        metrics.trajectories,
        at_last(found.channels),
        tuple(metrics.shortfalls),
        {"persistence": idle, "persistence_channels": at_last(kept.channels)} if idle else {},
    )


def group_of(group: PlannedGroup, rows: Sequence[MethodRow]) -> Group:
    return Group(title=group.title, task=group.task, backbone=group.backbone, loss=group.loss, rows=tuple(rows))


def published_row(table: str, task: str, backbone: str, row: str) -> Paper:
    found = (publication.row(table, task, backbone, row) for publication in PUBLICATIONS.values())
    return next(filter(None, found), {})


def differences(config: RunConfig, own: Collection[str] = ()) -> list[str]:
    """How a run departs from the published protocol, such as "train.steps=400 (paper: 10000)"; empty if it does not."""
    return [text for publication in PUBLICATIONS.values() for text in publication.differences(config, own)]


def published_numbers(config: RunConfig) -> Paper:
    """The published numbers of a run; none unless the run follows the protocol."""
    names = (config.task.name, config.backbone.name, config.strategy)
    return {} if differences(config) else published_row("complete", *names)


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
    names = [name for name in measured[0].channels if all(name in run.channels for run in measured)] if measured else []
    channels = {name: SeedCell.of([run.channels[name] for run in measured]) for name in names}
    return MethodRow(
        label=row.label,
        method=row.method,
        strategy=row.strategy,
        note=row.note,
        cells={key: SeedCell.of(found, numbers.get(key)) if found else None for key, found in values.items()},
        runs=tuple(runs),
        diverged=sum(run.diverged for run in measured),
        rollouts=sum(run.rollouts for run in measured),
        repeats=row.repeats,
        differs=differs,
        channels=channels if len(channels) > 1 else {},
        shortfalls=tuple(dict.fromkeys(one for run in measured for one in run.shortfalls)),
    )


def collect(planned: Plan, places: Places) -> StudyResult:
    """The result of a study as its run folders have it now; written to study.json."""
    study = planned.study
    columns = {column.key: column.at(planned.scoring) for column in study.columns}
    shown, tested = tuple({c.key: c for c in columns.values()}.values()), columns.get(study.tested or "")
    groups = tuple(found for group in planned.groups for found in study.read(group, shown, places))
    result = StudyResult(
        study=planned.name,
        title=study.title,
        folder=planned.folder,
        preset=planned.preset,
        seeds=planned.seeds,
        changed=dict(planned.changed),
        columns=shown,
        groups=groups,
        statistics=summarise(groups, tested.key, study.baseline, tested.direction) if tested else (),
        figures=study.figures,
    )
    result.write(places.out / FILE)
    return result
