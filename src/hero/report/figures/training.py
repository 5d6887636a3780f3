"""The course of training: loss, validation and learning rate; and the relative term: gate, margin, candidates."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    PURPLE,
    VERMILION,
    candidate_colours,
    log_scale,
    new_figure,
)
from hero.report.names import candidate_titles, diagnostic_titles
from hero.runs.records import Log

Series = tuple[np.ndarray, np.ndarray]
"""Updates, and the values logged after them."""


def series(log: Log, key: str) -> Series:
    """A logged number or statistic in order of updates; of an update that a resumed run logged twice, the last."""
    found: dict[int, float] = {}
    for record in (*log.training, *log.validation):
        value = (record.model_extra or {}).get(key)
        value = getattr(record, key) if key in type(record).model_fields else value
        if value is not None:
            found[record.step] = float(value)
    steps = sorted(found)
    return np.array(steps, dtype=np.int64), np.array([found[step] for step in steps], dtype=np.float64)


def logged_parts(log: Log) -> tuple[dict[str, str], dict[str, str]]:
    """Titles of the candidates and of the diagnostics in a log, which has `candidate.diagnostic` for each pair."""
    keys = [key.split(".") for record in log.training for key in record.statistics if key.count(".") == 1]
    return candidate_titles(key[0] for key in keys), diagnostic_titles(key[1] for key in keys)


def training_figure(log: Log) -> Figure:
    """Loss, validation GM100 and learning rate; for HERO also its gate α, its weight λ and the selected candidates."""
    weights = [(key, label) for key, label in (("alpha", "gate α"), ("lambda", "weight λ")) if len(series(log, key)[0])]
    candidates, _ = logged_parts(log)
    panels = 3 + bool(weights) + bool(candidates)
    figure = new_figure(8.0, 1.3 + 1.75 * panels)
    grid = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    _curve(grid[0], log, "loss", BLUE, "training loss")
    log_scale(grid[0], series(log, "loss")[1])
    _validation_panel(grid[1], log)
    _curve(grid[2], log, "lr", BLACK, "learning rate")
    for axes, name in zip(grid, ("training loss", "validation GM100", "learning rate"), strict=False):
        axes.set_ylabel(name)
    if weights:
        for (key, label), colour in zip(weights, (VERMILION, BLUE), strict=False):
            _curve(grid[3], log, key, colour, label)
        grid[3].set_ylabel("relative term")
        grid[3].set_ylim(bottom=0)
        grid[3].legend(fontsize=8, loc="upper left")
    if candidates:
        _shares_panel(grid[-1], log, candidates)
    for axes in grid:
        axes.grid(alpha=0.25)
    grid[-1].set_xlabel("update")
    figure.align_ylabels(list(grid))
    figure.suptitle("Training" if log.training else "Training: nothing was logged")
    return figure


def _curve(axes: Axes, log: Log, key: str, colour: str, label: str) -> None:
    steps, values = series(log, key)
    axes.plot(steps, np.where(np.isfinite(values), values, np.nan), color=colour, linewidth=1.4, label=label)


def _validation_panel(axes: Axes, log: Log) -> None:
    steps, values = series(log, "val_gm100")
    finite = np.isfinite(values)
    axes.plot(steps, np.where(finite, values, np.nan), "o-", color=VERMILION, markersize=3.5, linewidth=1.3)
    log_scale(axes, values)
    if finite.any():
        best, least = steps[finite][values[finite].argmin()], values[finite].min()
        axes.axvline(best, color=GREEN, linewidth=1.0, linestyle=":")
        axes.plot(best, least, "*", color=GREEN, markersize=14, markeredgecolor=BLACK, linestyle="none",
                  label=f"best checkpoint: {least:#.3g} at update {best}")  # fmt: skip
    if not finite.all():
        axes.plot(steps[~finite], np.full((~finite).sum(), 0.96), "x", color=PURPLE, markersize=6, markeredgewidth=1.6,
                  transform=axes.get_xaxis_transform(), linestyle="none", label="a rollout diverged")  # fmt: skip
    if values.size:
        axes.legend(fontsize=8, loc="best")


def _shares_panel(axes: Axes, log: Log, candidates: dict[str, str]) -> None:
    shares = [series(log, name) for name in candidates]
    steps = shares[0][0]
    stacked = [np.nan_to_num(np.interp(steps, *share)) for share in shares]
    colours = candidate_colours(candidates)
    axes.stackplot(
        steps, stacked, labels=candidates.values(), colors=[colours[name] for name in candidates], alpha=0.75
    )
    axes.set_ylabel("selected share")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8, loc="upper left")


def history_figure(log: Log) -> Figure | None:
    """Gate α, margin d_fail − d_cur, and every diagnostic E_q of each candidate; None without them."""
    candidates, diagnostics = logged_parts(log)
    if not candidates:
        return None
    rows = 1 + -(-len(diagnostics) // 2)
    figure = new_figure(9.5, 0.5 + 2.5 * rows)
    gate, margin, *others = figure.subplots(rows, 2).flat
    steps, alpha = series(log, "alpha")
    _, std = series(log, "alpha_std")
    gate.fill_between(steps, alpha - std, alpha + std, color=VERMILION, alpha=0.25, linewidth=0)
    gate.plot(steps, alpha, color=VERMILION)
    gate.set_title("gate α, mean ± std over windows", fontsize=10)
    margin.axhline(0, color="0.5", linewidth=0.8)
    margin.plot(*series(log, "margin"), color=BLUE)
    margin.set_title("margin d_fail − d_cur", fontsize=10)
    for axes, (name, title) in zip(others, diagnostics.items(), strict=False):
        _diagnostic_panel(axes, log, name, title, candidates)
    for axes in others[len(diagnostics) :]:
        axes.set_visible(False)
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.set_xlabel("update", fontsize=9)
    figure.suptitle("The relative term")
    return figure


def _diagnostic_panel(axes: Axes, log: Log, name: str, title: str, candidates: dict[str, str]) -> None:
    colours = candidate_colours(candidates)
    for candidate, label in candidates.items():
        steps, values = series(log, f"{candidate}.{name}")
        if len(steps):
            shown = np.where(values > 0, values, np.nan)
            axes.plot(steps, shown, color=colours[candidate], linewidth=1.2, label=label)
    if axes.lines:
        log_scale(axes, np.concatenate([line.get_ydata() for line in axes.lines]))
        axes.legend(fontsize=8)
    axes.set_title(title, fontsize=10)
