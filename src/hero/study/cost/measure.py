"""How long a run will take and how much memory it needs, predicted from a few real updates of its configuration.

Each phase of the run is measured at its own update, with the real batch, unroll, compiler and number of windows. Where
the data do not exist yet, smooth states of their shape stand in for them; no run or data folder is touched.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from hero.data import SCORED, SPLITS, Source, Split, Task, generate, split_path
from hero.data.windows import Trajectories
from hero.errors import HeroError
from hero.method.metrics import CHUNK_VALUES, rollout_errors
from hero.method.rollout import rollout
from hero.records import Record
from hero.runs.checkpoint import save_state, weights_of
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, load_data
from hero.study.cost.count import describe, phases_of, readable
from hero.training.compile import find_compiler
from hero.training.memory import available_memory, peak_memory, reset_peak
from hero.training.update import Trainee, update

UPDATES = 10
WARM_UP = 2
"""Updates before the measured ones: the first allocate."""
PIECE = 5
"""Steps of a rollout, or of the solver, that stand for all."""


class Work(Record):
    """Something that a run does so many times."""

    name: str
    times: int
    seconds_each: float

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.times * self.seconds_each


class Estimate(Record):
    """Predicted seconds and peak bytes of a run."""

    task: str
    backbone: str
    strategy: str
    seed: int
    phases: tuple[Work, ...]
    others: tuple[Work, ...]
    seconds: float
    peak_memory: int | None
    available_memory: int | None
    compiled: bool
    device: str
    threads: int


def estimate(config: RunConfig, data_dir: Path, updates: int = UPDATES, available: int | None = None) -> Estimate:
    """Predict the run of `config` from `updates` measured updates per phase.

    `available` is the memory that the run may take, by default all that the machine has left; HeroError if that is less
    than must be held at once.
    """
    if updates < 1:
        raise HeroError(f"`updates`={updates} measures nothing; use at least 1.")
    device = choose_device(config.train.device)
    available = available_memory(device) if available is None else available
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        memory = describe(config).memory
        refuse_too_large(memory, device, available)
        missing = missing_splits(config, data_dir)
        solving = data_seconds(config.make_source(), missing, device)
        dry_run = DryRun(config, data_dir, device)
        reset_peak(device)
        phases = dry_run.phases(updates)
        validation = dry_run.validation()
        peak = peak_memory(device)
        checkpoint = dry_run.checkpoint()
    train, (val, test) = config.train, (config.split(name) for name in SCORED)
    evaluated = val.trajectories * val.steps + test.trajectories * test.steps
    evaluation = validation * evaluated / (val.trajectories * config.horizon)
    others = (
        Work(name="making the data", times=int(bool(missing)), seconds_each=solving),
        Work(name="compiling", times=int(dry_run.compiled), seconds_each=dry_run.compiling),
        Work(name="validation", times=-(-train.steps // train.validate_every), seconds_each=validation),
        Work(name="checkpoints", times=-(-train.steps // train.checkpoint_every), seconds_each=checkpoint),
        Work(name="evaluation", times=1, seconds_each=evaluation),
    )
    if device.type == "cpu" and peak is not None:
        peak += memory["strategy caches"]  # reserved, but hardly a page of them was touched here
    return Estimate(
        **config.identity(),
        phases=phases,
        others=others,
        seconds=sum(work.seconds for work in (*phases, *others)),
        peak_memory=peak,
        available_memory=available,
        compiled=dry_run.compiled,
        device=str(device),
        threads=torch.get_num_threads(),
    )


class DryRun:
    """A run as `train` sets it up, for as many updates as are asked for."""

    def __init__(self, config: RunConfig, data_dir: Path, device: torch.device) -> None:
        self.config, self.device = config, device
        self.model = config.build_operator().to(device)
        data = stand_in(config, "train", data_dir, device).to(device)
        self.val = stand_in(config, "val", data_dir, device)
        self.windows = config.windows(data)
        begin = time.perf_counter()
        compiler = find_compiler(config, self.model, self.windows(0))
        self.compiled = compiler is not None
        self.trainee = Trainee.of(config, self.model, compiler)
        self.trainee.strategy.begin(self.model, data)
        if self.compiled and self.windows.count % config.train.batch:
            self.update(self.windows.per_epoch - 1, config.train.steps - 1)  # the short last batch is compiled as well
        self.compiling = time.perf_counter() - begin if self.compiled else 0.0

    def update(self, number: int, step: int) -> float:
        """Seconds of one update as `train` does it, on the windows of batch `number`, as if it were update `step`.

        A curriculum is left out: the longest unroll decides on the memory, and shorter ones only save time.
        """
        begin = time.perf_counter()
        batch = self.windows(number)
        index = batch.index if self.trainee.strategy.windows_are_cacheable else None
        update(self.trainee, dataclasses.replace(batch, step=step, index=index))
        wait_for(self.device)
        return time.perf_counter() - begin

    def phases(self, updates: int) -> tuple[Work, ...]:
        """Median seconds of an update of each phase, in turn: a slow moment of the machine then meets all of them.

        They share their windows, so that a cache is filled by the phase before the one that finds it filled.
        """
        phases = phases_of(self.config)
        rounds = [[self.update(0, phase.step) for phase in phases] for _ in range(WARM_UP + updates)]
        medians = map(statistics.median, zip(*rounds[WARM_UP:], strict=True))
        return tuple(
            Work(name=phase.name, times=phase.updates, seconds_each=each)
            for phase, each in zip(phases, medians, strict=True)
        )

    def seconds_per_update(self, updates: int) -> float:
        """The mean over a whole run, from a few updates of each of its phases."""
        phases = self.phases(updates)
        return sum(work.seconds for work in phases) / sum(work.times for work in phases)

    @torch.no_grad()
    def validation(self) -> float:
        """Seconds of one validation: a few steps of the model, scaled, and the measures of the full rollout."""
        history, steps = self.config.train.history, self.config.horizon
        step = self.trainee.strategy.stepper(self.model.eval())
        chunk = max(1, CHUNK_VALUES // (steps * math.prod(self.val.shape[2:])))  # as `rollout_errors` cuts it
        context = self.val[:chunk].first(history, self.device)

        def piece() -> None:
            rollout(step, context, PIECE)
            wait_for(self.device)

        each = statistics.median(seconds_of(piece) for _ in range(3)) / PIECE  # the first is slower
        model_seconds = each * steps * len(self.val) / len(context.states)
        rest = seconds_of(lambda: rollout_errors(lambda z: z.states[:, -1], self.val, steps, self.device, history))
        self.model.train()
        return model_seconds + rest

    def checkpoint(self) -> float:
        """Seconds of one checkpoint, with the best weights next to the last."""
        state = {"model": weights_of(self.model), "best": weights_of(self.model)}
        state |= {"optimiser": self.trainee.optimizer.state_dict(), "strategy": self.trainee.strategy.state_dict()}
        with tempfile.TemporaryDirectory() as folder:
            return seconds_of(lambda: save_state(Path(folder) / "state.pt", state))


def wait_for(device: torch.device) -> None:
    """A device works on its own: a clock is read only after it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def missing_splits(config: RunConfig, data_dir: Path) -> list[Split]:
    """The splits that the run will have to solve first."""
    source = config.make_source()
    if not isinstance(source, Task):
        return []
    return [split for split in map(config.split, SPLITS) if not split_path(source, split, data_dir).exists()]


def data_seconds(source: Source, missing: Sequence[Split], device: torch.device) -> float:
    """Seconds to make the missing splits: a few steps of the solver, scaled by trajectories and frames."""
    if not missing:
        return 0.0
    assert isinstance(source, Task)
    first = missing[0]

    def solve(steps: int) -> float:
        short = dataclasses.replace(first, steps=steps)
        return seconds_of(lambda: generate(dataclasses.replace(source, warmup=0), short, device))

    solve(1)  # the first transforms plan and allocate
    once = solve(1)
    frame = max(solve(1 + PIECE) - once, 0.0) / (PIECE * first.trajectories)  # the difference leaves out the set-up
    return len(missing) * once + frame * sum(s.trajectories * (source.warmup + s.steps) for s in missing)


def stand_in(config: RunConfig, name: str, data_dir: Path, device: torch.device) -> Trajectories:
    """The split of a run if it is there, else states of its shape: cheap, smooth and finite."""
    source, split = config.make_source(), config.split(name)
    if not isinstance(source, Task) or split_path(source, split, data_dir).exists():
        return load_data(config, name, data_dir, device)
    return some_states(config, name, split.steps + 1)


def some_states(config: RunConfig, name: str, length: int, count: int | None = None) -> Trajectories:
    """Initial states repeated in time, as many as the split has unless given; constants if they come from a file."""
    source, split = config.make_source(), config.split(name)
    if isinstance(source, Task):
        states = source.initial_states(count or split.trajectories, split.seed).float()
    else:
        states = torch.ones(count or split.trajectories, source.channels, *source.space)
    mu = torch.ones(len(states), len(source.conditioning), *source.space) if source.conditioning else None
    return Trajectories(states[:, None].repeat(1, length, *(1,) * (states.dim() - 1)), mu)


def refuse_too_large(memory: Mapping[str, int], device: torch.device, available: int | None) -> None:
    """Refuse early instead of being ended by the out-of-memory killer."""
    needed = memory["total"] - (0 if device.type == "cpu" else memory["validation data"])  # which stays on the host
    if available is not None and needed > available:
        raise HeroError(
            f"the run needs {readable(needed, 'B')} ({readable(memory['activations'], 'B')} of them activations) "
            f"and {readable(available, 'B')} are available; lower train.batch, train.unroll or the backbone."
        )
