"""A chart is described once, as curves that share their axes: figures draw it by matplotlib, the page by its script.

Most charts show errors against the rollout step, of one method or of several over each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.data.files.checks import spread
from hero.method.measures import TAU
from hero.report.figures.style import (
    BLACK,
    GREEN,
    GREY,
    colours_of,
    line_style,
    log_scale,
    new_figure,
    plain,
    whole_steps,
)
from hero.report.inputs import Curves
from hero.report.listing import BASELINE_TITLES
from hero.study.records import Published

Data = dict[str, Any]  # plain data, as the page holds them in JSON
ZERO_WIDTH = 0.9 * float(np.log10(2))
"""matplotlib's measure of the room for 0, the mean mode, on a logarithmic axis: as far from 1 as 2 is."""
ERROR_RANGE = (1e-8, 1e3)
"""An exploding rollout passes through 30 decades before it overflows; beyond a thousandfold error nothing is seen."""


class Across(NamedTuple):
    """The horizontal axis of a chart."""

    label: str
    name: str = ""  # stands before a number that is read off
    whole: bool = False  # whether there is nothing between whole numbers
    waves: bool = False  # whether it is logarithmic from 1 on, with room for 0


UPDATES = Across("update", "update", whole=True)
STEPS = Across("rollout step", "step", whole=True)
WAVES = Across("wavenumber |k|", "k =", waves=True)
BANDS = Across("modes |k|")


@dataclass(frozen=True)
class Curve:
    """A line, with a band where its ends are known; a number that is not finite is a gap."""

    label: str
    x: np.ndarray | Sequence[float] | Sequence[str]
    y: np.ndarray
    band: tuple[np.ndarray, np.ndarray] | None = None
    colour: Any = None  # in figures; the page has colours for dark and light
    style: str = "-"
    idle: int = 0  # the number of a baseline, from 1
    points: Mapping[int, Published] = field(default_factory=dict)  # the paper's numbers
    lost: tuple[int, int] = (0, 0)  # how many rollouts diverged, and of how many

    @property
    def name(self) -> str:
        return f"{self.label} ({self.lost[0]} of {self.lost[1]} diverged)" if self.lost[0] else self.label

    def data(self, most: int | None = None) -> Data:
        """The curve for the page, thinned to `most` points."""
        kept = spread(len(self.x), most or len(self.x))
        lines = zip(("y", "low", "high"), (self.y, *(self.band or ())), strict=False)
        numbers = {name: [*map(finite_or_none, line[kept])] for name, line in lines}
        paper = [[x, number.mean] for x, number in self.points.items()]
        return {
            "label": self.name,
            "x": np.asarray(self.x)[kept].tolist(),
            **numbers,
            "idle": self.idle,
            "points": paper,
        }


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes."""

    title: str
    curves: Sequence[Curve]
    across: Across
    unit: str = ""
    log: bool = False
    range: tuple[float, float] | None = None  # the ends of the vertical axis where they are not those of the curves
    threshold: float | None = None

    def data(self, most: int | None = None) -> Data:
        """The options and series of a chart on the page, each thinned to `most` points."""
        said = {"range": self.range, "threshold": self.threshold}
        return {
            "title": self.title,
            "xLabel": self.across.label,
            "xName": self.across.name,
            "whole": self.across.whole,
            "xLog": self.across.waves,
            "yLabel": self.unit,
            "yLog": self.log,
            **{name: value for name, value in said.items() if value is not None},
            "series": [curve.data(most) for curve in self.curves],
        }


def finite_or_none(value: float) -> float | None:
    """A number for the page, with nine digits; None stands for infinity."""
    return float(f"{value:.9g}") if np.isfinite(value) else None


def draw_chart(axes: Axes, chart: Chart) -> None:
    """The chart in a pair of axes; it has a legend if there is more than one name.

    An infinite value leaves through the top of an axis whose ends are given, where a cross marks it.
    """
    low, high = chart.range or (0.0, 0.0)

    def shown(values: np.ndarray) -> np.ndarray:
        return np.clip(values, low / 10, 10 * high) if chart.range else np.where(np.isfinite(values), values, np.nan)

    for curve in chart.curves:
        colour, width = curve.colour, 1.0 if curve.idle else 1.6
        axes.plot(
            curve.x, shown(curve.y), curve.style, color=colour, linewidth=width, markersize=3, label=plain(curve.name)
        )
        if curve.band:
            least, largest = map(shown, curve.band)
            axes.fill_between(curve.x, least, largest, color=colour, alpha=0.22, linewidth=0)
        _mark(axes, curve, colour, bool(chart.range))
    if chart.log:
        log_scale(axes, np.concatenate([chart.range] if chart.range else [curve.y for curve in chart.curves]))
    if chart.range:
        axes.set_ylim(low, high)
    if chart.threshold and low < chart.threshold < high:
        axes.axhline(chart.threshold, color=GREEN, linewidth=1.0, linestyle=":", label=f"τ = {chart.threshold}")
    if chart.across.waves:
        axes.set_xscale("symlog", linthresh=1, linscale=ZERO_WIDTH)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if chart.range:
        axes.margins(x=0.01)
    if chart.across.whole:
        whole_steps(axes)
    axes.set_title(plain(chart.title), fontsize=10)
    axes.set_xlabel(chart.across.label, fontsize=9)
    axes.set_ylabel(chart.unit, fontsize=9)
    axes.grid(alpha=0.25)
    if chart.across.waves:  # lines by wavenumber fill the frame: the legend is below
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    elif len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=8)


def _mark(axes: Axes, curve: Curve, colour: Any, has_ends: bool) -> None:
    """A cross where the curve becomes infinite, diamonds for the paper's numbers."""
    if has_ends and np.isinf(curve.y).any():
        first = curve.x[int(np.isinf(curve.y).argmax())]
        axes.plot(first, 1, "x", color=colour, markersize=7, clip_on=False, transform=axes.get_xaxis_transform())
    for x, number in curve.points.items():
        axes.errorbar(x, number.mean, number.std or 0, fmt="D", color=colour, ecolor=BLACK, capsize=4,
                      markeredgecolor=BLACK, label="paper, mean ± std" if x == min(curve.points) else None)  # fmt: skip


def charts_figure(title: str, charts: Sequence[Chart], columns: int, width: float, height: float) -> Figure:
    """The charts in rows of `columns`, each so many inches wide and high."""
    rows = max(1, -(-len(charts) // columns))
    figure = new_figure(width * columns, 0.5 + height * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, chart in zip(panels, charts, strict=False):
        draw_chart(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    figure.suptitle(title)
    return figure


def error_chart(
    title: str,
    methods: Mapping[str, Sequence[Curves]],
    channel: str = "",
    paper: Mapping[str, Mapping[int, Published]] = {},
) -> Chart:
    """The mean of each method over its seeds, with a band over all of them; grey is what doing nothing gives."""
    colours, curves = colours_of(methods), []
    for place, (name, seeds) in enumerate(methods.items()):
        length = min(len(one.scores[channel]) for one in seeds)
        lines = np.stack([one.scores[channel][:length] for one in seeds])
        band = (lines.min(axis=0), lines.max(axis=0)) if len(seeds) > 1 else None
        lost = sum(one.lost[0] for one in seeds), sum(one.lost[1] for one in seeds)
        curves.append(Curve(name, np.arange(1, length + 1), lines.mean(axis=0), band, colours[name],
                            line_style(place), points=paper.get(name, {}), lost=lost))  # fmt: skip
    every = [one for seeds in methods.values() for one in seeds]
    idle = shared_baselines([one.baselines[channel] for one in every])
    for number, (name, line) in enumerate(idle.items(), start=1):
        steps, style = np.arange(1, len(line) + 1), "--" if number == 1 else ":"
        curves.append(Curve(BASELINE_TITLES[name], steps, line, colour=GREY, style=style, idle=number))
    scoring = every[0].scoring
    threshold = TAU if scoring.measure == "nrmse" else None
    return Chart(title, curves, STEPS, scoring.title, log=True, threshold=threshold)


def shared_baselines(found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The curves of doing nothing that all runs agree on, which were then evaluated on the same data."""

    def agreed(name: str) -> bool:
        own = [one[name] for one in found if name in one]
        length = min(map(len, own))
        return len(own) == len(found) and all(np.allclose(one[:length], own[0][:length]) for one in own)

    return {name: curve for name, curve in found[0].items() if agreed(name)}


def draw_errors(axes: Axes, chart: Chart) -> None:
    """Errors on an axis that ends where nothing can be seen any more."""
    curves = [line for one in chart.curves for line in (one.y, *(one.band or ()))]
    published = [number.mean for one in chart.curves for number in one.points.values()]
    values = np.concatenate([published, *curves])
    visible = values[np.isfinite(values) & (values > 0)]
    ends = [visible.min(), visible.max()] if visible.size else list(ERROR_RANGE)
    low, high = max(ends[0] / 1.5, ERROR_RANGE[0]), min(ends[1] * 1.5, ERROR_RANGE[1])
    draw_chart(axes, replace(chart, range=(min(low, ERROR_RANGE[1] / 10), max(high, 10 * ERROR_RANGE[0]))))


def curves_figure(chart: Chart) -> Figure:
    """Error curves of all methods, with their names below."""
    figure = new_figure(7.5, 4.8 + 0.12 * len(chart.curves))
    axes = figure.subplots()
    draw_errors(axes, replace(chart, title=""))
    if legend := axes.get_legend():
        legend.remove()
    figure.suptitle(plain(chart.title), fontsize=11)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure
