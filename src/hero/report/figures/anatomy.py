"""The figure and the table of `hero anatomy`: which modes make the error of a trained operator."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from hero.analysis.anatomy import Anatomy
from hero.method.metrics import Scoring
from hero.report.figures.charts import BANDS, Chart, Curve, charts_figure
from hero.report.figures.style import BLACK, BLUE, ORANGE, VERMILION
from hero.report.inputs import Analysis
from hero.report.tables import Column, Number, Row, Table, Text

CARRIERS = {"solver": VERMILION, "data": ORANGE}
LEAST_SHARE = 1e-4  # lower end of the axis of shares: less than a hundredth of a percent decides nothing
DECADES = 4  # decades of the axis of errors below the largest
HEADROOM = 1.6  # upper end of an axis over its largest value


def anatomy_figure(found: Anatomy, subject: str, scoring: Scoring | None = None) -> Figure:
    """Shares of the bands on the left; on the right the errors at step T that each band makes alone."""
    at = f"error at step {found.steps}"
    labels = [label.split()[0] for label in found.labels]  # "beyond the operator's modes" is too long
    carried = {f"{at}, {name} carries": (colour, getattr(found, name)) for name, colour in CARRIERS.items()}
    carried = {label: pair for label, pair in carried.items() if pair[1]}

    def curve(label: str, numbers: Iterable[float], colour: str, style: str = "o-") -> Curve:
        return Curve(label, labels, np.array([*numbers], dtype=np.float64), colour=colour, style=style)

    shares = [curve("one-step error", found.one_step, BLUE)]
    shares += [curve(label, one.shares, colour) for label, (colour, one) in carried.items()]
    errors = [curve(label, one.errors, colour) for label, (colour, one) in carried.items()]
    errors.append(curve(f"{at}, its own rollout: all modes", [found.own] * len(labels), BLACK, "--"))
    values = np.concatenate([one.y for one in errors])
    top = np.max(values[np.isfinite(values)], initial=0) or 1.0
    title = f"{(scoring or Scoring()).title} at step {found.steps} that a band makes alone"
    left = Chart("share of each band: what training sees, and what decides", shares, BANDS, log=True,
                 range=(LEAST_SHARE, HEADROOM))  # fmt: skip
    right = Chart(title, errors, BANDS, log=True, range=(top / 10**DECADES, HEADROOM * top))
    figure = charts_figure(f"{subject}: which modes make the {at}", [left, right], 2, 5.2, 3.9)
    figure.axes[0].yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    return figure


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
    return Table(title, columns, rows, anatomy.notes)


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
