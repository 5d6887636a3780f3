"""Metrics, error arrays and the shown rollout of a trained run, and metrics of the checkpoint that it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from hero.data import SCORED
from hero.data.trajectories import Trajectories
from hero.errors import HeroError
from hero.evaluation.measure import NO_METRICS, Trained, measure
from hero.files import file_hash
from hero.method import measures, metrics
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.runs import records
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data, versions
from hero.runs.start import open_start


def evaluate(run: Path, data_dir: Path, more: Mapping[str, metrics.Metric] = NO_METRICS) -> records.Metrics:
    """Measure the best weights of a run on validation and test data; writes metrics, errors and rollout.

    `more` are metrics by name that are measured in addition to the registered ones.
    """
    trained = Trained(run, data_dir, baselines=True)
    config, norm = trained.config, trained.norm
    weights = Run(run).weights_file
    hashed = file_hash(weights) if weights.is_file() else None  # before reading: weights replaced since then differ
    data = trained.data("test")
    val = trained.measure(trained.data("val"), more=more, baselines=False, title="validation rollouts")
    test = trained.measure(data, more=more, title="test rollouts")

    idle, score = test.idle_of, config.scoring.measure
    errors = records.Errors(test.arrays, val.score.numpy(), idle(score), score, idle(measures.channel_vrmse.name))
    errors.write(Run(run).errors_file)
    typical = measures.median_trajectory(errors.score, config.scoring.steps)
    write_rollouts(trained, data, {records.ROLLOUT_FILE: typical, records.FIRST_ROLLOUT_FILE: 0})
    names = config.source.channel_names
    found = records.Metrics(
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
            name: records.Baseline(test=numbers, channels=test.channels(names, name))
            for name, numbers in test.baselines.items()
        },
    )
    found.write(Run(run).metrics_file)  # last: its presence says that the evaluation is complete
    return found


@torch.no_grad()
def write_rollouts(trained: Trained, test: Trajectories, shown: Mapping[str, int]) -> None:
    """Store the rollouts of some trajectories, given by the name of the file, made together; NaN at masked points."""
    examples = [test[number : number + 1] for number in shown.values()]
    together = Trajectories.joined(examples)
    history, hidden = trained.history, trained.norm.hidden
    start, steps = together.first(history, trained.device), together.shape[1] - history
    predictions = rollout(trained.step, start, steps)
    for (file, number), states, prediction in zip(shown.items(), together.states, predictions, strict=True):
        initial, truth, made = (hidden(part.cpu()) for part in (states[history - 1], states[history:], prediction))
        records.write_rollout(trained.run.path, initial, truth, made, number, file)


def training_cost(run: Run) -> records.TrainingCost:
    """How a run was trained, from its log; updates after the last checkpoint do not count, since they are repeated."""
    log = run.log
    if not log.training:
        raise HeroError(f"run {run.name} has no log; train it first.")
    last, resumes_at = log.training[-1], run.resumes_at
    done = last.step if not log.stopped_early else log.steps
    return records.TrainingCost(
        steps=done if resumes_at is None else min(done, resumes_at),
        seconds=last.seconds,
        steps_per_second=last.step / last.seconds,
        compiled=last.compiled,
        device=last.device,
        threads=torch.get_num_threads(),
        stopped_early=log.stopped_early,
    )


def measure_before(config: RunConfig, runs_dir: Path, data_dir: Path) -> records.Before:
    """Roll out the weights of `train.init` as they are; writes `before.json` and its errors, once for each run."""
    run = runs_dir / config.run_id()
    if (found := Run(run).before) is not None:
        return found
    device = choose_device(config.train.device)
    model, strategy = config.build_operator().to(device), config.make_strategy()
    start = open_start(model, config.train, config.backbone.name)
    strategy.begin(model, load_data(config, "train", data_dir, device))
    start.put()  # again: statistics that came with the weights replace ours
    step = strategy.stepper(model.eval())
    val, test = (
        measure(
            step,
            load_data(config, name, data_dir, device),
            strategy.norm,
            device,
            config.train.history,
            scoring=config.scoring,
            baselines=False,
            title=f"checkpoint, {name}",
        )
        for name in SCORED
    )
    records.Errors(test.arrays, val.score.numpy(), measure=config.scoring.measure).write(Run(run).before_errors_file)
    before = records.Before(
        checkpoint=config.train.init, init_hash=config.train.init_hash, val=val.summary, test=test.summary
    )
    before.write(Run(run).before_file)  # last: its presence says that the measurement is complete
    return before
