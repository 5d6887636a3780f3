"""What HERO's relative term did in training: its gate, its margin, and the diagnostics of each candidate."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.report.figures.style import BLUE, GREEN, ORANGE, VERMILION, Log, new_figure, series

CANDIDATES = {"lag": ("lagged operator", BLUE), "perturbed": ("perturbed", ORANGE), "self": ("itself", GREEN)}
DIAGNOSTICS = {
    "roll": "rollout error E_roll",
    "spec": "spectral mismatch E_spec",
    "energy": "energy drift E_energy",
    "growth": "error growth E_growth",
}


def history_figure(log: Log) -> Figure | None:
    """Gate α (mean and deviation over samples), margin d_fail - d_cur, and E_q per candidate; None without them."""
    if not len(series(log, "margin")[0]):
        return None
    figure = new_figure(9.5, 8.0)
    grid = figure.subplots(3, 2, sharex=True)
    _gate_panel(grid[0, 0], log)
    _margin_panel(grid[0, 1], log)
    for axes, (key, label) in zip(grid[1:].flat, DIAGNOSTICS.items(), strict=True):
        _diagnostic_panel(axes, log, key, label)
    for axes in grid.flat:
        axes.grid(alpha=0.25)
    for axes in grid[-1]:
        axes.set_xlabel("optimiser step")
    figure.suptitle("The relative term")
    return figure


def _gate_panel(axes: Axes, log: Log) -> None:
    steps, alpha = series(log, "alpha")
    _, deviation = series(log, "alpha_std")
    axes.fill_between(steps, alpha - deviation, alpha + deviation, color=VERMILION, alpha=0.25, linewidth=0)
    axes.plot(steps, alpha, color=VERMILION)
    axes.set_title("gate α, mean ± deviation over samples", fontsize=10)


def _margin_panel(axes: Axes, log: Log) -> None:
    steps, margin = series(log, "margin")
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.plot(steps, margin, color=BLUE)
    axes.set_title("d_fail − d_cur: by how much the reference is worse", fontsize=10)


def _diagnostic_panel(axes: Axes, log: Log, key: str, label: str) -> None:
    for name, (text, colour) in CANDIDATES.items():
        steps, values = series(log, f"{name}.{key}")
        if len(steps):
            axes.plot(steps, np.where(values > 0, values, np.nan), color=colour, linewidth=1.2, label=text)
    if axes.lines:
        axes.set_yscale("log")
        axes.legend(fontsize=8)
    axes.set_title(label, fontsize=10)
