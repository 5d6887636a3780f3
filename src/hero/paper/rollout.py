"""The paper's first figure: error curves, and next to them one state as truth and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from hero.data.trajectories import Trajectories
from hero.evaluation.measure import Trained
from hero.method.measures import median_trajectory
from hero.method.rollout import rollout
from hero.report.figures.charts import draw_errors, error_chart
from hero.report.figures.fields import draw_states
from hero.report.figures.runs import group_curves
from hero.report.figures.style import new_figure
from hero.study.records import Group, StudyResult


def rollout_figures(
    result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path
) -> Iterator[tuple[str, Figure]]:
    """The figure of a group that has finished runs, by its name.

    The drawn trajectory is the median one of the baseline of the study, or of the first row that was run, by the GM of
    its first seed; the state is the last that the GM reads, step 100 in the paper.
    """
    if not any(row.finished for row in group.rows):
        return
    reference = result.statistics[0].baseline if result.statistics else ""
    curves = group_curves(group, runs_dir)
    rows = {row.label: row for row in group.rows if row.label in curves}
    chosen = next((row for row in rows.values() if row.method == reference), next(iter(rows.values())))
    first = chosen.finished[0]
    trained = Trained(runs_dir / first.run, data_dir)
    config, source, step = trained.config, trained.config.source, trained.config.horizon
    index = median_trajectory(trained.run.errors.score, step)
    example = trained.data("test")[index : index + 1]
    truth = hidden(example.states[0, config.train.history + step - 1].cpu().numpy(), example)
    # The run of each row with this seed, or its first.
    same_seed = {label: [run for run in row.finished if run.seed == first.seed] for label, row in rows.items()}
    runs = {
        label: Trained(runs_dir / (same_seed[label] or row.finished)[0].run, data_dir) for label, row in rows.items()
    }
    states = {label: hidden(predicted(one, example, step), example) for label, one in runs.items()}
    numbers = {
        label: [one.run.errors.of_channel(c)[index, step - 1] for c in range(source.channels)]
        for label, one in runs.items()
    }
    figure = new_figure(12.5, 5.0)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    axes = left.subplots()
    draw_errors(axes, error_chart("", curves))
    draw_states(right, truth, states, numbers, source, config.scoring)
    by = f"the median of {chosen.label} by {config.scoring.gm_title} (seed {first.seed})"
    right.suptitle(f"step {step} of test trajectory {index}, {by}", fontsize=10)
    left.suptitle(group.title, fontsize=10)
    yield f"rollout-{name}", figure


def hidden(state: np.ndarray, example: Trajectories) -> np.ndarray:
    """The state with NaN at the masked points of its data."""
    return state if example.mask is None else np.where(example.mask.cpu().numpy(), state, np.nan)


@torch.no_grad()
def predicted(trained: Trained, example: Trajectories, step: int) -> np.ndarray:
    """The state (channel, *space) that a run predicts at `step` of its rollout along one trajectory."""
    tau = rollout(trained.step, example.first(trained.history, trained.device), step)
    prediction: np.ndarray = tau[0, -1].cpu().numpy()
    return prediction
