"""The diagram of average ranks of Demšar (2006): a bar joins methods that the critical difference does not separate."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.report.figures.style import BLACK, COLOURS, GREY, new_figure
from hero.study.records import RankedMethod, Summary

# Inches: height of a line of text, of a bar that joins methods, and width of a character.
LINE, BAR, CHARACTER = 0.3, 0.13, 0.09


def critical_difference_figure(summary: Summary) -> Figure | None:
    """Methods on an axis of average ranks; None if there is nothing to rank."""
    methods, joined = summary.ranks.methods, summary.ranks.joined
    if not methods:
        return None
    count, left_count = len(methods), math.ceil(len(methods) / 2)
    margin = 0.4 + CHARACTER * max(len(f"{one.rank:.2f}  {one.method}") for one in methods)
    length = max(3.2, 0.55 * (count - 1))
    width, axis = 2 * margin + length, 1.25
    first_line = axis + 0.25 + BAR * len(joined)
    height = first_line + LINE * left_count
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # the units are inches
    axes.set_axis_off()

    def place(rank: float) -> float:
        return margin + (rank - 1) / (count - 1) * length

    _axis(axes, summary, axis, place(1), place(count))
    for i, one in enumerate(methods):
        left = i < left_count
        line = first_line + LINE * (i if left else count - 1 - i)
        end = margin - 0.25 if left else width - margin + 0.25
        _leader(axes, one, place(one.rank), axis, line, end, COLOURS[i % len(COLOURS)])
    ranks = {one.method: one.rank for one in methods}
    for i, names in enumerate(joined):
        ends = [place(ranks[names[0]]) - 0.05, place(ranks[names[-1]]) + 0.05]
        axes.plot(ends, [axis + 0.2 + BAR * i] * 2, color=BLACK, linewidth=4, solid_capstyle="round", zorder=3)
    return figure


def _axis(axes: Axes, summary: Summary, height: float, left: float, right: float) -> None:
    """The ranks from 1, above them the length of the critical difference, and the ranked metric."""
    ranks, count = summary.ranks, len(summary.ranks.methods)
    axes.plot([left, right], [height] * 2, color=BLACK, linewidth=1.2)
    unit = (right - left) / (count - 1)
    for rank in range(1, count + 1):
        x = left + unit * (rank - 1)
        axes.plot([x, x], [height - 0.08, height], color=BLACK, linewidth=1.2)
        axes.text(x, height - 0.12, str(rank), ha="center", va="bottom", fontsize=9)
    axes.text(left - 0.25, height, "best", ha="right", va="center", fontsize=9, color=GREY)
    axes.text(right + 0.25, height, "worst", ha="left", va="center", fontsize=9, color=GREY)
    title = f"average rank of {summary.metric} over {ranks.groups} groups"
    axes.text((left + right) / 2, 0.2, title, ha="center", va="center", fontsize=10)
    # A difference longer than the axis separates nothing: it is cut there and its label gives its length.
    difference = ranks.critical_difference or 0.0
    reach = left + unit * min(difference, count - 1)
    axes.plot([left, left, left, reach, reach, reach], [0.66, 0.78, 0.72, 0.72, 0.66, 0.78], color=BLACK, linewidth=1.2)
    label = f"critical difference {difference:.2f}"
    axes.text((left + reach) / 2, 0.62, label, ha="center", va="bottom", fontsize=9)


def _leader(axes: Axes, one: RankedMethod, x: float, top: float, line: float, end: float, colour: str) -> None:
    """A method: from its rank on the axis down and out to its name."""
    left = end < x
    axes.plot([x, x, end], [top, line, line], color=colour, linewidth=1.5)
    axes.plot(x, top, "o", color=colour, markersize=5, zorder=4)
    text = f"{one.method}  {one.rank:.2f}" if left else f"{one.rank:.2f}  {one.method}"
    axes.text(end + (-0.06 if left else 0.06), line, text, ha="right" if left else "left", va="center", fontsize=10)
