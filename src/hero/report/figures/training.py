"""The course of training as charts: logged numbers, and what the loss sees by wavenumber."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from hero.data.files.checks import spread
from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import metric_named
from hero.report.figures.charts import UPDATES, WAVES, Chart, Curve, charts_figure
from hero.report.figures.style import COLOURS, candidate_colours
from hero.report.listing import titles_of
from hero.runs.log import Log, SpectraRecord

SHOWN = 5
"""Validations of which a line is drawn, the first and the last among them."""

SPECTRA = {
    "weights": (
        "Weight by wavenumber",
        "weight w",
        "How many times more the loss counts an error of this wavenumber than one of the least weight, by update: from "
        "the first (blue, thin) to the last (orange, thick).",
    ),
    "sensitivity": (
        "Sensitivity by wavenumber",
        "sensitivity g",
        "Harm that a defect of this wavenumber does in later steps, by the last measurement of the adjoint before that "
        "update: above 1 it is more than the mean over all wavenumbers, below 1 less.",
    ),
    "error": (
        "Error by wavenumber",
        "power per mode",
        "Power of the training batch's relative error, by update: from the first (blue, thin) to the last (orange, "
        "thick); the loss counts it times the weight of its wavenumber.",
    ),
}
"""Title, unit and caption of the chart of each finding of a loss."""


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
    charts = [*training_charts(log), *diagnostic_charts(log)]
    return charts_figure("Training" if charts else "Training: nothing was logged", charts, 2, 4.75, 2.4)


def spectra_charts(log: Log, weighs_error: bool = True, names: Sequence[str] = ()) -> list[Chart]:
    """Weights, sensitivity and error of each channel by its name; none if the loss weighs nothing.

    Where the weights come from the data, the log holds their spectrum as the error, and there is no chart of it.
    """
    by_step = {record.step: record for record in log.spectra}  # of an update logged twice, the last
    records = [by_step[step] for step in sorted(by_step)]
    channels = max((len(rows) for one in records for name, rows in one.spectra.items() if name in SPECTRA), default=0)
    labels = names if len(names) == channels else [f"channel {i + 1}" for i in range(channels)]
    charts = []
    for channel in range(channels):
        for name, (title, unit, caption) in SPECTRA.items():
            having = [one for one in records if channel < len(one.spectra.get(name, ()))]
            shown = list(_over_time(having, name, channel)) if weighs_error or name != "error" else []
            if shown:
                values = np.concatenate([curve.y for curve in shown])
                ends = float(values.min() / 1.3), float(values.max() * 1.3)
                where = f", {labels[channel]}" if channels > 1 else ""
                charts.append(Chart(title + where, shown, WAVES, unit, True, caption, ends))
    return charts


def _over_time(having: Sequence[SpectraRecord], name: str, channel: int) -> Iterator[Curve]:
    """A curve for some of the validations, of the values that a logarithmic axis can show."""
    for one in (having[place] for place in spread(len(having), SHOWN)):
        numbers, waves = np.array(one.spectra[name][channel]), np.array(one.spectra["wavenumber"][0])
        kept = (numbers > 0) & np.isfinite(numbers) & np.isfinite(waves)
        time = (one.step - having[0].step) / max(1, having[-1].step - having[0].step)
        if kept.any():
            yield Curve(f"update {one.step}", waves[kept], numbers[kept], time=time)


def spectra_figure(charts: Sequence[Chart]) -> Figure:
    """The charts, a row for each channel."""
    return charts_figure("The loss by wavenumber", charts, len({chart.unit for chart in charts}), 4.6, 3.7)
