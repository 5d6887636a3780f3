"""A finished run under a shift of its task: other coefficients or another grid, without further training.

All runs of a task start a shift from the same states. Where only the grid changes these are the run's own test states,
resampled: the same functions, warmed up on the grid of the training. Otherwise they are the states of the shifted task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hero.config import parse_override
from hero.console import progress_bar
from hero.data import Source, Split, Task, load_split
from hero.data.tasks.solver import SOLVER_VERSION
from hero.errors import HeroError
from hero.files import file_hash
from hero.method.metrics import Scoring, rollout_errors, summarise
from hero.method.rollout import counted
from hero.models.user import check_shapes
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device
from hero.runs.records import UNREADABLE, RunIdentity, read_arrays, write_arrays

OF_THE_GRID = ("resolution", "substeps")
"""Settings of the discretisation: they decide how finely a task is solved, not which task it is."""


@dataclass(frozen=True)
class Shift:
    """Settings of a task that differ from the training; files are called by the name."""

    name: str
    title: str
    settings: Mapping[str, Any] = field(hash=False)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Shift:
        """A shift from KEY=VALUE settings such as `viscosity=1e-4`; `task.viscosity=1e-4` is the same."""
        return cls.of({key.removeprefix("task."): value for key, value in map(parse_override, texts)})

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Shift:
        """A shift that is called by its settings."""
        title = ", ".join(f"{key} = {value}" for key, value in settings.items())
        return cls(re.sub(r"[^\w.+-]+", "_", title).strip("_") or "none", title or "no shift", settings)


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


@dataclass(frozen=True, kw_only=True)
class ResampledTask(Task):
    """A task on another grid than `start`, whose trajectories begin at the states where `start` begins."""

    start: Task
    split: Split
    data_dir: Path
    device: torch.device | str

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "start": self.start.settings()}

    def initial_states(self, count: int, seed: int) -> Tensor:
        """The first states of `start`, after its warm-up."""
        split = replace(self.split, trajectories=count, seed=seed)
        states = load_split(self.start, split, self.data_dir, self.device)[:, 0]
        return resample(states.double(), self.resolution, self.dims)


class ShiftedMetrics(RunIdentity):
    """`<run>/ood/<shift>.json`: a run measured under a shift; `test` has the numbers of `metrics.summarise`."""

    shift: str
    title: str
    settings: dict[str, Any]
    trajectories: int
    test: dict[str, float]
    identity: dict[str, Any]
    """Of the weights and the data: the result is measured again when this changes."""


def shifted(run: Path, data_dir: Path, shift: Shift) -> ShiftedMetrics:
    """Measure the best checkpoint of a run on the test split of the shifted task: as many, as long, of the same seed.

    The result is kept in `<run>/ood/<shift>.json`, and the errors per trajectory and step in `.npz` next to it, until
    the checkpoint changes.
    """
    opened = Run(run)
    config = opened.config
    device, history = choose_device(config.train.device), config.train.history
    task, split = shifted_task(config, shift, data_dir, device), config.split("test")
    model = opened.operator("cpu")
    identity = {
        "model": file_hash(run / "model.safetensors"),
        "run": config.run_id(),
        "task": task.settings(),
        "split": asdict(split),
        "solver": SOLVER_VERSION,
    }
    path = run / "ood" / f"{shift.name}.json"
    known = read_result(path, identity, config.scoring)
    if known is not None:
        return known

    check_grid(model, config, task.source(), shift)
    step = opened.stepper(model.to(device))
    truth = load_split(task, split, data_dir, device)
    steps = split.steps + 1 - history
    with progress_bar(f"{run.name}, {shift.title}", len(truth) * steps) as advance:
        errors = rollout_errors(counted(step, advance), truth, steps, device, history, norm=opened.norm(data_dir))
    result = ShiftedMetrics(
        run=run.name,
        **config.identity(),
        shift=shift.name,
        title=shift.title,
        settings=dict(shift.settings),
        trajectories=len(truth),
        test=summarise(errors, config.scoring),
        identity=identity,
    )
    write_arrays(path.with_suffix(".npz"), {name: values.numpy() for name, values in errors.items()})
    result.write(path)  # last: its presence says that the measurement is complete
    return result


def shifted_task(config: RunConfig, shift: Shift, data_dir: Path, device: torch.device | str = "cpu") -> Task:
    """The run's task with the shift; on another grid its trajectories begin at the same functions.

    A chaotic warm-up on another grid, or with another time step, would end somewhere else: states are drawn and warmed
    up on the grid of the run, and resampled.
    """
    own = config.source.task
    if own is None:
        raise HeroError(
            f"a shift needs a solver and {config.source.title} has none; evaluate another file with `hero evaluate`."
        )
    if own.ranges:
        raise HeroError(
            f"a shift changes one task, and {own.title} is many; train on single coefficients to measure a shift."
        )
    task = own.with_settings(shift.settings)
    if task.resolution == own.resolution:
        return task
    start = own.with_settings({name: value for name, value in shift.settings.items() if name not in OF_THE_GRID})
    values = {item.name: getattr(task, item.name) for item in fields(task)} | {"warmup": 0}
    return ResampledTask(**values, start=start, split=config.split("test"), data_dir=data_dir, device=device)


def resample(u: Tensor, resolution: int, dims: int) -> Tensor:
    """The trigonometric polynomial through `u` (.., *space) on a grid of `resolution` points per axis.

    On a coarser grid the modes that it cannot carry are left out.
    """
    for axis in range(-dims, 0):
        points = u.shape[axis]
        modes = torch.fft.rfft(u, dim=axis)
        if resolution > points:
            modes.select(axis, points // 2).mul_(0.5)  # the Nyquist mode stands for two modes of the finer grid
        u = torch.fft.irfft(modes, n=resolution, dim=axis) * (resolution / points)
    return u


def check_grid(model: nn.Module, config: RunConfig, source: Source, shift: Shift) -> None:
    """Refuse a model that holds on to the grid of its training."""
    own, train, backbone = config.source, config.train, config.backbone.name
    if source.space == own.space:
        return
    try:
        inputs = train.history * source.channels + len(source.conditioning)
        check_shapes(model, backbone, inputs, train.bundle * source.channels, source.space)
    except HeroError as error:
        trained, asked = (" x ".join(map(str, t.space)) for t in (own, source))
        raise HeroError(
            f"backbone {backbone}, trained on {trained} points, cannot be evaluated on {asked} ({error}); "
            f"leave the shift {shift.name!r} out for this run."
        ) from error


def read_result(path: Path, identity: Mapping[str, Any], scoring: Scoring) -> ShiftedMetrics | None:
    """The stored result of `shifted`, or None if it is missing, damaged, or of another checkpoint or task."""
    try:
        result = ShiftedMetrics.read(path)
        if result.identity != identity:
            return None
        arrays = read_arrays(path.with_suffix(".npz"))
        test = summarise({name: torch.from_numpy(values) for name, values in arrays.items()}, scoring)
    except (*UNREADABLE, LookupError, TypeError, HeroError):
        return None
    return result.model_copy(update={"test": test})
