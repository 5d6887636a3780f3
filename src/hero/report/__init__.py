"""What a run folder shows: figures, tables beside the paper's numbers, and one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from hero.report.fields import TaskInfo, fields_figure, spectrum_figure
from hero.report.figures import Log, error_figure, save, training_figure
from hero.report.history import history_figure
from hero.report.page import write_report
from hero.report.reference import paper_value

__all__ = ["report_run"]


def report_run(
    run_dir: Path,
    metrics: Mapping[str, Any],
    errors: Mapping[str, np.ndarray],
    log: Log,
    truth: Tensor,
    prediction: Tensor,
    task: TaskInfo,
) -> Path:
    """Draw all figures into `run_dir/figures` and write `run_dir/report.html`; returns the page.

    `truth` and `prediction` are `(1, time, channel, *space)`: the one test trajectory that is drawn, which
    `hero.metrics.median_trajectory` of `errors["nrmse"]` names. A diverged run gives a report like any other.
    """
    run_dir = Path(run_dir)
    paper = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"])
    drawn = {
        "Error along the rollout": (
            "error",
            error_figure(errors["nrmse"], paper, f"{task.title}: error along the rollout"),
        ),
        "Truth and prediction": ("fields", fields_figure(truth, prediction, task)),
        "Spectrum": ("spectrum", spectrum_figure(truth, prediction)),
        "Training": ("training", training_figure(log)),
        "The relative term": ("history", history_figure(log)),
    }
    figures = {
        title: save(figure, run_dir / "figures" / f"{name}.png")
        for title, (name, figure) in drawn.items()
        if figure is not None
    }
    # Drawn by `hero landscape` and `hero probe`, if they were called.
    extra = {"Checkpoint landscape": "landscape", "The theory, measured": "probe"}
    paths = {title: run_dir / "figures" / f"{name}.png" for title, name in extra.items()}
    figures |= {title: path for title, path in paths.items() if path.is_file()}
    config = run_dir / "config.toml"
    config_text = config.read_text(encoding="utf-8") if config.exists() else ""
    counted = {"trajectories": len(errors["nrmse"]), **metrics}
    return write_report(run_dir, counted, config_text, log, figures, task.title)
