"""The course of training as charts: logged numbers, and what the loss sees by wavenumber."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import metric_named
from hero.report.figures.charts import UPDATES, WAVES, Chart, Curve, charts_figure
from hero.report.figures.style import COLOURS, candidate_colours
from hero.report.names import titles_of
from hero.runs.records import Log, SpectraRecord

SHOWN = 5
"""Validations of which a line is drawn, the first and the last among them."""

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
    return [chart for chart in charts if chart.curves]


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
    """A curve for each key, with a band of one std over windows where that was logged too."""
    curves = []
    for place, (key, label) in enumerate(labels.items()):
        steps, values = series(log, key)
        _, std = series(log, f"{key}_std")
        if len(steps):
            band = (values - std, values + std) if len(std) == len(values) else None
            curves.append(Curve(label, steps, values, band, colours.get(key, COLOURS[place])))
    return Chart(title, curves, UPDATES, log=is_log)


def training_figure(log: Log) -> Figure:
    """All charts of a log, two in a row."""
    charts = [*training_charts(log), *diagnostic_charts(log)]
    return charts_figure("Training" if charts else "Training: nothing was logged", charts, 2, 4.75, 2.4)


@dataclass(frozen=True)
class Found:
    """A record as arrays (channel, shell)."""

    step: int
    wavenumbers: np.ndarray
    arrays: dict[str, np.ndarray]


def spectra_charts(log: Log, has_error: bool = True, names: Sequence[str] = ()) -> list[Chart]:
    """Weights, sensitivity and error of each channel by its name; none if the loss weighs nothing.

    Without `has_error` the log holds the spectrum of the data under that name, and there is no chart of the error.
    """
    records = {record.step: record for record in log.spectra}  # of an update logged twice, the last
    found = [_found(records[step]) for step in sorted(records)]
    channels = max((len(array) for one in found for array in one.arrays.values()), default=0)
    labels = names if len(names) == channels else [f"channel {i + 1}" for i in range(channels)]
    return [
        Chart(
            title + (f", {labels[channel]}" if channels > 1 else ""), shown, WAVES, unit, True, caption, range_of(shown)
        )
        for channel in range(channels)
        for title, unit, caption, curves in (
            ("Weight by wavenumber", "weight w", WEIGHTS, _over_time(found, "weights", channel)),
            ("Sensitivity by wavenumber", "sensitivity g", SENSITIVITY, _over_time(found, "sensitivity", channel)),
            ("Error by wavenumber", "power per mode", ERROR, _error(found, channel) if has_error else ()),
        )
        if (shown := [curve for curve in curves if len(curve.y)])
    ]


def range_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """The ends of a logarithmic axis with some room."""
    values = np.concatenate([curve.y for curve in curves])
    return float(values.min() / 1.3), float(values.max() * 1.3)


def _found(record: SpectraRecord) -> Found:
    """The arrays that have a number for every wavenumber; numbers that are not finite are NaN."""
    wavenumbers = next(iter(record.spectra.get("wavenumber", ())), ())
    arrays = {
        name: np.where(np.isfinite(rows), rows, np.nan)
        for name, rows in record.spectra.items()
        if name != "wavenumber" and rows and all(len(row) == len(wavenumbers) for row in rows)
    }
    return Found(record.step, np.array(wavenumbers), arrays)


def _curve(one: Found, values: np.ndarray, label: str, time: float, style: str = "-") -> Curve:
    """Values that a logarithmic axis can show."""
    kept = (values > 0) & np.isfinite(one.wavenumbers)
    return Curve(label, one.wavenumbers[kept], values[kept], time=time, style=style)


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
        yield _curve(last, scale * (weights * error)[channel], f"update {last.step}, weighted", 1.0, "--")


def spectra_figure(charts: Sequence[Chart]) -> Figure:
    """The charts, a row for each channel."""
    return charts_figure("The loss by wavenumber", charts, len({chart.unit for chart in charts}), 4.6, 3.7)
