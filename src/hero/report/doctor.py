"""The tables and lines of `hero doctor`, of a file and of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hero.analysis.anatomy import shares
from hero.analysis.doctor import Baselines, Diagnosis
from hero.analysis.doctor_run import RunDiagnosis
from hero.report.tables import Column, Number, Row, Table, Text, format_number
from hero.study.cost.count import readable

BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 24
SIGNS = {"ok": "✓ ok", "note": "• note", "warning": "! warning", "problem": "✗ problem"}
VERDICTS = {"ok": "better", "note": "", "warning": "worse", "problem": "worse"}


def facts_table(found: Diagnosis) -> Table:
    """The file in one line per fact."""
    rows = [Row([Text(fact), Text(value)]) for fact, value in _facts(found) if value]
    return Table(found.source, [Column("fact", words=True), Column("value", words=True)], rows, sortable=False)


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
    yield "energy in time", sparkline(found.energy)
    yield "change per step", f"{100 * found.change:.3g} % of the std" if found.change else ""
    for note in found.notes:
        yield "note", note


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars from 0 to the largest; empty where they are fewer than two."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2 or max(finite) <= 0:
        return ""
    shown = [finite[round(i * (len(finite) - 1) / (BARS_SHOWN - 1))] for i in range(BARS_SHOWN)]
    return "".join(BARS[round(max(0.0, value) / max(finite) * (len(BARS) - 1))] for value in shown)


def channels_table(found: Diagnosis) -> Table:
    """Each channel with its range, mean and std over the points that have values."""
    points, masked = math.prod(found.space), any(one.masked for one in found.channels)
    names = ("min", "max", "mean", "std", *(["masked points"] if masked else []))
    columns = [Column("channel", words=True), Column("unit", words=True, optional=True), *map(Column, names)]
    rows = []
    for one in found.channels:
        numbers = (_number(x, one.std) for x in (one.low, one.high, one.mean, one.std))
        without = [Text(f"{one.masked} of {points}")] if masked else []
        rows.append(Row([Text(one.name), Text(one.unit), *numbers, *without]))
    return Table("", columns, rows, sortable=False)


def _number(value: float, std: float) -> Number:
    """Rounded; 0 where only rounding is left of it."""
    return Number(value, shown="0" if abs(value) < 1e-7 * std else format_number(value))


def findings_table(found: Diagnosis) -> Table:
    """Each finding with its mark and its remedy; the last row names what was looked at and needs no word."""
    silent = ", ".join(one.kind for one in found.findings if not one.text)
    told = [(one.mark, one.kind, one.text, one.advice) for one in found.findings if one.text]
    told += [("ok", "nothing found", silent, "")] if silent else []
    rows = [Row([Text(SIGNS[mark], verdict=VERDICTS[mark]), *map(Text, words)]) for mark, *words in told]
    columns = [Column(name, words=True) for name in ("", "finding", "found", "remedy")]
    return Table("", columns, rows, sortable=False)


def verdict(found: Diagnosis, network: str = "") -> list[str]:
    """The last lines: fit or not, errors to beat, the sentence on the network, the command to type."""
    count = len(found.problems)
    if count:
        which = ", ".join(dict.fromkeys(one.kind for one in found.problems))
        problems = "problem" if count == 1 else "problems"
        return [f"not fit for training: solve {count} {problems} first ({which})"]
    warnings = ", ".join(dict.fromkeys(one.kind for one in found.findings if one.mark == "warning"))
    lines = [f"fit for training{warnings and f', with a warning ({warnings})'}"]
    if found.baselines is not None:
        lines.append(baseline_text(found.baselines))
    return [*lines, *filter(None, [network]), found.command]


def baseline_text(found: Baselines) -> str:
    """The errors of doing nothing in one line."""

    def errors(values: Sequence[float]) -> str:
        return ", ".join(f"{x:.3g} at step {n}" for n, x in zip(found.steps, values, strict=True))

    return f"to beat: the first state kept has VRMSE {errors(found.persistence)}; the mean state {errors(found.mean)}"


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
    rows = [Row([Text(fact), Text(value)]) for fact, value in facts]
    columns = [Column("measurement", words=True), Column("value", words=True)]
    return Table(f"{found.run}: {found.outcome}", columns, rows, sortable=False)


def _ranked(names: list[str], parts: Sequence[float]) -> str:
    """The three largest shares with their names."""
    order = sorted(range(len(parts)), key=lambda i: -parts[i])[:3]
    return ", ".join(f"{names[i]} ({100 * parts[i]:.0f} %)" for i in order if parts[i] > 0.005)
