"""The checkpoint that a run starts from, measured on the run's own data before the first update."""

from __future__ import annotations

from pathlib import Path

from hero.console import progress_bar
from hero.data import SCORED
from hero.method import metrics
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data
from hero.runs.records import Before, Errors
from hero.runs.start import open_start


def measure_before(config: RunConfig, runs_dir: Path, data_dir: Path) -> Before:
    """Roll out the weights of `train.init` as they are; writes `before.json` and its errors, once for each run."""
    run = runs_dir / config.run_id()
    if (found := Run(run).before) is not None:
        return found
    device, history = choose_device(config.train.device), config.train.history
    model, strategy = config.build_operator().to(device), config.make_strategy()
    start = open_start(model, config.train, config.backbone.name)
    strategy.begin(model, load_data(config, "train", data_dir, device))
    start.put()  # again: statistics that came with the weights replace ours
    step = strategy.stepper(model.eval())
    errors = {}
    with progress_bar("measuring the checkpoint", 2) as advance:
        for name in SCORED:
            data = load_data(config, name, data_dir, device)
            steps = data.shape[1] - history
            errors[name] = metrics.rollout_errors(step, data, steps, device, history, norm=strategy.norm)
            advance()
    arrays = {name: values.numpy() for name, values in errors["test"].items()}
    measure = config.scoring.measure
    Errors(arrays, errors["val"][measure].numpy(), measure=measure).write(run / "before_errors.npz")
    before = Before(
        checkpoint=config.train.init,
        init_hash=config.train.init_hash,
        val=metrics.summarise(errors["val"], config.scoring),
        test=metrics.summarise(errors["test"], config.scoring),
    )
    before.write(run / "before.json")  # last: its presence says that the measurement is complete
    return before
