"""The checkpoint that a run starts from, measured on the run's own data before the first update."""

from __future__ import annotations

from pathlib import Path

from hero.data import SCORED
from hero.evaluation.measure import measure
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data
from hero.runs.records import Before, Errors
from hero.runs.start import open_start


def measure_before(config: RunConfig, runs_dir: Path, data_dir: Path) -> Before:
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
    Errors(test.arrays, val.score.numpy(), measure=config.scoring.measure).write(Run(run).before_errors_file)
    before = Before(checkpoint=config.train.init, init_hash=config.train.init_hash, val=val.summary, test=test.summary)
    before.write(Run(run).before_file)  # last: its presence says that the measurement is complete
    return before
