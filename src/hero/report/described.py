"""The tables of a run that is planned: what its data keep, and what it costs."""

from __future__ import annotations

from hero.data.invariants import Survey
from hero.report.tables import Column, Number, Row, Table, Text
from hero.study.cost.count import Description, Measurement, readable

NOT_KEPT = "holds, but states change much per step, and a network that may add any constant then overfits"


def structure_table(found: Survey) -> Table:
    """What the training data keep, how well, and what an operator with `backbone.keep=auto` makes of it."""
    columns = [
        Column("Quantity", words=True),
        Column("Largest change", meaning="Along any trajectory, relative to the norm of the state about its mean."),
        Column("Precision", meaning="The change that the precision of the data explains."),
        Column("Kept", words=True),
        Column("Why", words=True),
    ]
    rows = []
    for one in found.invariants:
        numbers = (one.violation, one.tolerance) if one.kind not in ("low", "high") else (None, None)
        kept = "yes" if one.word in found.kept else "no"
        why = one.why if (one.word in found.kept) == one.kept else NOT_KEPT
        rows.append(Row([Text(one.title), *map(Number, numbers), Text(kept), Text(why)]))
    target = "the change of the state" if found.predicts_change else "the next state"
    note = f"A state changes by {100 * found.step_change:.2g} % per step: backbone.residual=auto predicts {target}."
    return Table("What the data keep (backbone.keep=auto)", columns, rows, [note])


def description_table(found: Description) -> Table:
    """Parameters, FLOPs, memory and files of a run, as they were counted."""
    settings = ", ".join(f"{name} {value}" for name, value in found.settings.items())
    shapes = " -> ".join("×".join(map(str, shape)) for shape in (found.input, found.output))
    updates = {f"one update, {phase.name}": f"{readable(phase.flops, 'FLOP')}, {phase.updates:,} times"
               for phase in found.phases}  # fmt: skip
    sections = {
        "": {
            "backbone": f"{found.backbone}: {settings}",
            "parameters": f"{found.parameters:,}",
            **{f"  {name}": f"{count:,}" for name, count in found.parts.items()},
            "input, output": shapes,
            "windows": f"{found.windows:,} of {found.unroll} steps, {found.batch} per update",
        },
        "compute": {
            "one step of one sample": readable(found.step_flops, "FLOP"),
            **updates,
            "all updates": readable(found.run_flops, "FLOP"),
        },
        "memory": {name: readable(count, "B") for name, count in found.memory.items()},
        "files": {name: readable(count, "B") for name, count in found.files.items()},
        "measured": _measured_lines(found, found.measured) if found.measured else {},
    }
    rows = [Row([Text(key), Text(text)], section) for section, lines in sections.items() for key, text in lines.items()]
    columns = [Column("Quantity", words=True), Column("Value", words=True)]
    notes = [
        "FLOP: matrix products and convolutions only, twice their multiplications; no FFT, activation or validation.",
        "Memory: without PyTorch itself and temporary values; activations as kept without torch.compile.",
    ]
    if found.streamed:
        notes.append(f"Larger than data.memory, so read from the file as needed: {', '.join(found.streamed)}.")
    return Table(f"{found.task}: {found.backbone} with {found.strategy}", columns, rows, notes)


def _measured_lines(run: Description, found: Measurement) -> dict[str, str]:
    lines = {
        f"one update, {phase.name}": f"{1e3 * phase.seconds:,.1f} ms, {phase.updates:,} times"
        for phase in run.phases
        if phase.seconds is not None
    }
    lines["all updates"] = f"{run.run_seconds / 60:.1f} minutes, without validation"
    if found.peak_memory is not None:
        available = "" if found.available_memory is None else f", {readable(found.available_memory, 'B')} are available"
        lines["peak memory"] = readable(found.peak_memory, "B") + available
    lines["on"] = f"{found.device}, {found.threads} threads, {'compiled' if found.compiled else 'eager'}"
    return lines
