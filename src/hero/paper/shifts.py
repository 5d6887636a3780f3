"""A finished run under a shift of its task: other coefficients or another grid, without further training.

All runs of a task start a shift from the same states. Where only the grid changes these are the run's own test states,
resampled: the same functions, warmed up on the grid of the training. Otherwise they are the states of the shifted task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hero.errors import HeroError
from hero.evaluation.elsewhere import OtherMetrics, evaluate_on, name_of
from hero.files import file_hash
from hero.runs.folder import Run
from hero.study.collect import Places, PlannedGroup, RunNumbers, group_of, paper_of, read_row
from hero.study.records import Group, MetricColumn


@dataclass(frozen=True)
class Shift:
    """Settings of a task that differ from the training; the paper's tables are called by the name."""

    name: str
    title: str
    settings: Mapping[str, Any]


PAPER_TASK = "kolmogorov_flow"
SHIFTS: dict[str, Shift] = {
    shift.name: shift
    for shift in (
        Shift("viscosity_6.67e-3", "viscosity 6.67e-3", {"viscosity": 6.67e-3, "substeps": 8}),
        Shift("forcing_1.50", "forcing 1.50", {"forcing_scale": 1.5, "substeps": 14}),
        Shift("resolution_96", "resolution 96²", {"resolution": 96, "substeps": 6}),
        Shift("resolution_128", "resolution 128²", {"resolution": 128, "substeps": 8}),
    )
}
"""The paper's shifts of `PAPER_TASK`, with the substeps that they need, as measured: docs/reference/shifts.md"""


def shifted(run: Path, data_dir: Path, shift: Shift) -> OtherMetrics:
    """The best checkpoint of a run on the test split of the shifted task: as many, as long, of the same seed.

    The result is kept as `hero evaluate RUN --set task.…` keeps it, and measured again when the checkpoint changes.
    """
    settings = {f"task.{name}": value for name, value in shift.settings.items()}
    with suppress(HeroError):  # missing or damaged
        known = OtherMetrics.read(run / "evaluations" / f"{name_of(settings, 'test')}.json")
        if known.settings == settings and known.weights == file_hash(Run(run).weights_file):
            return known
    return evaluate_on(run, data_dir, settings)[0]


def read_shifts(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """A group for each of the paper's shifts; a run that was not measured under it yet is measured now."""
    for shift in SHIFTS.values():

        def read(run: Run, shift: Shift = shift) -> RunNumbers:
            result = shifted(run.path, places.data, shift)
            found = {c.key: result.metrics[c.metric] for c in columns if c.metric in result.metrics}
            return RunNumbers(found, int(result.metrics["diverged"]), result.trajectories)

        rows = [
            read_row(row, columns, places, read, paper_of(group, row, f"{group.table}_{shift.name}"))
            for row in group.rows
        ]
        found = group_of(group, rows)
        yield found.model_copy(update={"title": f"{group.title}: {shift.title}", "shift": shift.name})
