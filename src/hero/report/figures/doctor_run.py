"""The figure of `hero doctor RUN`: the error and its parts, its modes over time, and late states next to the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.evaluation.doctor_run import RunDiagnosis
from hero.method.metrics import TAU
from hero.report.figures.style import BLACK, BLUE, GREY, ORANGE, VERMILION, log_scale, new_figure

LEAST = 1e-12
"""Smaller values are left out: they are rounding."""


def run_figure(found: RunDiagnosis) -> Figure:
    """Three panels."""
    figure = new_figure(13.0, 4.2)
    parts, modes, late = figure.subplots(1, 3, width_ratios=(1.3, 1.1, 1.0))
    _error_panel(parts, found)
    _modes_panel(modes, found)
    _late_panel(late, found)
    for axes in (parts, modes, late):
        axes.grid(alpha=0.25, color=GREY)
    figure.suptitle(f"{found.run}: {found.outcome}", fontsize=11)
    return figure


def _error_panel(axes: Axes, found: RunDiagnosis) -> None:
    """The error over steps, new defects and carried errors; a line where the rollout left the finite range."""
    errors = np.array(found.errors)
    shown = np.where(np.isfinite(errors), errors, np.nan)
    axes.plot(np.arange(1, len(errors) + 1), shown, color=BLACK, label="error (median)")
    axes.plot(found.steps, _drawn(found.carried), color=VERMILION, label="old error carried along")
    axes.plot(found.steps, _drawn(found.defects), color=BLUE, label="new defect")
    axes.axhline(TAU, color=GREY, linestyle=":")
    if found.diverged_step is not None:
        axes.axvline(found.diverged_step, color=ORANGE, linestyle="--", label="first leaves the finite range")
    log_scale(axes, np.concatenate([shown, _drawn(found.carried), _drawn(found.defects)]))
    axes.set_xlabel("step")
    axes.set_ylabel("relative to the truth")
    axes.set_title(f"a small difference becomes {found.amplification:.3g} of its size per step", fontsize=10)
    axes.legend(fontsize=8)


def _modes_panel(axes: Axes, found: RunDiagnosis) -> None:
    """Root of the energy of the error by band, a line for some of the steps."""
    chosen = sorted({round(i) for i in np.linspace(0, len(found.steps) - 1, 6)})
    rows = [np.sqrt(_drawn(found.bands[i])) for i in chosen]
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(chosen)))
    for colour, i, row in zip(colours, chosen, rows, strict=True):
        axes.plot(found.labels, row, "o-", color=colour, markersize=3, label=f"step {found.steps[i]}")
    log_scale(axes, np.concatenate(rows))
    axes.set_xlabel("modes |k|")
    axes.set_title("error by band", fontsize=10)
    axes.tick_params(axis="x", labelrotation=45)
    axes.legend(fontsize=8)


def _late_panel(axes: Axes, found: RunDiagnosis) -> None:
    """Spectrum of late states next to the true one."""
    if found.late_bands:
        axes.plot(found.labels, _drawn(found.true_bands), "o-", color=BLACK, markersize=4, label="truth")
        axes.plot(found.labels, _drawn(found.late_bands), "o--", color=VERMILION, markersize=4, label="rollout")
        log_scale(axes, _drawn(found.true_bands + found.late_bands))
        axes.legend(fontsize=8)
    axes.set_xlabel("modes |k|")
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_title("energy of late states", fontsize=10)


def _drawn(values: Sequence[float]) -> np.ndarray:
    """Values for a logarithmic axis: NaN, which is a gap, in the place of zero, rounding and infinity."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(numbers) & (numbers > LEAST), numbers, np.nan)
