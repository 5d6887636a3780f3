"""The diagram of average ranks of Demšar (2006): a bar joins methods that the critical difference does not separate."""

from __future__ import annotations

from matplotlib.figure import Figure

from hero.report.figures.style import BLACK, colours_of, new_figure
from hero.report.names import method_title, metric_title
from hero.study.records import Summary


def critical_difference_figure(summary: Summary) -> Figure | None:
    """Methods on an axis of average ranks, best on top, with a bar for each joined set; None without ranks."""
    ranks, count = summary.ranks, len(summary.ranks.methods)
    if not count:
        return None
    figure = new_figure(7.0, 1.6 + 0.3 * count + 0.12 * len(ranks.joined))
    axes = figure.subplots()
    place = {one.method: (height, one.rank) for height, one in enumerate(ranks.methods)}
    colours = colours_of(place)
    for method, (height, rank) in place.items():
        axes.plot([rank, rank], [-1, height], color=colours[method], linewidth=1.2, linestyle=":")
        axes.plot(rank, height, "o", color=colours[method], markersize=7)
    axes.set_yticks(range(count), [f"{method_title(one.method)}  {one.rank:.2f}" for one in ranks.methods])
    lines = [(place[names[0]][1], place[names[-1]][1], -0.5 - 0.35 * i) for i, names in enumerate(ranks.joined)]
    difference = ranks.critical_difference or 0.0
    top = -1.1 - 0.35 * len(lines)
    for start, end, y in lines:
        axes.plot([start - 0.04, end + 0.04], [y] * 2, color=BLACK, linewidth=4, solid_capstyle="round")
    # A difference longer than the axis separates nothing: it is cut there and its label gives its length.
    axes.plot([1, 1 + min(difference, count - 1)], [top] * 2, "|-", color=BLACK, linewidth=1.2, markersize=8)
    axes.text(1, top - 0.15, f"critical difference {difference:.2f}", fontsize=9, va="bottom")
    axes.set(xlim=(0.8, count + 0.2), ylim=(count - 0.5, top - 0.9), xticks=range(1, count + 1))
    axes.set_xlabel(f"average rank of {metric_title(summary.metric)} over {ranks.groups} groups (1 is best)")
    axes.grid(axis="x", alpha=0.25)
    return figure
