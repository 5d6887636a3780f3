"""Cost of one update against grid size and batch, ours and the peers': the plot of `python -m benchmarks scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from benchmarks.participant import Workload
from benchmarks.peers import PAPER, PEERS, alternate, children
from hero.console import progress_bar
from hero.report.figures.style import BLUE, GREEN, VERMILION, new_figure

Sweep = tuple[str, str, list[Workload]]  # title, the field of a workload that varies, workloads


def paper_sweeps() -> list[Sweep]:
    """Grids and batches around the paper's, in the dimensions where a point takes no minutes."""

    def work(dims: int, points: int, batch: int) -> Workload:
        return Workload("training", dims, **PAPER[dims] | {"points": points}, batch=batch, steps=5)

    grids = {1: (64, 256, 1024), 2: (32, 128)}
    batches = (1, 64)
    sweeps: list[Sweep] = []
    for dims in grids:
        sweeps.append((f"{dims}D, batch 20", "points", [work(dims, points, 20) for points in grids[dims]]))
        sweeps.append(
            (
                f"{dims}D, {PAPER[dims]['points']} points per axis",
                "batch",
                [work(dims, PAPER[dims]["points"], b) for b in batches],
            )
        )
    return sweeps


def measure_scaling(sweeps: Sequence[Sweep], rounds: int, threads: int, eager: bool) -> list[dict[str, Any]]:
    """Rows as `compare` gives them for training, with `sweep` and `varies` to tell which curve they belong to."""
    labels = {"hero": ("hero", not eager), **{name: (name, False) for name in PEERS}}
    total = sum(len(works) for _, _, works in sweeps) * len(labels) * (rounds + 2)
    rows = []
    with progress_bar("grid and batch", total) as advance, children(labels.values(), threads) as pool:
        for title, varies, works in sweeps:
            for work in works:
                measured = alternate(pool, labels, work, rounds, advance)
                rows += [row | {"sweep": title, "varies": varies} for row in measured]
    return rows


def scaling_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Median time of an update, one panel per sweep, both axes logarithmic."""
    titles = list(dict.fromkeys(row["sweep"] for row in rows))
    columns = min(2, len(titles))
    figure = new_figure(8.0, 3.2 * -(-len(titles) // columns))
    panels = figure.subplots(-(-len(titles) // columns), columns, squeeze=False).flat
    styles = {"hero": (BLUE, "o"), "neuralop": (VERMILION, "s"), "apebench": (GREEN, "^")}
    for axes, title in zip(panels, titles, strict=False):
        shown = [row for row in rows if row["sweep"] == title and "median_seconds" in row]
        varies = next(row["varies"] for row in rows if row["sweep"] == title)
        for label, (colour, marker) in styles.items():
            x = [row[varies] for row in shown if row["participant"] == label]
            y = [1e3 * row["median_seconds"] for row in shown if row["participant"] == label]
            if x:
                axes.plot(x, y, marker=marker, color=colour, linewidth=1.6, markersize=5, label=label)
        axes.set(xscale="log", yscale="log", title=title, ylabel="ms per update")
        axes.set_xlabel("grid points per axis" if varies == "points" else "batch")
        axes.set_xticks(sorted({row[varies] for row in rows if row["sweep"] == title}))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.25, which="both")
        axes.legend(fontsize=8)
    return figure
