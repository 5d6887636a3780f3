"""Pictures of states: space against time in 1D, snapshots in 2D, the central slice along the last axis in 3D.

`views.py` says how a grid is laid out and how a channel is coloured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from torch import Tensor

from hero.data import Source
from hero.method.metrics import Scoring
from hero.report.figures.style import BLACK, ORANGE, STYLES, colours_of, new_figure, plain, whole_steps
from hero.report.tables import format_number
from hero.report.views import DECAY, GREY, Scaled, Side, View, channel_titles, colour_scale, scale_channel
from hero.runs.rollouts import Rollout

LINE_STEPS = (1, 50, 100, 200)
FIELD_STEPS = (1, 10, 50, 100, 200)
SPECTRUM_STEPS = (1, 100, 200)
SHORT = 100
"""Steps of a rollout below which its own length stands for step 100, and the steps before shrink with it."""
FIELDS_ACROSS = 4

Extent = tuple[float, float, float, float]
"""Left, right, bottom and top end of an image."""


def draw_field(
    axes: Axes,
    field: np.ndarray,
    ends: tuple[float, float],
    colours: str,
    valid: np.ndarray,
    extent: Extent,
    aspect: Any,
) -> AxesImage:
    """`field` (across, up) in colours between `ends`; grey where it is masked or, as is said then, has diverged."""
    colour_map = colormaps[colours].with_extremes(bad=GREY)
    image = axes.imshow(field.T, origin="lower", extent=extent, cmap=colour_map, norm=Normalize(*ends),
                        interpolation="nearest", aspect=aspect)  # fmt: skip
    if (valid & ~np.isfinite(field)).any():
        axes.text(0.98, 0.04, "grey: diverged", transform=axes.transAxes, ha="right", fontsize=8)
    return image


def draw_parts(
    figure: Figure | SubFigure, scaled: Scaled, pick: Callable[[np.ndarray], np.ndarray], extent: Extent, aspect: Any
) -> tuple[list[Axes], list[AxesImage]]:
    """Truth, prediction and error side by side, of each the field that `pick` takes from all times."""
    grid: list[Axes] = list(figure.subplots(1, 3, sharex=True, sharey=True))
    images = []
    for axes, (name, field, ends, colours) in zip(grid, scaled.parts(), strict=True):
        images.append(draw_field(axes, pick(field), ends, colours, scaled.valid, extent, aspect))
        axes.set_title(name, fontsize=11)
    figure.colorbar(images[1], ax=grid[:2], extend="both", label=plain(scaled.label), shrink=0.85)
    figure.colorbar(images[2], ax=grid[2], extend="both", label=plain(scaled.error_label), shrink=0.85)
    return grid, images


def name_axis(axes: Axes, name: str, side: Side) -> None:
    """Label the axis `x` or `y` of a picture; of unevenly spaced points the ends alone have marks."""
    axes.set(**{f"{name}label": plain(side.label)})
    if not side.even:
        axes.set(**{f"{name}ticks": [float(side.points[0]), float(side.points[-1])]})


def draw_lines(axes: Axes, side: Side, truth: np.ndarray, lines: Mapping[str, tuple[np.ndarray, str, str]]) -> None:
    """The truth and predictions (values, style, colour) by label over space; the truth sets the frame.

    There is room for a prediction that is wrong but not lost; one that leaves the frame is noted. Masked points are
    gaps.
    """
    valid = np.isfinite(truth)
    low, high = truth[valid].min(), truth[valid].max()
    middle, half = (high + low) / 2, max((high - low) / 2, 1e-30)
    axes.plot(side.drawn, truth, color=BLACK, linewidth=2.0, label="truth")
    reach = half
    for label, (values, style, colour) in lines.items():
        shown = np.where(np.isfinite(values), values, np.nan)
        axes.plot(side.drawn, shown, style, color=colour, linewidth=1.6, label=label)
        far = np.abs(values[valid] - middle)
        reach = max(reach, min(far[np.isfinite(far)].max(initial=0.0), 3 * half))
        if not np.isfinite(far).all():
            _note(axes, "diverged")
        elif far.max() > 3 * half:
            _note(axes, f"a prediction reaches {np.abs(values[valid]).max():.1e}")
    axes.set_ylim(middle - 1.1 * reach, middle + 1.1 * reach)
    name_axis(axes, "x", side)
    axes.grid(alpha=0.25)


def _note(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.93, text, transform=axes.transAxes, ha="center", va="top", backgroundcolor=GREY, fontsize=8)


def fields_figure(
    rollout: Rollout, errors: Sequence[float], source: Source, scoring: Scoring | None = None, channel: int = 0
) -> Figure:
    """Truth, prediction and error of one channel: over space and time in 1D, as snapshots in 2D and 3D.

    `errors` is the score at each step; the trajectory is the median one by the GM of the scoring.
    """
    scoring, view = scoring or Scoring(), View.of(source.axes())
    scaled = scale_channel(rollout, channel, channel_titles(source)[channel], view)
    said = [f"{scoring.title} {format_number(error)}" for error in errors]
    figure = _snapshots(scaled, said, source, view) if view.up else _space_time(scaled, said, source, view)
    subject = ", ".join([source.title, *source.channel_names[channel : channel + 1] * (source.channels > 1)])
    where = ", central slice along the last axis" if source.dims == 3 else ""
    grey = "" if scaled.valid.all() else "; grey: masked"
    figure.suptitle(plain(f"{subject}{where}: test trajectory with median {scoring.gm_title}{grey}"))
    return figure


def _space_time(scaled: Scaled, said: Sequence[str], source: Source, view: View) -> Figure:
    figure = new_figure(10.0, 6.4)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.25, 1))[:, 0]
    box = (0.5, len(scaled.truth) + 0.5, view.across.start, view.across.end)
    maps, _ = draw_parts(upper, scaled, lambda field: field, box, "auto")
    for axes in maps:
        axes.set_xlabel(f"rollout step (dt = {time_text(source, 1)})")
        whole_steps(axes)
    name_axis(maps[0], "y", view.across)
    steps = _present(LINE_STEPS, len(scaled.truth))
    panels = lower.subplots(1, len(steps), sharex=True, squeeze=False)[0]
    for axes, step in zip(panels, steps, strict=True):
        size = 1.0 if scaled.size is None else scaled.size[step - 1]
        line = {"prediction": (size * scaled.prediction[step - 1], "--", ORANGE)}
        draw_lines(axes, view.across, size * scaled.truth[step - 1], line)
        axes.set_title(f"step {step}: {said[step - 1]}", fontsize=10)
    panels[0].set_ylabel(plain(scaled.title))
    panels[0].legend(fontsize=8, loc="best")
    return figure


def _snapshots(scaled: Scaled, said: Sequence[str], source: Source, view: View) -> Figure:
    assert view.up is not None
    steps = _present(FIELD_STEPS, len(scaled.truth))
    width = min(max(1.8, 1.3 * view.ratio), 2.8)
    figure = new_figure((width + 0.25) * len(steps) + 1.7, 3 * width / view.ratio + 1.9)
    grid = figure.subplots(3, len(steps), sharex=True, sharey=True, squeeze=False)
    images = []
    for row, (name, field, ends, colours) in zip(grid, scaled.parts(), strict=True):
        for axes, step in zip(row, steps, strict=True):
            image = draw_field(axes, field[step - 1], ends, colours, scaled.valid, view.box, view.aspect)
        images.append(image)
        name_axis(row[0], "y", view.up)
        row[0].set_ylabel(f"{name}\n{plain(view.up.label)}")
    for top, bottom, step in zip(grid[0], grid[-1], steps, strict=True):
        top.set_title(f"step {step}\n(t = {time_text(source, step)})", fontsize=10)
        bottom.set_title(said[step - 1], fontsize=9)
        name_axis(bottom, "x", view.across)
    figure.colorbar(images[0], ax=grid[:2].ravel().tolist(), extend="both", label=plain(scaled.label), shrink=0.8)
    figure.colorbar(images[2], ax=grid[2].tolist(), extend="both", label=plain(scaled.error_label))
    return figure


def time_text(source: Source, steps: int) -> str:
    """The time after so many steps, with its unit."""
    return f"{steps * source.dt:g} {source.time_unit}".rstrip()


def _present(steps: Sequence[int], length: int) -> list[int]:
    """The steps that a rollout of this length has, down to the first step."""
    if length >= SHORT:
        return [step for step in steps if step <= length]
    return sorted({max(1, step * length // SHORT) for step in steps if step <= SHORT})


def spectrum_figure(rollout: Rollout, names: Sequence[str] = ()) -> Figure:
    """Radially averaged power of truth and prediction, a row for each channel.

    A prediction below the truth smooths, one above it adds noise.
    """
    steps, channels = _present(SPECTRUM_STEPS, len(rollout.truth)), rollout.truth.shape[1]
    figure = new_figure(3.1 * len(steps) + 0.6, 0.6 + 2.9 * channels)
    grid = figure.subplots(channels, len(steps), sharex=True, sharey="row", squeeze=False)
    for c, row in enumerate(grid):
        highest = max(rollout.truth_spectrum[0, c].max(), 1e-30)
        low, high = highest * 1e-17, highest * 1e3
        for axes, step in zip(row, steps, strict=True):
            reference, power = rollout.truth_spectrum[step - 1, c], rollout.prediction_spectrum[step - 1, c]
            axes.set(xscale="log", yscale="log", ylim=(low, high))
            wavenumbers = np.arange(1, len(reference) + 1)
            axes.plot(wavenumbers, np.maximum(reference, low), color=BLACK, linewidth=1.8, label="truth")
            axes.plot(wavenumbers, np.maximum(power, low), "--", color=ORANGE, linewidth=1.8, label="prediction")
            if power.min() > high:
                _note(axes, "diverged" if np.isinf(power).any() else "prediction lies above the axis")
            axes.grid(alpha=0.25)
        name = f"{plain(names[c])}\n" if channels > 1 and names else ""
        row[0].set_ylabel(f"{name}mean power per mode")
    for top, bottom, step in zip(grid[0], grid[-1], steps, strict=True):
        top.set_title(f"step {step}")
        bottom.set_xlabel("wavenumber |k|")
    grid[0, 0].legend(fontsize=8, loc="upper right")
    figure.suptitle("Spectrum")
    return figure


def draw_states(
    figure: SubFigure,
    truth: np.ndarray,
    states: Mapping[str, np.ndarray],
    errors: Mapping[str, Sequence[float]],
    source: Source,
    scoring: Scoring,
) -> None:
    """The truth and the predictions (channel, *space), a row for each channel: lines in 1D, else central slices.

    `errors` has the score of each prediction by channel.
    """
    view, titles = View.of(source.axes()), channel_titles(source)
    cut = (..., source.space[-1] // 2) if source.dims == 3 else ...
    shown = {label: view.arranged(u[cut].astype(np.float64)) for label, u in {"truth": truth, **states}.items()}

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
    several = source.channels > 1
    across = len(shown) if several else min(len(shown), FIELDS_ACROSS if len(shown) > 4 else 2)
    rows = source.channels if several else -(-len(shown) // across)
    grid = figure.subplots(rows, across, squeeze=False, sharex=True, sharey=True)
    for c, title in enumerate(titles):
        panels = grid[c] if several else grid.ravel()
        low, high, colours = colour_scale(shown["truth"][c])
        valid = np.isfinite(shown["truth"][c])
        for axes, (label, field) in zip(panels, shown.items(), strict=False):
            finite = np.where(np.isfinite(field[c]), field[c], np.nan)
            image = draw_field(axes, finite, (low, high), colours, valid, view.box, view.aspect)
            axes.set_title(named(label, c), fontsize=9)
            name_axis(axes, "x", view.across)
            name_axis(axes, "y", view.up)
            axes.label_outer()
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        figure.colorbar(image, ax=panels.tolist(), extend="both", label=plain(title), shrink=0.85)


def split_figure(data: Tensor, source: Source, count: int = 4) -> Figure:
    """The first `count` trajectories of `data` (trajectory, time, channel, *space), in 2D and 3D at several times."""
    view, name = View.of(source.axes()), channel_titles(source)[0]
    u = data[:count, :, 0].double().numpy()  # (trajectory, time, *space)
    u = view.arranged(u[..., u.shape[-1] // 2] if source.dims == 3 else u)
    peak = np.abs(u).max(axis=(0, *range(2, u.ndim)), keepdims=True)
    if 0 < DECAY * peak[:, -1].max() < peak[:, 0].max():  # a decaying field would fade to blank
        u, name = u / peak, f"{name} / max |{name}(t)|"
    limit = float(np.quantile(np.abs(u), 0.999)) or 1.0  # a few extreme values must not wash out the rest
    low, high, colours = colour_scale(np.clip(u, -limit, limit))
    views, size = {"": u}, (8.0, 1.0 + 1.5 * len(u))
    extent, aspect = (0.0, (u.shape[1] - 1) * source.dt, view.across.start, view.across.end), "auto"
    if view.up:
        times = np.unique(np.linspace(0, u.shape[1] - 1, 5).round().astype(int))
        views = {f"t = {t * source.dt:g}": u[:, t] for t in times}
        size = (0.8 + 1.9 * len(views), 1.3 + 1.8 * len(u))
        extent, aspect = view.box, view.aspect  # type: ignore[assignment]
    figure = new_figure(*size)
    grid = figure.subplots(len(u), len(views), sharex=True, sharey=True, squeeze=False)
    for column, (title, fields) in zip(grid.T.tolist(), views.items(), strict=True):
        for axes, field in zip(column, fields, strict=True):
            image = draw_field(axes, field, (low, high), colours, np.isfinite(field), extent, aspect)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel(view.across.label if view.up else "time")
    for i, axes in enumerate(grid[:, 0]):
        axes.set_ylabel(f"trajectory {i}\n{(view.up or view.across).label}", fontsize=9)
    figure.colorbar(image, ax=grid.ravel().tolist(), extend="both", label=name, shrink=0.8, pad=0.02)
    figure.suptitle(source.title if source.dims < 3 else f"{source.title}, central slice in z")
    return figure
