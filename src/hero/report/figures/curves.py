"""Error curves of several methods over each other, and figures as files: shared by comparisons and studies."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from hero.files import write_atomic
from hero.report.figures.style import BLACK, BLUE, DPI, ERROR_RANGE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
# Near methods lie on each other: through the gaps of the later line the earlier one is seen.
STYLES = ("-", "--", "-.", ":")


def save_png_and_pdf(figure: Figure, folder: Path, name: str, dpi: int = DPI) -> None:
    """Write `name.png` and `name.pdf`, each whole or not at all."""
    for suffix in ("png", "pdf"):
        buffer = io.BytesIO()
        with rc_context({"pdf.fonttype": 42}):  # TrueType: journals refuse the default, Type 3
            # Without the date, a repeated command gives the same file.
            figure.savefig(buffer, format=suffix, dpi=dpi, metadata={"CreationDate": None} if suffix == "pdf" else None)
        write_atomic(folder / f"{name}.{suffix}", buffer.getvalue())


def error_curves(
    axes: Axes, errors: Mapping[str, np.ndarray], diverged: Mapping[str, int], colours: Mapping[str, str]
) -> None:
    """nRMSE (seed, trajectory, step) of each method against the step, and in its label how many rollouts diverged."""
    of_seed = {name: values.mean(axis=1) for name, values in errors.items()}  # (seed, step)
    visible = np.concatenate([curve[np.isfinite(curve) & (curve > 0)] for curve in of_seed.values()])
    low, high = (visible.min() / 1.5, visible.max() * 1.5) if visible.size else ERROR_RANGE
    low, high = max(low, ERROR_RANGE[0]), min(high, ERROR_RANGE[1])
    for i, (name, curve) in enumerate(of_seed.items()):
        steps = np.arange(1, curve.shape[1] + 1)
        # Infinite values are drawn as leaving through the top of the axis.
        shown = np.clip(curve, low / 10, high * 10)
        label = f"{name} ({diverged[name]} diverged)" if diverged[name] else name
        mean = np.clip(curve.mean(axis=0), low / 10, high * 10)
        axes.plot(steps, mean, STYLES[i % len(STYLES)], color=colours[name], linewidth=1.8, label=label)
        axes.fill_between(steps, shown.min(axis=0), shown.max(axis=0), color=colours[name], alpha=0.18, linewidth=0)
    axes.set(yscale="log", ylim=(low, high), xlabel="rollout step", ylabel="relative error (nRMSE)")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter() if high > 10 * low else StrMethodFormatter("{x:g}"))
    axes.set_title("mean over trajectories and seeds; band: all seeds", fontsize=10)
    axes.margins(x=0.01)
    axes.grid(alpha=0.25)
