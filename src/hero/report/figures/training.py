"""The course of training as charts, which the page draws too: logged numbers, and what the loss sees by wavenumber."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import metric_named
from hero.report.figures.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    PURPLE,
    VERMILION,
    candidate_colours,
    log_scale,
    new_figure,
    whole_steps,
)
from hero.report.names import titles_of
from hero.runs.records import Log, SpectraRecord

SHOWN = 5
"""Validations of which a line is drawn, the first and the last among them."""
EARLY_TO_LATE = LinearSegmentedColormap.from_list("early to late", [BLUE, PURPLE, VERMILION])
ZERO_WIDTH = 0.9 * float(np.log10(2))
"""matplotlib's measure of the room for 0, the mean mode, on a logarithmic axis: as far from 1 as 2 is."""

WEIGHTS = (
    "How many times more the loss counts an error of this wavenumber than one of the least weight, by update: from the "
    "first (blue, thin) to the last (orange, thick)."
)
SENSITIVITY = (
    "Harm that a defect of this wavenumber does in later steps, by the last measurement of the adjoint before that "
    "update: above 1 it is more than the mean over all wavenumbers, below 1 less."
)
ERROR = (
    "Power of the training batch's relative error at the first and the last validation; where the dashed line, the "
    "last one times its weights and scaled to the same sum, is above the solid one, the loss counts the wavenumber for "
    "more than its power."
)


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
    validates: bool = False
    """Whether its one line is the validation score, by which the best checkpoint is chosen."""


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
        replace(_chart(log, f"Validation {score}", True, {"score": score}), validates=True),
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
    if chart.validates:
        _mark_validations(axes, chart.lines[0])
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel("update", fontsize=9)
    whole_steps(axes)
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


@dataclass(frozen=True)
class Curve:
    """A positive number at each wavenumber where there is one; `time` runs from 0, the first update drawn, to 1."""

    label: str
    wavenumbers: np.ndarray
    values: np.ndarray
    time: float
    dashed: bool = False


@dataclass(frozen=True)
class SpectraChart:
    """Curves of one channel that share their axes, with the sentence that says how to read them."""

    title: str
    unit: str
    caption: str
    curves: tuple[Curve, ...]

    @property
    def range(self) -> tuple[float, float]:
        """The ends of the logarithmic axis."""
        values = np.concatenate([curve.values for curve in self.curves])
        return float(values.min() / 1.3), float(values.max() * 1.3)


@dataclass(frozen=True)
class Found:
    """A record as arrays (channel, shell)."""

    step: int
    wavenumbers: np.ndarray
    arrays: dict[str, np.ndarray]


def spectra_charts(log: Log, has_error: bool = True, names: Sequence[str] = ()) -> list[SpectraChart]:
    """Weights, sensitivity and error of each channel by its name; none if the loss weighs nothing.

    Without `has_error` the log holds the spectrum of the data under that name, and there is no chart of the error.
    """
    records = {record.step: record for record in log.spectra}  # of an update logged twice, the last
    found = [_found(records[step]) for step in sorted(records)]
    channels = max((len(array) for one in found for array in one.arrays.values()), default=0)
    labels = names if len(names) == channels else [f"channel {i + 1}" for i in range(channels)]
    return [
        SpectraChart(title + (f", {labels[channel]}" if channels > 1 else ""), unit, caption, shown)
        for channel in range(channels)
        for title, unit, caption, curves in (
            ("Weight by wavenumber", "weight w", WEIGHTS, _over_time(found, "weights", channel)),
            ("Sensitivity by wavenumber", "sensitivity g", SENSITIVITY, _over_time(found, "sensitivity", channel)),
            ("Error by wavenumber", "power per mode", ERROR, _error(found, channel) if has_error else ()),
        )
        if (shown := tuple(curve for curve in curves if len(curve.values)))
    ]


def _found(record: SpectraRecord) -> Found:
    """The arrays that have a number for every wavenumber; numbers that are not finite are NaN."""
    wavenumbers = next(iter(record.spectra.get("wavenumber", ())), ())
    arrays = {
        name: np.where(np.isfinite(rows), rows, np.nan)
        for name, rows in record.spectra.items()
        if name != "wavenumber" and rows and all(len(row) == len(wavenumbers) for row in rows)
    }
    return Found(record.step, np.array(wavenumbers), arrays)


def _curve(one: Found, values: np.ndarray, label: str, time: float, dashed: bool = False) -> Curve:
    """Of the values those that a logarithmic axis can show."""
    kept = (values > 0) & np.isfinite(one.wavenumbers)
    return Curve(label, one.wavenumbers[kept], values[kept], time, dashed)


def _over_time(found: Sequence[Found], name: str, channel: int) -> Iterator[Curve]:
    """A curve for some of the validations."""
    having = [one for one in found if channel < len(one.arrays.get(name, ()))]
    if not having:
        return
    first, last = having[0].step, having[-1].step
    for place in np.unique(np.linspace(0, len(having) - 1, min(SHOWN, len(having))).round().astype(int)):
        one = having[place]
        time = (one.step - first) / max(1, last - first)
        yield _curve(one, one.arrays[name][channel], f"update {one.step}", time)


def _error(found: Sequence[Found], channel: int) -> Iterator[Curve]:
    """Before and after, and after as the loss sees it."""
    having = [one for one in found if channel < len(one.arrays.get("error", ()))]
    if not having:
        return
    first, last = having[0], having[-1]
    if first is not last:
        yield _curve(first, first.arrays["error"][channel], f"update {first.step}", 0.0)
    error, weights = last.arrays["error"], last.arrays.get("weights", np.empty(0))
    yield _curve(last, error[channel], f"update {last.step}", 1.0)
    if weights.shape == error.shape:
        scale = np.nansum(error) / max(np.nansum(weights * error), np.finfo(np.float64).tiny)
        yield _curve(last, scale * (weights * error)[channel], f"update {last.step}, weighted", 1.0, dashed=True)


def spectra_figure(charts: Sequence[SpectraChart]) -> Figure:
    """The charts, a row for each channel."""
    columns = len({chart.unit for chart in charts})
    rows = -(-len(charts) // columns)
    figure = new_figure(4.6 * columns, 0.4 + 3.7 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, chart in zip(panels, charts, strict=False):
        _draw_spectra(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    figure.suptitle("The loss by wavenumber")
    return figure


def _draw_spectra(axes: Axes, chart: SpectraChart) -> None:
    for curve in chart.curves:
        axes.plot(curve.wavenumbers, curve.values, "--" if curve.dashed else "-", label=curve.label,
                  color=EARLY_TO_LATE(curve.time), linewidth=1 + curve.time)  # fmt: skip
    axes.set_xscale("symlog", linthresh=1, linscale=ZERO_WIDTH)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    log_scale(axes, np.array(chart.range))
    axes.set_ylim(*chart.range)
    axes.margins(x=0.01)
    axes.set_title(chart.title, fontsize=10)
    axes.set(xlabel="wavenumber |k|", ylabel=chart.unit)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)  # below: lines fill the frame
