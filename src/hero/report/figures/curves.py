"""Error against rollout step: of all trajectories of one run, and of several methods over each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.method.metrics import TAU, diverged
from hero.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    SKY,
    STYLES,
    VERMILION,
    colours_of,
    log_scale,
    new_figure,
)
from hero.study.records import PairedTest, Published

# An exploding rollout passes through 30 decades before it overflows; beyond a thousandfold error nothing can be seen.
ERROR_RANGE = (1e-8, 1e3)

Errors = Mapping[str, np.ndarray]
"""nRMSE (seed, trajectory, step) of each method."""
Clip = Callable[[np.ndarray], np.ndarray]


def error_axes(axes: Axes, errors: np.ndarray, references: Sequence[float] = ()) -> Clip:
    """Set up a logarithmic axis for `errors` and `references`; returns the function that clips curves for drawing.

    Infinite values are drawn as leaving through the top of the axis.
    """
    visible = errors[np.isfinite(errors) & (errors > 0)]
    ends = [*references, *([visible.min(), visible.max()] if visible.size else [])] or list(ERROR_RANGE)
    low, high = max(min(ends) / 1.5, ERROR_RANGE[0]), min(max(ends) * 1.5, ERROR_RANGE[1])
    low, high = min(low, ERROR_RANGE[1] / 10), max(high, 10 * ERROR_RANGE[0])
    axes.set(xlabel="rollout step", ylabel="relative error (nRMSE)")
    log_scale(axes, np.array([low, high]))
    axes.set_ylim(low, high)
    axes.margins(x=0.01)
    axes.grid(alpha=0.25)

    def clip(values: np.ndarray) -> np.ndarray:
        return np.clip(values, low / 10, high * 10)

    return clip


def error_figure(errors: np.ndarray, paper: Mapping[str, Published], title: str) -> Figure:
    """Relative error (trajectory, step) of one run, with the paper's nRMSE@1 and nRMSE@100 if given.

    The paper's numbers are means over trajectories, so our mean is drawn next to the median that the eye should follow.
    """
    errors = np.where(np.isnan(errors), np.inf, np.asarray(errors, dtype=np.float64))
    steps = np.arange(1, errors.shape[1] + 1)
    figure = new_figure(8.0, 4.6)
    axes = figure.subplots()
    published = {t: paper[f"nrmse@{t}"] for t in (1, 100) if f"nrmse@{t}" in paper and t <= len(steps)}
    clip = error_axes(axes, errors, [TAU / 10, TAU * 10, *(number.mean for number in published.values())])
    shown = clip(errors)
    axes.plot(steps, shown.T, color=BLUE, alpha=0.22, linewidth=0.6)
    axes.plot([], [], color=BLUE, alpha=0.5, linewidth=0.8, label=f"each of {len(errors)} trajectories")
    # Ranks without interpolation: between a finite and an infinite value there is nothing to interpolate.
    lower, median, upper = (np.quantile(shown, q, axis=0, method="inverted_cdf") for q in (0.1, 0.5, 0.9))
    axes.fill_between(steps, lower, upper, color=SKY, alpha=0.35, linewidth=0, label="10–90 % of trajectories")
    axes.plot(steps, median, color=BLUE, linewidth=2.4, label="median")
    mean = clip(errors.mean(axis=0))
    axes.plot(steps, mean, color=BLACK, linewidth=1.3, linestyle="--", label="mean, the nRMSE@t of the tables")
    _mark_divergence(axes, errors)
    if published:
        means, stds = zip(*((number.mean, number.std or 0) for number in published.values()), strict=True)
        axes.errorbar(list(published), means, yerr=stds, fmt="D", color=ORANGE, ecolor=BLACK, markeredgecolor=BLACK,
                      markersize=7, capsize=4, elinewidth=1.2, zorder=6,
                      label="paper, mean ± std of five seeds")  # fmt: skip
    axes.axhline(TAU, color=GREEN, linewidth=1.2, linestyle=":", label=f"τ = {TAU}")
    axes.set_title(title)
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
    return figure


def _mark_divergence(axes: Axes, errors: np.ndarray) -> None:
    broken = np.flatnonzero(np.isinf(errors).any(axis=1))
    if broken.size:
        first = np.isinf(errors[broken]).argmax(axis=1) + 1
        axes.plot(first, np.full(first.shape, axes.get_ylim()[1]), "x", color=VERMILION, markersize=7,
                  markeredgewidth=1.8, clip_on=False, linestyle="none", zorder=5,
                  label=f"diverged: {broken.size} of {len(errors)}, at the step marked")  # fmt: skip


def draw_methods(axes: Axes, errors: Errors) -> None:
    """The mean over trajectories and seeds of each method, its seeds as a band, and the number of diverged rollouts."""
    of_seed = {name: values.mean(axis=1) for name, values in errors.items()}  # (seed, step)
    colours = colours_of(errors)
    clip = error_axes(axes, np.concatenate([curve.ravel() for curve in of_seed.values()]))
    for i, (name, curve) in enumerate(of_seed.items()):
        steps, lost = np.arange(1, curve.shape[1] + 1), sum(map(diverged, errors[name]))
        label = f"{name} ({lost} diverged)" if lost else name
        axes.plot(steps, clip(curve.mean(axis=0)), STYLES[i % len(STYLES)], color=colours[name], linewidth=1.8,
                  label=label)  # fmt: skip
        low, high = clip(curve.min(axis=0)), clip(curve.max(axis=0))
        axes.fill_between(steps, low, high, color=colours[name], alpha=0.18, linewidth=0)
    axes.set_title("mean over trajectories and seeds; band: all seeds", fontsize=10)


def curves_figure(title: str, errors: Errors, tests: Sequence[PairedTest] = ()) -> Figure:
    """Error curves of all methods, and next to them the ratios to the baseline that were tested."""
    figure = new_figure(11.5 if tests else 7.5, 4.8 + 0.12 * len(errors))
    widths = [1.6, 1] if tests else [1]
    left, *right = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    draw_methods(left, errors)
    if left.get_ylim()[0] < TAU < left.get_ylim()[1]:
        left.axhline(TAU, color=GREEN, linewidth=1.0, linestyle=":", label=f"τ = {TAU}")
    if tests:
        _draw_ratios(right[0], tests, colours_of(errors))
    figure.suptitle(title, fontsize=11)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _draw_ratios(axes: Axes, tests: Sequence[PairedTest], colours: Mapping[str, str]) -> None:
    """The geometric mean ratio of each row to the baseline with its 95 % interval, on a logarithmic axis."""
    axes.axvline(1, color=colours.get(tests[0].baseline, BLACK), linewidth=1.5)
    for height, test in enumerate(tests):
        colour = colours.get(test.label, BLACK)
        if test.interval:
            axes.plot(test.interval, [height] * 2, color=colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
        if test.ratio is not None and 0 < test.ratio < np.inf:
            axes.plot(test.ratio, height, "D", color=colour, markersize=7, markeredgecolor=BLACK)
        else:
            axes.annotate("diverged", (0.5, height), xycoords=("axes fraction", "data"), ha="center", va="center",
                          color=colour)  # fmt: skip
    axes.set_xscale("log")
    for formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(axis="x", which="both", labelsize=8, labelrotation=45)
    axes.set_yticks(range(len(tests)), [test.label for test in tests])
    axes.set_ylim(len(tests) - 0.4, -0.6)
    axes.set_xlabel(f"ratio to {tests[0].baseline}, below 1 is better")
    axes.set_title("◆ mean over seeds; bar: 95 % interval", fontsize=10)
    axes.grid(axis="x", alpha=0.25)
