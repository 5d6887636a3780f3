"""A finished run measured on another split, on other files, or on its task with other settings.

    evaluate_on(run, Path("data"), {"task.resolution": 128})
    evaluate_on(run, Path("data"), {"data.path": "other.h5"}, split="val")

Results are kept in `<run>/evaluations/`; the run's own numbers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from hero.config import Facts
from hero.config.settings import flagged
from hero.data import DataSettings, FileSettings, Source, Split, Task, get_task, load_split, load_trajectories
from hero.errors import HeroError
from hero.evaluation.measure import Trained, check_split
from hero.files import file_hash
from hero.method.domain import geometry_of
from hero.method.measures import HORIZON
from hero.models.build import check_shapes
from hero.runs.config import RunConfig
from hero.runs.folder import Run, with_float64
from hero.runs.records import RunIdentity
from hero.runs.sections import by_section

OF_THE_GRID = ("resolution", "substeps")  # how finely a task is solved, not which task it is


class OtherMetrics(RunIdentity):
    """`<run>/evaluations/<name>.json`."""

    remedy: ClassVar[str] = "`hero evaluate` with the same settings writes it again."

    name: str
    split: str
    settings: dict[str, Any]  # settings that differ from those of the run
    data: str
    trajectories: int
    steps: int
    horizon: int
    metrics: dict[str, float]
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)
    weights: str = ""  # SHA-256 of the weights that were measured


def evaluate_on(
    run: Path, data_dir: Path, settings: Mapping[str, Any] | None = None, split: str = "test"
) -> tuple[OtherMetrics, dict[str, Tensor]]:
    """Measure the best weights of a run on a split of its data with `settings` of the sections task and data changed.

    Returns the numbers and the values (trajectory, step) of each measure; writes both, as .json and .npz. Other files
    keep the fields, stride, crop and conditioning of the run; another grid needs a backbone that takes any.
    """
    check_split(split)
    values = dict(settings or {})
    trained, name = Trained(run, data_dir, baselines=True), name_of(values, split)
    config, norm, history = trained.config, trained.norm, trained.history
    source, part = other_source(config, values, split, data_dir, trained.device)
    check_channels(config.source, source, run.name)
    check_grid(trained.run, source, name)
    truth = load_trajectories(source, part, data_dir, with_float64(trained.device))
    steps = truth.shape[1] - history
    if steps < 1:
        raise HeroError(f"{source.title} has {truth.shape[1]} states, too few after {history} given; use more.")
    masks = [mask.cpu() for mask in (norm.mask, truth.mask) if mask is not None and mask.shape == truth.shape[2:]]
    norm.mask, norm.weights = reduce(torch.logical_and, masks) if masks else None, geometry_of(source, None).weights
    scoring = replace(config.scoring, steps=min(HORIZON, steps))
    measured = trained.measure(truth, scoring=scoring, title=f"{run.name}, {name}")
    if source.files and "data.path" in values:
        name += f"-{source.files.fingerprint[:6]}"  # files of one name may differ
    found = OtherMetrics(
        run=run.name,
        **config.identity(),
        name=name,
        split=split,
        settings=values,
        data=source.title,
        weights=file_hash(trained.run.weights_file),
        **measured.numbers,
    )
    measured.write(run / "evaluations" / f"{name}.json", found)
    return found, measured.errors


def name_of(values: Mapping[str, Any], split: str) -> str:
    """The name of the file: every setting that differs, a path by its stem, and the split unless it is test."""
    words = [Path(value).stem if key == "data.path" else f"{key}_{value}" for key, value in values.items()]
    words += [split] if split != "test" or not words else []
    return re.sub(r"[^\w.+-]+", "_", "-".join(words)).strip("_.") or "data"


def other_source(
    config: RunConfig, values: Mapping[str, Any], split: str, data_dir: Path, device: Any
) -> tuple[Source, Split]:
    """The data of the run with `values` changed, and its split."""
    for key in values:
        if not key.startswith(("task.", "data.")):
            raise HeroError(f"{key} belongs to the training of the run; set task.* or data.*, or train another run.")
    sections, own = by_section(values), config.source
    task, data = sections.get("task", {}), sections.get("data", {})
    if "path" in data or (own.files and not task):
        if task:
            raise HeroError(f"task.{next(iter(task))} is for benchmarks; data from files have no coefficients.")
        files = config.data
        if data:  # files with the choices of the run unless they are set; whatever a file says itself is found in it
            kept: dict[str, Any] = {}
            if isinstance(files, FileSettings):
                kept = {name: getattr(files, name) for name in (*flagged(FileSettings, "carried"), "path")}
                kept["condition"] = files.condition or ("none",)
                if "fields" in data:
                    del kept["channels"]
            files = FileSettings.from_values("data", {**kept, **data}, Facts())
        return files.source() if isinstance(files, FileSettings) else own, files.split(split)
    sizes = config.data.model_dump() if isinstance(config.data, DataSettings) else {}
    part = DataSettings.from_values("data", {**sizes, **data}, Facts()).split(split)
    changed = {key: value for key, value in task.items() if key != "name"}
    if own.task and task.get("name", own.name) == own.name:
        return changed_task(config, changed, data_dir, device).source(), part
    if "name" not in task:
        raise HeroError(f"{own.title} is data from files and has no task.{next(iter(task))}; set task.name as well.")
    return get_task(task["name"], changed).source(), part


def check_channels(own: Source, other: Source, run: str) -> None:
    """Refuse data with other channels than the run was trained on."""
    for what, trained, found in (
        ("channels", own.channel_names, other.channel_names),
        ("conditioning", own.conditioning, other.conditioning),
        ("forcing", own.forcing, other.forcing),
    ):
        if len(trained) != len(found):
            raise HeroError(
                f"{other.title} has the {what} {', '.join(found) or 'none'} and run {run} needs "
                f"{', '.join(trained) or 'none'}; choose them with data.fields, data.condition and data.forcing."
            )


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


def changed_task(
    config: RunConfig, settings: Mapping[str, Any], data_dir: Path, device: torch.device | str = "cpu"
) -> Task:
    """The run's task with other settings; on another grid its trajectories begin at the same functions.

    These are warmed up on the grid of the run and resampled: a chaotic warm-up on another one ends somewhere else.
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
    task = own.with_settings(settings)
    if task.resolution == own.resolution:
        return task
    start = own.with_settings({name: value for name, value in settings.items() if name not in OF_THE_GRID})
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


def check_grid(run: Run, source: Source, name: str) -> None:
    """Refuse a run whose operator holds on to the grid of its training; `name` says what it is evaluated on."""
    own, train, backbone = run.config.source, run.config.train, run.config.backbone.name
    if source.space == own.space:
        return
    try:
        inputs = train.history * source.channels + len(source.known)
        check_shapes(run.operator("cpu"), backbone, inputs, train.bundle * source.channels, source.space)
    except HeroError as error:
        trained, asked = (" x ".join(map(str, t.space)) for t in (own, source))
        raise HeroError(
            f"backbone {backbone}, trained on {trained} points, cannot be evaluated on {asked} ({error}); "
            f"leave the shift {name!r} out for this run."
        ) from error
