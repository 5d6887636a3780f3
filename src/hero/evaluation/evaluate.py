"""A trained run becomes metrics, error arrays and the rollout that the page shows."""

from __future__ import annotations

from pathlib import Path

import torch

from hero.console import progress_bar
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method import metrics
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.runs.folder import Run, choose_device, load_data, versions
from hero.runs.records import Errors, Metrics, TrainingCost
from hero.runs.rollouts import write_rollout


def evaluate(run: Path, data_dir: Path) -> Metrics:
    """Measure the best weights of a run on validation and test data; writes metrics, errors and rollout."""
    opened = Run(run)
    config = opened.config
    device = choose_device(config.train.device)
    model = opened.operator(device)
    step = opened.stepper(model)
    val = load_data(config, "val", data_dir, device)
    test = load_data(config, "test", data_dir, device)
    history = config.train.history
    with progress_bar("evaluating", 2) as advance:
        val_errors = metrics.rollout_errors(step, val, config.data.val_steps + 1 - history, device, history)
        advance()
        test_errors = metrics.rollout_errors(step, test, config.data.test_steps + 1 - history, device, history)
        advance()

    arrays = {name: values.numpy() for name, values in test_errors.items()}
    Errors(arrays, val_errors["nrmse"].numpy()).write(run / "errors.npz")
    typical = metrics.median_trajectory(arrays["nrmse"])
    shown = test[typical]
    with torch.no_grad():
        prediction = rollout(step, Context(shown[None, :history].to(device)), len(shown) - history)[0]
    write_rollout(run, shown[history - 1], shown[history:], prediction, typical)
    found = Metrics(
        run=run.name,
        **config.identity(),
        training=training_cost(opened),
        versions=versions(),
        parameters=count_parameters(model),
        best_step=opened.best_step,
        trajectories=len(test),
        val=metrics.summarise(val_errors),
        test=metrics.summarise(test_errors),
    )
    found.write(run / "metrics.json")  # last: its presence says that the evaluation is complete
    return found


def training_cost(run: Run) -> TrainingCost:
    """How a run was trained, from its log."""
    log = run.log
    if not log.training:
        raise HeroError(f"run {run.name} has no log; train it first.")
    last = log.training[-1]
    return TrainingCost(
        steps=last.step if not log.stopped_early else log.steps,
        seconds=last.seconds,
        steps_per_second=last.step / last.seconds,
        compiled=last.compiled,
        device=last.device,
        threads=torch.get_num_threads(),
        stopped_early=log.stopped_early,
    )
