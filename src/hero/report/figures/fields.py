"""Pictures of states: space against time in 1D, snapshots in 2D, the central slice along the last axis in 3D.

The first channel is drawn. Truth and prediction share one colour scale, the error has its own, both symmetric about
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from torch import Tensor

from hero.data import Source
from hero.method.metrics import Scoring
from hero.report.figures.style import BLACK, ORANGE, new_figure
from hero.report.tables import format_number
from hero.runs.rollouts import Rollout

LINE_STEPS = (1, 50, 100, 200)
FIELD_STEPS = (1, 10, 50, 100, 200)
SPECTRUM_STEPS = (1, 100, 200)
SHORT = 100
"""Steps of a rollout below which its own length stands for step 100, and the steps before shrink with it."""
FIELD_MAP, ERROR_MAP, GONE = "RdBu_r", "PuOr_r", "#b8b8b8"
# A state that decays further than this fades out of a fixed colour scale; it is then drawn relative to its own size.
DECAY = 20.0

Extent = tuple[float, float, float, float]
"""Left, right, bottom and top end of an image."""


class Scaled(NamedTuple):
    """Truth, prediction and error (time, x[, y]) as drawn, their colour limits and the unit in words."""

    truth: np.ndarray
    prediction: np.ndarray
    error: np.ndarray
    limit: float
    error_limit: float
    unit: str

    def parts(self) -> tuple[tuple[str, np.ndarray, float, str], ...]:
        """Name, field, colour limit and colour map of each of the three."""
        return (
            ("truth", self.truth, self.limit, FIELD_MAP),
            ("prediction", self.prediction, self.limit, FIELD_MAP),
            ("error", self.error, self.error_limit, ERROR_MAP),
        )


def first_channel(source: Source) -> str:
    """The name of the channel that is drawn; its dollar signs do not start formulas."""
    return source.channel_names[0].replace("$", r"\$")


def scale_fields(rollout: Rollout, name: str = "u") -> Scaled:
    """The first channel as it is drawn; a state that decays far is drawn relative to its size at each step."""
    truth, prediction = rollout.truth[:, 0].astype(np.float64), rollout.prediction[:, 0].astype(np.float64)
    size = np.nanmax(np.abs(truth), axis=tuple(range(1, truth.ndim)), keepdims=True)
    unit = name
    if size.max() > DECAY * size.min() > 0:
        truth, prediction, unit = truth / size, prediction / size, f"{name} / max|{name}| at that step"
    prediction = np.where(np.isfinite(prediction), prediction, np.nan)
    error = prediction - truth
    limit = float(np.nanmax(np.abs(truth))) or 1.0
    finite = np.abs(error[np.isfinite(error)])
    # An exploding prediction must not blank out the steps before: the error scale ends at the size of the truth.
    error_limit = min(float(finite.max(initial=0.0)), limit) or limit
    return Scaled(truth, prediction, error, limit, error_limit, unit)


def draw_field(
    axes: Axes, field: np.ndarray, limit: float, extent: Extent, cmap: str = FIELD_MAP, **options: Any
) -> AxesImage:
    """`field` (horizontal, vertical) in colours symmetric about zero; grey, and said so, where it is not finite."""
    image = axes.imshow(
        field.T,
        origin="lower",
        extent=extent,
        cmap=colormaps[cmap].with_extremes(bad=GONE),
        norm=Normalize(-limit, limit),
        interpolation="nearest",
        **options,
    )
    if not np.isfinite(field).all():
        axes.text(0.98, 0.04, "grey: diverged", transform=axes.transAxes, ha="right", fontsize=8)
    return image


def draw_parts(
    figure: Figure | SubFigure, scaled: Scaled, pick: Callable[[np.ndarray], np.ndarray], extent: Extent, **options: Any
) -> tuple[list[Axes], list[AxesImage]]:
    """Truth, prediction and error side by side, of each the field that `pick` takes from all times."""
    grid: list[Axes] = list(figure.subplots(1, 3, sharex=True, sharey=True))
    images = []
    for axes, (name, field, limit, cmap) in zip(grid, scaled.parts(), strict=True):
        images.append(draw_field(axes, pick(field), limit, extent, cmap, **options))
        axes.set_title(name, fontsize=11)
    figure.colorbar(images[1], ax=grid[:2], extend="both", label=scaled.unit, shrink=0.85)
    figure.colorbar(images[2], ax=grid[2], extend="both", label="prediction − truth", shrink=0.85)
    return grid, images


def draw_lines(axes: Axes, x: np.ndarray, truth: np.ndarray, lines: Mapping[str, tuple[np.ndarray, str, str]]) -> None:
    """The truth and predictions (values, style, colour) by label over space; the truth sets the frame.

    There is room for a prediction that is wrong but not lost; one that leaves the frame is noted.
    """
    axes.plot(x, truth, color=BLACK, linewidth=2.0, label="truth")
    middle, half = (truth.max() + truth.min()) / 2, max((truth.max() - truth.min()) / 2, 1e-30)
    reach = half
    for label, (values, style, colour) in lines.items():
        axes.plot(x, np.where(np.isfinite(values), values, np.nan), style, color=colour, linewidth=1.6, label=label)
        far = np.abs(values - middle)
        reach = max(reach, min(far[np.isfinite(far)].max(initial=0.0), 3 * half))
        if not np.isfinite(far).all():
            _note(axes, "diverged")
        elif far.max() > 3 * half:
            _note(axes, f"a prediction reaches {np.abs(values).max():.1e}")
    axes.set_ylim(middle - 1.1 * reach, middle + 1.1 * reach)
    axes.set_xlabel("x")
    axes.grid(alpha=0.25)


def _note(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.93, text, transform=axes.transAxes, ha="center", va="top", backgroundcolor=GONE, fontsize=8)


def grid_points(source: Source, count: int) -> np.ndarray:
    """The coordinates of `count` points along an axis."""
    return np.arange(count) * source.extents[0] / count


def box(source: Source) -> Extent:
    """The domain of a 2D picture."""
    return (0.0, source.extents[0], 0.0, source.extents[1])


def fields_figure(rollout: Rollout, errors: Sequence[float], source: Source, scoring: Scoring | None = None) -> Figure:
    """Truth, prediction and error of one trajectory: over space and time in 1D, as snapshots in 2D and 3D.

    `errors` is the score of the whole fields at each step; the trajectory is the median one by the GM of the scoring.
    """
    scaled = scale_fields(rollout, first_channel(source))
    figure = (
        _space_time(scaled, rollout, errors, source) if scaled.truth.ndim == 2 else _snapshots(scaled, errors, source)
    )
    where = ", central slice in z" if source.dims == 3 else ""
    figure.suptitle(f"{source.title}{where}: test trajectory with median {(scoring or Scoring()).gm_title}")
    return figure


def _space_time(scaled: Scaled, rollout: Rollout, errors: Sequence[float], source: Source) -> Figure:
    figure = new_figure(10.0, 6.4)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.25, 1))[:, 0]
    maps, _ = draw_parts(
        upper, scaled, lambda field: field, (0.5, len(scaled.truth) + 0.5, 0.0, source.extents[0]), aspect="auto"
    )
    for axes in maps:
        axes.set_xlabel(f"rollout step (dt = {source.dt:g})")
    maps[0].set_ylabel("x")
    steps = _present(LINE_STEPS, len(scaled.truth))
    panels = lower.subplots(1, len(steps), sharex=True, squeeze=False)[0]
    for axes, step in zip(panels, steps, strict=True):
        truth, prediction = rollout.truth[step - 1, 0], rollout.prediction[step - 1, 0].astype(np.float64)
        draw_lines(axes, grid_points(source, len(truth)), truth, {"prediction": (prediction, "--", ORANGE)})
        axes.set_title(f"step {step}: nRMSE {format_number(errors[step - 1])}", fontsize=10)
    panels[0].set_ylabel(first_channel(source))
    panels[0].legend(fontsize=8, loc="best")
    return figure


def _snapshots(scaled: Scaled, errors: Sequence[float], source: Source) -> Figure:
    steps = _present(FIELD_STEPS, len(scaled.truth))
    height = 1.8 * min(max(source.extents[1] / source.extents[0], 0.3), 2.0)  # of a picture 1.8 wide
    figure = new_figure(2.05 * len(steps) + 1.7, 3 * height + 1.6)
    grid = figure.subplots(3, len(steps), sharex=True, sharey=True, squeeze=False)
    images = []
    for row, (name, field, limit, cmap) in zip(grid, scaled.parts(), strict=True):
        for axes, step in zip(row, steps, strict=True):
            image = draw_field(axes, field[step - 1], limit, box(source), cmap)
        images.append(image)
        row[0].set_ylabel(f"{name}\ny")
    for top, bottom, step in zip(grid[0], grid[-1], steps, strict=True):
        top.set_title(f"step {step}\n(t = {step * source.dt:g})", fontsize=10)
        bottom.set_title(f"nRMSE {format_number(errors[step - 1])}", fontsize=9)
        bottom.set_xlabel("x")
    figure.colorbar(images[0], ax=grid[:2].ravel().tolist(), extend="both", label=scaled.unit, shrink=0.8)
    figure.colorbar(images[2], ax=grid[2].tolist(), extend="both", label="prediction − truth")
    return figure


def _present(steps: Sequence[int], length: int) -> list[int]:
    """The steps that a rollout of this length has, down to the first step."""
    if length >= SHORT:
        return [step for step in steps if step <= length]
    return sorted({max(1, step * length // SHORT) for step in steps if step <= SHORT})


def spectrum_figure(rollout: Rollout) -> Figure:
    """Radially averaged power of truth and prediction: one below the truth smooths, one above it adds noise."""
    steps = _present(SPECTRUM_STEPS, len(rollout.truth))
    figure = new_figure(3.1 * len(steps) + 0.6, 3.5)
    grid = figure.subplots(1, len(steps), sharex=True, sharey=True, squeeze=False)[0]
    highest = max(rollout.truth_spectrum[0].max(initial=0), 1e-30)
    low, high = highest * 1e-17, highest * 1e3
    for axes, step in zip(grid, steps, strict=True):
        reference, power = rollout.truth_spectrum[step - 1], rollout.prediction_spectrum[step - 1]
        axes.set(xscale="log", yscale="log", ylim=(low, high), title=f"step {step}", xlabel="wavenumber |k|")
        wavenumbers = np.arange(1, len(reference) + 1)
        axes.plot(wavenumbers, np.maximum(reference, low), color=BLACK, linewidth=1.8, label="truth")
        axes.plot(wavenumbers, np.maximum(power, low), color=ORANGE, linewidth=1.8, linestyle="--", label="prediction")
        if power.min() > high:
            _note(axes, "diverged" if np.isinf(power).any() else "prediction lies above the axis")
        axes.grid(alpha=0.25)
    grid[0].legend(fontsize=8, loc="upper right")
    grid[0].set_ylabel("mean power per mode")
    figure.suptitle("Spectrum")
    return figure


def split_figure(data: Tensor, source: Source, count: int = 4) -> Figure:
    """The first `count` trajectories of `data` (trajectory, time, channel, *space), in 2D and 3D at several times."""
    u = data[:count, :, 0].double().numpy()  # (trajectory, time, *space)
    u = u[..., u.shape[-1] // 2] if source.dims == 3 else u
    peak, unit = np.abs(u).max(axis=(0, *range(2, u.ndim)), keepdims=True), "u"
    if 0 < DECAY * peak[:, -1].max() < peak[:, 0].max():  # a decaying field would fade to blank
        u, unit = u / peak, "u / max |u(t)|"
    limit = float(np.quantile(np.abs(u), 0.999)) or 1.0  # a few extreme values must not wash out the rest
    views, extent, size = (
        {"": u},
        (0.0, (u.shape[1] - 1) * source.dt, 0.0, source.extents[0]),
        (8.0, 1.0 + 1.5 * len(u)),
    )
    if source.dims > 1:
        times = np.unique(np.linspace(0, u.shape[1] - 1, 5).round().astype(int))
        views = {f"t = {t * source.dt:g}": u[:, t] for t in times}
        extent, size = box(source), (0.8 + 1.9 * len(views), 1.3 + 1.8 * len(u))
    figure = new_figure(*size)
    grid = figure.subplots(len(u), len(views), sharex=True, sharey=True, squeeze=False)
    for column, (title, fields) in zip(grid.T.tolist(), views.items(), strict=True):
        for i, (axes, field) in enumerate(zip(column, fields, strict=True)):
            image = draw_field(axes, field, limit, extent, aspect="auto" if source.dims == 1 else "equal")
            if axes is grid[i, 0]:
                axes.set_ylabel(f"trajectory {i}\n{'x' if source.dims == 1 else 'y'}", fontsize=9)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel("time" if source.dims == 1 else "x")
    figure.colorbar(image, ax=grid.ravel().tolist(), extend="both", label=unit, shrink=0.8, pad=0.02)
    figure.suptitle(source.title if source.dims < 3 else f"{source.title}, central slice in z")
    return figure
