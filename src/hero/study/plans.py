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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hero import parts
from hero.config.registry import Registry, trust
from hero.config.settings import Facts, derivation
from hero.errors import HeroError, unknown_name
from hero.models import BACKBONES
from hero.runs.config import RunConfig, build, make_config, merge_settings
from hero.runs.sections import all_settings
from hero.strategies import STRATEGIES
from hero.study.collect import Plan, PlannedGroup, PlannedRow, Reader, read_rollouts
from hero.study.records import ROLLOUT_COLUMNS, MetricColumn

SEEDS = 5
MOST_VALUES = 10_000  # maximum number of values per axis
LOSSES = ("relative", "mse")
"""The absolute losses of the paper: D in its Method section, push-forward MSE in its implementation section."""
SETTINGS_OF_AXES = {
    "task.name": "tasks",
    "backbone.name": "backbones",
    "train.loss": "loss",
    "strategy": "strategies",
    "seed": "seeds",
}
AXES = tuple(SETTINGS_OF_AXES.values())


@dataclass(frozen=True)
class StudyRow:
    """A line of the table: a strategy, and its settings in addition to the study's."""

    strategy: str
    label: str = ""
    """Default: the name of the backbone with the suffix of the strategy; {} stands for the value of `varied`."""
    settings: Callable[[RunConfig], Mapping[str, Any]] = lambda config: {}
    """From the configuration that the row would have without them."""
    published: str = ""  # the name of the row in the published table; default: the strategy
    note: Callable[[RunConfig], str] = lambda config: ""
    applies: Callable[[RunConfig], bool] = lambda config: True  # whether the group of a configuration has the row
    varied: str = ""  # the dotted name of the setting that the rows of the study vary


@dataclass(frozen=True)
class Study:
    """The runs of a table, and how they are read, shown and tested."""

    title: str
    tasks: tuple[str, ...]
    backbones: tuple[str, ...]
    rows: tuple[StudyRow, ...]
    columns: tuple[MetricColumn, ...] = ROLLOUT_COLUMNS
    losses: tuple[str, ...] = ("relative",)
    axes: tuple[str, ...] = AXES  # the axes that a command may narrow; strategies only where each row is one
    table: str = "complete"  # the published table with the numbers of the rows
    read: Reader = read_rollouts
    measures: bool = False  # whether reading measures what is missing, beyond the runs
    needs_kept: bool = False  # whether it reads the checkpoints that a run keeps (train.keep_every)
    figures: str = "curves"  # the kind of its figures, a name in `hero.report.inputs.STUDY_FIGURES`
    tested: str | None = "nrmse@100"  # the column of the statistics; None where there is nothing to test
    baseline: str = "push_forward"  # the strategy, or the label of the row, that the others are tested against


STUDIES: Registry[Study] = parts.STUDIES


def whole_trajectories(config: RunConfig) -> Mapping[str, Any]:
    """Recurrent training as its name says: whole trajectories from their first state, at an equal budget.

    The batch is scaled so that an update makes as many operator steps, batch * unroll, as in the other rows.
    """
    train = config.train
    unroll = config.split("train").steps + 1 - train.history
    unroll -= unroll % train.bundle
    batch = max(1, round(train.batch * train.unroll / unroll))
    return {"recurrent.starts": "first", "train.unroll": unroll, "train.batch": batch}


def keep_checkpoints(config: RunConfig) -> Mapping[str, Any]:
    """Five checkpoints for `landscape`, unless the study is run with others; they change no number of a run."""
    return {"train.keep_every": config.train.keep_every or max(1, round(0.2 * config.train.steps))}


SPECIAL_ROWS = {
    "hero": StudyRow("hero", settings=keep_checkpoints),
    "recurrent": StudyRow(
        "recurrent",
        settings=whole_trajectories,
        note=lambda config: f"unroll {config.train.unroll} from the first state, batch {config.train.batch}",
    ),
}
"""Rows of strategies that have settings beyond the shared ones in every study."""


def strategy_rows(*names: str) -> tuple[StudyRow, ...]:
    """A row for each strategy, which may also be one that the paper does not have."""
    return tuple(SPECIAL_ROWS.get(name) or StudyRow(name) for name in names)


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
        if values is not None and axis not in study.axes:
            has = ", ".join(f"`{axis}`" for axis in study.axes)
            raise HeroError(f"study {name} has no `{axis}` to choose from; it takes {has}.")
        if values is not None:
            check_values(axis, [values] if isinstance(values, str) else values)
    if loss not in (None, *LOSSES, "both"):
        raise unknown_name("loss", str(loss), (*LOSSES, "both"))
    # An empty loss leaves train.loss to the settings.
    losses = study.losses if "loss" in study.axes else ("",)
    losses = losses if loss is None else LOSSES if loss == "both" else (loss,)
    settings = study_settings(name, study, preset, file, overrides or {})
    rows = study.rows
    if strategies is not None:  # the study's own where it has one
        own = {each: tuple(row for row in study.rows if row.strategy == each) for each in strategies}
        rows = tuple(row for each in strategies for row in own[each] or strategy_rows(each))
    numbers = tuple(range(SEEDS) if seeds is None else seeds) if "seeds" in study.axes else ()
    groups = tuple(
        planned_group(study, rows, settings, task, backbone, chosen, numbers)
        for task in tasks or study.tasks
        for backbone in backbones or study.backbones
        for chosen in losses
    )
    folder = folder_name(f"study-{name}", groups, numbers)
    return Plan(name, folder, study, groups, numbers, preset, not_of_paper(settings))


def folder_name(prefix: str, groups: Sequence[PlannedGroup], *more: Any) -> str:
    """A name that is the same for the same runs and for no others."""
    runs = [row.configs[0].run_id() for group in groups for row in group.rows]
    return f"{prefix}-{hashlib.sha256(json.dumps([prefix, runs, *more]).encode()).hexdigest()[:8]}"


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


def study_settings(
    name: str, study: Study, preset: str, file: Path | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Preset, file and overrides as dotted keys, without the settings that the axes of a study decide."""
    decided = {key: axis for key, axis in SETTINGS_OF_AXES.items() if axis != "loss" or axis in study.axes}
    for key in decided.keys() & overrides.keys():
        raise HeroError(f"{key} is an axis of a study; use `{decided[key]}` instead.")
    default = make_config()
    own = {key for row in study.rows for key in row.settings(default) if key.startswith("hero.")}
    for key in own & overrides.keys():
        raise HeroError(f"{key} is set by study {name} for each row; leave it out.")
    settings = merge_settings(preset, file, overrides)
    return {key: value for key, value in settings.items() if key not in decided}


def not_of_paper(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults, which are the paper's; names are not settings of all rows."""
    facts = Facts(int(settings.get("train.steps", Facts.steps)), strategy=STRATEGIES["push_forward"])
    rules = {key: (derivation(field), field.default) for key, field in all_settings()}
    defaults = {key: default if rule is None else rule.value(facts, {}) for key, (rule, default) in rules.items()}
    defaults |= {key: settings.get(key) for key in ("task.name", "backbone.name", "strategy")}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {key: settings[key] for key, value in plain.items() if key not in defaults or defaults[key] != value}


def planned_group(
    study: Study,
    rows: Sequence[StudyRow],
    settings: Mapping[str, Any],
    task: str,
    backbone: str,
    loss: str,
    seeds: Sequence[int],
) -> PlannedGroup:
    part = BACKBONES[backbone]
    named = {**settings, "task.name": task, "backbone.name": backbone} | ({"train.loss": loss} if loss else {})
    default = build({**named, "strategy": "one_step"})
    rows = [row for row in rows if row.applies(default)]
    names = [row.strategy for row in rows]
    planned: list[PlannedRow] = []
    for row in rows:
        found = planned_row(row, named, part.short, seeds, by_label=names.count(row.strategy) > 1)
        known = [first.label for first in planned if loss_key(first.configs[0]) == loss_key(found.configs[0])]
        planned.append(dataclasses.replace(found, repeats=next(iter(known), None)))
    ids = [row.configs[0].run_id() for row in planned]
    if len(set(ids)) < len(ids):
        steps = planned[0].configs[0].train.steps
        raise HeroError(f"train.steps={steps} is too short to tell the rows of this study apart; use 20 or more.")
    title = f"{default.source.title}, {part.title}" + (f", {loss} loss" if loss else "")
    return PlannedGroup(title, task, backbone, loss, study.table, tuple(planned))


def loss_key(config: RunConfig) -> dict[str, Any]:
    """All that decides the weights of a run, in its simplest form.

    Runs with equal keys minimise the same loss on the same windows, so that they differ by rounding at most.
    """
    content, strategy, own = config.to_dict(), config.untrained_strategy, config.method
    is_push_forward = {
        "one_step": config.train.unroll == 1,
        "push_forward": getattr(own, "variant", "") == "full",
        "recurrent": True,
        "hero": not getattr(own, "lambda_max", 1),
        "fixed_weight": not getattr(own, "lambda_max", 1),
    }
    if is_push_forward.get(config.strategy):
        content["strategy"] = "push_forward"
        content.pop(strategy.section, None)
    practical = config.flagged("rounding") | config.flagged("identity", False)
    content["train"] = {name: value for name, value in content["train"].items() if f"train.{name}" not in practical}
    return {**content, "first_windows_only": strategy.first_windows_only}


def planned_row(
    row: StudyRow, settings: Mapping[str, Any], short: str, seeds: Sequence[int], by_label: bool
) -> PlannedRow:
    """One row with its seeds; statistics know it by its strategy unless several rows share that."""
    given: dict[str, Any] = {**settings, "strategy": row.strategy, "seed": 0}
    part, own = STRATEGIES[row.strategy], row.settings(build(given))
    if any(key in settings and key.startswith(f"{part.section}.") for key in own):
        own = {}  # the command sets what the row would
    config = build({**given, **own})
    setting, suffix = own.get(row.varied), f"-{row.strategy}" if part.suffix is None else part.suffix
    recipe = f" ({config.recipe_name})" if config.recipe_name else ""
    label = row.label.format(setting) or f"{short}{suffix}{recipe}"
    return PlannedRow(
        label,
        label if by_label else row.strategy,
        row.strategy,
        tuple(dataclasses.replace(config, seed=seed) for seed in seeds) or (config,),
        note=row.note(config),
        published=row.published or row.strategy,
        own=tuple(own),
    )
