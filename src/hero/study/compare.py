"""Strategies against each other with equal updates: a study with one group.

Initial weights and batches depend on the seed alone, so runs of one seed differ in nothing but their strategy. A
finished run is found by its id and not repeated.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hero.config.registry import trust
from hero.errors import HeroError
from hero.runs.config import build
from hero.runs.folder import Run
from hero.runs.log import Log
from hero.study import plans
from hero.study.collect import Places, Plan, PlannedGroup, read_rollouts
from hero.study.records import ROLLOUT_COLUMNS, Group, MetricColumn, SeedCell

COST = MetricColumn(key="cost", label="Cost", direction="lower")
COLUMNS = (*(column for column in ROLLOUT_COLUMNS if column.split == "test"), COST)


def plan_comparison(
    settings: Mapping[str, Any], strategies: Sequence[str], seeds: Sequence[int], baseline: str | None = None
) -> Plan:
    """Every strategy with every seed; of the dotted `settings`, values are derived for each run on its own."""
    plans.check_values("strategies", strategies)
    plans.check_values("seeds", seeds)
    baseline = baseline or ("push_forward" if "push_forward" in strategies else strategies[0])
    if baseline not in strategies:
        raise HeroError(f"`baseline`={baseline} is not among the strategies {', '.join(strategies)}; name one of them.")
    trust(*strategies)
    first = build(settings)
    task, backbone = first.task.name, first.backbone.name
    study = plans.Study(
        "Comparison at equal updates",
        (task,),
        (backbone,),
        plans.strategy_rows(*strategies),
        COLUMNS,
        read=partial(read_comparison, baseline),
        baseline=baseline,
    )
    group = plans.planned_group(study, study.rows, settings, task, backbone, "", seeds)
    folder = plans.folder_name("compare", [group], list(seeds), baseline)
    return Plan("compare", folder, study, (group,), tuple(seeds), changed=plans.not_of_paper(settings))


def read_comparison(
    baseline: str, group: PlannedGroup, columns: Sequence[MetricColumn], places: Places
) -> Iterator[Group]:
    """Numbers of metrics.json, and the cost of an update over the baseline's as the runs logged it."""
    (found,) = read_rollouts(group, columns, places)
    runs = {row.strategy: {run.seed: Run(places.runs / run.run) for run in row.finished} for row in found.rows}
    logged = {name: {seed: logged_seconds(run.log) for seed, run in of.items()} for name, of in runs.items()}
    theirs, rows = logged[baseline], []
    for row in found.rows:
        ratios = [ours / theirs[seed] for seed, ours in logged[row.strategy].items() if seed in theirs]
        rows.append(row.model_copy(update={"cells": {**row.cells, "cost": SeedCell.of(ratios) if ratios else None}}))
    notes = [f"Cost: time of an update over the time of {baseline}, as logged by the runs."]
    trained = [metrics.training for of in runs.values() for run in of.values() if (metrics := run.metrics)]
    if len({(one.compiled, one.device, one.threads) for one in trained}) > 1:
        notes.append("The runs differ in compilation, device or threads (see their metrics.json): the costs mislead.")
    yield found.model_copy(update={"rows": tuple(rows), "notes": tuple(notes)})


def logged_seconds(log: Log) -> float:
    """Median seconds of an update between two records of a log, of which few have a validation between them."""
    return statistics.median(1 / record.steps_per_second for record in log.training)
