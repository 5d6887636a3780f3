"""Pictures of trajectories: space-time images in 1D, snapshots in 2D, central slices in 3D."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from hero.tasks.task import Task

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
    figure.colorbar(image, ax=axes, label="u", shrink=0.8, pad=0.02)
    figure.suptitle(task.title)
    return figure


def _snapshots(u: np.ndarray, task: Task) -> Figure:
    slices = u if task.dims == 2 else u[..., u.shape[-1] // 2]  # (trajectory, time, axis 0, axis 1)
    times = np.unique(np.linspace(0, u.shape[1] - 1, 5).round().astype(int))
    rows, columns = len(slices), len(times)
    figure = Figure(figsize=(1.0 + 1.9 * columns, 0.9 + 1.9 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    limit = _limit(slices[:, times])
    for i in range(rows):
        for j, t in enumerate(times):
            image = axes[i, j].imshow(
                slices[i, t].T,
                origin="lower",
                extent=(0, task.extent, 0, task.extent),
                cmap=COLOURS,
                vmin=-limit,
                vmax=limit,
            )
            if i == 0:
                axes[i, j].set_title(f"t = {t * task.dt:g}", fontsize=9)
        axes[i, 0].set_ylabel(f"trajectory {i}\n$x_1$")
    for ax in axes[-1]:
        ax.set_xlabel("$x_0$")
    symbol = "ω" if task.equation.startswith("ω") else "u"
    figure.colorbar(image, ax=axes, label=symbol, shrink=0.8, pad=0.02)
    figure.suptitle(task.title if task.dims == 2 else f"{task.title}, slice at $x_2$ = extent/2")
    return figure
