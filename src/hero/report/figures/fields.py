"""Pictures of one rollout: truth, prediction and error as fields, and their spectra.

The first channel is drawn, and of a 3D field its central slice along the last axis. Truth and prediction share one
colour scale, the error has its own, both symmetric about zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from hero.report.figures.style import BLACK, ORANGE, new_figure
from hero.report.tables import format_number
from hero.runs.rollouts import Rollout

LINE_STEPS = (1, 50, 100, 200)
FIELD_STEPS = (1, 10, 50, 100, 200)
SPECTRUM_STEPS = (1, 100, 200)
FIELD_MAP, ERROR_MAP, GONE = "RdBu_r", "PuOr_r", "#b8b8b8"
# A state that decays further than this fades out of a fixed colour scale; it is then drawn relative to its own size.
DECAY = 20.0


Extent = tuple[float, float, float, float]


class TaskInfo(Protocol):
    """What a picture needs to know of a task; `extent` is the side length of the domain."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def dims(self) -> int: ...
    @property
    def extent(self) -> float: ...
    @property
    def dt(self) -> float: ...


class Scaled(NamedTuple):
    """Truth, prediction and error (time, x[, y]) as drawn, their colour limits and the unit in words."""

    truth: np.ndarray
    prediction: np.ndarray
    error: np.ndarray
    limit: float
    error_limit: float
    unit: str


def fields_figure(rollout: Rollout, errors: Sequence[float], task: TaskInfo) -> Figure:
    """Truth, prediction and error of one trajectory: over space and time in 1D, as snapshots in 2D and 3D.

    `errors` is the nRMSE of the whole fields at each step.
    """
    truth, prediction = rollout.truth[:, 0].astype(np.float64), rollout.prediction[:, 0].astype(np.float64)
    scaled = scale_fields(truth, prediction)
    if truth.ndim == 2:
        return _space_time_figure(scaled, task, errors, truth, prediction)
    return _snapshot_figure(scaled, task, errors)


def spectrum_figure(rollout: Rollout) -> Figure:
    """Radially averaged power of truth and prediction: one below the truth smooths, one above it adds noise."""
    steps = _present(SPECTRUM_STEPS, len(rollout.truth))
    figure = new_figure(3.1 * len(steps) + 0.6, 3.5)
    grid = figure.subplots(1, len(steps), sharex=True, sharey=True, squeeze=False)[0]
    highest = max(rollout.truth_spectrum[0].max(), 1e-30)
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


def _note(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.93, text, transform=axes.transAxes, ha="center", va="top", backgroundcolor=GONE, fontsize=8)


def _present(steps: Sequence[int], length: int) -> list[int]:
    return [step for step in steps if step <= length] or [length]


def scale_fields(truth: np.ndarray, prediction: np.ndarray) -> Scaled:
    """Fields (time, x[, y]) as they are drawn; a state that decays far is drawn relative to its size at each step."""
    space = tuple(range(1, truth.ndim))
    size = np.abs(truth).max(axis=space, keepdims=True)
    unit = "u"
    if size.max() > DECAY * size.min() > 0:
        truth, prediction, unit = truth / size, prediction / size, "u / max|u| at that step"
    prediction = np.where(np.isfinite(prediction), prediction, np.nan)
    error = prediction - truth
    limit = float(np.abs(truth).max()) or 1.0
    finite = np.abs(error[np.isfinite(error)])
    # An exploding prediction must not blank out the steps before: the error scale ends at the size of the truth.
    error_limit = min(float(finite.max(initial=0.0)), limit) or limit
    return Scaled(truth, prediction, error, limit, error_limit, unit)


def _image(axes: Axes, field: np.ndarray, limit: float, cmap: str, extent: Extent, **options: Any) -> AxesImage:
    """`field` (horizontal, vertical) in colours symmetric about zero, grey where it is not finite."""
    colours = colormaps[cmap].with_extremes(bad=GONE)
    return axes.imshow(
        field.T,
        origin="lower",
        extent=extent,
        cmap=colours,
        norm=Normalize(-limit, limit),
        interpolation="nearest",
        **options,
    )


def _space_time_figure(
    scaled: Scaled, task: TaskInfo, errors: Sequence[float], truth: np.ndarray, prediction: np.ndarray
) -> Figure:
    steps = _present(LINE_STEPS, len(truth))
    figure = new_figure(10.0, 6.4)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.25, 1))[:, 0]
    maps = upper.subplots(1, 3, sharey=True)
    extent = (0.5, len(truth) + 0.5, 0.0, task.extent)
    panels = (("truth", scaled.truth), ("prediction", scaled.prediction), ("error (prediction − truth)", scaled.error))
    images = []
    for axes, (name, field) in zip(maps, panels, strict=True):
        is_error = field is scaled.error
        limit, cmap = (scaled.error_limit, ERROR_MAP) if is_error else (scaled.limit, FIELD_MAP)
        images.append(_image(axes, field, limit, cmap, extent, aspect="auto"))
        axes.set(title=name, xlabel=f"rollout step (dt = {task.dt:g})")
        if np.isnan(field).all(axis=1).any():
            axes.text(0.98, 0.04, "grey: diverged", transform=axes.transAxes, ha="right", fontsize=8)
    maps[0].set_ylabel("x")
    upper.colorbar(images[0], ax=list(maps[:2]), extend="both", label=scaled.unit, pad=0.02)
    upper.colorbar(images[2], ax=maps[2], extend="both", label="error")
    x = np.arange(truth.shape[1]) * task.extent / truth.shape[1]
    lines = lower.subplots(1, len(steps), sharex=True, squeeze=False)[0]
    for axes, step in zip(lines, steps, strict=True):
        _profile(axes, x, truth[step - 1], prediction[step - 1])
        axes.set_title(f"step {step}: nRMSE {format_number(errors[step - 1])}", fontsize=10)
        axes.set_xlabel("x")
    lines[0].set_ylabel("u")
    lines[0].legend(fontsize=8, loc="best")
    figure.suptitle(f"{task.title}: test trajectory with median GM100")
    return figure


def _profile(axes: Axes, x: np.ndarray, truth: np.ndarray, prediction: np.ndarray) -> None:
    axes.plot(x, truth, color=BLACK, linewidth=1.8, label="truth")
    axes.plot(
        x,
        np.where(np.isfinite(prediction), prediction, np.nan),
        color=ORANGE,
        linewidth=1.6,
        linestyle="--",
        label="prediction",
    )
    # The truth sets the frame, with room for a prediction that is wrong but not lost.
    middle, half = (truth.max() + truth.min()) / 2, max((truth.max() - truth.min()) / 2, 1e-300)
    far = np.abs(prediction - middle)
    reach = np.clip(far[np.isfinite(far)].max(initial=0.0), half, 3 * half)
    axes.set_ylim(middle - 1.1 * reach, middle + 1.1 * reach)
    axes.grid(alpha=0.25)
    if not np.isfinite(far).all():
        _note(axes, "diverged")
    elif far.max() > 3 * half:
        _note(axes, f"prediction reaches {np.abs(prediction).max():.1e}")


def _snapshot_figure(scaled: Scaled, task: TaskInfo, errors: Sequence[float]) -> Figure:
    steps = _present(FIELD_STEPS, len(scaled.truth))
    figure = new_figure(2.05 * len(steps) + 1.4, 7.0)
    grid = figure.subplots(3, len(steps), sharex=True, sharey=True, squeeze=False)
    extent = (0.0, task.extent, 0.0, task.extent)
    images: list[AxesImage] = []
    rows = (("truth", scaled.truth), ("prediction", scaled.prediction), ("error", scaled.error))
    for row, (name, field) in zip(grid, rows, strict=True):
        is_error = name == "error"
        limit, cmap = (scaled.error_limit, ERROR_MAP) if is_error else (scaled.limit, FIELD_MAP)
        for axes, step in zip(row, steps, strict=True):
            image = _image(axes, field[step - 1], limit, cmap, extent)
            if not np.isfinite(field[step - 1]).all():
                axes.text(0.5, 0.5, "diverged", transform=axes.transAxes, ha="center", va="center", fontsize=9)
        images.append(image)
        row[0].set_ylabel(f"{name}\ny")
    for axes, step in zip(grid[0], steps, strict=True):
        axes.set_title(f"step {step}\n(t = {step * task.dt:g})", fontsize=10)
    for axes, step in zip(grid[-1], steps, strict=True):
        axes.set_title(f"nRMSE {format_number(errors[step - 1])}", fontsize=9)
        axes.set_xlabel("x")
    figure.colorbar(images[0], ax=grid[:2].ravel().tolist(), extend="both", label=scaled.unit, shrink=0.8)
    figure.colorbar(images[2], ax=grid[2].tolist(), extend="both", label="error")
    where = ", central slice in z" if task.dims == 3 else ""
    figure.suptitle(f"{task.title}{where}: test trajectory with median GM100")
    return figure
