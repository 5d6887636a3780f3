"""A finished run measured on another split, on other files, or on its task with other settings.

    evaluate_on(run, Path("data"), {"task.resolution": 128})
    evaluate_on(run, Path("data"), {"data.path": "other.h5"}, split="val")

Results are kept in `<run>/evaluations/`; the run's own numbers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from hero.config import Facts
from hero.config.settings import flagged
from hero.console import progress_bar
from hero.data import DataSettings, Files, FileSettings, Source, Split, get_task, load_trajectories
from hero.errors import HeroError
from hero.evaluation.foreign import check_split
from hero.evaluation.shifts import Shift, check_grid, shifted_task
from hero.method.metrics import HORIZON, baseline_errors, rollout_errors, summarise, with_skill
from hero.method.rollout import counted
from hero.runs.config import RunConfig, by_section
from hero.runs.folder import Run, choose_device
from hero.runs.records import RunIdentity, write_arrays
from hero.strategies.base import geometry_of


class OtherMetrics(RunIdentity):
    """`<run>/evaluations/<name>.json`."""

    remedy: ClassVar[str] = "`hero evaluate` with the same settings writes it again."

    name: str
    split: str
    settings: dict[str, Any]
    """Those that differ from the run."""
    data: str
    trajectories: int
    steps: int
    horizon: int
    metrics: dict[str, float]
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)


def common_points(own: Tensor | None, other: Tensor | None) -> Tensor | None:
    """The mask of points where a run predicts and other data have values; on another grid, the mask of the data."""
    if own is None or (other is not None and own.shape != other.shape):
        return other
    return own if other is None else own & other.cpu()


def evaluate_on(
    run: Path, data_dir: Path, settings: Mapping[str, Any] | None = None, split: str = "test"
) -> tuple[OtherMetrics, dict[str, Tensor]]:
    """Measure the best weights of a run on a split of its data with `settings` of the sections task and data changed.

    Returns the numbers and the values (trajectory, step) of each measure; writes both, as .json and .npz. Other files
    keep the fields, stride, crop and conditioning of the run; another grid needs a backbone that takes any.
    """
    check_split(split)
    opened, values = Run(run), dict(settings or {})
    config = opened.config
    device, history = choose_device(config.train.device), config.train.history
    name = name_of(values, split)
    source, part = other_source(config, values, split, data_dir, device)
    own = config.source
    check_channels(own, source, run.name)
    model = opened.operator("cpu")
    check_grid(model, config, source, Shift(name, name, values))
    truth = load_trajectories(source, part, data_dir, "cpu" if device.type == "mps" else device)
    steps = truth.shape[1] - history
    if steps < 1:
        raise HeroError(f"{source.title} has {truth.shape[1]} states, too few after {history} given; use more.")
    step, norm = opened.stepper(model.to(device)), opened.norm(data_dir, baselines=True)
    norm.mask, norm.weights = common_points(norm.mask, truth.mask), geometry_of(source, None).weights
    with progress_bar(f"{run.name}, {name}", len(truth) * steps) as advance:
        errors = rollout_errors(counted(step, advance), truth, steps, device, history, norm=norm)
        idle = baseline_errors(truth, steps, history, norm)
        errors = with_skill(errors, idle)
    if source.files and "data.path" in values:
        name += f"-{source.files.settings.fingerprint[:6]}"  # files of one name may differ
    scoring = replace(config.scoring, steps=min(HORIZON, steps))
    found = OtherMetrics(
        run=run.name,
        **config.identity(),
        name=name,
        split=split,
        settings=values,
        data=source.title,
        trajectories=len(truth),
        steps=steps,
        horizon=scoring.steps,
        metrics=summarise(errors, scoring),
        baselines={name: summarise(numbers, scoring) for name, numbers in idle.items()},
    )
    path = run / "evaluations" / f"{name}.json"
    write_arrays(path.with_suffix(".npz"), {measure: rows.numpy() for measure, rows in errors.items()})
    found.write(path)  # last: its presence says that the measurement is complete
    return found, errors


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
        files = other_files(config.data, data) if data else config.data
        return Files(files).source() if isinstance(files, FileSettings) else own, files.split(split)
    sizes = config.data.plain() if isinstance(config.data, DataSettings) else {}
    part = DataSettings.from_values("data", {**sizes, **data}, Facts()).split(split)
    if own.task and task.get("name", own.name) == own.name:
        changed = {key: value for key, value in task.items() if key != "name"}
        return shifted_task(config, Shift.of(changed), data_dir, device).source(), part
    if "name" not in task:
        raise HeroError(f"{own.title} is data from files and has no task.{next(iter(task))}; set task.name as well.")
    return get_task(task["name"], {key: value for key, value in task.items() if key != "name"}).source(), part


def other_files(own: DataSettings | FileSettings, data: Mapping[str, Any]) -> FileSettings:
    """Files with the choices of the run unless they are set; whatever a file says itself is found in it."""
    kept: dict[str, Any] = {}
    if isinstance(own, FileSettings):
        kept = {name: getattr(own, name) for name in (*flagged(FileSettings, "carried"), "path")}
        kept["condition"] = own.condition or ("none",)
        if "fields" in data:
            del kept["channels"]
    return FileSettings.from_values("data", {**kept, **data}, Facts())


def check_channels(own: Source, other: Source, run: str) -> None:
    """Refuse data with other channels than the run was trained on."""
    for what, trained, found in (
        ("channels", own.channel_names, other.channel_names),
        ("conditioning", own.conditioning, other.conditioning),
    ):
        if len(trained) != len(found):
            raise HeroError(
                f"{other.title} has the {what} {', '.join(found) or 'none'} and run {run} needs "
                f"{', '.join(trained) or 'none'}; choose them with data.fields and data.condition."
            )
