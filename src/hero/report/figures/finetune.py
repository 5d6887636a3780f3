"""The errors of a fine-tuned run along its rollouts, next to the checkpoint that it started from."""

from __future__ import annotations

from matplotlib.figure import Figure

from hero.report.figures.curves import curves_figure
from hero.runs.records import Errors


def finetune_figure(before: Errors, after: Errors, subject: str) -> Figure:
    """Relative error at each step, before and after, as means over the same trajectories."""
    return curves_figure(
        f"{subject}: before and after fine-tuning", {"before": before.score[None], "after": after.score[None]}
    )
