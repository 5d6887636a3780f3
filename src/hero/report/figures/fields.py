"""Pictures of states: space against time in 1D, snapshots in 2D, the central slice along the last axis in 3D.

`views.py` says how a grid is laid out and how a channel is coloured.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from torch import Tensor

from hero.data import Source
from hero.data.files.checks import spread
from hero.method.metrics import Scoring
from hero.report.figures.charts import WAVES, Chart, Curve, charts_figure
from hero.report.figures.style import BLACK, ORANGE, STYLES, colours_of, new_figure, plain
from hero.report.tables import format_number
from hero.report.views import DECAY, GREY, Picture, Scale, Side, View, channel_titles, scale_channel
from hero.runs.records import Rollout

FIELD_STEPS = (1, 10, 50, 100, 200)
SPECTRUM_STEPS = (1, 100, 200)
SHORT = 100  # steps of a rollout below which its own length stands for step 100, and the steps before shrink with it
FIELDS_ACROSS = 4


def draw_pictures(
    figure: Figure | SubFigure, rows: Sequence[Sequence[Picture]], view: View, names: Sequence[str] = ()
) -> tuple[np.ndarray, list[AxesImage]]:
    """Fields in rows, which may have names; those that share a scale have one bar. Masked points are grey."""
    assert view.up is not None
    grid = figure.subplots(len(rows), max(map(len, rows)), sharex=True, sharey=True, squeeze=False)
    images, bars = [], dict[Scale, tuple[AxesImage, list[Axes]]]()
    for line, row in zip(grid, rows, strict=True):
        for axes, picture in zip(line, row, strict=False):
            low, high, colours, _ = picture.scale
            look = {"cmap": colormaps[colours].with_extremes(bad=GREY), "norm": Normalize(low, high)}
            place = {"origin": "lower", "extent": (view.across.start, view.across.end, view.up.start, view.up.end)}
            images.append(axes.imshow(picture.field.T, aspect="auto", interpolation="nearest", **place, **look))
            axes.set_box_aspect(1 / view.ratio if view.ratio else None)
            axes.set_title(plain(picture.title), fontsize=10)
            if (picture.valid & ~np.isfinite(picture.field)).any():
                axes.text(0.98, 0.04, "grey: diverged", transform=axes.transAxes, ha="right", fontsize=8)
            bars.setdefault(picture.scale, (images[-1], []))[1].append(axes)
        for axes in line[len(row) :]:
            axes.set_visible(False)
    for axes in grid[-1]:
        name_axis(axes, "x", view.across)
    for axes, name in zip(grid[:, 0], names or [""] * len(rows), strict=True):
        name_axis(axes, "y", view.up, name)
    for scale, (image, of) in bars.items():
        figure.colorbar(image, ax=of, extend="both", label=plain(scale.label), shrink=0.85)
    return grid, images


def name_axis(axes: Axes, name: str, side: Side, before: str = "") -> None:
    """Label the axis `x` or `y` of a picture; of unevenly spaced points the ends alone have marks."""
    axes.set(**{f"{name}label": plain("\n".join(filter(None, (before, side.label))))})
    if not side.even:
        axes.set(**{f"{name}ticks": [float(side.points[0]), float(side.points[-1])]})


def draw_lines(axes: Axes, side: Side, truth: np.ndarray, lines: Mapping[str, tuple[np.ndarray, str, str]]) -> None:
    """The truth and predictions (values, style, colour) by label over space; masked points are gaps.

    The truth sets the frame, with room for a prediction that is wrong but not lost; one that leaves the frame is noted.
    """
    valid = np.isfinite(truth)
    low, high = truth[valid].min(), truth[valid].max()
    middle, reach = (high + low) / 2, 3 * max((high - low) / 2, 1e-30)
    axes.plot(side.drawn, truth, color=BLACK, linewidth=2.0, label="truth")
    for label, (values, style, colour) in lines.items():
        shown = np.where(np.isfinite(values), values, np.nan)
        axes.plot(side.drawn, shown, style, color=colour, linewidth=1.6, label=label)
        if not (np.abs(values[valid] - middle) <= reach).all():
            axes.text(0.5, 0.93, "a prediction leaves the frame", transform=axes.transAxes, ha="center", va="top",
                      backgroundcolor=GREY, fontsize=8)  # fmt: skip
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, middle - 1.1 * reach), min(top, middle + 1.1 * reach))
    name_axis(axes, "x", side)
    axes.grid(alpha=0.25)


def fields_figure(
    rollout: Rollout, errors: Sequence[float], source: Source, scoring: Scoring | None = None, channel: int = 0
) -> Figure:
    """Truth, prediction and error of one channel: over space and time in 1D, as snapshots in 2D and 3D.

    `errors` is the score at each step; the trajectory is the median one by the GM of the scoring.
    """
    scoring, view = scoring or Scoring(), View.of(source.axes)
    scaled = scale_channel(rollout, source, channel, view)
    steps = _present(FIELD_STEPS, len(rollout.truth))
    titles = [f"step {n} (t = {time_text(source, n)})\n{scoring.title} {format_number(errors[n - 1])}" for n in steps]
    rows = [part._replace(field=part.field[np.array(steps) - 1]) if view.up else part for part in scaled[:3]]
    subject = ", ".join([source.title, *source.channel_names[channel : channel + 1] * (source.channels > 1)])
    where = ", central slice along the last axis" if source.dims == 3 else ""
    grey = "" if np.all(scaled.truth.valid) else "; grey: masked"
    title = f"{subject}{where}: test trajectory with median {scoring.gm_title}{grey}"
    return states_figure(title, rows, view, (f"rollout step (dt = {time_text(source, 1)})", len(rollout.truth)), titles)


def time_text(source: Source, steps: int) -> str:
    """The time after so many steps, with its unit."""
    return f"{steps * source.dt:g} {source.time_unit}".rstrip()


def _present(steps: Sequence[int], length: int) -> list[int]:
    """The steps that a rollout of this length has, down to the first step."""
    if length >= SHORT:
        return [step for step in steps if step <= length]
    return sorted({max(1, step * length // SHORT) for step in steps if step <= SHORT})


def spectrum_figure(rollout: Rollout, names: Sequence[str] = ()) -> Figure:
    """Radially averaged power of truth and prediction, a row for each channel."""
    steps, channels = _present(SPECTRUM_STEPS, len(rollout.truth)), rollout.truth.shape[1]
    charts = []
    for c in range(channels):
        name = f"{names[c]}, " if channels > 1 and names else ""
        highest = max(rollout.truth_spectrum[0, c].max(initial=0), 1e-30)
        for step in steps:
            truth, prediction = (u[step - 1, c] for u in (rollout.truth_spectrum, rollout.prediction_spectrum))
            k = np.arange(1, len(truth) + 1)
            curves = [Curve("truth", k, truth, colour=BLACK), Curve("prediction", k, prediction, None, ORANGE, "--")]
            ends = highest * 1e-17, highest * 1e3
            charts.append(Chart(f"{name}step {step}", curves, WAVES, "mean power per mode", True, range=ends))
    return charts_figure("Spectrum", charts, len(steps), 3.3, 3.2)


def draw_states(
    figure: SubFigure,
    truth: np.ndarray,
    states: Mapping[str, np.ndarray],
    errors: Mapping[str, Sequence[float]],  # of each prediction by channel
    source: Source,
    scoring: Scoring,
) -> None:
    """The truth and the predictions of a stored rollout, (channel, *space), a row for each channel: lines in 1D."""
    view, titles = View.of(source.axes), channel_titles(source)
    shown = {label: view.arranged(u.astype(np.float64)) for label, u in {"truth": truth, **states}.items()}

    def named(label: str, channel: int) -> str:
        number = f": {scoring.title} {format_number(errors[label][channel])}" if label in errors else ""
        return plain(f"{label}{number}")

    if view.up is None:
        panels = figure.subplots(source.channels, 1, sharex=True, squeeze=False)[:, 0]
        for c, (axes, title) in enumerate(zip(panels, titles, strict=True)):
            styles = zip(states, itertools.cycle(STYLES), colours_of(states).values(), strict=False)
            lines = {named(label, c): (shown[label][c], style, colour) for label, style, colour in styles}
            draw_lines(axes, view.across, shown["truth"][c], lines)
            axes.set_ylabel(plain(title))
            axes.legend(fontsize=8, loc="best")
            axes.label_outer()
        return
    rows: list[list[Picture]] = []
    for c, title in enumerate(titles):
        scale, valid = Scale.of(shown["truth"][c], title), np.isfinite(shown["truth"][c])
        fields = {label: np.where(np.isfinite(u[c]), u[c], np.nan) for label, u in shown.items()}
        rows.append([Picture(named(label, c), field, scale, valid) for label, field in fields.items()])
    if source.channels == 1:
        across = FIELDS_ACROSS if len(shown) > 4 else 2
        rows = [rows[0][start : start + across] for start in range(0, len(shown), across)]
    draw_pictures(figure, rows, view)


def split_figure(data: Tensor, source: Source, count: int = 4) -> Figure:
    """The first `count` trajectories of `data` (trajectory, time, channel, *space), in 2D and 3D at several times."""
    view, name = View.of(source.axes), channel_titles(source)[0]
    u = data[:count, :, 0].double().numpy()  # (trajectory, time, *space)
    u = view.arranged(u[..., u.shape[-1] // 2] if source.dims == 3 else u)
    peak = np.abs(u).max(axis=(0, *range(2, u.ndim)), keepdims=True)
    if 0 < DECAY * peak[:, -1].max() < peak[:, 0].max():  # a decaying field would fade to blank
        u, name = u / peak, f"{name} / max |{name}(t)|"
    limit = float(np.quantile(np.abs(u), 0.999)) or 1.0  # a few extreme values must not wash out the rest
    scale, last = Scale.of(np.clip(u, -limit, limit), name), u.shape[1] - 1
    times = spread(last + 1, 5 if view.up else last + 1)
    rows = [Picture.of(f"trajectory {i}", v[times], scale) for i, v in enumerate(u)]
    title = source.title if source.dims < 3 else f"{source.title}, central slice in z"
    return states_figure(title, rows, view, ("time", last * source.dt), [f"t = {t * source.dt:g}" for t in times])


def states_figure(
    title: str, rows: Sequence[Picture], view: View, time: tuple[str, float], frames: Sequence[str]
) -> Figure:
    """Rows of states (frame, across[, up]): space against `time`, a name and its end, or a field per frame."""
    if view.up:
        width = min(max(1.8, 1.3 * view.ratio), 2.8)  # of a field, in inches
        figure = new_figure((width + 0.25) * len(frames) + 1.7, (width / view.ratio + 0.3) * len(rows) + 0.9)
        titles = [frames, *[[""] * len(frames)] * (len(rows) - 1)]
        pictures = [
            [row._replace(title=frame, field=field) for frame, field in zip(own, row.field, strict=True)]
            for own, row in zip(titles, rows, strict=True)
        ]
    else:
        figure = new_figure(8.0, 0.8 + 1.8 * len(rows))
        view = view.against(time[0], 0.0, time[1] or 1.0)
        pictures = [[row._replace(title="")] for row in rows]
    draw_pictures(figure, pictures, view, [row.title for row in rows])
    figure.suptitle(plain(title), fontsize=11)
    return figure
