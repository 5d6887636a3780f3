"""The figure of `hero anatomy`: what training sees of each band, and what each makes of the error at step T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.evaluation.anatomy import Anatomy
from hero.report.figures.style import BLACK, BLUE, GREY, ORANGE, VERMILION, new_figure

CARRIERS = {"solver": VERMILION, "data": ORANGE}
LEAST_SHARE = 1e-4
"""Lower end of the axis of shares: less than a hundredth of a percent decides nothing."""
DECADES = 4
"""Of the axis of errors, below the largest."""
HEADROOM = 1.6
"""Upper end of an axis over its largest value; infinite bars end there."""


def anatomy_figure(found: Anatomy, subject: str) -> Figure:
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
    right.set_title(f"nRMSE at step {found.steps} that a band makes alone", fontsize=10)
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
