"""The course of training as charts: logged numbers, and what the loss sees by wavenumber."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import metric_named
from hero.report.figures.charts import UPDATES, Chart, Curve, charts_figure
from hero.report.figures.style import COLOURS, candidate_colours
from hero.report.listing import titles_of
from hero.runs.log import Log


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
