"""Pictures of trajectories: space-time images in 1D, snapshots in 2D, central slices in 3D."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from hero.data.task import Task

COLOURS = "RdBu_r"


def draw_split(data: Tensor, task: Task, path: Path, count: int = 4) -> None:
    """Write a PNG of the first `count` trajectories of `data` (trajectory, time, channel, *space)."""
    u = data[:count, :, 0].double().numpy()  # (trajectory, time, *space)
    figure = _space_time(u, task) if task.dims == 1 else _snapshots(u, task)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)


def _limit(u: np.ndarray) -> float:
    """A symmetric colour range that a few extreme values do not wash out."""
    return float(np.quantile(np.abs(u), 0.999)) or 1.0


def _space_time(u: np.ndarray, task: Task) -> Figure:
    rows = len(u)
    figure = Figure(figsize=(8, 1.0 + 1.5 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    label, peak = "u", np.abs(u).max(axis=(0, 2))  # (time,)
    if 0 < peak[-1] < 0.05 * peak[0]:  # a decaying field would fade to blank
        u, label = u / peak[:, None], "u / max |u(t)|"
    limit, end = _limit(u), (u.shape[1] - 1) * task.dt
    for i, ax in enumerate(axes):
        image = ax.imshow(
            u[i].T,
            origin="lower",
            aspect="auto",
            extent=(0, end, 0, task.extent),
            cmap=COLOURS,
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
        )
        ax.set_ylabel("x")
        ax.set_title(f"trajectory {i}", loc="left", fontsize=9)
    axes[-1].set_xlabel("time")
    figure.colorbar(image, ax=axes, label=label, shrink=0.8, pad=0.02)
    figure.suptitle(task.title)
    return figure


def _snapshots(u: np.ndarray, task: Task) -> Figure:
    """Rows are trajectories and columns are times, each with its own colour range, as fields may grow or decay."""
    slices = u if task.dims == 2 else u[..., u.shape[-1] // 2]  # (trajectory, time, axis 0, axis 1)
    times = np.unique(np.linspace(0, u.shape[1] - 1, 5).round().astype(int))
    rows, columns = len(slices), len(times)
    figure = Figure(figsize=(0.8 + 1.9 * columns, 1.3 + 1.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    symbol = "ω" if task.equation.startswith("ω") else "u"
    for j, t in enumerate(times):
        limit = _limit(slices[:, t])
        for i in range(rows):
            image = axes[i, j].imshow(
                slices[i, t].T,
                origin="lower",
                extent=(0, task.extent, 0, task.extent),
                cmap=COLOURS,
                vmin=-limit,
                vmax=limit,
            )
        axes[0, j].set_title(f"t = {t * task.dt:g}", fontsize=9)
        axes[-1, j].set_xlabel("$x_0$")
        figure.colorbar(image, ax=axes[:, j], location="bottom", label=symbol, shrink=0.9, pad=0.02)
    for i in range(rows):
        axes[i, 0].set_ylabel(f"trajectory {i}\n$x_1$")
    figure.suptitle(task.title if task.dims == 2 else f"{task.title}, slice at half of axis 2")
    return figure
