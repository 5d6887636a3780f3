"""The pictures of `hero doctor`: states, energy and spectrum of a file; error, modes and late states of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.analysis.doctor import Diagnosis
from hero.analysis.doctor_run import RunDiagnosis
from hero.analysis.findings import percent
from hero.analysis.measures import spread
from hero.data.files.recording import Recording
from hero.method.metrics import TAU
from hero.report.figures.fields import draw_pictures, pictures_size
from hero.report.figures.style import BLACK, BLUE, COLOURS, GREY, ORANGE, VERMILION, log_scale, new_figure, plain
from hero.report.views import Picture, Scale, View, named

SNAPSHOTS = 5
CHANNELS = 4
"""Channels that are drawn, at most."""
DRAWN_FRAMES = 400
"""Frames of an image of space against time."""
LEAST = 1e-12
"""Smaller values are left out of the figure of a run: they are rounding."""


def figures(found: Diagnosis, recording: Recording) -> dict[str, Figure]:
    """By name; a figure without content is left out."""
    drawn = {"fields": fields_figure(found, recording), "energy": energy_figure(found)}
    if found.spectrum is not None:
        drawn["spectrum"] = spectrum_figure(found)
    return drawn


def fields_figure(found: Diagnosis, recording: Recording) -> Figure:
    """The first trajectory: space against time in 1D, else snapshots; of 3D the central slice of the last axis."""
    trajectory, count = recording.trajectories[0], min(CHANNELS, len(recording.channels))
    if recording.points is not None and recording.points.shape[1] > 1:
        return _cloud_figure(found, recording, count)
    view = View.of(recording.axes)
    frames = spread(trajectory.frames, SNAPSHOTS if view.up else DRAWN_FRAMES)
    states = np.concatenate([trajectory.read(slice(n, n + 1), range(count)) for n in frames])
    if recording.mask is not None:
        states = np.where(recording.mask[:count], states, np.nan)
    states = view.arranged(states[..., states.shape[-1] // 2] if states.ndim == 5 else states)
    fields = states.swapaxes(0, 1)  # (channel, frame, across[, up])
    scales = [Scale.of(u, named(one.name, one.unit)) for u, one in zip(fields, recording.channels, strict=False)]
    if view.up:
        figure = new_figure(*pictures_size(view, count, len(frames)))
        rows = [[Picture("" if c else f"frame {n}", field, scales[c], np.isfinite(field))
                 for n, field in zip(frames, u, strict=True)] for c, u in enumerate(fields)]  # fmt: skip
    else:
        figure = new_figure(7.5, 0.6 + 2.2 * count)
        view = view.against(named("time", found.time_unit), 0.0, found.dt * max(frames) or 1.0)
        rows = [[Picture("", u, scale, np.isfinite(u))] for u, scale in zip(fields, scales, strict=True)]
    draw_pictures(figure, rows, view)
    figure.suptitle(plain(f"{_name(found)}: trajectory 0"), fontsize=11)
    return figure


def _cloud_figure(found: Diagnosis, recording: Recording, count: int) -> Figure:
    assert recording.points is not None
    trajectory = recording.trajectories[0]
    frames = spread(trajectory.frames, SNAPSHOTS)
    figure = new_figure(0.8 + 2.3 * len(frames), 0.5 + 2.2 * count)
    rows = figure.subplots(count, len(frames), squeeze=False, sharex=True, sharey=True)
    shown = np.stack([trajectory.read(slice(n, n + 1), range(count))[0] for n in frames])
    x, y = recording.points.T[:2]
    for c, row in enumerate(rows):
        low, high, colours, _ = Scale.of(shown[:, c])
        for axes, n, field in zip(row, frames, shown[:, c], strict=True):
            image = axes.scatter(x, y, c=field, s=4, cmap=colours, vmin=low, vmax=high)
            axes.set_title(f"frame {n}" if c == 0 else "", fontsize=9)
            axes.set_aspect("equal")
        figure.colorbar(image, ax=list(row), label=recording.channels[c].name, shrink=0.85)
    figure.suptitle(f"{_name(found)}: trajectory 0", fontsize=11)
    return figure


def _name(found: Diagnosis) -> str:
    return Path(found.source).name


def energy_figure(found: Diagnosis) -> Figure:
    """Mean square of the states about the mean of their channels, in stds, over time."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    energy = np.array(found.energy)
    axes.plot(found.dt * np.array(found.energy_frames), energy, color=BLUE)
    finite = energy[np.isfinite(energy) & (energy > 0)]
    if finite.size and finite.max() > 30 * finite.min():
        log_scale(axes, energy)
    else:
        axes.set_ylim(0, 1.1 * (finite.max() if finite.size else 1.0))
    axes.set_xlabel(f"time [{found.time_unit}]" if found.time_unit else "time")
    axes.set_ylabel("mean square of (u - mean) / std")
    axes.grid(alpha=0.25, color=GREY)
    figure.suptitle(f"{_name(found)}: energy, mean over trajectories", fontsize=11)
    return figure


def spectrum_figure(found: Diagnosis) -> Figure:
    """Power by wavenumber at three frames; the upper third is shaded."""
    spectrum = found.spectrum
    assert spectrum is not None
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    k = np.array(spectrum.wavenumbers[1:])
    top = max(max(row[1:]) for row in spectrum.power) or 1.0
    for colour, frame, row in zip(COLOURS, spectrum.frames, spectrum.power, strict=False):
        axes.loglog(k, np.maximum(row[1:], 1e-40), color=colour, label=f"frame {frame}")
    axes.set_ylim(max(1e-16 * top, 1e-40), 3 * top)
    axes.set_xlim(1, max(2, k[-1]))
    axes.axvspan(2 / 3 * k[-1], max(2, k[-1]), color=GREY, alpha=0.2, label="upper third")
    axes.set_xlabel("waves in the longest axis")
    axes.set_ylabel("power / variance")
    axes.grid(alpha=0.25, color=GREY)
    axes.legend(fontsize=8)
    figure.suptitle(f"{_name(found)}, {percent(spectrum.upper_share)} of the power in the upper third", fontsize=11)
    return figure


def run_figure(found: RunDiagnosis) -> Figure:
    """Three panels."""
    figure = new_figure(13.0, 4.2)
    parts, modes, late = figure.subplots(1, 3, width_ratios=(1.3, 1.1, 1.0))
    _error_panel(parts, found)
    _modes_panel(modes, found)
    _late_panel(late, found)
    for axes in (parts, modes, late):
        axes.grid(alpha=0.25, color=GREY)
    figure.suptitle(f"{found.run}: {found.outcome}", fontsize=11)
    return figure


def _error_panel(axes: Axes, found: RunDiagnosis) -> None:
    """The error over steps, new defects and carried errors; a line where the rollout left the finite range."""
    errors = np.array(found.errors)
    shown = np.where(np.isfinite(errors), errors, np.nan)
    axes.plot(np.arange(1, len(errors) + 1), shown, color=BLACK, label="error (median)")
    axes.plot(found.steps, _drawn(found.carried), color=VERMILION, label="old error carried along")
    axes.plot(found.steps, _drawn(found.defects), color=BLUE, label="new defect")
    axes.axhline(TAU, color=GREY, linestyle=":")
    if found.diverged_step is not None:
        axes.axvline(found.diverged_step, color=ORANGE, linestyle="--", label="first leaves the finite range")
    log_scale(axes, np.concatenate([shown, _drawn(found.carried), _drawn(found.defects)]))
    axes.set_xlabel("step")
    axes.set_ylabel("relative to the truth")
    axes.set_title(f"a small difference becomes {found.amplification:.3g} of its size per step", fontsize=10)
    axes.legend(fontsize=8)


def _modes_panel(axes: Axes, found: RunDiagnosis) -> None:
    """Root of the energy of the error by band, a line for some of the steps."""
    chosen = sorted({round(i) for i in np.linspace(0, len(found.steps) - 1, 6)})
    rows = [np.sqrt(_drawn(found.bands[i])) for i in chosen]
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(chosen)))
    for colour, i, row in zip(colours, chosen, rows, strict=True):
        axes.plot(found.labels, row, "o-", color=colour, markersize=3, label=f"step {found.steps[i]}")
    log_scale(axes, np.concatenate(rows))
    axes.set_xlabel("modes |k|")
    axes.set_title("error by band", fontsize=10)
    axes.tick_params(axis="x", labelrotation=45)
    axes.legend(fontsize=8)


def _late_panel(axes: Axes, found: RunDiagnosis) -> None:
    """Spectrum of late states next to the true one."""
    if found.late_bands:
        axes.plot(found.labels, _drawn(found.true_bands), "o-", color=BLACK, markersize=4, label="truth")
        axes.plot(found.labels, _drawn(found.late_bands), "o--", color=VERMILION, markersize=4, label="rollout")
        log_scale(axes, _drawn(found.true_bands + found.late_bands))
        axes.legend(fontsize=8)
    axes.set_xlabel("modes |k|")
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_title("energy of late states", fontsize=10)


def _drawn(values: Sequence[float]) -> np.ndarray:
    """Values for a logarithmic axis: NaN, which is a gap, in the place of zero, rounding and infinity."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(numbers) & (numbers > LEAST), numbers, np.nan)
