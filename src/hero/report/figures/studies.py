"""The figures of a study or a comparison, from its result, its run folders and its test data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.method.metrics import Scoring
from hero.report.figures.curves import Baselines, Errors, baseline_means, curves_figure, methods_chart
from hero.report.figures.style import BLACK, BLUE, GREY, colours_of, new_figure
from hero.report.names import method_title, metric_title
from hero.report.registries import STUDY_FIGURES
from hero.runs.folder import Run
from hero.study.records import Group, SeedCell, StudyResult, Summary

Named = tuple[str, Figure]


def study_figures(result: StudyResult, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Names and figures of a study, one at a time."""
    kind = STUDY_FIGURES.get(result.figures, no_figures)
    for group in result.groups:
        name = "-".join(filter(None, (group.task, group.backbone.rpartition(":")[2], group.loss, group.shift)))
        yield from kind(result, group, name, runs_dir, data_dir)
    for summary in result.statistics:
        ranks = critical_difference_figure(summary)
        if ranks is not None:
            yield f"ranks-{summary.loss}" if summary.loss else "ranks", ranks


def no_figures(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Nothing to draw."""
    return iter(())


def curves(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """The error curves of a group, next to its tests."""
    errors, scoring, baselines = errors_of(group, runs_dir)
    if errors:
        tests = [test for summary in result.statistics for test in summary.tests if test.group == group.title]
        yield f"curves-{name}", curves_figure(methods_chart(group.title, errors, scoring, baselines), tests)


def setting(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """The error curves of a group, and each column against the setting that its rows vary."""
    for curve in curves(result, group, name, runs_dir, data_dir):
        yield curve
        yield f"setting-{name}", setting_figure(group, result)


def errors_of(group: Group, runs_dir: Path) -> tuple[Errors, Scoring, Baselines]:
    """The score (seed, trajectory, step) of each row that has finished runs, its measure, and the baselines."""
    found = {row.label: [Run(runs_dir / run.run).errors for run in row.finished] for row in group.rows}
    scores = {label: np.stack([one.score for one in errors]) for label, errors in found.items() if errors}
    first = next((errors[0] for errors in found.values() if errors), None)
    return scores, Scoring(measure=first.measure if first else "nrmse"), baseline_means(first) if first else {}


def setting_figure(group: Group, result: StudyResult) -> Figure:
    """Each column against the setting that the rows vary: seeds as points, their mean as a line.

    A row without a value of the setting is the reference.
    """
    figure = new_figure(2.9 * len(result.columns), 3.4)
    panels = figure.subplots(1, len(result.columns), squeeze=False)[0]
    for axes, column in zip(panels, result.columns, strict=True):
        points = []
        for row in group.rows:
            cell = row.cells.get(column.key)
            if cell and row.setting is None:
                _reference_band(axes, cell, row.label)
            elif cell and row.setting is not None:
                seeds = _finite(cell)
                axes.plot([row.setting] * len(seeds), seeds, "o", color=BLUE, markersize=4, alpha=0.6)
                points.append((row.setting, cell.mean if math.isfinite(cell.mean) else math.nan))
        axes.plot(*zip(*points, strict=True), color=BLUE, linewidth=1.6, label="mean of seeds")
        axes.set(xlabel=result.setting, xticks=[x for x, _ in points])
        axes.set_title(f"{column.label} ({column.direction} is better)", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
    figure.suptitle(group.title, fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _finite(cell: SeedCell) -> list[float]:
    return [value for value in cell.values if math.isfinite(value)]


def _reference_band(axes: Axes, cell: SeedCell, label: str) -> None:
    seeds = _finite(cell)
    if seeds:
        axes.axhspan(min(seeds), max(seeds), color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(sum(seeds) / len(seeds), color=GREY, linewidth=1.4, linestyle="--", label=label)


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
