"""Figures of the analyses of a trained run: the probe of the theory, the checkpoint landscape, the anatomy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from hero.analysis.anatomy import Anatomy
from hero.evaluation.evaluate import Landscape
from hero.evaluation.theory import ProbePoint
from hero.method.candidates import CANDIDATES
from hero.method.metrics import Scoring
from hero.report.figures.style import (
    BLACK,
    BLUE,
    GREY,
    MARKERS,
    ORANGE,
    VERMILION,
    candidate_colours,
    new_figure,
)
from hero.report.names import titles_of

MARKED_STEPS = (40, 100, 160)
"""The dashed lines of the paper's figure."""
COLOUR_LIMITS = (0.1, 2.0)
"""Least and largest |log10 ratio| at the ends of the colour bar: an exploded checkpoint must not wash out others."""
DIVERGED = "#4d4d4d"

CARRIERS = {"solver": VERMILION, "data": ORANGE}
LEAST_SHARE = 1e-4
"""Lower end of the axis of shares: less than a hundredth of a percent decides nothing."""
DECADES = 4
"""Of the axis of errors, below the largest."""
HEADROOM = 1.6
"""Upper end of an axis over its largest value; infinite bars end there."""


def probe_figure(points: Sequence[ProbePoint]) -> Figure:
    """α against a, one panel per checkpoint, with the correlation, the regression line and the zero line of a."""
    across = min(len(points), 3)
    down = -(-len(points) // across)
    figure = new_figure(max(5.2, 4.1 * across), 0.9 + 3.5 * down)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, point in zip(panels, points, strict=False):
        _scatter(axes, point)
    for axes in panels[len(points) :]:
        axes.set_visible(False)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle("Does history give more weight to windows that matter for the long horizon?", fontsize=11)
    return figure


def _scatter(axes: Axes, point: ProbePoint) -> None:
    alpha, a = np.array(point.per_window.alpha), np.array(point.per_window.a)
    selected = np.array(point.per_window.selected)
    colours = candidate_colours(point.per_window.selected)
    for i, (name, title) in enumerate(titles_of(CANDIDATES, point.per_window.selected).items()):
        of = selected == name
        axes.scatter(alpha[of], a[of], s=16, color=colours[name], marker=MARKERS[i % len(MARKERS)], alpha=0.65,
                     linewidths=0, label=f"reference: {title}")  # fmt: skip
    axes.axhline(0, color=BLACK, linewidth=1.0, linestyle="--", label="a = 0")
    r, (low, high) = point.correlation, point.correlation_interval
    if not math.isnan(r):
        ends = np.array([alpha.min(), alpha.max()])
        slope = point.covariance / point.alpha_std**2
        axes.plot(ends, a.mean() + slope * (ends - alpha.mean()), color=GREY, linewidth=1.6, label="regression")
    interval = "" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
    verdict = "α is constant" if math.isnan(r) else f"r = {r:+.2f}{interval}"
    axes.set_title(f"step {point.step}: {verdict}", fontsize=10)
    axes.set(xlabel="activation α", ylabel="usefulness a = ⟨∇J_L, g⟩")
    axes.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.06)
    axes.grid(alpha=0.25)


def landscape_figure(found: Landscape, subject: str) -> Figure:
    """Δ_s(t) (checkpoint, rollout step) as a heat map, the earliest checkpoint on top, the final model below."""
    ratio = np.array(found.log10_ratio, dtype=np.float64)
    count, length = ratio.shape
    shown = np.vstack([ratio, np.zeros(length)])
    finite = np.abs(shown[np.isfinite(shown)])
    limit = float(np.clip(finite.max(initial=0), *COLOUR_LIMITS))
    figure = new_figure(8.4, 2.0 + 0.5 * (count + 1))
    axes = figure.subplots()
    # Infinite and undefined cells are left out of the map: there the dark ground of the axes is seen.
    axes.set_facecolor(DIVERGED)
    image = axes.imshow(np.ma.masked_invalid(shown), aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit,
                        interpolation="nearest", extent=(0.5, length + 0.5, count + 0.5, -0.5))  # fmt: skip
    if not np.isfinite(shown).all():
        figure.legend(handles=[Patch(color=DIVERGED, label=_diverged_label(shown))], loc="outside lower center")
    for step in MARKED_STEPS:
        if step <= length:
            axes.axvline(step, color=BLACK, linewidth=1.1, linestyle="--")
    for row in range(count):
        axes.axhline(row + 0.5, color=GREY, linewidth=0.8)
    axes.set_yticks(range(count + 1), [*map(str, found.steps), f"final ({found.final_step})"])
    every = 20 if length >= 40 else max(1, length // 4)
    axes.set_xticks(sorted({1, *range(every, length + 1, every)}))
    axes.set(xlabel="rollout step", ylabel="checkpoint (updates)")
    axes.set_title(f"{subject}: error of kept checkpoints over the error of the final model", fontsize=10)
    beyond = bool((finite > limit).any())
    bar = figure.colorbar(image, ax=axes, extend="both" if beyond else "neither", pad=0.02)
    bar.set_label("log10 of the error ratio\nred: worse than final", fontsize=9)
    return figure


def _diverged_label(shown: np.ndarray) -> str:
    cases = {"the checkpoint": shown == np.inf, "the final model": shown == -np.inf, "both": np.isnan(shown)}
    return f"a rollout of {' or of '.join(name for name, where in cases.items() if where.any())} diverged"


def anatomy_figure(found: Anatomy, subject: str, scoring: Scoring | None = None) -> Figure:
    """Shares of the bands on the left; on the right the errors at step T that each band makes alone."""
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2)
    at = f"error at step {found.steps}"
    carried = {f"{at}, {name} carries": (name, one) for name in CARRIERS if (one := getattr(found, name))}
    labels = [label.split()[0] for label in found.labels]  # "beyond the operator's modes" is too long
    shares = {"one-step error": (BLUE, found.one_step)}
    shares |= {label: (CARRIERS[name], one.shares) for label, (name, one) in carried.items()}
    _bars(left, labels, shares, LEAST_SHARE, 1.0)
    left.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    left.set_title("share of each band: what training sees, and what decides", fontsize=10)
    errors = {label: (CARRIERS[name], one.errors) for label, (name, one) in carried.items()}
    all_errors = np.array([found.own, *(error for _, values in errors.values() for error in values)])
    top = np.max(all_errors[np.isfinite(all_errors)], initial=0) or 1.0
    _bars(right, labels, errors, top / 10**DECADES, top)
    right.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if np.isfinite(found.own):
        right.axhline(found.own, color=BLACK, linestyle="--", linewidth=1.1, label=f"{at}, its own rollout: all modes")
    right.set_title(f"{(scoring or Scoring()).title} at step {found.steps} that a band makes alone", fontsize=10)
    named = [pair for axes in (left, right) for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(named)}
    order = [*shares, *(label for label in handles if label not in shares)]
    figure.legend([handles[label] for label in order], order, loc="outside lower center", ncols=len(order), fontsize=8)
    figure.suptitle(f"{subject}: which modes make the {at}", fontsize=11)
    return figure


def _bars(
    axes: Axes, labels: Sequence[str], groups: Mapping[str, tuple[str, Sequence[float]]], least: float, top: float
) -> None:
    """Bars next to each other for each band, on a logarithmic axis; an infinite one is as high as the axis."""
    width = 0.8 / len(groups)
    place = np.arange(len(labels))
    axes.set_yscale("log")
    axes.set_ylim(least, HEADROOM * top)
    for i, (name, (colour, numbers)) in enumerate(groups.items()):
        values = np.array(numbers, dtype=np.float64)
        where = place + (i - (len(groups) - 1) / 2) * width
        axes.bar(where, np.where(np.isinf(values), HEADROOM * top, values), width, color=colour, label=name)
        for x in where[np.isinf(values)]:
            axes.annotate("∞", (x, HEADROOM * top), ha="center", va="bottom", color=colour, annotation_clip=False)
    axes.set_xticks(place, labels)
    axes.set_xlabel("modes |k|")
    axes.grid(axis="y", alpha=0.25, color=GREY)
    axes.set_axisbelow(True)
