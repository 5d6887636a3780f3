"""A trained run becomes metrics, error arrays and the rollout that the page shows; kept checkpoints, a landscape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, computed_field

from hero.data.windows import Trajectories
from hero.errors import HeroError
from hero.evaluation.measure import NO_METRICS, Trained
from hero.files import file_hash
from hero.method import metrics
from hero.method.distance import EPS
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.records import Record
from hero.runs.checkpoint import kept_path, kept_steps, load_kept
from hero.runs.folder import Run, versions
from hero.runs.records import Baseline, Errors, Metrics, TrainingCost
from hero.runs.rollouts import FILE, FIRST_FILE, write_rollout


def evaluate(run: Path, data_dir: Path, more: Mapping[str, metrics.Metric] = NO_METRICS) -> Metrics:
    """Measure the best weights of a run on validation and test data; writes metrics, errors and rollout.

    `more` are metrics by name that are measured in addition to the registered ones.
    """
    trained = Trained(run, data_dir, baselines=True)
    config, norm = trained.config, trained.norm
    weights = run / "model.safetensors"
    hashed = file_hash(weights) if weights.is_file() else None  # before reading: weights replaced since then differ
    data = trained.data("test")
    val = trained.measure(trained.data("val"), more=more, baselines=False, title="validation rollouts")
    test = trained.measure(data, more=more, title="test rollouts")

    idle, measure = test.idle_of, config.scoring.measure
    errors = Errors(test.arrays, val.score.numpy(), idle(measure), measure, idle(metrics.channel_vrmse.name))
    errors.write(run / "errors.npz")
    typical = metrics.median_trajectory(errors.score, config.scoring.steps)
    write_rollouts(trained, data, {FILE: typical, FIRST_FILE: 0})
    names = config.source.channel_names
    found = Metrics(
        run=run.name,
        **config.identity(),
        training=training_cost(trained.run),
        versions=versions(),
        parameters=count_parameters(trained.model),
        best_step=trained.run.best_step,
        weights=hashed,
        trajectories=len(data),
        val=val.summary,
        test=test.summary,
        channels=test.channels(names),
        left_out=tuple(name for name, weight in zip(names, norm.importance, strict=False) if weight == 0),
        baselines={
            name: Baseline(test=numbers, channels=test.channels(names, name))
            for name, numbers in test.baselines.items()
        },
    )
    found.write(run / "metrics.json")  # last: its presence says that the evaluation is complete
    return found


@torch.no_grad()
def write_rollouts(trained: Trained, test: Trajectories, shown: Mapping[str, int]) -> None:
    """Store the rollouts of some trajectories, given by the name of the file, made together; NaN at masked points."""
    examples = [test[number : number + 1] for number in shown.values()]
    together = Trajectories(
        torch.cat([example.states for example in examples]),
        torch.cat([example.mu for example in examples if example.mu is not None]) if test.is_conditioned else None,
    )
    history, hidden = trained.history, trained.norm.hidden
    start, steps = together.first(history, trained.device), together.shape[1] - history
    predictions = rollout(trained.step, start, steps)
    for (file, number), states, prediction in zip(shown.items(), together.states, predictions, strict=True):
        initial, truth, made = (hidden(part.cpu()) for part in (states[history - 1], states[history:], prediction))
        write_rollout(trained.run.path, initial, truth, made, number, file)


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
    trained, steps = Trained(run, data_dir), kept_steps(run)
    if not steps:
        raise HeroError(
            f"run {run.name} kept no checkpoints; train it again with train.keep_every=N, "
            f"for example N={max(1, trained.config.train.steps // 5)}."
        )
    test = trained.data("test")
    rows: list[tuple[float, ...]] = []
    for step in (None, *steps):
        if step is not None:
            load_kept(kept_path(run, step), trained.model)
        title = "final model" if step is None else f"checkpoint {step}"
        errors = trained.measure(test, trained.fresh_step(), title=title).score
        # E_s(t) = (1/N) Σ_i ‖û_t - u_t‖₂ / (‖u_t‖₂ + ε): infinite from where any of the rollouts diverges
        rows.append(tuple(errors.mean(dim=0).tolist()))
    final, *kept = rows
    result = Landscape(
        run=run.name,
        final_step=trained.run.best_step,
        steps=tuple(steps),
        errors=tuple(kept),
        final_errors=final,
    )
    result.write(run / "landscape.json")
    return result
