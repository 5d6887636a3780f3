"""A finished run under a shift of its task: other coefficients or another grid, without further training.

All runs of a task start a shift from the same states. Where only the grid changes these are the run's own test states,
resampled: the same functions, warmed up on the grid of the training. Otherwise they are the states of the shifted task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hero.data import load_split
from hero.data.tasks.solver import SOLVER_VERSION
from hero.data.trajectories import Trajectories
from hero.errors import HeroError
from hero.evaluation.elsewhere import changed_task, check_grid
from hero.evaluation.measure import Trained
from hero.files import file_hash
from hero.runs.folder import Run
from hero.runs.records import RunIdentity
from hero.study.collect import Places, PlannedGroup, RunNumbers, group_of, paper_of, read_row
from hero.study.records import Group, MetricColumn


@dataclass(frozen=True)
class Shift:
    """Settings of a task that differ from the training; files are called by the name."""

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


class ShiftedMetrics(RunIdentity):
    """`<run>/ood/<shift>.json`: a run measured under a shift; `test` has the numbers of `metrics.summarise`."""

    shift: str
    title: str
    settings: dict[str, Any]
    trajectories: int
    test: dict[str, float]
    identity: dict[str, Any]  # hash of weights and data: the result is measured again when it changes


def shifted(run: Path, data_dir: Path, shift: Shift) -> ShiftedMetrics:
    """Measure the best checkpoint of a run on the test split of the shifted task: as many, as long, of the same seed.

    The result is kept in `<run>/ood/<shift>.json`, and the errors per trajectory and step in `.npz` next to it, until
    the checkpoint changes.
    """
    trained, path = Trained(run, data_dir), run / "ood" / f"{shift.name}.json"
    config = trained.config
    task, split = changed_task(config, shift.settings, data_dir, trained.device), config.split("test")
    identity = {
        "model": file_hash(Run(run).weights_file),
        "run": config.run_id(),
        "task": task.settings(),
        "split": asdict(split),
        "solver": SOLVER_VERSION,
    }
    with suppress(HeroError):  # missing or damaged
        known = ShiftedMetrics.read(path)
        if known.identity == identity:
            return known
    check_grid(trained.run, task.source(), shift.name)
    truth = Trajectories.of(load_split(task, split, data_dir, trained.device))
    measured = trained.measure(truth, title=f"{run.name}, {shift.title}")
    result = ShiftedMetrics(
        run=run.name,
        **config.identity(),
        shift=shift.name,
        title=shift.title,
        settings=dict(shift.settings),
        trajectories=len(truth),
        test=measured.summary,
        identity=identity,
    )
    measured.write(path, result)
    return result


def read_shifts(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """A group for each of the paper's shifts; a run that was not measured under it yet is measured now."""
    for shift in SHIFTS.values():

        def read(run: Run, shift: Shift = shift) -> RunNumbers:
            result = shifted(run.path, places.data, shift)
            found = {c.key: result.test[c.metric] for c in columns if c.metric in result.test}
            return RunNumbers(found, int(result.test["diverged"]), result.trajectories)

        rows = [
            read_row(row, columns, places, read, paper_of(group, row, f"{group.table}_{shift.name}"))
            for row in group.rows
        ]
        found = group_of(group, rows)
        yield found.model_copy(update={"title": f"{group.title}: {shift.title}", "shift": shift.name})
