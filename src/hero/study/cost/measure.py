"""How long a run will take and how much memory it needs, predicted from a few real updates of its configuration.

Each phase of the run is measured at its own step, with the real batch, unroll, compiler and number of windows. Where
the data do not exist yet, smooth states of their shape stand in for them; no run or data folder is touched.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from hero.console import console
from hero.data import Split, Task, generate, split_path
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.metrics import CHUNK_VALUES, rollout_errors
from hero.method.rollout import rollout
from hero.runs.checkpoint import save_state, weights_of
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, load_data
from hero.study.cost.count import SPLITS, describe, readable
from hero.study.cost.phases import numbered, phases_of
from hero.training.compile import compiled_unroll
from hero.training.memory import available_memory, peak_memory, reset_peak
from hero.training.update import Trainee, update

UPDATES = 10
WARM_UP = 2
"""Updates before the measured ones: the first allocate."""
PIECE = 5
"""Steps of a rollout, or of the solver, that stand for all."""
VALIDATED = 100
"""Steps of a validation rollout."""


def estimate(config: RunConfig, data_dir: Path, updates: int = UPDATES, available: int | None = None) -> dict[str, Any]:
    """Predicted seconds and peak bytes of the run of `config`, from `updates` measured updates per phase.

    `available` is the memory that the run may take, by default what the machine has left; HeroError if that is less
    than must be held at once.
    """
    if updates < 1:
        raise HeroError(f"updates={updates} measures nothing; give at least 1.")
    device = choose_device(config.train.device)
    available = available_memory(device) if available is None else available
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        description = describe(config)
        refuse_too_large(description["memory"], device, available)
        missing = missing_splits(config, data_dir)
        note("measuring the solver" if missing else "reading the data")
        solving = data_seconds(config.make_task(), missing, device)
        rehearsal = Rehearsal(config, data_dir, device)
        note(f"measuring {updates} updates of each phase")
        reset_peak(device)
        phases = rehearsal.phases(updates)
        validation = rehearsal.validation()
        peak = peak_memory(device)
        checkpoint = rehearsal.checkpoint()
    settings, sizes = config.train, config.data
    validations = -(-settings.steps // (settings.validate_every or 1))
    saves = -(-settings.steps // (settings.checkpoint_every or 1))
    evaluated = sizes.val_trajectories * sizes.val_steps + sizes.test_trajectories * sizes.test_steps
    others = [
        row("making the data", int(bool(missing)), solving),
        row("compiling", int(rehearsal.compiled), rehearsal.compiling),
        row("validation", validations, validation),
        row("checkpoints", saves, checkpoint),
        row("evaluation", 1, validation * evaluated / (sizes.val_trajectories * VALIDATED)),
    ]
    if device.type == "cpu" and peak is not None:
        peak += description["memory"]["strategy caches"]  # reserved, but hardly a page of them was touched here
    return {
        **config.identity(),
        "phases": phases,
        "others": others,
        "seconds": sum(part["seconds"] for part in phases + others),
        "peak_memory": peak,
        "available_memory": available,
        "compiled": rehearsal.compiled,
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def row(name: str, times: int, each: float) -> dict[str, Any]:
    """A line of the table: something that the run does so many times, the seconds of one and of all."""
    return {"name": name, "times": times, "seconds_each": each, "seconds": times * each}


def note(text: str) -> None:
    """Say what is going on: some of it takes a while."""
    console.print(text, style="dim", highlight=False)


class Rehearsal:
    """The run as `train` sets it up, for as many updates as are asked for."""

    def __init__(self, config: RunConfig, data_dir: Path, device: torch.device) -> None:
        settings = config.train
        self.config, self.device = config, device
        self.model = config.build_operator().to(device)
        data = stand_in(config, "train", data_dir, device).to(device)
        self.val = stand_in(config, "val", data_dir, device)
        self.windows = config.windows(data)
        begin = time.perf_counter()
        unroll = compiled_unroll(config, self.model, self.windows(0))
        self.compiled = unroll is not None
        self.trainee = Trainee.of(config, self.model, unroll)
        self.trainee.strategy.begin(self.model, data)
        if self.compiled and self.windows.count % settings.batch:
            self.update(self.windows.per_epoch - 1, settings.steps - 1)  # the short last batch is compiled for as well
        self.compiling = time.perf_counter() - begin if self.compiled else 0.0

    def update(self, number: int, step: int) -> float:
        """Seconds of one update as `train` does it, on the windows of batch `number`, as if it were update `step`.

        A curriculum is left out: the longest unroll decides on the memory, and shorter ones only save time.
        """
        begin = time.perf_counter()
        batch = self.windows(number)
        batch = dataclasses.replace(batch, step=step, index=batch.index if numbered(self.config) else None)
        update(self.trainee, batch)
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        """A device works on its own: a clock is read only after it is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def phases(self, updates: int) -> list[dict[str, Any]]:
        """Median seconds of an update of each phase, in turn: a slow moment of the machine then meets all of them.

        They share their windows, so that a cache is filled by the phase before the one that finds it filled.
        """
        phases = phases_of(self.config)
        rounds = [[self.update(0, phase.step) for phase in phases] for _ in range(WARM_UP + updates)]
        medians = map(statistics.median, zip(*rounds[WARM_UP:], strict=True))
        return [row(phase.name, phase.updates, each) for phase, each in zip(phases, medians, strict=True)]

    @torch.no_grad()
    def validation(self) -> float:
        """Seconds of one validation: a few steps of the model, scaled, and all that is done with the full rollout."""
        history = self.config.train.history
        step = self.trainee.strategy.stepper(self.model.eval())
        chunk = max(1, CHUNK_VALUES // (VALIDATED * self.val[0, 0].numel()))  # as `rollout_errors` cuts it
        context = Context(self.val[:chunk, :history].to(self.device))

        def piece() -> None:
            rollout(step, context, PIECE)
            self.wait()

        each = statistics.median(seconds_of(piece) for _ in range(3)) / PIECE  # the first is slower
        model_seconds = each * VALIDATED * len(self.val) / len(context.states)
        rest = seconds_of(lambda: rollout_errors(lambda z: z.states[:, -1], self.val, VALIDATED, self.device, history))
        self.model.train()
        return model_seconds + rest

    def checkpoint(self) -> float:
        """Seconds of one checkpoint, with the best weights beside the last."""
        state = {"model": weights_of(self.model), "best": weights_of(self.model)}
        state |= {"optimiser": self.trainee.optimizer.state_dict(), "strategy": self.trainee.strategy.state_dict()}
        with tempfile.TemporaryDirectory() as folder:
            return seconds_of(lambda: save_state(Path(folder) / "state.pt", state))


def seconds_of(work: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def missing_splits(config: RunConfig, data_dir: Path) -> list[Split]:
    """What the run will have to solve first."""
    task = config.make_task()
    return [split for split in map(config.split, SPLITS) if not split_path(task, split, data_dir).exists()]


def data_seconds(task: Task, missing: list[Split], device: torch.device) -> float:
    """Seconds to make the missing splits: a few steps of the solver, scaled by trajectories and frames."""
    if not missing:
        return 0.0
    first = missing[0]

    def solve(steps: int) -> float:
        short = dataclasses.replace(first, steps=steps)
        return seconds_of(lambda: generate(dataclasses.replace(task, warmup=0), short, device))

    solve(1)  # the first transforms plan and allocate
    once = solve(1)
    frame = max(solve(1 + PIECE) - once, 0.0) / (PIECE * first.trajectories)  # the difference leaves out the set-up
    return len(missing) * once + frame * sum(s.trajectories * (task.warmup + s.steps) for s in missing)


def stand_in(config: RunConfig, name: str, data_dir: Path, device: torch.device) -> Tensor:
    """The split of a run if it is there, else initial states repeated to its shape: cheap, smooth and finite."""
    task, split = config.make_task(), config.split(name)
    if split_path(task, split, data_dir).exists():
        return load_data(config, name, data_dir, device)
    states = task.initial_states(split.trajectories, split.seed).float()
    return states[:, None].repeat(1, split.steps + 1, *(1,) * (states.dim() - 1))


def refuse_too_large(memory: dict[str, int], device: torch.device, available: int | None) -> None:
    """Say in time what the kernel would say by a kill."""
    needed = memory["total"] - (0 if device.type == "cpu" else memory["validation data"])  # which stays on the host
    if available is not None and needed > available:
        raise HeroError(
            f"the run needs {readable(needed, 'B')} ({readable(memory['activations'], 'B')} of them activations) "
            f"and {readable(available, 'B')} are available; lower train.batch, train.unroll or the backbone."
        )


def print_estimate(numbers: dict[str, Any]) -> None:
    """One table, the total, and a warning if the memory will not do."""
    how = f"{numbers['device']}, {numbers['threads']} threads, {'compiled' if numbers['compiled'] else 'eager'}"
    table = Table(title=f"{numbers['task']}: {numbers['backbone']} with {numbers['strategy']} ({how})")
    table.add_column("phase")
    for name in ("times", "ms each", "minutes"):
        table.add_column(name, justify="right")
    for rows in (numbers["phases"], numbers["others"]):
        for part in rows:
            each, minutes = 1e3 * part["seconds_each"], part["seconds"] / 60
            table.add_row(part["name"], f"{part['times']:,}", f"{each:,.1f}", f"{minutes:.2f}")
        table.add_section()
    console.print(table)
    peak, available = numbers["peak_memory"], numbers["available_memory"]
    held = "" if peak is None else f", peak memory {readable(peak, 'B')}"
    console.print(f"predicted: {numbers['seconds'] / 60:.1f} minutes{held}", highlight=False)
    if peak is not None and available is not None and peak > available:
        console.print(f"warning: only {readable(available, 'B')} of memory are available", style="yellow")
    console.print("evaluation without its figures; the peak is that of training with validation", style="dim")
