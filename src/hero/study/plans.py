"""The studies of the paper as plain descriptions, and the runs that they need.

A study is a list of rows (a strategy with settings of its own), the tasks and backbones they are run on, and columns.
`plan` turns one into configurations: a group for each task and backbone, in it a run for each row and seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hero.data import TASKS, get_task
from hero.errors import HeroError, unknown_name
from hero.evaluation.shifts import PAPER_TASK
from hero.method.metrics import METRICS
from hero.models import get_backbone
from hero.report.tables import COMPARED
from hero.runs.config import RunConfig, all_settings, make_config, merge_settings
from hero.strategies import STRATEGIES
from hero.strategies.hero import HeroSettings
from hero.study.published import paper_row, paper_value

MAIN_TASKS = (
    "burgers",
    "kuramoto_sivashinsky",
    "anisotropic_diffusion",
    "decaying_turbulence",
    "swift_hohenberg",
    "unbalanced_advection",
)
ALL_TASKS = (
    "dispersion",
    "burgers",
    "kdv",
    "kuramoto_sivashinsky",
    "anisotropic_diffusion",
    "kolmogorov_flow",
    "decaying_turbulence",
    "swift_hohenberg",
    "unbalanced_advection",
)
BACKBONE_NAMES = {"fno": ("FNO", "FNO"), "transolver": ("Transolver", "Trans.")}
"""In titles and in labels, as the paper writes them."""
SUFFIXES = {
    "one_step": "",
    "push_forward": "-PF",
    "refiner": "-Ref.",
    "recurrent": "-RNO",
    "hero": "-HERO",
    "fixed_weight": "-fixed",
}
PAPER_STEPS = 10_000
SEEDS = 5
AXES = ("tasks", "backbones", "strategies", "seeds")
NAMED_BY_AXES = {"task.name": "--tasks", "backbone.name": "--backbones", "strategy": "--strategies", "seed": "--seeds"}

Paper = Mapping[str, Mapping[str, float | None]]


class Column(NamedTuple):
    """A number of the table; `direction` says whether "lower" or "higher" is better."""

    key: str
    label: str
    direction: str


ROLLOUT_COLUMNS = tuple(Column(key, label, METRICS[metric].direction) for _, metric, label, key in COMPARED)
OOD_COLUMNS = (
    Column("gm100", "GM100", "lower"),
    Column("nrmse@200", "nRMSE@200", "lower"),
    Column("mean_stability_horizon", "MSH", "higher"),
)
COST_COLUMNS = (
    Column("parameters", "Parameters", "lower"),
    Column("inference_ms_per_step", "Inference ms/step", "lower"),
    Column("peak_memory_mb", "Peak memory MB", "lower"),
    Column("train_steps_per_s", "Training steps/s", "higher"),
)
LANDSCAPE_COLUMNS = tuple(Column(f"nrmse@{t}", f"nRMSE@{t}", "lower") for t in (1, 40, 100, 160))


@dataclass(frozen=True)
class Row:
    """A line of the table: a strategy, and what is set for it beyond the settings of the study."""

    strategy: str
    label: str = ""
    """Default: the paper's name of the strategy on its backbone; {} stands for the value of the share."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: tuple[str, float] | None = None
    """A setting given as a share of train.steps."""


@dataclass(frozen=True)
class Study:
    """What is run and shown; `paper` finds the published numbers of a row by its configuration and label."""

    title: str
    tasks: tuple[str, ...]
    backbones: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...] = ROLLOUT_COLUMNS
    axes: tuple[str, ...] = AXES
    """What may be narrowed. Where strategies may, each row is one; other studies have rows of their own."""
    paper: Callable[[RunConfig, str], Paper | None] = lambda config, label: paper_value(
        config.task.name, config.backbone.name, config.strategy
    )
    note: Callable[[RunConfig], str] = lambda config: ""


def from_table(name: str) -> Callable[[RunConfig, str], Paper | None]:
    """Published numbers of a table on decaying turbulence with FNO, by label."""

    def find(config: RunConfig, label: str) -> Paper | None:
        of_paper = (config.task.name, config.backbone.name) == ("decaying_turbulence", "fno")
        return paper_row(name, label) if of_paper else None

    return find


def paper_cost(config: RunConfig, label: str) -> Paper | None:
    """The paper measured one 2D FNO."""
    of_paper = config.backbone.name == "fno" and config.make_task().dims == 2
    return paper_row("cost_fno_2d", config.strategy) if of_paper else None


def relative_interval(config: RunConfig) -> str:
    """The updates in which the relative term acts."""
    return f"{config.method.start}–{config.train.steps}" if isinstance(config.method, HeroSettings) else ""


def refresh_steps(config: RunConfig) -> str:
    """The updates at which the lagged operator is copied: all of a few, else the first two and the last."""
    if not isinstance(config.method, HeroSettings):
        return ""
    steps = list(range(config.method.start, config.train.steps, config.method.refresh))
    shown = [*steps[:2], "…", steps[-1]] if len(steps) > 4 else steps
    return ", ".join(map(str, shown))


def strategy_rows(*names: str, **more: Any) -> tuple[Row, ...]:
    """A row for each strategy."""
    return tuple(Row(name, **more) for name in names)


def candidate_row(label: str, *candidates: str) -> Row:
    """HERO with some of its candidates."""
    return Row("hero", label, {"hero.candidates": candidates})


def share_rows(setting: str, symbol: str, *shares: float) -> tuple[Row, ...]:
    """Push-forward, and HERO with a setting at these shares of the steps."""
    hero = (Row("hero", f"HERO ({symbol}={{}})", share=(setting, share)) for share in shares)
    return (Row("push_forward"), *hero)


COMPARED_STRATEGIES = strategy_rows("one_step", "push_forward", "refiner", "recurrent", "hero", "fixed_weight")
BOTH = ("fno", "transolver")
TURBULENCE = ("decaying_turbulence",)
OWN_ROWS = ("tasks", "backbones", "seeds")

STUDIES: dict[str, Study] = {
    "main": Study("Main results", MAIN_TASKS, BOTH, COMPARED_STRATEGIES),
    "complete": Study("Complete results", ALL_TASKS, BOTH, COMPARED_STRATEGIES),
    "ablation": Study(
        "Ablation of HERO",
        TURBULENCE,
        ("fno",),
        (
            *strategy_rows("one_step", "push_forward"),
            candidate_row("Self-relative", "self"),
            candidate_row("Lag-only HERO", "lag"),
            candidate_row("HERO w/o Lag", "perturbed", "self"),
            candidate_row("HERO w/o Pert", "lag", "self"),
            candidate_row("HERO w/o Self", "lag", "perturbed"),
            Row("hero", "HERO w/o Relative", {"hero.lambda_max": 0.0}),
            Row("hero", "Full HERO"),
            Row("fixed_weight"),
        ),
        axes=OWN_ROWS,
        paper=from_table("ablation_decaying_turbulence_fno"),
    ),
    "ood": Study(
        "Zero-shot under shifts",
        (PAPER_TASK,),
        ("fno",),
        strategy_rows("one_step", "push_forward", "recurrent", "hero", "fixed_weight"),
        OOD_COLUMNS,
        axes=("backbones", "strategies", "seeds"),
    ),
    "start_step": Study(
        "Start step of the relative term",
        TURBULENCE,
        ("fno",),
        share_rows("hero.start", "s0", 0.2, 0.4, 0.6, 0.8),
        axes=OWN_ROWS,
        paper=from_table("start_step_decaying_turbulence_fno"),
        note=relative_interval,
    ),
    "refresh": Study(
        "Refresh interval of the lagged operator",
        TURBULENCE,
        ("fno",),
        share_rows("hero.refresh", "R", 0.05, 0.1, 0.2, 0.4),
        axes=OWN_ROWS,
        paper=from_table("refresh_interval_decaying_turbulence_fno"),
        note=refresh_steps,
    ),
    "cost": Study(
        "Cost",
        TURBULENCE,
        ("fno",),
        COMPARED_STRATEGIES,
        COST_COLUMNS,
        axes=("tasks", "backbones", "strategies"),
        paper=paper_cost,
    ),
    "rollout_figure": Study(
        "Error along the rollout", TURBULENCE, ("fno",), strategy_rows("one_step", "push_forward", "hero")
    ),
    "landscape": Study(
        "Kept checkpoints along the rollout",
        TURBULENCE,
        ("fno",),
        strategy_rows("hero", share=("train.keep_every", 0.2)),
        LANDSCAPE_COLUMNS,
        paper=lambda config, label: None,
    ),
}


class PlannedRow(NamedTuple):
    """A row of one group, with a configuration for each seed; without seeds, `configs` has the one of seed 0."""

    label: str
    strategy: str
    note: str
    paper: Paper | None
    configs: tuple[RunConfig, ...]


class PlannedGroup(NamedTuple):
    """The rows of one task and backbone."""

    title: str
    task: str
    backbone: str
    rows: tuple[PlannedRow, ...]


@dataclass(frozen=True)
class Plan:
    """All that a study will run, and where its table goes."""

    name: str
    groups: tuple[PlannedGroup, ...]
    seeds: tuple[int, ...]
    preset: str
    changed: Mapping[str, Any]
    """Settings that are not the paper's."""

    @property
    def study(self) -> Study:
        return STUDIES[self.name]

    @property
    def folder(self) -> str:
        """A name that is the same for the same study and for no other."""
        runs = [row.configs[0].run_id() for group in self.groups for row in group.rows]
        digest = hashlib.sha256(json.dumps([self.name, runs, self.seeds]).encode()).hexdigest()[:8]
        return f"study-{self.name}-{digest}"

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
) -> Plan:
    """The runs of the study `name`; None leaves an axis as the study has it. HeroError for what does not fit."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    study = STUDIES[name]
    given = {"tasks": tasks, "backbones": backbones, "strategies": strategies, "seeds": seeds}
    for axis, values in given.items():
        if values is not None:
            check_axis(name, axis, values)
    for task in tasks or ():
        if task not in TASKS:
            raise unknown_name("task", task, TASKS)
    for backbone in backbones or ():
        get_backbone(backbone)
    settings = study_settings(name, preset, file, overrides or {})
    rows = study.rows if strategies is None else chosen_rows(study, strategies)
    numbers = tuple(range(SEEDS) if seeds is None else seeds) if "seeds" in study.axes else ()
    groups = tuple(
        planned_group(study, rows, settings, task, backbone, numbers)
        for task in tasks or study.tasks
        for backbone in backbones or study.backbones
    )
    return Plan(name, groups, numbers, preset, not_of_paper(settings))


def check_axis(name: str, axis: str, values: Sequence[Any]) -> None:
    """Refuse an axis that the study does not have, an empty one, and doubles."""
    if axis not in STUDIES[name].axes:
        has = ", ".join(f"--{axis}" for axis in STUDIES[name].axes)
        raise HeroError(f"study {name} has no --{axis} to choose from; it takes {has}.")
    if not values:
        raise HeroError(f"--{axis} is empty; name at least one, or leave it out for those of the paper.")
    for value in values:
        if list(values).count(value) > 1:
            raise HeroError(f"--{axis} has {value} twice; name each one once.")


def study_settings(name: str, preset: str, file: Path | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Preset, file and overrides as dotted keys, without what the axes of a study decide."""
    for key, option in NAMED_BY_AXES.items():
        if key in overrides:
            raise HeroError(f"{key} is an axis of a study; give {option} instead of --set.")
    varied = {row.share[0] for row in STUDIES[name].rows if row.share}
    for key in varied | {key for row in STUDIES[name].rows for key in row.settings}:
        if key in overrides:
            raise HeroError(f"{key} is what study {name} sets for each row; leave it out.")
    settings = merge_settings(preset, file, overrides)
    return {key: value for key, value in settings.items() if key not in NAMED_BY_AXES}


def not_of_paper(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults, which are the paper's."""
    defaults = {key: field.default for key, field in all_settings()}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {key: settings[key] for key, value in plain.items() if key not in defaults or defaults[key] != value}


def chosen_rows(study: Study, strategies: Sequence[str]) -> tuple[Row, ...]:
    """Rows for these strategies, which may also be ones that the paper does not have."""
    for name in strategies:
        if name not in STRATEGIES:
            raise unknown_name("strategy", name, STRATEGIES)
    return tuple(dataclasses.replace(study.rows[0], strategy=name) for name in strategies)


def planned_group(
    study: Study, rows: Sequence[Row], settings: Mapping[str, Any], task: str, backbone: str, seeds: Sequence[int]
) -> PlannedGroup:
    """The runs of one task and backbone."""
    title, short = BACKBONE_NAMES.get(backbone, (backbone.rpartition(":")[2],) * 2)
    named = {**settings, "task.name": task, "backbone.name": backbone}
    planned = tuple(planned_row(study, row, named, short, seeds) for row in rows)
    ids = [row.configs[0].run_id() for row in planned]
    if len(set(ids)) < len(ids):
        steps = planned[0].configs[0].train.steps
        raise HeroError(f"train.steps={steps} is too short to tell the rows of this study apart; give 20 or more.")
    return PlannedGroup(f"{get_task(task).title}, {title}", task, backbone, planned)


def planned_row(study: Study, row: Row, settings: Mapping[str, Any], short: str, seeds: Sequence[int]) -> PlannedRow:
    """One row with its seeds. Its published numbers are those of the same share of the paper's steps."""
    own: dict[str, Any] = {**settings, **row.settings, "strategy": row.strategy, "seed": 0}
    label = published = row.label or short + SUFFIXES.get(row.strategy, f"-{row.strategy}")
    if row.share:
        key, share = row.share
        steps = make_config(overrides={**own, "strategy": "one_step"}).train.steps
        own[key] = max(1, round(share * steps))
        label, published = row.label.format(own[key]) or label, row.label.format(f"{own[key] * PAPER_STEPS / steps:g}")
    config = make_config(overrides=own)
    configs = tuple(dataclasses.replace(config, seed=seed) for seed in seeds) or (config,)
    return PlannedRow(label, row.strategy, study.note(config), study.paper(config, published or label), configs)
