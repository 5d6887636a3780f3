"""HERO's and SOAP's update beside the plain one, compiled as in `hero train`: `python -m benchmarks updates`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed_files import keep_speed
from hero.console import progress_bar
from hero.data.windows import Batch, Context
from hero.runs.config import make_config
from hero.training.compile import compiled
from hero.training.memory import keep_freed_memory
from hero.training.update import Trainee, update

TASKS = {1: "burgers", 2: "decaying_turbulence", 3: "swift_hohenberg"}
ARMS: dict[str, dict[str, Any]] = {
    "push_forward, AdamW": {"strategy": "push_forward"},
    "hero, AdamW": {"strategy": "hero"},
    "push_forward, SOAP": {"strategy": "push_forward", "train.optimizer": "soap"},
}
TURN = 0.3
"""Seconds of a turn."""


def measure_updates(dims: Sequence[int], rounds: int, threads: int, eager: bool, folder: Path) -> dict[int, Any]:
    """Median seconds of an update of each arm, which take turns in one process, and their ratio to the first."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    found = {}
    with progress_bar("updates", len(dims) * len(ARMS) * (rounds + 1)) as advance:
        for d in dims:
            seconds: dict[str, list[float]] = {name: [] for name in ARMS}
            trainees = {}
            for name, settings in ARMS.items():
                advance(note=f"{d}D, {name}: preparing")
                trainees[name] = prepared(TASKS[d], settings, eager)
            for _ in range(rounds):
                for name, arm in trainees.items():
                    seconds[name] += turn(*arm)
                    advance(note=f"{d}D, {name}: timing")
            medians = {name: statistics.median(some) for name, some in seconds.items()}
            plain = next(iter(medians.values()))
            found[d] = [{"arm": name, "seconds": s, "ratio": s / plain, "eager": eager} for name, s in medians.items()]
            keep_speed("updates", str(d), found[d], folder)
    return found


def prepared(task: str, settings: dict[str, Any], eager: bool) -> tuple[Trainee, list[Batch]]:
    """A trainee of the paper's network, compiled, and batches of its last update, whose windows are known already."""
    config = make_config(overrides={"task.name": task, **settings})
    model, space = config.build_operator(), config.source.space
    states = 0.1 * torch.randn(40, 6, 1, *space, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    with torch.no_grad():
        model(states[:1, 0])  # fills the caches of the model outside of the compiled code
    trainee = Trainee.of(config, model, None if eager else partial(compiled, device=torch.device("cpu")))
    batches = []
    for first in (0, 20):
        index = torch.arange(first, first + 20)
        windows = Context(states[index, :1]), states[index, 1:]
        batches.append(Batch(*windows, config.train.steps - 1, index, torch.Generator().manual_seed(first)))
    for batch in 2 * batches:
        update(trainee, batch)
    return trainee, batches


def turn(trainee: Trainee, batches: Sequence[Batch]) -> list[float]:
    """Seconds of updates, one after the other; the first brings data and threads back and is not counted."""
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < 2 or time.perf_counter() < begin + TURN:
        started = time.perf_counter()
        update(trainee, batches[len(seconds) % 2])
        seconds.append(time.perf_counter() - started)
    return seconds[1:]
