"""Loss traces and metrics of tiny runs of every part, to compare before and after a change that must not alter numbers.

python tools/traces.py before.json        # at the old commit
python tools/traces.py after.json         # at the new one, on the same machine
python tools/traces.py before.json after.json    # names the runs that differ
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from hero.data import TASKS
from hero.evaluation.evaluate import evaluate
from hero.runs.config import make_config
from hero.strategies import STRATEGIES
from hero.training.loop import train

torch.set_num_threads(1)

TINY: dict[str, Any] = {
    "backbone.width": 4,
    "backbone.modes": 4,
    "data.train_trajectories": 4,
    "data.train_steps": 10,
    "data.val_trajectories": 2,
    "data.val_steps": 12,
    "data.test_trajectories": 2,
    "data.test_steps": 12,
    "train.batch": 5,
    "train.steps": 40,
    "train.validate_every": 5,
    "train.compile": "false",
}
OWN = {key: value for key, value in TINY.items() if key.startswith(("backbone", "train."))}


def plans(folder: Path) -> dict[str, dict[str, Any]]:
    """The settings of every run by name; people's data are written to `folder`."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(12, 1, 24)).cumsum(axis=2)
    wave = np.stack([np.roll(start - start.mean(axis=2, keepdims=True), n, axis=2) for n in range(14)], axis=1)
    np.save(folder / "wave.npy", wave.astype(np.float32))
    x, y = rng.uniform(size=(2, 40))
    times = np.arange(14)[None, :, None] * 0.1 + rng.uniform(0, 6, (12, 1, 1))
    cloud = np.sin(6 * x + times) * np.cos(5 * y)
    np.savez(folder / "cloud.npz", u=cloud[:, :, None].astype(np.float32), coords=np.stack([x, y], 1))
    file = {**OWN, "data.path": str(folder / "wave.npy"), "data.layout": "btcx", "strategy": "push_forward"}
    points = {key: value for key, value in OWN.items() if not key.startswith("backbone")}
    points |= {"data.path": str(folder / "cloud.npz"), "data.layout": "btcp", "strategy": "push_forward"}
    points |= {"backbone.name": "transolver", "backbone.width": 8, "backbone.depth": 1}
    transolver = {key: value for key, value in TINY.items() if not key.startswith("backbone")}
    transolver |= {"backbone.name": "transolver", "backbone.width": 8, "backbone.depth": 1, "train.noise": 0.01}
    unet = {key: value for key, value in transolver.items() if key not in ("backbone.depth", "train.noise")}
    found = {
        f"task {name}": {**TINY, "task.name": name, "strategy": "hero"}
        | ({"task.resolution": 32 if task.dims == 2 else 24} if task.dims > 1 else {})
        for name, task in TASKS.items()
    }
    found |= {f"strategy {name}": {**TINY, "strategy": name} for name in STRATEGIES}
    for strategy in ("push_forward", "hero", "fixed_weight"):
        found[f"mse {strategy}"] = {**TINY, "strategy": strategy, "train.loss": "mse"}
    soap = {"train.optimizer": "soap"}
    return found | {
        "recipe": {**TINY, **soap, "strategy": "push_forward", "train.loss": "balanced"},
        "recipe 2D": {
            **TINY, **soap, "strategy": "push_forward", "train.loss": "balanced", "task.name": "decaying_turbulence",
            "task.resolution": 32,
        },
        "h1": {**TINY, "strategy": "push_forward", "train.loss": "h1"},
        "transolver noise": transolver,
        "unet": {**unet, "backbone.name": "unet"},
        "history residual bundle": {
            **TINY, "strategy": "push_forward", "train.history": 2, "train.bundle": 2, "train.unroll": 4,
            "backbone.residual": True,
        },
        "file": file,
        "file hero": {**file, "strategy": "hero"},
        "file balanced walls": {**file, "train.loss": "balanced", "data.periodic": False},
        "cloud": points,
    }  # fmt: skip


def measured(folder: Path) -> dict[str, Any]:
    """Trace and metrics of each run, as hexadecimal numbers."""
    found = {}
    for name, settings in plans(folder).items():
        run = train(make_config(overrides=settings), folder / "runs", folder / "data")
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        trace = [line["loss"].hex() for line in lines if "loss" in line]
        scores = [v.hex() for line in lines for k, v in line.items() if k.startswith("val_") and isinstance(v, float)]
        test = evaluate(run, folder / "data").test
        found[name] = {"loss": trace, "scores": scores, "test": {k: float(v).hex() for k, v in test.items()}}
        print(name, trace[-1], run.name, flush=True)
    return found


def main() -> None:
    """See above."""
    if len(sys.argv) == 3:
        before, after = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
        differ = [name for name in before if before[name] != after.get(name)]
        for name in differ:
            kinds = [kind for kind in before[name] if before[name][kind] != after.get(name, {}).get(kind)]
            print(f"differs: {name} ({', '.join(kinds)})")
        print(f"{len(before) - len(differ)} of {len(before)} runs are the same")
        raise SystemExit(bool(differ))
    with tempfile.TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text(json.dumps(measured(Path(folder)), indent=1))


if __name__ == "__main__":
    main()
