"""The first picture of the README: a network trained on single steps and with our recipe, rolled out side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.rollout import rollout
from hero.report.figures.style import BLACK, ORANGE, VERMILION, new_figure
from hero.runs.folder import Run, load_data
from hero.runs.records import write_arrays

EVERY = 2
"""Every second step is drawn."""


def store_rollouts(before: Run, after: Run, data_dir: Path, path: Path) -> Path:
    """Roll both runs of a 1D task out along the test trajectory on which the first is median; small, for a picture."""
    config = before.config
    if config.task != after.config.task or config.source.dims != 1:
        raise HeroError("the picture needs two runs of the same task in one dimension.")
    test = load_data(config, "test", data_dir, "cpu").states
    errors = {"before": before.errors.score, "after": after.errors.score}
    chosen = int(np.argsort(errors["before"].mean(axis=1))[len(test) // 2])
    fields = {"truth": test[chosen, 1:]}
    with torch.inference_mode():
        for name, run in (("before", before), ("after", after)):
            step = run.stepper(run.operator("cpu"))
            fields[name] = rollout(step, Context(test[chosen : chosen + 1, :1]), test.shape[1] - 1)[0]
    arrays = {name: field[::EVERY, 0].numpy().astype(np.float16) for name, field in fields.items()}
    numbers = {f"{name}_nrmse": values.astype(np.float32) for name, values in errors.items()}
    return write_arrays(path, arrays | numbers)


def before_after_figure(path: Path) -> Figure:
    """Truth, both rollouts over space and time, and the errors of all test trajectories."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name].astype(np.float64) for name in stored.files}
    figure = new_figure(11.0, 3.0)
    panels = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.15))
    limit = np.abs(arrays["truth"]).max()
    titles = {"truth": "truth", "before": "trained on single steps", "after": "trained with our recipe"}
    for axes, (name, title) in zip(panels, titles.items(), strict=False):
        extent = (0, EVERY * len(arrays[name]), 0, 1)
        axes.imshow(
            arrays[name].T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", origin="lower", extent=extent
        )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("rollout step")
        axes.set_yticks([])
    panels[0].set_ylabel("space")
    for name, colour in (("before", VERMILION), ("after", ORANGE)):
        errors = np.minimum(arrays[f"{name}_nrmse"], 10)
        steps = np.arange(1, errors.shape[1] + 1)
        panels[3].plot(steps, np.median(errors, axis=0), color=colour, label=titles[name])
        panels[3].fill_between(steps, *np.quantile(errors, (0.1, 0.9), axis=0), color=colour, alpha=0.15, linewidth=0)
    panels[3].axhline(1, color=BLACK, linewidth=0.6, linestyle=":")
    panels[3].set_yscale("log")
    panels[3].set_title("error of all test rollouts (nRMSE)", fontsize=10)
    panels[3].set_xlabel("rollout step")
    panels[3].legend(fontsize=8)
    return figure
