"""Records of runs and studies that were never run, for the tests of tables, report, page, statistics and studies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hero.runs.records import Metrics, TrainingCost
from hero.study.records import (
    ROLLOUT_COLUMNS,
    AverageRanks,
    Group,
    MethodRow,
    MetricColumn,
    PairedTest,
    Published,
    RunEntry,
    SeedCell,
    Status,
    StudyResult,
    Summary,
    Wins,
)

ERROR = (MetricColumn.of("nrmse@100"),)
TITLE = "Burgers, FNO"


def fake_metrics(run: str, values: dict[str, Any], **facts: Any) -> Metrics:
    """The metrics of a run of HERO on Burgers with the same values on both splits; `facts` replace fields."""
    training = TrainingCost(steps=10_000, seconds=93.4, steps_per_second=107.1, compiled=True, device="cpu", threads=2)
    identity = {"task": "burgers", "backbone": "fno", "strategy": "hero", "seed": 0}
    numbers = {"parameters": 44801, "best_step": 9500, "trajectories": 30, "val": values, "test": values}
    return Metrics(**{"run": run, **identity, "training": training, "versions": {"torch": "2.9.0"}, **numbers, **facts})


def fake_row(
    label: str,
    values: Sequence[float] = (),
    columns: Sequence[MetricColumn] = ROLLOUT_COLUMNS,
    paper: Published | None = None,
    statuses: Sequence[Status] = (),
    runs: Sequence[str] = (),
    **facts: Any,
) -> MethodRow:
    """A row with these values, those of its finished runs, in every column."""
    found = statuses or ["finished"] * len(values)
    names = runs or [f"{label}-s{seed}" for seed in range(len(found))]
    entries = [
        RunEntry(seed=seed, run=name, status=status, reason="no memory" if status == "failed" else None)
        for seed, (name, status) in enumerate(zip(names, found, strict=True))
    ]
    cells = {column.key: SeedCell.of(values, paper) if values else None for column in columns}
    lost = sum(map(math.isinf, values))
    known = {"method": label, "strategy": label, "cells": cells, "runs": tuple(entries), "diverged": lost}
    return MethodRow(**{"label": label, **known, "rollouts": 30 if values else 0, **facts})


def fake_group(*rows: MethodRow, title: str = TITLE, **facts: Any) -> Group:
    return Group(**{"title": title, "task": "burgers", "backbone": "fno", "rows": rows, **facts})


def fake_test(label: str, baseline: str, group: str = TITLE, **facts: Any) -> PairedTest:
    """A paired test that leaves the question open."""
    found = {"method": label, "seeds": (0, 1), "ratio": 0.97531, "interval": (0.81234, 1.1), "diverged": 0,
             "baseline_diverged": 0, "t_p": 0.0321, "sign_flip_p": 0.5, "is_better": False, "p_holm": 0.5,
             "verdict": "open"}  # fmt: skip
    return PairedTest(**{"group": group, "label": label, "baseline": baseline, **found, **facts})


def fake_study(
    *groups: Group, tests: Sequence[PairedTest] = (), methods: Iterable[str] = (), baseline: str = "", **facts: Any
) -> StudyResult:
    """The result of a study; with `tests` it has statistics, in which every method won once against every other.

    `baseline` is the name of the method, if that is not its label.
    """
    methods = list(methods)
    wins = [Wins(method=a, against=b, wins=1, ties=1, losses=0, left_out=0) for a in methods for b in methods if a != b]
    statistics = tuple(
        Summary(metric="nrmse@100", baseline=baseline or test.baseline, direction="lower", alpha=0.05, tests=(test,),
                wins=tuple(wins), ranks=AverageRanks(groups=1))
        for test in tests
    )  # fmt: skip
    known = {"study": "main", "title": "Main results", "folder": "study-main-1", "columns": ROLLOUT_COLUMNS}
    return StudyResult(**{**known, "groups": groups, "statistics": statistics, **facts})
