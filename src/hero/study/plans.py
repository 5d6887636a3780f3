"""Studies as plain descriptions, and the runs that they need.

A study is one entry of `STUDIES`: its rows (a strategy with settings), the tasks, backbones and losses they are run
with, the columns, and the reader that takes the numbers from the run folders. `plan` turns a study into configurations:
a group for each task, backbone and loss, in it a run for each row and seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hero.config.registry import trust
from hero.config.settings import Facts, derivation
from hero.data import TASKS
from hero.errors import HeroError, unknown_name
from hero.method.metrics import Scoring
from hero.models import BACKBONES
from hero.runs.config import RunConfig, build, make_config, merge_settings
from hero.runs.sections import all_settings
from hero.strategies import STRATEGIES
from hero.study.collect import PlannedGroup, PlannedRow, Reader, read_rollouts
from hero.study.records import ROLLOUT_COLUMNS, MetricColumn
from hero.study.registries import STUDIES
from hero.study.rows import StudyRow, strategy_row

SEEDS = 5
MOST_VALUES = 10_000
"""Maximum number of values per axis."""
LOSSES = ("relative", "mse")
"""The absolute losses of the paper: D in its Method section, push-forward MSE in its implementation section."""
AXES = ("tasks", "backbones", "loss", "strategies", "seeds")
SETTINGS_OF_AXES = {
    "task.name": "tasks",
    "backbone.name": "backbones",
    "train.loss": "loss",
    "strategy": "strategies",
    "seed": "seeds",
}


@dataclass(frozen=True)
class Study:
    """The runs of a table, and how they are read, shown and tested."""

    title: str
    tasks: tuple[str, ...]
    backbones: tuple[str, ...]
    rows: tuple[StudyRow, ...]
    columns: tuple[MetricColumn, ...] = ROLLOUT_COLUMNS
    losses: tuple[str, ...] = ("relative",)
    axes: tuple[str, ...] = AXES
    """The axes that a command may narrow; strategies only where each row is one."""
    table: str = "complete"
    """The published table with the numbers of the rows."""
    read: Reader = read_rollouts
    measures: bool = False
    """Whether reading measures what is missing, beyond the runs."""
    needs_kept: bool = False
    """Whether it reads the checkpoints that a run keeps (train.keep_every)."""
    figures: str = "curves"
    """The kind of its figures, a name in `hero.report.registries.STUDY_FIGURES`."""
    setting: str = ""
    """The display name of the setting that the rows vary."""
    tested: str | None = "nrmse@100"
    """The column of the statistics; None where there is nothing to test."""
    baseline: str = "push_forward"
    """The strategy, or the label of the row, that the others are tested against."""


@dataclass(frozen=True)
class Plan:
    """All runs of a study; `folder` is the name of the folder of its table."""

    name: str
    folder: str
    study: Study
    groups: tuple[PlannedGroup, ...]
    seeds: tuple[int, ...]
    preset: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not the paper's."""

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


def plan(
    name: str,
    preset: str = "paper",
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    tasks: Sequence[str] | None = None,
    backbones: Sequence[str] | None = None,
    strategies: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    loss: str | None = None,
) -> Plan:
    """The runs of the study `name`; None leaves an axis as the study has it. HeroError for what does not fit.

    `loss` is an absolute loss, "relative" or "mse", or "both".
    """
    study = STUDIES[name]
    trust(*(backbones or ()), *(strategies or ()))
    given = {"tasks": tasks, "backbones": backbones, "loss": loss, "strategies": strategies, "seeds": seeds}
    for axis, values in given.items():
        if values is not None:
            check_axis(name, study, axis, [values] if isinstance(values, str) else values)
    for task in tasks or ():
        TASKS[task]  # refuses an unknown name
    settings = study_settings(name, study, preset, file, overrides or {})
    rows = study.rows if strategies is None else chosen_rows(study, strategies)
    numbers = tuple(range(SEEDS) if seeds is None else seeds) if "seeds" in study.axes else ()
    groups = tuple(
        planned_group(study, rows, settings, task, backbone, chosen_loss, numbers)
        for task in tasks or study.tasks
        for backbone in backbones or study.backbones
        for chosen_loss in chosen_losses(study, loss)
    )
    folder = folder_name(f"study-{name}", groups, numbers)
    return Plan(name, folder, study, groups, numbers, preset, not_of_paper(settings))


def folder_name(prefix: str, groups: Sequence[PlannedGroup], *more: Any) -> str:
    """A name that is the same for the same runs and for no others."""
    runs = [row.configs[0].run_id() for group in groups for row in group.rows]
    return f"{prefix}-{hashlib.sha256(json.dumps([prefix, runs, *more]).encode()).hexdigest()[:8]}"


def check_axis(name: str, study: Study, axis: str, values: Sequence[Any]) -> None:
    """Refuse an axis that the study does not have."""
    if axis not in study.axes:
        has = ", ".join(f"`{axis}`" for axis in study.axes)
        raise HeroError(f"study {name} has no `{axis}` to choose from; it takes {has}.")
    check_values(axis, values)


def check_values(axis: str, values: Sequence[Any]) -> None:
    """Refuse an empty axis, more values than anybody computes, and doubles."""
    if not values:
        raise HeroError(f"`{axis}` is empty; name at least one, or leave it out for the default.")
    count = values.stop if isinstance(values, range) else len(values)  # of a long range, len fails
    if count > MOST_VALUES:
        raise HeroError(f"`{axis}` has {count} values; use at most {MOST_VALUES}.")
    for value, count in Counter(values).items():
        if count > 1:
            raise HeroError(f"`{axis}` has {value} twice; name each one once.")


def chosen_losses(study: Study, loss: str | None) -> tuple[str, ...]:
    """The losses of the groups; an empty one leaves train.loss to the settings."""
    if "loss" not in study.axes:
        return ("",)
    if loss is None:
        return study.losses
    if loss not in (*LOSSES, "both"):
        raise unknown_name("loss", loss, (*LOSSES, "both"))
    return LOSSES if loss == "both" else (loss,)


def study_settings(
    name: str, study: Study, preset: str, file: Path | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Preset, file and overrides as dotted keys, without the settings that the axes of a study decide."""
    decided = {key: axis for key, axis in SETTINGS_OF_AXES.items() if axis != "loss" or axis in study.axes}
    for key, axis in decided.items():
        if key in overrides:
            raise HeroError(f"{key} is an axis of a study; use `{axis}` instead.")
    default = make_config()
    own = {key for row in study.rows for key in row.settings(default) if key.startswith("hero.")}
    for key in own & overrides.keys():
        raise HeroError(f"{key} is set by study {name} for each row; leave it out.")
    settings = merge_settings(preset, file, overrides)
    return {key: value for key, value in settings.items() if key not in decided}


def not_of_paper(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults, which are the paper's."""
    facts = Facts(int(settings.get("train.steps", Facts.steps)), strategy=STRATEGIES["push_forward"])
    rules = {key: (derivation(field), field.default) for key, field in all_settings()}
    defaults = {key: default if rule is None else rule.value(facts, {}) for key, (rule, default) in rules.items()}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {key: settings[key] for key, value in plain.items() if key not in defaults or defaults[key] != value}


def chosen_rows(study: Study, strategies: Sequence[str]) -> tuple[StudyRow, ...]:
    """Rows for these strategies, the study's own where it has one."""
    own = {name: tuple(row for row in study.rows if row.strategy == name) for name in strategies}
    return tuple(row for name in strategies for row in own[name] or (strategy_row(name),))


def planned_group(
    study: Study,
    rows: Sequence[StudyRow],
    settings: Mapping[str, Any],
    task: str,
    backbone: str,
    loss: str,
    seeds: Sequence[int],
) -> PlannedGroup:
    """The runs of one task, backbone and loss."""
    part = BACKBONES[backbone]
    named = {**settings, "task.name": task, "backbone.name": backbone} | ({"train.loss": loss} if loss else {})
    default = build({**named, "strategy": "one_step"})
    rows = [row for row in rows if row.applies(default)]
    names = [row.strategy for row in rows]
    planned: list[PlannedRow] = []
    for row in rows:
        found = planned_row(row, named, part.short, seeds, by_label=names.count(row.strategy) > 1)
        known = [first.label for first in planned if same_loss(first.configs[0], found.configs[0])]
        planned.append(dataclasses.replace(found, repeats=next(iter(known), None)))
    ids = [row.configs[0].run_id() for row in planned]
    if len(set(ids)) < len(ids):
        steps = planned[0].configs[0].train.steps
        raise HeroError(f"train.steps={steps} is too short to tell the rows of this study apart; use 20 or more.")
    title = f"{default.source.title}, {part.title}" + (f", {loss} loss" if loss else "")
    return PlannedGroup(title, task, backbone, loss, study.table, tuple(planned))


def same_loss(a: RunConfig, b: RunConfig) -> bool:
    """Whether two runs minimise the same loss on the same windows, so that they differ by rounding at most."""
    return loss_key(a) == loss_key(b)


def loss_key(config: RunConfig) -> dict[str, Any]:
    """All that decides the weights of a run, in its simplest form."""
    content, strategy = config.to_dict(), config.untrained_strategy
    if is_push_forward(config):
        content["strategy"] = "push_forward"
        content.pop(strategy.section, None)
    practical = config.flagged("rounding") | config.flagged("identity", False)
    content["train"] = {name: value for name, value in content["train"].items() if f"train.{name}" not in practical}
    return {**content, "first_windows_only": strategy.first_windows_only}


def is_push_forward(config: RunConfig) -> bool:
    """Whether the loss is push-forward's under these settings."""
    own = config.method
    return {
        "one_step": config.train.unroll == 1,
        "push_forward": getattr(own, "variant", "") == "full",
        "recurrent": True,
        "hero": not getattr(own, "lambda_max", 1),
        "fixed_weight": not getattr(own, "lambda_max", 1),
    }.get(config.strategy, False)


def planned_row(
    row: StudyRow, settings: Mapping[str, Any], short: str, seeds: Sequence[int], by_label: bool
) -> PlannedRow:
    """One row with its seeds; statistics know it by its strategy unless several rows share that."""
    given: dict[str, Any] = {**settings, "strategy": row.strategy, "seed": 0}
    own = row.settings(build(given))
    if any(key in settings and key.startswith(f"{STRATEGIES[row.strategy].section}.") for key in own):
        own = {}  # the command sets what the row would
    config = build({**given, **own})
    setting, suffix = own.get(row.varied), STRATEGIES[row.strategy].suffix
    label = row.label.format(setting) or short + (f"-{row.strategy}" if suffix is None else suffix)
    configs = tuple(dataclasses.replace(config, seed=seed) for seed in seeds) or (config,)
    return PlannedRow(
        label,
        label if by_label else row.strategy,
        row.strategy,
        configs,
        note=row.note(config),
        published=row.published or row.strategy,
        own=tuple(own),
        setting=setting,
    )
