"""Weights, sensitivity and error by wavenumber during training, as charts, which the page draws too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.report.figures.style import BLUE, PURPLE, VERMILION, log_scale, new_figure
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


def spectra_charts(log: Log, has_error: bool = True) -> list[SpectraChart]:
    """Weights, sensitivity and error of each channel; none if the loss weighs nothing.

    Without `has_error` the log holds the spectrum of the data under that name, and there is no chart of the error.
    """
    records = {record.step: record for record in log.spectra}  # of an update logged twice, the last
    found = [_found(records[step]) for step in sorted(records)]
    channels = max((len(array) for one in found for array in one.arrays.values()), default=0)
    return [
        SpectraChart(title + (f", channel {channel + 1}" if channels > 1 else ""), unit, caption, shown)
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
        _draw(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    figure.suptitle("The loss by wavenumber")
    return figure


def _draw(axes: Axes, chart: SpectraChart) -> None:
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
