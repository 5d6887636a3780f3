"""The errors of a fine-tuned run along its rollouts, next to the checkpoint that it started from."""

from __future__ import annotations

from matplotlib.figure import Figure

from hero.report.figures.curves import curves_figure
from hero.runs.folder import Run


def finetune_figure(run: Run) -> Figure:
    """Relative error at each step, before and after, as means over the same trajectories."""
    errors = {"before": run.before_errors.nrmse[None], "after": run.errors.nrmse[None]}
    return curves_figure(f"{run.config.make_task().title}: before and after fine-tuning", errors)
