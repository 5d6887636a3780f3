"""One figure of one run for a notebook: the error along the rollout, and a predicted state next to the truth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hero.data import Source
from hero.report.figures.curves import draw_methods
from hero.report.figures.studies import draw_states
from hero.report.figures.style import new_figure
from hero.runs.rollouts import Rollout


def result_figure(title: str, errors: np.ndarray, rollout: Rollout | None, source: Source, step: int) -> Figure:
    """Errors (trajectory, step), and the state after `step` steps of the stored rollout if there is one on a grid."""
    has_state = rollout is not None and not source.cloud
    figure = new_figure(12.5 if has_state else 6.5, 4.2)
    left, *right = figure.subfigures(1, 1 + has_state, squeeze=False, width_ratios=(1, 1.3)[: 1 + has_state])[0]
    axes = left.subplots()
    draw_methods(axes, {f"mean of {len(errors)} trajectories": errors[:, None]})
    axes.legend(fontsize=8, loc="best")
    left.suptitle(title, fontsize=10)
    if rollout is not None and right:
        draw_states(right[0], rollout.truth[step - 1], {"prediction": rollout.prediction[step - 1]}, source)
        right[0].suptitle(f"step {step} of test trajectory {rollout.trajectory}, the median", fontsize=10)
    return figure
