"""Curves of a run: error against rollout step, and the course of training. Field pictures are in `fields.py`.

Every function returns a new `Figure` and touches no global matplotlib state, so reports can be made from any thread.
Colours are those of Okabe and Ito, which stay apart under the common forms of colour blindness.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from hero.files import write_atomic
from hero.method.metrics import TAU
from hero.report.tables import as_float
from hero.study.published import Published

BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
GREY = "#8a8a8a"
DPI = 130
# An exploding rollout passes through 30 decades before it overflows; beyond a thousandfold error nothing is to be seen.
ERROR_RANGE = (1e-8, 1e3)

Log = Sequence[Mapping[str, Any]]


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write `figure` as PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return write_atomic(path, buffer.getvalue())


def error_figure(errors: np.ndarray, paper: Published | None, title: str) -> Figure:
    """Relative error (trajectories, steps) against the rollout step, with the paper's nRMSE@1 and nRMSE@100 if given.

    The paper's numbers are means over trajectories, so our mean is drawn beside the median that the eye should follow.
    """
    errors = np.where(np.isnan(errors), np.inf, np.asarray(errors, dtype=np.float64))
    steps = np.arange(1, errors.shape[1] + 1)
    low, high = _error_limits(errors, paper)
    # Infinite values are drawn as leaving through the top of the axis.
    shown = np.clip(errors, low / 10, high * 10)
    figure = new_figure(8.0, 4.6)
    axes = figure.subplots()
    axes.plot(steps, shown.T, color=BLUE, alpha=0.22, linewidth=0.6)
    axes.plot([], [], color=BLUE, alpha=0.5, linewidth=0.8, label=f"each of {len(errors)} trajectories")
    # Ranks without interpolation: between a finite and an infinite value there is nothing to interpolate.
    lower, median, upper = (np.quantile(shown, q, axis=0, method="inverted_cdf") for q in (0.1, 0.5, 0.9))
    axes.fill_between(steps, lower, upper, color=SKY, alpha=0.35, linewidth=0, label="10–90 % of trajectories")
    axes.plot(steps, median, color=BLUE, linewidth=2.4, label="median")
    mean = np.clip(errors.mean(axis=0), low / 10, high * 10)
    axes.plot(steps, mean, color=BLACK, linewidth=1.3, linestyle="--", label="mean, the nRMSE@t of the tables")
    _mark_divergence(axes, errors, high)
    _mark_paper(axes, paper, len(steps))
    axes.axhline(TAU, color=GREEN, linewidth=1.2, linestyle=":")
    axes.annotate(
        f"τ = {TAU}",
        (1, TAU),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=GREEN,
        xycoords=("axes fraction", "data"),
        fontsize=9,
    )
    axes.set(yscale="log", ylim=(low, high), xlabel="rollout step", ylabel="relative error (nRMSE)", title=title)
    axes.set_xlim(1 - 0.015 * len(steps), len(steps) * 1.01)
    axes.grid(alpha=0.25)
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
    return figure


def training_figure(log: Log) -> Figure:
    """Loss, validation GM100 and learning rate; for HERO also its gate α, weight λ and what it selected."""
    gate = [key for key in ("alpha", "lambda") if len(series(log, key)[0])]
    shares = [key for key in ("lag", "perturbed", "self") if len(series(log, key)[0])]
    panels = 3 + bool(gate) + bool(shares)
    figure = new_figure(8.0, 1.3 + 1.75 * panels)
    grid = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    _loss_panel(grid[0], log)
    _validation_panel(grid[1], log)
    _curve(grid[2], log, "lr", BLACK, "learning rate")
    grid[2].set_ylabel("learning rate")
    if gate:
        for key, colour, label in (("alpha", VERMILION, "gate α"), ("lambda", BLUE, "weight λ")):
            _curve(grid[3], log, key, colour, label)
        grid[3].set_ylabel("HERO weight")
        grid[3].set_ylim(bottom=0)
        grid[3].legend(fontsize=8, loc="upper left")
    if shares:
        _shares_panel(grid[-1], log, shares)
    for axes in grid:
        axes.grid(alpha=0.25)
    grid[-1].set_xlabel("optimiser step")
    figure.align_ylabels(list(grid))
    figure.suptitle("Training" if log else "Training: nothing was logged")
    return figure


def series(log: Log, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of `key` in order of step; of a step that a resumed run logged twice, the last."""
    found = {int(record["step"]): as_float(record[key]) for record in log if key in record and "step" in record}
    steps = sorted(found)
    return np.array(steps, dtype=np.int64), np.array([found[step] for step in steps], dtype=np.float64)


def _error_limits(errors: np.ndarray, paper: Published | None) -> tuple[float, float]:
    visible = errors[np.isfinite(errors) & (errors > 0)]
    reference = [TAU, *(paper[key]["mean"] for key in ("nrmse@1", "nrmse@100") if paper)]
    low = min([*reference, float(visible.min())] if visible.size else reference) / 2
    high = max([*reference, float(visible.max())] if visible.size else reference) * 2
    return max(min(low, TAU / 10), ERROR_RANGE[0]), min(max(high, TAU * 10), ERROR_RANGE[1])


def _mark_divergence(axes: Axes, errors: np.ndarray, high: float) -> None:
    broken = np.flatnonzero(np.isinf(errors).any(axis=1))
    if not broken.size:
        return
    first = np.isinf(errors[broken]).argmax(axis=1) + 1
    label = f"diverged: {broken.size} of {len(errors)}, at the step marked"
    axes.plot(
        first,
        np.full(first.shape, high),
        "x",
        color=VERMILION,
        markersize=7,
        markeredgewidth=1.8,
        clip_on=False,
        linestyle="none",
        label=label,
        zorder=5,
    )


def _mark_paper(axes: Axes, paper: Published | None, length: int) -> None:
    steps = [t for t in (1, 100) if t <= length] if paper else []
    if not paper or not steps:
        return
    means = [paper[f"nrmse@{t}"]["mean"] for t in steps]
    stds = [paper[f"nrmse@{t}"]["std"] for t in steps]
    axes.errorbar(
        steps,
        means,
        yerr=stds,
        fmt="D",
        color=ORANGE,
        ecolor=BLACK,
        markeredgecolor=BLACK,
        markersize=7,
        capsize=4,
        elinewidth=1.2,
        zorder=6,
        label="paper, mean ± std of five seeds",
    )


def _curve(axes: Axes, log: Log, key: str, colour: str, label: str) -> None:
    steps, values = series(log, key)
    axes.plot(steps, np.where(np.isfinite(values), values, np.nan), color=colour, linewidth=1.4, label=label)


def _log_scale(axes: Axes, values: np.ndarray) -> None:
    """A logarithmic axis for the positive `values`; labelled 0.3, not 3 × 10⁻¹, also between powers of ten if few."""
    values = values[np.isfinite(values) & (values > 0)]
    if values.size:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if values.max() < 10 * values.min():
            axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
            axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
        else:
            axes.yaxis.set_minor_formatter(NullFormatter())


def _loss_panel(axes: Axes, log: Log) -> None:
    _curve(axes, log, "loss", BLUE, "training loss")
    _log_scale(axes, series(log, "loss")[1])
    axes.set_ylabel("training loss")


def _validation_panel(axes: Axes, log: Log) -> None:
    steps, values = series(log, "val_gm100")
    finite = np.isfinite(values)
    axes.set_ylabel("validation GM100")
    axes.plot(steps, np.where(finite, values, np.nan), "o-", color=VERMILION, markersize=3.5, linewidth=1.3)
    _log_scale(axes, values)
    if finite.any():
        best = steps[finite][values[finite].argmin()]
        axes.axvline(best, color=GREEN, linewidth=1.0, linestyle=":")
        axes.plot(
            best,
            values[finite].min(),
            "*",
            color=GREEN,
            markersize=14,
            markeredgecolor=BLACK,
            linestyle="none",
            label=f"best checkpoint: {values[finite].min():#.3g} at step {best}",
        )
    if not finite.all():
        axes.plot(
            steps[~finite],
            np.full((~finite).sum(), 0.96),
            "x",
            color=PURPLE,
            markersize=6,
            markeredgewidth=1.6,
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            label="a rollout diverged",
        )
    if values.size:
        axes.legend(fontsize=8, loc="best")


def _shares_panel(axes: Axes, log: Log, shares: Iterable[str]) -> None:
    names = {"lag": "lagged operator", "perturbed": "perturbed", "self": "itself"}
    shares = list(shares)
    steps = series(log, shares[0])[0]
    stacked = [np.nan_to_num(np.interp(steps, *series(log, key))) for key in shares]
    colours = {"lag": BLUE, "perturbed": ORANGE, "self": GREEN}
    axes.stackplot(
        steps, stacked, labels=[names[key] for key in shares], colors=[colours[key] for key in shares], alpha=0.75
    )
    axes.set_ylabel("selected share")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8, loc="upper left")
