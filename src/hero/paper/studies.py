"""The studies of the paper: the rows, tasks and columns of its tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hero.errors import HeroError
from hero.evaluation.elsewhere import OtherMetrics, evaluate_on, name_of
from hero.files import file_hash
from hero.paper.cost import read_costs
from hero.paper.landscape import read_landscape
from hero.parts import PRESETS, RECOMMENDED
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.study.collect import Places, PlannedGroup, RunNumbers, group_of, paper_of, read_row
from hero.study.plans import LOSSES, SPECIAL_ROWS, Study, StudyRow, strategy_rows
from hero.study.records import Group, MetricColumn

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
MAIN_TASKS = tuple(task for task in ALL_TASKS if task not in ("dispersion", "kdv", "kolmogorov_flow"))
TURBULENCE = ("decaying_turbulence",)
FNO = ("fno",)
BOTH = ("fno", "transolver")
COMPARED_STRATEGIES = strategy_rows("one_step", "push_forward", "refiner", "recurrent", "hero", "fixed_weight")
OWN_ROWS = ("tasks", "backbones", "loss", "seeds")  # axes of a study whose rows are not one for each strategy
ONE_LOSS = ("tasks", "backbones", "strategies", "seeds")

MAIN = Study("Main results", MAIN_TASKS, BOTH, COMPARED_STRATEGIES, losses=LOSSES)
COMPLETE = Study("Complete results", ALL_TASKS, BOTH, COMPARED_STRATEGIES)


def changed_row(strategy: str, label: str, settings: Mapping[str, Any], **more: Any) -> StudyRow:
    """A strategy with settings that are the same whatever the study is run with."""
    return StudyRow(strategy, label, lambda config: settings, **{"published": label, **more})


SAME_OPTIMIZER = "FNO-PF, optimizer of the recipe"
_recipe = dict(PRESETS[RECOMMENDED])
_recipe_strategy = _recipe.pop("strategy")
RECIPE = Study(
    "The recommended recipe and HERO as published",
    ("burgers",),
    FNO,
    (
        StudyRow("hero", "FNO-HERO, as published"),
        changed_row(_recipe_strategy, SAME_OPTIMIZER, {"train.optimizer": _recipe["train.optimizer"]}),
        changed_row(_recipe_strategy, "FNO, recommended recipe", _recipe),
    ),
    axes=("tasks", "backbones", "seeds"),
    baseline=SAME_OPTIMIZER,
)


def ablation_row(label: str, **settings: Any) -> StudyRow:
    """HERO with settings of its section."""
    return changed_row("hero", label, {f"hero.{name}": value for name, value in settings.items()})


ABLATION = Study(
    "Ablation of HERO",
    TURBULENCE,
    FNO,
    (
        StudyRow("one_step", published="FNO"),
        StudyRow("push_forward", published="FNO-PF"),
        ablation_row("Self-relative", candidates=("self",)),
        ablation_row("Lag-only HERO", candidates=("lag",)),
        ablation_row("HERO w/o Lag", candidates=("perturbed", "self")),
        ablation_row("HERO w/o Pert", candidates=("lag", "self")),
        ablation_row("HERO w/o Self", candidates=("lag", "perturbed")),
        ablation_row("HERO w/o Relative", lambda_max=0.0),
        dataclasses.replace(SPECIAL_ROWS["hero"], label="Full HERO", published="Full HERO"),
        StudyRow("fixed_weight"),
    ),
    losses=LOSSES,
    axes=OWN_ROWS,
    table="ablation",
)


@dataclass(frozen=True)
class Shift:
    """Settings of a task that differ from the training; the paper's tables are called by the name.

    All runs start a shift from the same states. Where only the grid changes these are the run's own test states,
    resampled: the same functions, warmed up on the grid of the training. Otherwise they are those of the shifted task.
    """

    name: str
    title: str
    settings: Mapping[str, Any]


PAPER_TASK = "kolmogorov_flow"
SHIFTS: dict[str, Shift] = {
    shift.name: shift
    for shift in (
        Shift("viscosity_6.67e-3", "viscosity 6.67e-3", {"viscosity": 6.67e-3, "substeps": 8}),
        Shift("forcing_1.50", "forcing 1.50", {"forcing_scale": 1.5, "substeps": 14}),
        Shift("resolution_96", "resolution 96²", {"resolution": 96, "substeps": 6}),
        Shift("resolution_128", "resolution 128²", {"resolution": 128, "substeps": 8}),
    )
}
"""The paper's shifts of `PAPER_TASK`, with the substeps that they need, as measured: docs/reference/shifts.md"""


def shifted(run: Path, data_dir: Path, shift: Shift) -> OtherMetrics:
    """The best checkpoint of a run on the test split of the shifted task: as many, as long, of the same seed.

    The result is kept as `hero evaluate RUN --set task.…` keeps it, and measured again when the checkpoint changes.
    """
    settings = {f"task.{name}": value for name, value in shift.settings.items()}
    with suppress(HeroError):  # missing or damaged
        known = OtherMetrics.read(run / "evaluations" / f"{name_of(settings, 'test')}.json")
        if known.settings == settings and known.weights == file_hash(Run(run).weights_file):
            return known
    return evaluate_on(run, data_dir, settings)[0]


def read_shifts(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """A group for each of the paper's shifts; a run that was not measured under it yet is measured now."""
    for shift in SHIFTS.values():

        def read(run: Run, shift: Shift = shift) -> RunNumbers:
            result = shifted(run.path, places.data, shift)
            found = {c.key: result.metrics[c.metric] for c in columns if c.metric in result.metrics}
            return RunNumbers(found, int(result.metrics["diverged"]), result.trajectories)

        rows = [
            read_row(row, columns, places, read, paper_of(group, row, f"{group.table}_{shift.name}"))
            for row in group.rows
        ]
        found = group_of(group, rows)
        yield found.model_copy(update={"title": f"{group.title}: {shift.title}", "shift": shift.name})


OOD = Study(
    "Zero-shot under shifts",
    (PAPER_TASK,),
    FNO,
    strategy_rows("one_step", "push_forward", "recurrent", "hero", "fixed_weight"),
    (
        MetricColumn.of("gm100"),
        MetricColumn.of("nrmse@200"),
        MetricColumn.of("stability_horizon_200", key="mean_stability_horizon", label="MSH"),
    ),
    axes=("backbones", "loss", "strategies", "seeds"),
    table="ood",
    read=read_shifts,
    measures=True,
    figures="none",
    tested="nrmse@200",
)


def refresh_steps(config: RunConfig) -> str:
    """The updates at which the lagged operator is copied: all of a few, else the first two and the last."""
    own = config.method.model_dump()
    steps = list(range(own["start"], config.train.steps, own["refresh"]))
    shown = [*steps[:2], "…", steps[-1]] if len(steps) > 4 else steps
    return ", ".join(map(str, shown))


def varied_study(
    title: str, table: str, setting: tuple[str, str], note: Callable[[RunConfig], str], values: Mapping[float, int]
) -> Study:
    """Push-forward, and HERO with a setting at shares of the updates, next to the values of the paper."""
    key, symbol = setting  # its dotted name, and the symbol in the paper's rows

    def row(share: float, value: int) -> StudyRow:
        def settings(config: RunConfig) -> Mapping[str, Any]:
            return {key: max(1, round(share * config.train.steps))}

        return StudyRow("hero", f"HERO ({symbol}={{}})", settings, f"HERO ({symbol}={value})", note, varied=key)

    rows = (StudyRow("push_forward", published="FNO-PF"), *(row(*pair) for pair in values.items()))
    return Study(title, TURBULENCE, FNO, rows, axes=OWN_ROWS, table=table)


START_STEP = varied_study(
    "Start step of the relative term",
    "start_step",
    ("hero.start", "s0"),
    lambda config: f"{config.method.model_dump()['start']}–{config.train.steps}",  # where the relative term acts
    {0.2: 2000, 0.4: 4000, 0.6: 6000, 0.8: 8000},
)
REFRESH = varied_study(
    "Refresh interval of the lagged operator",
    "refresh",
    ("hero.refresh", "R"),
    refresh_steps,
    {0.05: 500, 0.1: 1000, 0.2: 2000, 0.4: 4000},
)
PUBLISHED_SIZE = changed_row(
    "push_forward",
    "FNO-PF, 30,541 parameters",
    {"backbone.size": "paper_count"},
    published="",
    applies=lambda config: config.backbone.name == "fno" and config.source.dims == 2,
)
"""The 2D FNO with the parameters that the paper counts, next to the one that its layout gives."""
COST = Study(
    "Cost",
    TURBULENCE,
    FNO,
    (*COMPARED_STRATEGIES, PUBLISHED_SIZE),
    (
        MetricColumn(key="parameters", label="Parameters", direction="lower"),
        MetricColumn(key="inference_ms_per_step", label="Inference ms/step", direction="lower"),
        MetricColumn(key="peak_memory_mb", label="Peak memory MB", direction="lower"),
        MetricColumn(key="train_steps_per_s", label="Training steps/s", direction="higher"),
    ),
    axes=("tasks", "backbones", "strategies"),
    table="cost",
    read=read_costs,
    measures=True,
    figures="none",
    tested=None,
)
ROLLOUT_FIGURE = Study(
    "Error along the rollout",
    TURBULENCE,
    FNO,
    strategy_rows("one_step", "push_forward", "hero"),
    axes=ONE_LOSS,
    figures="rollout",
)
LANDSCAPE = Study(
    "Kept checkpoints along the rollout",
    TURBULENCE,
    FNO,
    strategy_rows("hero"),
    tuple(MetricColumn(key=f"nrmse@{t}", label=f"nRMSE@{t}", direction="lower") for t in (1, 40, 100, 160)),
    axes=ONE_LOSS,
    read=read_landscape,
    measures=True,
    needs_kept=True,
    figures="landscape",
    tested=None,
)
