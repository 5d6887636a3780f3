"""A trained run becomes metrics, error arrays and the rollout that the page shows; kept checkpoints, a landscape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, computed_field

from hero.console import progress_bar
from hero.data.windows import Trajectories
from hero.errors import HeroError
from hero.files import file_hash
from hero.method import metrics
from hero.method.distance import EPS
from hero.method.norm import Norm
from hero.method.rollout import Stepper, rollout
from hero.models import count_parameters
from hero.records import Record
from hero.runs.checkpoint import kept_path, kept_steps, load_kept
from hero.runs.folder import Run, choose_device, load_data, versions
from hero.runs.records import Baseline, Errors, Metrics, TrainingCost
from hero.runs.rollouts import FILE, FIRST_FILE, write_rollout


def evaluate(run: Path, data_dir: Path, more: Mapping[str, metrics.Metric] = MappingProxyType({})) -> Metrics:
    """Measure the best weights of a run on validation and test data; writes metrics, errors and rollout.

    `more` are metrics by name that are measured in addition to the registered ones.
    """
    opened = Run(run)
    config = opened.config
    device = choose_device(config.train.device)
    weights = run / "model.safetensors"
    measured = file_hash(weights) if weights.is_file() else None  # before reading: weights replaced since then differ
    model = opened.operator(device)
    step, norm = opened.stepper(model), opened.norm(data_dir, baselines=True)
    val = load_data(config, "val", data_dir, device)
    test = load_data(config, "test", data_dir, device)
    history, added, scoring = config.train.history, tuple(more.values()), config.scoring
    steps, names = test.shape[1] - history, config.source.channel_names
    with progress_bar("evaluating", 3) as advance:
        val_errors = metrics.rollout_errors(step, val, val.shape[1] - history, device, history, added, norm)
        advance()
        test_errors = metrics.rollout_errors(step, test, steps, device, history, added, norm)
        advance()
        idle = metrics.baseline_errors(test, steps, history, norm)
        test_errors = metrics.with_skill(test_errors, idle)
        advance()

    arrays = {name: values.numpy() for name, values in test_errors.items()}
    scores = {name: errors[scoring.measure].numpy() for name, errors in idle.items()}
    name = metrics.channel_vrmse.name
    single = {baseline: errors[name].numpy() for baseline, errors in idle.items() if name in errors}
    errors = Errors(arrays, val_errors[scoring.measure].numpy(), scores, scoring.measure, single)
    errors.write(run / "errors.npz")
    typical = metrics.median_trajectory(errors.score, scoring.steps)
    write_rollouts(run, step, test, norm, history, device, {FILE: typical, FIRST_FILE: 0})
    found = Metrics(
        run=run.name,
        **config.identity(),
        training=training_cost(opened),
        versions=versions(),
        parameters=count_parameters(model),
        best_step=opened.best_step,
        weights=measured,
        trajectories=len(test),
        val=metrics.summarise(val_errors, scoring) | metrics.evaluated(more, val_errors),
        test=metrics.summarise(test_errors, scoring) | metrics.evaluated(more, test_errors),
        channels=metrics.by_channel(test_errors, names, scoring),
        left_out=tuple(name for name, weight in zip(names, norm.importance, strict=False) if weight == 0),
        baselines={
            name: Baseline(test=metrics.summarise(found, scoring), channels=metrics.by_channel(found, names, scoring))
            for name, found in idle.items()
        },
    )
    found.write(run / "metrics.json")  # last: its presence says that the evaluation is complete
    return found


@torch.no_grad()
def write_rollouts(
    run: Path,
    step: Stepper,
    test: Trajectories,
    norm: Norm,
    history: int,
    device: torch.device,
    shown: Mapping[str, int],
) -> None:
    """Store the rollouts of some trajectories, given by the name of the file, made together; NaN at masked points."""
    examples = [test[number : number + 1] for number in shown.values()]
    together = Trajectories(
        torch.cat([example.states for example in examples]),
        torch.cat([example.mu for example in examples if example.mu is not None]) if test.is_conditioned else None,
    )
    predictions = rollout(step, together.first(history, device), together.shape[1] - history)
    for (file, number), states, prediction in zip(shown.items(), together.states, predictions, strict=True):
        initial, truth, made = (norm.hidden(part.cpu()) for part in (states[history - 1], states[history:], prediction))
        write_rollout(run, initial, truth, made, number, file)


def training_cost(run: Run) -> TrainingCost:
    """How a run was trained, from its log; updates after the last checkpoint do not count, since they are repeated."""
    log = run.log
    if not log.training:
        raise HeroError(f"run {run.name} has no log; train it first.")
    last, resumes_at = log.training[-1], run.resumes_at
    done = last.step if not log.stopped_early else log.steps
    return TrainingCost(
        steps=done if resumes_at is None else min(done, resumes_at),
        seconds=last.seconds,
        steps_per_second=last.step / last.seconds,
        compiled=last.compiled,
        device=last.device,
        threads=torch.get_num_threads(),
        stopped_early=log.stopped_early,
    )


def error_ratio(errors: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Δ_s(t) = log10((E_s(t) + ε) / (E_final(t) + ε)), from mean errors (.., steps); NaN where both have diverged.

    +∞ where the checkpoint has diverged and the final model has not, -∞ the other way round.
    """
    with np.errstate(invalid="ignore"):  # ∞ - ∞ is NaN on purpose
        return np.log10(errors + EPS) - np.log10(final + EPS)


class Landscape(Record):
    """Mean test errors E_s(t) of the kept checkpoints and of the final model, per rollout step."""

    remedy: ClassVar[str] = "`hero landscape` writes it again."

    run: str
    final_step: int
    steps: tuple[int, ...] = Field(min_length=1)
    """Updates after which the checkpoints were kept."""
    errors: tuple[tuple[float, ...], ...]
    """One row per kept checkpoint."""
    final_errors: tuple[float, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def log10_ratio(self) -> list[list[float]]:
        """Δ_s(t), one row per kept checkpoint."""
        ratio: list[list[float]] = error_ratio(np.array(self.errors), np.array(self.final_errors)).tolist()
        return ratio


def landscape(run: Path, data_dir: Path) -> Landscape:
    """Measure all kept checkpoints and the final model on the test split; writes `landscape.json`.

    The paper's second figure. "Final" means the weights that are deployed, the best by validation.
    """
    opened = Run(run)
    config, steps = opened.config, kept_steps(run)
    if not steps:
        raise HeroError(
            f"run {run.name} kept no checkpoints; train it again with train.keep_every=N, "
            f"for example N={max(1, config.train.steps // 5)}."
        )
    device, history = choose_device(config.train.device), config.train.history
    model, norm = opened.operator(device), opened.norm(data_dir)
    test = load_data(config, "test", data_dir, device)
    rows: list[tuple[float, ...]] = []
    with progress_bar("evaluating", len(steps) + 1) as advance:
        for step in (None, *steps):
            if step is not None:
                load_kept(kept_path(run, step), model)
            steppers, left = opened.stepper(model), test.shape[1] - history
            errors = metrics.rollout_errors(steppers, test, left, device, history, norm=norm)[config.scoring.measure]
            # E_s(t) = (1/N) Σ_i ‖û_t - u_t‖₂ / (‖u_t‖₂ + ε): infinite from where any of the rollouts diverges
            rows.append(tuple(errors.mean(dim=0).tolist()))
            advance()
    final, *kept = rows
    result = Landscape(
        run=run.name,
        final_step=opened.best_step,
        steps=tuple(steps),
        errors=tuple(kept),
        final_errors=final,
    )
    result.write(run / "landscape.json")
    return result
