"""The pictures of `hero doctor`: states, energy and spectrum of a file; error, modes and late states of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from hero.analysis.doctor import Diagnosis
from hero.analysis.doctor_run import RunDiagnosis
from hero.analysis.findings import percent
from hero.data.files.checks import spread
from hero.data.files.recording import Recording
from hero.method.metrics import TAU
from hero.report.figures.charts import Across, Chart, Curve, charts_figure
from hero.report.figures.fields import draw_pictures, pictures_size
from hero.report.figures.style import BLACK, BLUE, COLOURS, GREY, ORANGE, VERMILION, new_figure, plain
from hero.report.views import Picture, Scale, View, named

SNAPSHOTS = 5
CHANNELS = 4
"""Channels that are drawn, at most."""
DRAWN_FRAMES = 400
"""Frames of an image of space against time."""
BANDS = Across("modes |k|")
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
    energy = np.array(found.energy)
    finite = energy[np.isfinite(energy) & (energy > 0)]
    decays = bool(finite.size) and finite.max() > 30 * finite.min()
    curve = Curve("energy", found.dt * np.array(found.energy_frames), energy, colour=BLUE)
    chart = Chart("", [curve], Across(named("time", found.time_unit)), "mean square of (u - mean) / std", decays)
    figure = charts_figure(f"{_name(found)}: energy, mean over trajectories", [chart], 1, 6.4, 3.1)
    if not decays:
        figure.axes[0].set_ylim(0, 1.1 * (finite.max() if finite.size else 1.0))
    return figure


def spectrum_figure(found: Diagnosis) -> Figure:
    """Power by wavenumber at three frames; the upper third is shaded."""
    spectrum = found.spectrum
    assert spectrum is not None
    k = np.array(spectrum.wavenumbers[1:])
    top = max(max(row[1:]) for row in spectrum.power) or 1.0
    curves = [
        Curve(f"frame {frame}", k, np.maximum(row[1:], 1e-40), colour=colour)
        for colour, frame, row in zip(COLOURS, spectrum.frames, spectrum.power, strict=False)
    ]
    ends = max(1e-16 * top, 1e-40), 3 * top
    chart = Chart("", curves, Across("waves in the longest axis"), "power / variance", True, range=ends)
    title = f"{_name(found)}, {percent(spectrum.upper_share)} of the power in the upper third"
    figure = charts_figure(title, [chart], 1, 6.4, 3.5)
    (axes,) = figure.axes
    axes.set(xscale="log", xlim=(1, max(2, k[-1])))
    axes.axvspan(2 / 3 * k[-1], max(2, k[-1]), color=GREY, alpha=0.2, label="upper third")
    axes.legend(fontsize=8)
    return figure


def run_figure(found: RunDiagnosis) -> Figure:
    """Three panels."""
    charts = [_error_chart(found), _modes_chart(found), _late_chart(found)]
    figure = charts_figure(f"{found.run}: {found.outcome}", charts, 3, 4.4, 3.7)
    parts, *bands = figure.axes
    parts.axhline(TAU, color=GREY, linestyle=":")
    if found.diverged_step is not None:
        parts.axvline(found.diverged_step, color=ORANGE, linestyle="--", label="first leaves the finite range")
        parts.legend(fontsize=8)
    for axes in bands:
        axes.tick_params(axis="x", labelrotation=45)
    return figure


def _error_chart(found: RunDiagnosis) -> Chart:
    """The error over steps, new defects and carried errors."""
    curves = [
        Curve("error (median)", np.arange(1, len(found.errors) + 1), np.array(found.errors), colour=BLACK),
        Curve("old error carried along", found.steps, _drawn(found.carried), colour=VERMILION),
        Curve("new defect", found.steps, _drawn(found.defects), colour=BLUE),
    ]
    title = f"a small difference becomes {found.amplification:.3g} of its size per step"
    return Chart(title, curves, Across("step"), "relative to the truth", log=True)


def _modes_chart(found: RunDiagnosis) -> Chart:
    """Root of the energy of the error by band, a line for some of the steps."""
    chosen = sorted({round(i) for i in np.linspace(0, len(found.steps) - 1, 6)})
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(chosen)))
    curves = [
        Curve(f"step {found.steps[i]}", found.labels, np.sqrt(_drawn(found.bands[i])), colour=colour, style="o-")
        for colour, i in zip(colours, chosen, strict=True)
    ]
    return Chart("error by band", curves, BANDS, log=True)


def _late_chart(found: RunDiagnosis) -> Chart:
    """Spectrum of late states next to the true one."""
    lines = {"truth": (found.true_bands, BLACK, "o-"), "rollout": (found.late_bands, VERMILION, "o--")}
    curves = [
        Curve(label, found.labels, _drawn(bands), colour=colour, style=style)
        for label, (bands, colour, style) in lines.items()
        if found.late_bands
    ]
    return Chart("energy of late states", curves, BANDS, log=bool(curves))


def _drawn(values: Sequence[float]) -> np.ndarray:
    """Values for a logarithmic axis: NaN, which is a gap, in the place of zero, rounding and infinity."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(numbers) & (numbers > LEAST), numbers, np.nan)
