"""The figures of a study, from its run folders and test data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hero.data.windows import Context
from hero.evaluation.landscape import error_ratio
from hero.method.metrics import median_trajectory
from hero.method.rollout import rollout
from hero.report.figures.analysis import landscape_figure
from hero.report.figures.study_curves import curves_figure, rollout_figure, setting_figure
from hero.report.ranks import critical_difference_figure
from hero.runs.checkpoint import load_weights
from hero.runs.folder import choose_device, load_data
from hero.runs.old import load_run, read_errors
from hero.study.collect import stored_landscape
from hero.study.compare import BASELINE
from hero.study.plans import ROLLOUT_COLUMNS, Plan

DRAWN_STEP = 100
"""The step whose fields the paper's first figure shows."""
SETTINGS = {
    "start_step": ("start step s₀", lambda config: config.method.start),
    "refresh": ("refresh interval R", lambda config: config.method.refresh),
}

Group = Mapping[str, Any]
Named = tuple[str, Figure]


def study_figures(result: Mapping[str, Any], plan: Plan, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Names and figures of what there is to draw."""
    for number, group in enumerate(result["groups"]):
        name = f"{group['task']}-{group['backbone'].rpartition(':')[2]}"
        if plan.name == "landscape":
            yield from landscapes(group, runs_dir, data_dir)
        if plan.study.columns is not ROLLOUT_COLUMNS:
            continue
        errors = errors_of(group, runs_dir)
        if errors and plan.name == "rollout_figure":
            yield f"rollout-{name}", first_figure(group, errors, runs_dir, data_dir)
        elif errors:
            yield f"curves-{name}", curves_figure(group, errors)
        if errors and plan.name in SETTINGS:
            text, value = SETTINGS[plan.name]
            values = [value(row.configs[0]) for row in plan.groups[number].rows if row.strategy == "hero"]
            yield f"setting-{name}", setting_figure(group, result["columns"], values, text)
    ranks = critical_difference_figure(result["statistics"]) if result["statistics"] else None
    if ranks is not None:
        yield "ranks", ranks


def finished_runs(row: Mapping[str, Any], runs_dir: Path) -> dict[int, Path]:
    """The folders of the runs that the row's means are of, by seed."""
    return {run["seed"]: runs_dir / run["run"] for run in row["runs"] if run["status"] == "finished"}


def errors_of(group: Group, runs_dir: Path) -> dict[str, np.ndarray]:
    """nRMSE (seed, trajectory, step) of each row that has finished runs."""
    runs = {row["label"]: finished_runs(row, runs_dir).values() for row in group["rows"]}
    found = {label: [read_errors(run)["nrmse"] for run in of_row] for label, of_row in runs.items()}
    return {label: np.stack(errors) for label, errors in found.items() if errors}


def landscapes(group: Group, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """The figure of `hero landscape` for each run; the rows of the group share them."""
    runs = {run: None for row in group["rows"] for run in finished_runs(row, runs_dir).values()}
    for run in runs:
        result = stored_landscape(run, data_dir)
        errors, final = (np.array(result[key], dtype=np.float64) for key in ("errors", "final_errors"))
        title = f"{group['title']}, seed {load_run(run).seed}: error of kept checkpoints over that of the final model"
        figure = landscape_figure(result["steps"], error_ratio(errors, final), result["final_step"], title)
        yield f"landscape-{run.name}", figure


def first_figure(group: Group, errors: Mapping[str, np.ndarray], runs_dir: Path, data_dir: Path) -> Figure:
    """The paper's first figure. The drawn trajectory is the median one of the reference, by the GM100 of its rollouts.

    The reference is push-forward, or the first row that was run, with its first seed.
    """
    rows = {row["label"]: row for row in group["rows"] if row["label"] in errors}
    reference = next((row for row in rows.values() if row["strategy"] == BASELINE), next(iter(rows.values())))
    seed, run = next(iter(finished_runs(reference, runs_dir).items()))
    index = median_trajectory(read_errors(run)["nrmse"])
    config = load_run(run)
    device = choose_device(config.train.device)
    trajectory = load_data(config, "test", data_dir, device)[index]
    history = config.train.history
    step = min(DRAWN_STEP, len(trajectory) - history)
    predictions = {}
    for label, row in rows.items():
        runs = finished_runs(row, runs_dir)
        predictions[label] = predicted(runs.get(seed, next(iter(runs.values()))), trajectory, step, device)
    caption = f"step {step} of test trajectory {index}, the median of {reference['label']} by GM100 (seed {seed})"
    return rollout_figure(
        group, errors, trajectory[history + step - 1].numpy(), predictions, config.make_task(), caption
    )


@torch.no_grad()
def predicted(run: Path, trajectory: Tensor, step: int, device: torch.device) -> np.ndarray:
    """The state (channel, *space) that a run predicts at `step` of its rollout along `trajectory`."""
    config = load_run(run)
    model = config.build_operator()
    load_weights(run / "model.safetensors", model)
    stepper = config.make_strategy().stepper(model.to(device).eval())
    states = trajectory[None, : config.train.history].to(device)
    prediction: np.ndarray = rollout(stepper, Context(states), step)[0, -1].cpu().numpy()
    return prediction
