"""The figures of a study or a comparison, from its result, its run folders and its test data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.data.windows import Trajectories
from hero.evaluation.evaluate import Landscape
from hero.method.metrics import Scoring, median_trajectory
from hero.method.rollout import rollout
from hero.report.figures.analysis import landscape_figure
from hero.report.figures.curves import Baselines, Errors, baseline_means, curves_figure, draw_methods
from hero.report.figures.fields import draw_states
from hero.report.figures.style import BLACK, BLUE, GREY, colours_of, new_figure
from hero.report.names import method_title, metric_title
from hero.runs.folder import Run, choose_device, load_data
from hero.study.records import Cell, Group, Row, StudyResult, Summary

Named = tuple[str, Figure]


def study_figures(result: StudyResult, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Names and figures of a study, one at a time."""
    for group in result.groups:
        name = "-".join(filter(None, (group.task, group.backbone.rpartition(":")[2], group.loss, group.shift)))
        if result.figures == "landscape":
            yield from _landscapes(group, runs_dir)
        if result.figures not in ("curves", "rollout", "setting"):
            continue
        errors, scoring, baselines = errors_of(group, runs_dir)
        if errors and result.figures == "rollout":
            reference = result.statistics[0].baseline if result.statistics else ""
            yield f"rollout-{name}", rollout_figure(group, reference, runs_dir, data_dir)
        elif errors:
            tests = [test for summary in result.statistics for test in summary.tests if test.group == group.title]
            yield f"curves-{name}", curves_figure(group.title, errors, scoring, baselines, tests)
        if errors and result.figures == "setting":
            yield f"setting-{name}", setting_figure(group, result)
    for summary in result.statistics:
        ranks = critical_difference_figure(summary)
        if ranks is not None:
            yield f"ranks-{summary.loss}" if summary.loss else "ranks", ranks


def errors_of(group: Group, runs_dir: Path) -> tuple[Errors, Scoring, Baselines]:
    """The score (seed, trajectory, step) of each row that has finished runs, its measure, and the baselines."""
    found = {row.label: [Run(runs_dir / run.run).errors for run in row.finished] for row in group.rows}
    scores = {label: np.stack([one.score for one in errors]) for label, errors in found.items() if errors}
    first = next((errors[0] for errors in found.values() if errors), None)
    return scores, Scoring(measure=first.measure if first else "nrmse"), baseline_means(first) if first else {}


def _landscapes(group: Group, runs_dir: Path) -> Iterator[Named]:
    """The figure of `hero landscape` for each run; the rows of the group share them."""
    for name, entry in {run.run: run for row in group.rows for run in row.finished}.items():
        found = Landscape.read(runs_dir / name / "landscape.json")
        yield f"landscape-{name}", landscape_figure(found, f"{group.title}, seed {entry.seed}")


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


def _finite(cell: Cell) -> list[float]:
    return [value for value in cell.values if math.isfinite(value)]


def _reference_band(axes: Axes, cell: Cell, label: str) -> None:
    seeds = _finite(cell)
    if seeds:
        axes.axhspan(min(seeds), max(seeds), color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(sum(seeds) / len(seeds), color=GREY, linewidth=1.4, linestyle="--", label=label)


def rollout_figure(group: Group, reference: str, runs_dir: Path, data_dir: Path) -> Figure:
    """The paper's first figure: error curves, and next to them one state as truth and predictions.

    The drawn trajectory is the median one of the method `reference`, or of the first row that was run, by the GM of its
    first seed; the state is the last that the GM reads, step 100 in the paper.
    """
    errors, scoring, baselines = errors_of(group, runs_dir)
    rows = {row.label: row for row in group.rows if row.label in errors}
    chosen = next((row for row in rows.values() if row.method == reference), next(iter(rows.values())))
    first = chosen.finished[0]
    run = Run(runs_dir / first.run)
    config, device, source = run.config, choose_device(run.config.train.device), run.config.source
    step = config.horizon
    index = median_trajectory(run.errors.score, step)
    example = load_data(config, "test", data_dir, device)[index : index + 1]
    truth = hidden(example.states[0, config.train.history + step - 1].cpu().numpy(), example)
    runs = {label: _run_of(row, first.seed, runs_dir) for label, row in rows.items()}
    states = {label: hidden(predicted(one, example, step, device), example) for label, one in runs.items()}
    numbers = {
        label: [one.errors.of_channel(c)[index, step - 1] for c in range(source.channels)]
        for label, one in runs.items()
    }
    figure = new_figure(12.5, 5.0)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    axes = left.subplots()
    draw_methods(axes, errors, scoring, baselines)
    axes.legend(fontsize=8, loc="best")
    draw_states(right, truth, states, numbers, source, scoring)
    by = f"the median of {chosen.label} by {config.scoring.gm_title} (seed {first.seed})"
    right.suptitle(f"step {step} of test trajectory {index}, {by}", fontsize=10)
    left.suptitle(group.title, fontsize=10)
    return figure


def hidden(state: np.ndarray, example: Trajectories) -> np.ndarray:
    """The state with NaN at the masked points of its data."""
    return state if example.mask is None else np.where(example.mask.cpu().numpy(), state, np.nan)


def _run_of(row: Row, seed: int, runs_dir: Path) -> Run:
    """The run of a row with this seed, or its first."""
    return Run(runs_dir / next((run for run in row.finished if run.seed == seed), row.finished[0]).run)


@torch.no_grad()
def predicted(run: Run, example: Trajectories, step: int, device: torch.device) -> np.ndarray:
    """The state (channel, *space) that a run predicts at `step` of its rollout along one trajectory."""
    context = example.first(run.config.train.history, device)
    prediction: np.ndarray = rollout(run.stepper(run.operator(device)), context, step)[0, -1].cpu().numpy()
    return prediction


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
