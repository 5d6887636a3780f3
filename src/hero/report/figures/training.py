"""The course of training as charts, which the page draws too: loss, validation, learning rate, relative term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import metric_named
from hero.report.figures.style import BLACK, COLOURS, GREEN, PURPLE, candidate_colours, log_scale, new_figure
from hero.report.names import titles_of
from hero.runs.records import Log


@dataclass(frozen=True)
class Line:
    """A logged number after each update, with its std over windows where that was logged too."""

    label: str
    steps: np.ndarray
    values: np.ndarray
    std: np.ndarray | None
    colour: str


@dataclass(frozen=True)
class Chart:
    """Lines that share their axes."""

    title: str
    log: bool
    lines: tuple[Line, ...]


def series(log: Log, key: str) -> tuple[np.ndarray, np.ndarray]:
    """A logged number or statistic in order of updates; of an update that a resumed run logged twice, the last."""
    found: dict[int, float] = {}
    for record in (*log.training, *log.validation):
        declared = key in type(record).model_fields
        value = getattr(record, key) if declared else (record.model_extra or {}).get(key)
        if value is not None:
            found[record.step] = float(value)
    steps = sorted(found)
    return np.array(steps, dtype=np.int64), np.array([found[step] for step in steps], dtype=np.float64)


def training_charts(log: Log) -> list[Chart]:
    """Loss, validation and learning rate, and of a strategy with candidates its weights, margin and selections."""
    candidates = _logged_parts(log)[0]
    score = metric_named(log.validation[0].metric).title if log.validation else ""
    charts = [
        _chart(log, "Training loss", True, {"loss": "loss"}),
        _chart(log, f"Validation {score}", True, {"score": score}),
        _chart(log, "Learning rate", False, {"lr": "learning rate"}),
        _chart(log, "Relative term", False, {"alpha": "gate α", "lambda": "weight λ"}),
        _chart(log, "Margin d_fail − d_cur", False, {"margin": "margin"}),
        _chart(log, "Selected reference, share", False, candidates, candidate_colours(candidates)),
    ]
    return [chart for chart in charts if chart.lines]


def diagnostic_charts(log: Log) -> list[Chart]:
    """Every diagnostic E_q of each candidate."""
    candidates, diagnostics = _logged_parts(log)
    colours = candidate_colours(candidates)
    return [
        _chart(log, title, True, {f"{c}.{q}": label for c, label in candidates.items()},
               {f"{c}.{q}": colour for c, colour in colours.items()})
        for q, title in diagnostics.items()
    ]  # fmt: skip


def _logged_parts(log: Log) -> tuple[dict[str, str], dict[str, str]]:
    """Titles of the candidates and of the diagnostics in a log, which has `candidate.diagnostic` for each pair."""
    keys = [key.split(".") for record in log.training for key in record.statistics if key.count(".") == 1]
    return titles_of(CANDIDATES, (key[0] for key in keys)), titles_of(DIAGNOSTICS, (key[1] for key in keys))


def _chart(log: Log, title: str, is_log: bool, labels: Mapping[str, str], colours: Mapping[str, str] = {}) -> Chart:
    lines = []
    for place, (key, label) in enumerate(labels.items()):
        steps, values = series(log, key)
        _, std = series(log, f"{key}_std")
        if len(steps):
            colour = colours.get(key, COLOURS[place])
            lines.append(Line(label, steps, values, std if len(std) == len(values) else None, colour))
    return Chart(title, is_log, tuple(lines))


def training_figure(log: Log) -> Figure:
    """All charts of a log, two in a row."""
    charts = [*training_charts(log), *diagnostic_charts(log)]
    rows = max(1, -(-len(charts) // 2))
    figure = new_figure(9.5, 0.6 + 2.4 * rows)
    panels = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, chart in zip(panels, charts, strict=False):
        _draw(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    figure.suptitle("Training" if charts else "Training: nothing was logged")
    return figure


def _draw(axes: Axes, chart: Chart) -> None:
    for line in chart.lines:
        shown = np.where(np.isfinite(line.values), line.values, np.nan)
        axes.plot(line.steps, shown, color=line.colour, linewidth=1.4, label=line.label)
        if line.std is not None:
            low, high = line.values - line.std, line.values + line.std
            axes.fill_between(line.steps, low, high, color=line.colour, alpha=0.25, linewidth=0)
    if chart.log:
        log_scale(axes, np.concatenate([line.values for line in chart.lines]))
    if "Validation" in chart.title:
        _mark_validations(axes, chart.lines[0])
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel("update", fontsize=9)
    axes.grid(alpha=0.25)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=8)


def _mark_validations(axes: Axes, line: Line) -> None:
    """A star at the best validation, crosses at those with a diverged rollout."""
    finite = np.isfinite(line.values)
    if finite.any():
        best, least = line.steps[finite][line.values[finite].argmin()], line.values[finite].min()
        axes.plot(best, least, "*", color=GREEN, markersize=14, markeredgecolor=BLACK, linestyle="none",
                  label=f"best checkpoint: {least:#.3g} at update {best}")  # fmt: skip
    if not finite.all():
        axes.plot(line.steps[~finite], np.full((~finite).sum(), 0.96), "x", color=PURPLE, markersize=6,
                  markeredgewidth=1.6, transform=axes.get_xaxis_transform(), linestyle="none",
                  label="a rollout diverged")  # fmt: skip
