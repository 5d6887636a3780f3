"""A trained run becomes metric rows, error arrays and the rollout that the page shows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hero.console import progress_bar
from hero.data import load_split, split_path
from hero.data.windows import Context
from hero.errors import HeroError
from hero.files import write_atomic, write_json
from hero.method import metrics
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.runs.checkpoint import load_run, load_weights
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, read_log, read_metrics, versions
from hero.runs.rollouts import write_rollout


def load_data(config: RunConfig, name: str, data_dir: Path, device: torch.device | str) -> Tensor:
    """The split `train`, `val` or `test` of a run, on the CPU; HeroError if it holds NaN or infinity."""
    task, split = config.make_task(), config.split(name)
    data = load_split(task, split, data_dir, device)
    bad = ~torch.isfinite(data).flatten(2).all(dim=2)
    if bool(bad.any()):
        trajectory, step = (int(i) for i in bad.nonzero()[0])
        raise HeroError(
            f"{split_path(task, split, data_dir)} has NaN or infinite values (first in trajectory {trajectory}, "
            f"step {step}); delete it and repeat, so that it is made again."
        )
    return data


def evaluate(run: Path, data_dir: Path) -> dict[str, Any]:
    """Measure the best checkpoint of a run on validation and test data; writes metrics, errors and rollout."""
    config = load_run(run)
    device = choose_device(config.train.device)
    model = config.build_operator()
    about = load_weights(run / "model.safetensors", model)
    step = config.make_strategy().stepper(model.to(device).eval())

    val = load_data(config, "val", data_dir, device)
    test = load_data(config, "test", data_dir, device)
    history = config.train.history
    with progress_bar("evaluating", 2) as advance:
        val_errors = metrics.rollout_errors(step, val, config.data.val_steps + 1 - history, device, history)
        advance()
        test_errors = metrics.rollout_errors(step, test, config.data.test_steps + 1 - history, device, history)
        advance()

    rows = describe_run(run, config) | {
        "parameters": count_parameters(model),
        "best_step": about["step"],
        "trajectories": len(test),
        "val": metrics.summarise(val_errors),
        "test": metrics.summarise(test_errors),
    }
    arrays = {name: values.numpy() for name, values in test_errors.items()} | {"val_nrmse": val_errors["nrmse"].numpy()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomic(run / "errors.npz", buffer.getvalue())
    typical = metrics.median_trajectory(arrays["nrmse"])
    drawn = test[typical]
    with torch.no_grad():
        prediction = rollout(step, Context(drawn[None, :history].to(device)), len(drawn) - history)[0]
    write_rollout(run, drawn[history - 1], drawn[history:], prediction, typical)
    write_json(run / "metrics.json", rows)  # last: its presence says that the evaluation is complete
    return rows


def final_metrics(run: Path) -> dict[str, Any] | None:
    """The stored metrics of a run, unless they were measured before the training ended."""
    metrics = read_metrics(run)
    steps = load_run(run).train.steps
    return metrics if metrics and metrics["training"]["steps"] == steps else None


def describe_run(run: Path, config: RunConfig) -> dict[str, Any]:
    """Identity and cost of a run, from its log."""
    finished = [record for record in read_log(run) if "seconds" in record]
    if not finished:
        raise HeroError(f"run {run.name} has no log; train it first.")
    last = finished[-1]
    return {
        "run": run.name,
        **config.identity(),
        "training": {
            "steps": last["step"],
            "seconds": last["seconds"],
            "steps_per_second": last["step"] / last["seconds"],
            "compiled": last["compiled"],
            "device": last["device"],
            "threads": torch.get_num_threads(),
        },
        "versions": versions(),
    }
