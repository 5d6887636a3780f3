"""The figure and the table of `hero anatomy`: which modes make the error of a trained operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.analysis.anatomy import Anatomy
from hero.method.metrics import Scoring
from hero.report.figures.style import BLACK, BLUE, GREY, ORANGE, VERMILION, new_figure
from hero.report.registries import Analysis
from hero.report.tables import Column, Number, Row, Table, Text

CARRIERS = {"solver": VERMILION, "data": ORANGE}
LEAST_SHARE = 1e-4
"""Lower end of the axis of shares: less than a hundredth of a percent decides nothing."""
DECADES = 4
"""Decades of the axis of errors below the largest."""
HEADROOM = 1.6
"""Upper end of an axis over its largest value; infinite bars end there."""


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


def anatomy_table(anatomy: Anatomy) -> Table:
    """The bands of modes: what training sees of each, and what each makes of the error at step T."""
    named = {"Solver": anatomy.solver, "Data": anatomy.data}
    carriers = {name: carried for name, carried in named.items() if carried}
    columns = [Column("Modes |k|", words=True), Column("One-step share", meaning="Share of the one-step error energy.")]
    for name in carriers:
        carrying = f"where only the defect of the band drives the state that the {name.lower()} carries"
        columns += [
            Column(f"{name}: error", meaning=f"The score at step {anatomy.steps} {carrying}."),
            Column(f"{name}: share", meaning="Its square over the sum of the squares."),
        ]

    def row(label: str, share: float, cells: Iterable[tuple[float, float]]) -> Row:
        numbers = [cell for error, part in cells for cell in (Number(error), _part(part))]
        return Row([Text(label), _part(share), *numbers])

    of = list(carriers.values())
    rows = [
        row(label, anatomy.one_step[i], [(one.errors[i], one.shares[i]) for one in of])
        for i, label in enumerate(anatomy.labels)
    ]
    rows.append(row("root of the sum of squares", math.nan, [(one.total, math.nan) for one in of]))
    rows.append(row("all modes: its own rollout", math.nan, [(anatomy.own, math.nan)] * len(of)))
    title = f"{anatomy.run}: error at step {anatomy.steps}, {anatomy.trajectories} trajectories of {anatomy.split}"
    return Table(title, columns, rows, anatomy.notes, sortable=False)


def _part(share: float) -> Number:
    """A share with one digit after the point, so that a column can be read at a glance."""
    shown = "" if math.isnan(share) else "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
    return Number(share, shown=shown)


ANATOMY = Analysis(
    Anatomy,
    "Anatomy of the error",
    "Left: the share of each band of modes in the one-step error, which training minimises, next to its share in the "
    "error at the last step. Right: the error at the last step where only the defect in this band drives the state, "
    "which the solver or the data carry, and the error of the operator's own rollout.",
    lambda found, config: anatomy_figure(found, config.source.title, config.scoring),
    lambda found: [found.advice],
    anatomy_table,
)
