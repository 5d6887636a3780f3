"""The figures of studies: error curves of a group, a metric against a setting, and the paper's picture of a rollout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from hero.report.figures.curves import COLOURS, STYLES, error_curves
from hero.report.figures.fields import FIELD_MAP, GONE, TaskInfo
from hero.report.figures.style import BLACK, BLUE, GREY, new_figure
from hero.report.tables import as_float, format_number

Group = Mapping[str, Any]
Errors = Mapping[str, np.ndarray]

FIELDS_ACROSS = 4


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}


def curves_figure(group: Group, errors: Errors) -> Figure:
    """nRMSE (seed, trajectory, step) of each row that was run against the rollout step."""
    figure = new_figure(7.5, 4.8 + 0.12 * len(errors))
    axes = figure.subplots()
    diverged = {row["label"]: row["diverged"] for row in group["rows"]}
    error_curves(axes, errors, diverged, colours_of([row["label"] for row in group["rows"]]))
    figure.suptitle(group["title"], fontsize=11)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def setting_figure(group: Group, columns: Sequence[Mapping[str, str]], values: Sequence[int], name: str) -> Figure:
    """Each column against the setting: seeds as points, their mean as a line; the first row is the reference."""
    reference, *rows = group["rows"]
    figure = new_figure(2.9 * len(columns), 3.4)
    for axes, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        cells = [row["cells"][column["key"]] for row in rows]
        known = [(value, cell) for value, cell in zip(values, cells, strict=True) if cell]
        for value, cell in known:
            seeds = [x for x in map(as_float, cell["values"]) if math.isfinite(x)]
            axes.plot([value] * len(seeds), seeds, "o", color=BLUE, markersize=4, alpha=0.6)
        means = [as_float(cell["mean"]) for _, cell in known]
        axes.plot([value for value, _ in known], np.where(np.isfinite(means), means, np.nan), color=BLUE,
                  linewidth=1.6, label="HERO, mean of seeds")  # fmt: skip
        _reference_band(axes, reference["cells"][column["key"]], reference["label"])
        axes.set(xlabel=name, title=f"{column['label']} ({column['direction']} is better)", xticks=values)
        axes.title.set_fontsize(9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
    figure.suptitle(group["title"], fontsize=11)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _reference_band(axes: Axes, cell: Mapping[str, Any] | None, label: str) -> None:
    seeds = [x for x in map(as_float, cell["values"]) if math.isfinite(x)] if cell else []
    if seeds:
        axes.axhspan(min(seeds), max(seeds), color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(sum(seeds) / len(seeds), color=GREY, linewidth=1.4, linestyle="--", label=label)


def rollout_figure(
    group: Group,
    errors: Errors,
    truth: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    task: TaskInfo,
    caption: str,
) -> Figure:
    """The paper's first figure: error curves, and beside them one state (channel, *space) as truth and predictions."""
    colours = colours_of([row["label"] for row in group["rows"]])
    figure = new_figure(12.5, 5.0)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    axes = left.subplots()
    error_curves(axes, errors, {row["label"]: row["diverged"] for row in group["rows"]}, colours)
    axes.legend(fontsize=8, loc="best")
    fields = {label: _drawn(u) for label, u in predictions.items()}
    titles = {label: f"{label}: nRMSE {format_number(_error(u, truth))}" for label, u in predictions.items()}
    if task.dims == 1:
        _profiles(right, _drawn(truth), fields, titles, task, colours)
    else:
        _images(right, {"truth": _drawn(truth), **fields}, {"truth": "truth", **titles}, task)
    right.suptitle(caption, fontsize=10)
    left.suptitle(group["title"], fontsize=10)
    return figure


def _drawn(state: np.ndarray) -> np.ndarray:
    """First channel, and the central slice of a 3D field."""
    field = np.where(np.isfinite(state[0]), state[0], np.nan).astype(np.float64)
    return field[..., field.shape[-1] // 2] if field.ndim == 3 else field


def _error(prediction: np.ndarray, truth: np.ndarray) -> float:
    if not np.isfinite(prediction).all():
        return math.inf
    return float(np.linalg.norm(prediction - truth) / np.linalg.norm(truth))


def _profiles(
    figure: SubFigure,
    truth: np.ndarray,
    fields: Mapping[str, np.ndarray],
    titles: Mapping[str, str],
    task: TaskInfo,
    colours: Mapping[str, str],
) -> None:
    axes = figure.subplots()
    x = np.arange(len(truth)) * task.extent / len(truth)
    axes.plot(x, truth, color=BLACK, linewidth=2.4, label="truth")
    for style, (name, u) in zip(itertools.cycle(STYLES), fields.items(), strict=False):
        axes.plot(x, u, style, color=colours[name], linewidth=1.5, label=titles[name])
    # The truth sets the frame, with room for a prediction that is wrong but not lost.
    middle, half = (truth.max() + truth.min()) / 2, max((truth.max() - truth.min()) / 2, 1e-300)
    axes.set(xlabel="x", ylabel="u", ylim=(middle - 2.5 * half, middle + 2.5 * half))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="best")


def _images(figure: SubFigure, fields: Mapping[str, np.ndarray], titles: Mapping[str, str], task: TaskInfo) -> None:
    across = min(len(fields), FIELDS_ACROSS if len(fields) > 4 else 2)
    down = -(-len(fields) // across)
    limit = float(np.abs(fields["truth"]).max()) or 1.0
    panels = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
    for axes, (name, u) in zip(panels, fields.items(), strict=False):
        image = axes.imshow(u.T, origin="lower", extent=(0, task.extent, 0, task.extent), cmap=FIELD_MAP, vmin=-limit,
                            vmax=limit, interpolation="nearest")  # fmt: skip
        axes.set_facecolor(GONE)
        if not np.isfinite(u).all():
            axes.text(0.5, 0.5, "diverged", transform=axes.transAxes, ha="center", va="center", fontsize=9)
        axes.set_title(titles[name], fontsize=9)
    for axes in panels[len(fields) :]:
        axes.set_visible(False)
    figure.colorbar(image, ax=panels, extend="both", label="u", shrink=0.85)
