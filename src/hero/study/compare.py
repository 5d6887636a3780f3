"""Strategies against each other: a study with one group, with equal updates or equal compute.

Initial weights and batches depend on the seed alone, so runs of one seed differ in nothing but their strategy. A
finished run is found by its id and not repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hero.config.registry import trust
from hero.console import say
from hero.errors import HeroError, unknown_name
from hero.parts import BUDGETS
from hero.records import Record
from hero.runs.config import RunConfig, build
from hero.runs.folder import Run
from hero.runs.log import Log
from hero.study import plans
from hero.study.collect import Places, Plan, PlannedGroup, read_rollouts
from hero.study.cost.measure import seconds_in_turns
from hero.study.records import ROLLOUT_COLUMNS, Group, MetricColumn, SeedCell

COST = MetricColumn(key="cost", label="Cost", direction="lower")
COLUMNS = (*(column for column in ROLLOUT_COLUMNS if column.split == "test"), COST)


class UpdateCosts(Record):
    """Time of an update over the baseline's, by the ids of the runs."""

    remedy: ClassVar[str] = "delete it, so that the costs are measured again."

    baseline: str
    costs: dict[str, Annotated[float, Field(gt=0, lt=float("inf"))]]


def plan_comparison(
    settings: Mapping[str, Any],
    strategies: Sequence[str],
    seeds: Sequence[int],
    runs_dir: Path,
    data_dir: Path,
    budget: str = "steps",
    baseline: str | None = None,
    out: Path | None = None,
) -> Plan:
    """The runs of a comparison, for `hero.study.run.run`: every strategy with every seed.

    `settings` are dotted ones such as {"task.name": "kdv"}, not a configuration: values derived from the strategy or
    the number of updates are derived for each run. With the budget compute, the cost of an update is measured first and
    kept in `out`, which is `runs_dir/compare-ID` unless given. The strategies were typed by the user.
    """
    baseline = checked_baseline(strategies, seeds, budget, baseline)
    trust(*strategies)
    first = build(settings)
    task, backbone = first.task.name, first.backbone.name
    study = plans.Study(
        f"Comparison at equal {budget}", (task,), (backbone,), plans.strategy_rows(*strategies), COLUMNS
    )
    group = plans.planned_group(study, study.rows, settings, task, backbone, "", seeds)
    folder = plans.folder_name("compare", [group], list(seeds), budget, baseline)
    costs: dict[str, float] = {}
    if budget == "compute":
        costs = relative_costs(group, baseline, data_dir, (out or runs_dir / folder) / "costs.json")
        rows = [at_cost(row, costs[row.strategy]) for row in study.rows]
        group = plans.planned_group(study, rows, settings, task, backbone, "", seeds)
    study = dataclasses.replace(study, baseline=baseline, read=partial(read_comparison, baseline, costs))
    return Plan("compare", folder, study, (group,), tuple(seeds), changed=plans.not_of_paper(settings))


def checked_baseline(strategies: Sequence[str], seeds: Sequence[int], budget: str, baseline: str | None) -> str:
    """The strategy that the others are compared with; HeroError for a comparison that is not possible."""
    plans.check_values("strategies", strategies)
    plans.check_values("seeds", seeds)
    if budget not in BUDGETS:
        raise unknown_name("budget", budget, BUDGETS)
    baseline = baseline or ("push_forward" if "push_forward" in strategies else strategies[0])
    if baseline not in strategies:
        raise HeroError(f"`baseline`={baseline} is not among the strategies {', '.join(strategies)}; name one of them.")
    return baseline


def at_cost(row: plans.StudyRow, cost: float) -> plans.StudyRow:
    """The row with as many updates as the baseline's time allows, and a note that says how many."""

    def settings(config: RunConfig) -> Mapping[str, Any]:
        return {**row.settings(config), "train.steps": max(1, round(config.train.steps / cost))}

    def note(config: RunConfig) -> str:
        return "; ".join(filter(None, (f"{config.train.steps} updates", row.note(config))))

    return dataclasses.replace(row, settings=settings, note=note)


def relative_costs(group: PlannedGroup, baseline: str, data_dir: Path, path: Path) -> dict[str, float]:
    """Time of an update of each strategy over the baseline's, averaged over the phases of a run.

    The measurement is kept in `path` under the ids of the runs: a second one would differ a little, and give runs of
    other lengths.
    """
    configs = {row.strategy: row.configs[0] for row in group.rows}
    reference = configs[baseline].run_id()
    known = UpdateCosts.read(path) if path.is_file() else UpdateCosts(baseline="", costs={})
    costs = {**(known.costs if known.baseline == reference else {}), reference: 1.0}
    missing = {config.run_id(): config for config in configs.values() if config.run_id() not in costs}
    if missing:
        say(f"measuring the costs of {len(missing)} strategies relative to {baseline}", style="dim")
        seconds = seconds_in_turns({reference: configs[baseline], **missing}, data_dir)
        for name in missing:
            pairs = zip(seconds[name], seconds[reference], strict=True)
            costs[name] = statistics.median(ours / theirs for ours, theirs in pairs)
        UpdateCosts(baseline=reference, costs=costs).write(path)
    return {name: costs[config.run_id()] for name, config in configs.items()}


def read_comparison(
    baseline: str, costs: Mapping[str, float], group: PlannedGroup, columns: Sequence[MetricColumn], places: Places
) -> Iterator[Group]:
    """Numbers of metrics.json, and the cost of an update: as measured in `costs`, else as the runs logged it."""
    (found,) = read_rollouts(group, columns, places)
    runs = {row.strategy: {run.seed: Run(places.runs / run.run) for run in row.finished} for row in found.rows}
    logged = {name: {seed: logged_seconds(run.log) for seed, run in of.items()} for name, of in runs.items()}
    theirs, rows = logged[baseline], []
    for row in found.rows:
        ratios = [ours / theirs[seed] for seed, ours in logged[row.strategy].items() if seed in theirs]
        values = [costs[row.strategy]] if costs else ratios
        rows.append(row.model_copy(update={"cells": {**row.cells, "cost": SeedCell.of(values) if values else None}}))
    how = "measured before the runs" if costs else "as logged by the runs"
    notes = [f"Cost: time of an update over the time of {baseline}, {how}."]
    trained = [metrics.training for of in runs.values() for run in of.values() if (metrics := run.metrics)]
    if len({(one.compiled, one.device, one.threads) for one in trained}) > 1 and not costs:
        notes.append("The runs differ in compilation, device or threads (see their metrics.json): the costs mislead.")
    yield found.model_copy(update={"rows": tuple(rows), "notes": tuple(notes)})


def logged_seconds(log: Log) -> float:
    """Mean seconds of an update, from the stretches of a log without a validation: in short runs those dominate.

    A stretch reaches from one record of training to the next; the validation after update n falls into the one that
    begins at n or holds it. Where every stretch has one, all count.
    """
    trained = [(0, 0.0), *((record.step, record.seconds) for record in log.training)]
    stretches = list(itertools.pairwise(trained))
    free = [(a, b) for a, b in stretches if not any(a[0] <= record.step < b[0] for record in log.validation)]
    chosen = free or stretches
    return sum(b[1] - a[1] for a, b in chosen) / sum(b[0] - a[0] for a, b in chosen)
