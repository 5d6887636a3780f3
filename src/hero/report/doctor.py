"""The tables, lines and pictures of `hero doctor`, of a file and of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from hero.analysis.anatomy import shares
from hero.analysis.doctor import Diagnosis
from hero.analysis.doctor_run import RunDiagnosis
from hero.analysis.findings import percent
from hero.data.files.checks import spread, stand_in
from hero.data.files.recording import Recording
from hero.method.measures import TAU
from hero.report.figures.charts import BANDS, Across, Chart, Curve, charts_figure
from hero.report.figures.fields import states_figure
from hero.report.figures.style import BLACK, BLUE, COLOURS, GREY, ORANGE, VERMILION, new_figure
from hero.report.tables import Column, Number, Row, Table, Text, format_number
from hero.report.views import Picture, Scale, View, named
from hero.study.cost.count import readable

SIGNS = {"ok": "✓ ok", "note": "• note", "warning": "! warning", "problem": "✗ problem"}
VERDICTS = {"ok": "better", "note": "", "warning": "worse", "problem": "worse"}
SNAPSHOTS = 5
CHANNELS = 4  # channels that are drawn, at most
DRAWN_FRAMES = 400  # frames of an image of space against time
LEAST = 1e-12  # smaller values are left out of the figure of a run: they are rounding


def facts_table(found: Diagnosis) -> Table:
    return Table.of_words(found.source, ("fact", "value"), [pair for pair in _facts(found) if pair[1]])


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    shortest, longest = found.frames
    frames = str(longest) if shortest == longest else f"{shortest} to {longest}"
    unit = f" {found.time_unit}" if found.time_unit else ""
    yield "format", f"{found.format}, {found.files} file{'s' * (found.files != 1)}, {readable(found.bytes, 'B')}"
    yield "trajectories", f"{found.trajectories} of {frames} frames"
    yield "state", f"{len(found.channels)} × {'×'.join(map(str, found.space))}"
    yield "time step", f"{found.dt:g}{unit}"
    for axis in found.axes:
        length = f"{axis.points} points, extent {axis.extent:.4g}{' ' * bool(axis.unit)}{axis.unit}"
        known = ", as the file says" if axis.known else ""
        yield f"axis {axis.name}", f"{length}, {'' if axis.periodic else 'not '}periodic{known}"
    for one in found.scalars:
        span = f"{one.low:g}" if one.low == one.high else f"{one.low:g} to {one.high:g}, {one.values} values"
        yield f"number {one.name}", span
    yield "conditioning fields", ", ".join(found.fields)
    yield "splits", ", ".join(f"{name} {count}" for name, count in found.splits.items())
    if found.read_share < 1:
        yield "read", f"{100 * found.read_share:.2g} % of the frames, evenly spread: the numbers below are estimates"
    yield "change per step", f"{100 * found.change:.3g} % of the std" if found.change else ""
    for note in found.notes:
        yield "note", note


def channels_table(found: Diagnosis) -> Table:
    """Each channel with its range, mean and std over the points that have values."""
    points, masked = math.prod(found.space), any(one.masked for one in found.channels)
    names = ("min", "max", "mean", "std", *(["masked points"] if masked else []))
    columns = [Column("channel", words=True), Column("unit", words=True, optional=True), *map(Column, names)]
    rows = []
    for one in found.channels:
        values = (one.low, one.high, one.mean, one.std)
        numbers = [Number(0 if abs(x) < 1e-7 * one.std else x) for x in values]  # only rounding is left of it
        without = [Text(f"{one.masked} of {points}")] if masked else []
        rows.append(Row([Text(one.name), Text(one.unit), *numbers, *without]))
    return Table("", columns, rows)


def findings_table(found: Diagnosis) -> Table:
    """Each finding with its mark and its remedy; the last row names what was looked at and needs no word."""
    silent = ", ".join(one.kind for one in found.findings if not one.text)
    told = [(one.mark, one.kind, one.text, one.advice) for one in found.findings if one.text]
    told += [("ok", "nothing found", silent, "")] if silent else []
    rows = [Row([Text(SIGNS[mark], verdict=VERDICTS[mark]), *map(Text, words)]) for mark, *words in told]
    columns = [Column(name, words=True) for name in ("", "finding", "found", "remedy")]
    return Table("", columns, rows)


def verdict(found: Diagnosis, network: str = "") -> list[str]:
    """The last lines: fit or not, errors to beat, the sentence on the network, the command to type."""
    count = len(found.problems)
    if count:
        which = ", ".join(dict.fromkeys(one.kind for one in found.problems))
        problems = "problem" if count == 1 else "problems"
        return [f"not fit for training: solve {count} {problems} first ({which})"]
    warnings = ", ".join(dict.fromkeys(one.kind for one in found.findings if one.mark == "warning"))
    lines = [f"fit for training{warnings and f', with a warning ({warnings})'}"]
    if idle := found.baselines:
        first, mean = (
            ", ".join(f"{x:.3g} at step {n}" for n, x in zip(idle.steps, errors, strict=True))
            for errors in (idle.persistence, idle.mean)
        )
        lines.append(f"to beat: the first state kept has VRMSE {first}; the mean state {mean}")
    return [*lines, *filter(None, [network]), found.command]


def run_table(found: RunDiagnosis) -> Table:
    """The measurements from which the verdict on a run follows."""
    place = found.explained
    at = f"at step {found.steps[place]}"
    first, last, channels = found.bands[0], found.bands[-1], found.channels[place]
    parts = shares(found.bands[place])
    growing = [
        label for label, old, new in zip(found.labels, first, last, strict=True) if new > 100 * old and new > 1e-6
    ]
    modes = [
        (f"modes of the error {at}", _ranked(found.labels, parts)),
        (f"modes whose error grew tenfold by step {found.steps[-1]}", ", ".join(growing) or "none"),
    ]
    facts = [
        ("error at step 1", format_number(found.errors[0])),
        (f"error at step {len(found.errors)}", format_number(found.errors[-1])),
        ("first error above 0.1", f"step {found.failed_step}" if found.failed_step else "never"),
        ("left the finite range", f"{found.diverged} of {found.trajectories}"),
        (f"new defect {at}", format_number(found.defects[place])),
        (f"old error carried along {at}", format_number(found.carried[place])),
        ("growth of a small difference", f"{found.amplification:.4g} per step"),
        *(modes if len(found.limits) > 1 else ()),  # scattered points have none
        (f"channels of the error {at}", _ranked(list(found.channel_names), channels)),
        ("late energy over the true one", format_number(found.energy)),
        ("late std over the true one", format_number(found.std)),
        ("late change per step over the true one", format_number(found.change)),
    ]
    return Table.of_words(f"{found.run}: {found.outcome}", ("measurement", "value"), facts)


def _ranked(names: list[str], parts: Sequence[float]) -> str:
    """The three largest shares with their names."""
    order = sorted(range(len(parts)), key=lambda i: -parts[i])[:3]
    return ", ".join(f"{names[i]} ({100 * parts[i]:.0f} %)" for i in order if parts[i] > 0.005)


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
    states = np.concatenate([trajectory.read(slice(n, n + 1), range(count)) for n in frames]).astype(np.float64)
    if recording.mask is not None:
        states = np.where(recording.mask[:count], states, np.nan)
    for values in states.swapaxes(0, 1):
        values[values == stand_in(values)] = np.nan
    states = view.arranged(states[..., states.shape[-1] // 2] if states.ndim == 5 else states)
    rows = [
        Picture.of(one.name, states[:, c], Scale.of(states[:, c], named(one.name, one.unit)))
        for c, one in enumerate(recording.channels[:count])
    ]
    time = named("time", found.time_unit), found.dt * max(frames)
    return states_figure(f"{_name(found)}: trajectory 0", rows, view, time, [f"frame {n}" for n in frames])


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
    k = np.arange(1, len(spectrum.power[0]))
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
    errors = [
        Curve("error (median)", np.arange(1, len(found.errors) + 1), np.array(found.errors), colour=BLACK),
        Curve("old error carried along", found.steps, _drawn(found.carried), colour=VERMILION),
        Curve("new defect", found.steps, _drawn(found.defects), colour=BLUE),
    ]
    chosen = spread(len(found.steps), 6)
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(chosen)))
    modes = [
        Curve(f"step {found.steps[i]}", found.labels, np.sqrt(_drawn(found.bands[i])), colour=colour, style="o-")
        for colour, i in zip(colours, chosen, strict=True)
    ]
    late = [
        Curve("truth", found.labels, _drawn(found.true_bands), colour=BLACK, style="o-"),
        Curve("rollout", found.labels, _drawn(found.late_bands), colour=VERMILION, style="o--"),
    ]
    late = late if found.late_bands else []
    growth = f"a small difference becomes {found.amplification:.3g} of its size per step"
    charts = [
        Chart(growth, errors, Across("step"), "relative to the truth", log=True),
        Chart("error by band", modes, BANDS, log=True),
        Chart("energy of late states", late, BANDS, log=bool(late)),
    ]
    figure = charts_figure(f"{found.run}: {found.outcome}", charts, 3, 4.4, 3.7)
    parts, *bands = figure.axes
    parts.axhline(TAU, color=GREY, linestyle=":")
    if found.diverged_step is not None:
        parts.axvline(found.diverged_step, color=ORANGE, linestyle="--", label="first leaves the finite range")
        parts.legend(fontsize=8)
    for axes in bands:
        axes.tick_params(axis="x", labelrotation=45)
    return figure


def _drawn(values: Sequence[float]) -> np.ndarray:
    """Values for a logarithmic axis: NaN, which is a gap, in the place of zero, rounding and infinity."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(numbers) & (numbers > LEAST), numbers, np.nan)
