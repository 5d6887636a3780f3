"""The time and memory of updates, measured on a few real ones: for `hero describe`, comparisons and the table of costs.

Each phase of the run is measured at its own update, with the real batch, unroll, compiler and number of windows. Where
the data do not exist yet, smooth states of their shape stand in for them; no run or data folder is touched.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from pathlib import Path

import torch

from hero.data import Split, split_path
from hero.data.trajectories import Trajectories
from hero.errors import HeroError, check_number
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, load_data
from hero.study.cost.count import Description, Measurement, Phase, describe, phases_of, readable, windows_repeat
from hero.training.compile import find_compiler
from hero.training.memory import available_memory, peak_memory, reset_peak
from hero.training.update import Trainee, update

UPDATES = 10
TURN_UPDATES = 4  # updates of each phase that are averaged over a run
WARM_UP = 2  # updates before the measured ones: the first allocate


def measure(config: RunConfig, data_dir: Path, updates: int = UPDATES, available: int | None = None) -> Description:
    """The description of a run with the time and memory of `updates` updates of each of its phases.

    `available` is the memory that the run may take, by default all that the machine has left; HeroError if that is less
    than must be held at once: better than being ended by the out-of-memory killer.
    """
    check_number("`updates`", updates, low=1, whole=True)
    device = choose_device(config.train.device)
    available = available_memory(device) if available is None else available
    found = describe(config)
    memory = found.memory
    needed = memory["total"] - (0 if device.type == "cpu" else memory["validation data"])  # which stays on the host
    if available is not None and needed > available:
        raise HeroError(
            f"the run needs {readable(needed, 'B')} ({readable(memory['activations'], 'B')} of them activations) "
            f"and {readable(available, 'B')} are available; lower train.batch, train.unroll or the backbone."
        )
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        dry_run = DryRun(config, data_dir, device)
        reset_peak(device)
        seconds = dry_run.seconds(updates).values()
        peak = peak_memory(device)
    if device.type == "cpu" and peak is not None:
        peak += memory["strategy caches"]  # reserved, but hardly a page of them was touched here
    timed = (phase.model_copy(update={"seconds": each}) for phase, each in zip(found.phases, seconds, strict=True))
    measured = Measurement(
        compiled=dry_run.compiled,
        device=str(device),
        threads=torch.get_num_threads(),
        peak_memory=peak,
        available_memory=available,
    )
    return found.model_copy(update={"phases": tuple(timed), "measured": measured})


class DryRun:
    """A run as `train` sets it up, for as many updates as are asked for."""

    def __init__(self, config: RunConfig, data_dir: Path, device: torch.device) -> None:
        self.config, self.device = config, device
        self.model = config.build_operator().to(device)
        task, split = config.source.task, config.split("train")
        is_there = task is None or split_path(task, split, data_dir).exists()
        data = load_data(config, "train", data_dir, device) if is_there else some_states(config, split, split.steps + 1)
        data = data.to(device)
        self.windows = config.windows(data)
        compiler = find_compiler(config, self.model, self.windows(0))
        self.compiled = compiler is not None
        self.trainee = Trainee.of(config, self.model, compiler)
        self.trainee.strategy.begin(self.model, data)
        if self.compiled and self.windows.count % config.train.batch:
            self.update(self.windows.per_epoch - 1, config.train.steps - 1)  # the short last batch is compiled as well

    def update(self, number: int, step: int) -> float:
        """Seconds of one update as `train` does it, on the windows of batch `number`, as if it were update `step`.

        A curriculum is left out: the longest unroll decides on the memory, and shorter ones only save time.
        """
        begin = time.perf_counter()
        batch = self.windows(number)
        index = batch.index if windows_repeat(self.config.train) else None
        update(self.trainee, dataclasses.replace(batch, step=step, index=index))
        wait_for(self.device)
        return time.perf_counter() - begin

    def seconds(self, updates: int) -> dict[Phase, float]:
        """Median seconds of an update of each phase, in turn: a slow moment of the machine then meets all of them.

        They share their windows, so that a cache is filled by the phase before the one that finds it filled.
        """
        phases = phases_of(self.trainee.strategy, self.windows)
        rounds = [[self.update(0, phase.step) for phase in phases] for _ in range(WARM_UP + updates)]
        return dict(zip(phases, map(statistics.median, zip(*rounds[WARM_UP:], strict=True)), strict=True))

    def seconds_per_update(self, updates: int = TURN_UPDATES) -> float:
        """The mean over a whole run, from a few updates of each of its phases."""
        seconds = self.seconds(updates)
        return sum(phase.updates * each for phase, each in seconds.items()) / sum(phase.updates for phase in seconds)


def wait_for(device: torch.device) -> None:
    """A device works on its own: a clock is read only after it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def some_states(config: RunConfig, split: Split, length: int) -> Trajectories:
    """Initial states of a split, repeated in time: cheap, smooth and finite; constants if they come from a file."""
    source = config.source
    if source.task:
        states = source.task.initial_states(split.trajectories, split.seed).float()
    else:
        states = torch.ones(split.trajectories, source.channels, *source.space)
    mu = torch.ones(len(states), len(source.known), *source.space) if source.known else None
    return Trajectories(states[:, None].repeat(1, length, *(1,) * (states.dim() - 1)), mu)
