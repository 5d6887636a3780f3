"""The figures of a study or a comparison, from its result, its run folders and its test data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from hero.data import Source
from hero.data.windows import Trajectories
from hero.evaluation.evaluate import Landscape
from hero.method.metrics import median_trajectory
from hero.method.rollout import rollout
from hero.report.figures.analysis import landscape_figure
from hero.report.figures.curves import Errors, curves_figure, draw_methods
from hero.report.figures.fields import box, draw_field, draw_lines, grid_points
from hero.report.figures.ranks import critical_difference_figure
from hero.report.figures.style import BLUE, GREY, STYLES, colours_of, new_figure
from hero.report.tables import format_number
from hero.runs.folder import Run, choose_device, load_data
from hero.study.records import Cell, Group, Row, StudyResult

FIELDS_ACROSS = 4

Named = tuple[str, Figure]


def study_figures(result: StudyResult, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Names and figures of a study, one at a time."""
    for group in result.groups:
        name = "-".join(filter(None, (group.task, group.backbone.rpartition(":")[2], group.loss, group.shift)))
        if result.figures == "landscape":
            yield from _landscapes(group, runs_dir)
        if result.figures not in ("curves", "rollout", "setting"):
            continue
        errors = errors_of(group, runs_dir)
        if errors and result.figures == "rollout":
            reference = result.statistics[0].baseline if result.statistics else ""
            yield f"rollout-{name}", rollout_figure(group, errors, reference, runs_dir, data_dir)
        elif errors:
            tests = [test for summary in result.statistics for test in summary.tests if test.group == group.title]
            yield f"curves-{name}", curves_figure(group.title, errors, tests)
        if errors and result.figures == "setting":
            yield f"setting-{name}", setting_figure(group, result)
    for summary in result.statistics:
        ranks = critical_difference_figure(summary)
        if ranks is not None:
            yield f"ranks-{summary.loss}" if summary.loss else "ranks", ranks


def errors_of(group: Group, runs_dir: Path) -> dict[str, np.ndarray]:
    """nRMSE (seed, trajectory, step) of each row that has finished runs."""
    found = {row.label: [Run(runs_dir / run.run).errors.score for run in row.finished] for row in group.rows}
    return {label: np.stack(errors) for label, errors in found.items() if errors}


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


def rollout_figure(group: Group, errors: Errors, reference: str, runs_dir: Path, data_dir: Path) -> Figure:
    """The paper's first figure: error curves, and next to them one state as truth and predictions.

    The drawn trajectory is the median one of the method `reference`, or of the first row that was run, by the GM of its
    first seed; the state is the last that the GM reads, step 100 in the paper.
    """
    rows = {row.label: row for row in group.rows if row.label in errors}
    chosen = next((row for row in rows.values() if row.method == reference), next(iter(rows.values())))
    first = chosen.finished[0]
    run = Run(runs_dir / first.run)
    config, device = run.config, choose_device(run.config.train.device)
    step = config.horizon
    index = median_trajectory(run.errors.score, step)
    example = load_data(config, "test", data_dir, device)[index : index + 1]
    trajectory = example.states[0]
    history = config.train.history
    states = {label: predicted(_run_of(row, first.seed, runs_dir), example, step, device)
              for label, row in rows.items()}  # fmt: skip
    figure = new_figure(12.5, 5.0)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    axes = left.subplots()
    draw_methods(axes, errors)
    axes.legend(fontsize=8, loc="best")
    draw_states(right, trajectory[history + step - 1].numpy(), states, config.make_source())
    by = f"the median of {chosen.label} by GM{step} (seed {first.seed})"
    right.suptitle(f"step {step} of test trajectory {index}, {by}", fontsize=10)
    left.suptitle(group.title, fontsize=10)
    return figure


def _run_of(row: Row, seed: int, runs_dir: Path) -> Run:
    """The run of a row with this seed, or its first."""
    return Run(runs_dir / next((run for run in row.finished if run.seed == seed), row.finished[0]).run)


@torch.no_grad()
def predicted(run: Run, example: Trajectories, step: int, device: torch.device) -> np.ndarray:
    """The state (channel, *space) that a run predicts at `step` of its rollout along one trajectory."""
    context = example.first(run.config.train.history, device)
    prediction: np.ndarray = rollout(run.stepper(run.operator(device)), context, step)[0, -1].cpu().numpy()
    return prediction


def draw_states(figure: SubFigure, truth: np.ndarray, states: dict[str, np.ndarray], source: Source) -> None:
    """The truth and the predictions (channel, *space): as lines in 1D, else as images of their central slice."""
    titles = {label: f"{label}: nRMSE {format_number(_error(state, truth))}" for label, state in states.items()}
    if source.dims == 1:
        axes = figure.subplots()
        styles = zip(itertools.cycle(STYLES), colours_of(states).values(), strict=False)
        lines = {
            titles[label]: (state[0], style, colour)
            for (label, state), (style, colour) in zip(states.items(), styles, strict=False)
        }
        draw_lines(axes, grid_points(source, truth.shape[-1]), truth[0], lines)
        axes.set_ylabel("u")
        axes.legend(fontsize=8, loc="best")
        return
    shown = {"truth": _slice(truth), **{titles[label]: _slice(state) for label, state in states.items()}}
    across = min(len(shown), FIELDS_ACROSS if len(shown) > 4 else 2)
    panels: Sequence[Axes] = list(figure.subplots(-(-len(shown) // across), across, squeeze=False, sharex=True,
                                                  sharey=True).flat)  # fmt: skip
    limit = float(np.abs(shown["truth"]).max()) or 1.0
    for axes, (title, field) in zip(panels, shown.items(), strict=False):
        image = draw_field(axes, field, limit, box(source))
        axes.set_title(title, fontsize=9)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    figure.colorbar(image, ax=panels, extend="both", label="u", shrink=0.85)


def _slice(state: np.ndarray) -> np.ndarray:
    """First channel, and the central slice of a 3D field."""
    field = np.where(np.isfinite(state[0]), state[0], np.nan).astype(np.float64)
    return field[..., field.shape[-1] // 2] if field.ndim == 3 else field


def _error(prediction: np.ndarray, truth: np.ndarray) -> float:
    if not np.isfinite(prediction).all():
        return math.inf
    return float(np.linalg.norm(prediction - truth) / np.linalg.norm(truth))
