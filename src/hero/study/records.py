"""The stored result of a study or a comparison: `study.json`, one class per level.

A study has groups (a task, a backbone, a loss, sometimes a shift), a group has rows (a method), a row has a cell for
each column and a run for each seed. A comparison (`hero compare`) is a study with one group, stored in the same file.
Everything that tables, figures and pages show of a study is read from here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, computed_field

from hero.method.metrics import Scoring, metric_at, metric_named
from hero.records import Record
from hero.runs.records import Shortfall

FILE = "study.json"  # the name of the file in the folder of a study or a comparison

Direction = Literal["lower", "higher"]
Status = Literal["finished", "unfinished", "not run", "failed"]


class MetricColumn(Record):
    """A number of the table. `key` names it in the cells and in the published tables.

    Numbers of an evaluated run are `metric` of the split `split` of its metrics.json.
    """

    key: str
    label: str
    direction: Direction
    split: str = ""
    metric: str = ""

    @classmethod
    def of(cls, metric: str, split: str = "test", key: str = "", label: str = "") -> MetricColumn:
        """The column of a registered metric."""
        found = metric_named(metric)
        return cls(key=key or metric, label=label or found.title, direction=found.direction, split=split, metric=metric)

    def at(self, scoring: Scoring) -> MetricColumn:
        """This column where rollouts are scored in another way: Test GM100 becomes Test GM40."""
        old = self.metric or self.key
        new = metric_at(old, scoring)
        if scoring == Scoring() or (new == old and not self.metric):
            return self
        before, after = metric_named(old).title, metric_named(new, scoring).title
        own = "" if before in self.label or before == after else f" ({scoring.steps})"
        changed = {"key": self.key.replace(old, new), "label": self.label.replace(before, after) + own}
        return self.model_copy(update={**changed, "metric": self.metric and new})


ROLLOUT_COLUMNS = (
    MetricColumn.of("gm100", "val", "val_gm100", "Val GM100"),
    MetricColumn.of("gm100", "test", "test_gm100", "Test GM100"),
    MetricColumn.of("nrmse@1"),
    MetricColumn.of("nrmse@100"),
    MetricColumn.of("stable_step"),
)
"""The five numbers of the paper's tables, in its order."""


def rollout_columns(scoring: Scoring) -> tuple[MetricColumn, ...]:
    """`ROLLOUT_COLUMNS` in a scoring; where it is over a single step, two of them are the same."""
    columns = (column.at(scoring) for column in ROLLOUT_COLUMNS)
    return tuple({column.key: column for column in columns}.values())


class Published(Record):
    """A number of the paper; some of its tables give means alone."""

    mean: float
    std: float | None = None


class SeedCell(Record):
    """One number of a row over its seeds, next to the published one; infinite if a seed's value is infinite."""

    values: tuple[float, ...]  # one for each finished run, in the order of `MethodRow.runs`
    mean: float
    std: float | None = None  # sample standard deviation; None for one seed and where a value is infinite
    paper: Published | None = None  # only next to runs that are the paper's: see `MethodRow.differs`

    @classmethod
    def of(cls, values: Sequence[float], paper: Published | None = None) -> SeedCell:
        """The cell of these values: none is left out, so a diverged run makes the mean infinite."""
        values = tuple(values)
        if not all(map(math.isfinite, values)):
            return cls(values=values, mean=math.inf, paper=paper)
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(values=values, mean=statistics.fmean(values), std=std, paper=paper)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def n(self) -> int:
        """Seeds that the mean is over."""
        return len(self.values)


class RunEntry(Record):
    """One run of a row; `reason` is the sentence that explains a failed one."""

    seed: int
    run: str
    status: Status
    reason: str | None = None


class MethodRow(Record):
    """A method with its seeds."""

    label: str
    method: str  # the name by which statistics know the method in all groups: labels name the backbone too
    strategy: str
    note: str = ""
    cells: dict[str, SeedCell | None]  # by the key of the column; None where no run has this number
    runs: tuple[RunEntry, ...] = ()
    diverged: int = 0
    rollouts: int = 0
    """Test rollouts of the finished runs, of which `diverged` left the finite range; 0 where none are counted."""
    repeats: str | None = None
    """Label of an earlier row of the group that trains the same loss: tests count that one alone."""
    differs: tuple[str, ...] = ()
    """Settings that are not the paper's where it has numbers for this row, which then are not shown."""
    channels: dict[str, SeedCell] = Field(default_factory=dict)
    """The error at the last step of each channel, where channels are measured one by one."""
    shortfalls: tuple[Shortfall, ...] = ()  # baselines that one of its runs does not beat

    @property
    def finished(self) -> tuple[RunEntry, ...]:
        return tuple(run for run in self.runs if run.status == "finished")


class Group(Record):
    """The rows that are compared with each other."""

    title: str
    task: str
    backbone: str
    loss: str = ""
    shift: str | None = None
    rows: tuple[MethodRow, ...]
    notes: tuple[str, ...] = ()  # how the numbers were measured, where the study does not say
    persistence: dict[str, float] = Field(default_factory=dict)
    """The numbers of keeping the first state, by the key of the column; empty where they are not measured."""
    persistence_channels: dict[str, float] = Field(default_factory=dict)
    """The error of keeping the first state at the last step of each channel."""

    @property
    def compares_runs(self) -> bool:
        """Whether each row has runs of its own: rows may also be checkpoints of the same runs."""
        names = [run.run for row in self.rows for run in row.runs]
        return len(names) == len(set(names))

    def best(self, column: MetricColumn) -> float | None:
        """The best finite mean of a column; None where there is nothing that it is better than."""
        means = {cell.mean for row in self.rows if (cell := row.cells.get(column.key))}
        finite = [mean for mean in means if math.isfinite(mean)]
        choose = min if column.direction == "lower" else max
        return choose(finite) if finite and len(means) > 1 else None


class Pairs(Record):
    """Values of a row compared with the baseline's, paired by seed, on log ratios."""

    ratio: float | None  # geometric mean of the ratios to the baseline; None if both sides diverged
    interval: tuple[float, float] | None  # 95 % t-interval of the ratio
    diverged: int
    baseline_diverged: int  # paired seeds with an infinite value
    t_p: float | None  # two-sided p of the t-test, which is not defined for every sample
    sign_flip_p: float
    is_better: bool  # which way the difference goes, certain or not

    @property
    def p(self) -> float:
        """p of the test that decides: t where it is defined, else sign-flip."""
        return self.sign_flip_p if self.t_p is None else self.t_p


class PairedTest(Pairs):
    """A row against the baseline of its group."""

    group: str
    label: str
    method: str
    baseline: str  # label of the baseline's row
    seeds: tuple[int, ...]
    p_holm: float  # `p` corrected over all tests of the study
    verdict: Literal["better", "worse", "open"]

    @property
    def n(self) -> int:
        return len(self.seeds)


class Summary(Record):
    """The statistics of the groups that share a loss."""

    loss: str = ""
    metric: str
    baseline: str
    direction: Direction
    tests: tuple[PairedTest, ...]
    corrected: int = 0  # tests that the correction is over: all of the study, whatever their loss


class StudyResult(Record):
    """The content of `study.json`."""

    remedy: ClassVar[str] = "the same `hero study` or `hero compare` command rewrites it."

    study: str  # the name of the study; "compare" for a comparison
    title: str
    folder: str
    preset: str = ""
    seeds: tuple[int, ...] = ()
    changed: dict[str, Any] = Field(default_factory=dict)  # settings of all rows that are not the paper's
    columns: tuple[MetricColumn, ...]
    groups: tuple[Group, ...]
    statistics: tuple[Summary, ...] = ()  # one for each loss; empty where nothing is tested
    figures: str = "none"

    @property
    def rows(self) -> Iterator[MethodRow]:
        return (row for group in self.groups for row in group.rows)

    @property
    def runs(self) -> dict[str, RunEntry]:
        """Every run once, by its name."""
        return {run.run: run for row in self.rows for run in row.runs}

    @property
    def failed(self) -> dict[str, str]:
        return {name: run.reason or "" for name, run in self.runs.items() if run.status == "failed"}
