"""The cost of runs next to each other: parameters, time and memory of a free rollout, and the rate of training.

Timings are comparable only within one measurement: the strategies take turns, so that a slow moment of the machine
meets all of them, and medians are kept.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from hero.console import progress_bar
from hero.errors import HeroError
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.records import Record
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, versions
from hero.study.collect import Places, PlannedGroup, RunNumbers, finished_row, group_of, paper_of
from hero.study.cost.measure import DryRun, some_states, wait_for
from hero.study.records import Group, MetricColumn
from hero.training.memory import peak_memory, release_memory, reset_peak, resident_memory

COST_NOTE = (
    "The paper's 2D FNO has 30,541 parameters, which backbone.size=paper_count meets; the default has 102,881, and the "
    "paper's numbers do not stand next to it. Refine adds 376 parameters and 9.9 % of latency in the paper; here "
    "PDE-Refiner adds 40 parameters and calls its network K + 1 times a step, about five times the latency."
)
"""Stands next to measured costs of a 2D FNO."""
TURNS = 5  # turns that runs take while their costs are compared
ROLLOUT_STEPS = 200  # as in the paper
PIECE = ROLLOUT_STEPS // TURNS  # steps of a turn


class RunCost(Record):
    """A run in the table of costs. Inference is a free rollout of a whole batch; memory in MB (10⁶ bytes)."""

    parameters: int
    inference_ms_per_step: float
    peak_memory_mb: float
    train_steps_per_s: float
    compiled: bool


class Costs(Record):
    """Runs measured in turns under the same conditions, by their ids."""

    note: str  # how it was measured, for a table
    versions: dict[str, str]
    costs: dict[str, RunCost]


def measure_costs(configs: Sequence[RunConfig], data_dir: Path, path: Path, rounds: int = TURNS) -> Costs:
    """The cost of each run, by its id: parameters, time and memory of a rollout of 200 steps, rate of training.

    train.compile=auto counts as uncompiled here: compiling takes minutes. The result is kept in `path` and reused if it
    covers all of `configs`. Otherwise all are measured, since numbers of different moments do not compare.
    """
    runs = {}
    for config in configs:
        compile = "true" if config.train.compile in ("true", "graphs") else "false"
        train = config.train.model_copy(update={"compile": compile})
        runs[config.run_id()] = dataclasses.replace(config, train=train)
    with suppress(HeroError):  # missing or damaged
        known = Costs.read(path)
        if runs.keys() <= known.costs.keys():
            return known
    with progress_bar("measuring costs", len(runs) * (2 * rounds + 2)) as advance:
        rollouts = {name: FreeRollout(config, choose_device(config.train.device)) for name, config in runs.items()}
        peaks = in_turns({name: partial(peak_of, free) for name, free in rollouts.items()}, 1, advance)
        inference = in_turns({name: free.seconds_per_step for name, free in rollouts.items()}, rounds, advance)
        with torch.random.fork_rng(devices=[]):  # dropout may draw
            dry_runs = {name: DryRun(config, data_dir, rollouts[name].device) for name, config in runs.items()}
            training = in_turns({name: run.seconds_per_update for name, run in dry_runs.items()}, rounds, advance)
    costs = {
        name: RunCost(
            parameters=count_parameters(rollouts[name].model),
            inference_ms_per_step=1e3 * statistics.median(inference[name]),
            peak_memory_mb=peaks[name][0] / 1e6,
            train_steps_per_s=1 / statistics.median(training[name]),
            compiled=config.train.compile == "true",
        )
        for name, config in runs.items()
    }
    found = Costs(note=conditions(list(runs.values()), rounds), versions=versions(), costs=costs)
    found.write(path)
    return found


def conditions(configs: Sequence[RunConfig], rounds: int) -> str:
    """How it is measured, for the table."""
    devices = ", ".join(sorted({str(choose_device(config.train.device)) for config in configs}))
    batches = ", ".join(map(str, sorted({config.train.batch for config in configs})))
    words = {"false": "uncompiled", "true": "compiled"}
    compiled = " and ".join(sorted({words[config.train.compile] for config in configs}))
    threads = torch.get_num_threads()
    return (
        f"Measured on {devices} with {threads} thread{'s' if threads > 1 else ''}, batch {batches}, in {rounds} turns "
        f"of all rows; times are medians. Inference is a free rollout of {ROLLOUT_STEPS} steps, its time is for one "
        f"step of the whole batch. Training is {compiled}, its rate averaged over the phases of a run without "
        "validation. Memory is what the rollout adds to the process at most, in MB of 10⁶ bytes."
    )


def in_turns(
    measured: Mapping[str, Callable[[], float]], turns: int, advance: Callable[..., None]
) -> dict[str, list[float]]:
    """What each function measures, once in every turn: a slow moment of the machine then meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(turns):
        for name, measure_once in measured.items():
            advance(note=name)
            found[name].append(measure_once())
    return found


class FreeRollout:
    """An untrained rollout of one batch from smooth states; each call continues it and returns when it is done."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        history, batch = config.train.history, config.train.batch
        self.device, self.model = device, config.build_operator().to(device).eval()
        split = dataclasses.replace(config.split("test"), trajectories=batch)
        self.context = some_states(config, split, history).first(history, device)
        self.step = config.untrained_strategy.stepper(self.model)

    @torch.no_grad()
    def __call__(self, steps: int) -> None:
        self.context = self.context.advance(rollout(self.step, self.context, steps))
        wait_for(self.device)

    def seconds_per_step(self) -> float:
        """Time of a step, the mean over a part of the rollout."""
        self(1)  # brings data and threads back
        begin = time.perf_counter()
        self(PIECE)
        return (time.perf_counter() - begin) / PIECE


def peak_of(free: FreeRollout) -> int:
    """The most bytes that a rollout holds, beyond those that this process holds before it."""
    device = free.device
    free(2)  # loads libraries
    release_memory()
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_memory() or 0
    reset_peak(device)
    free(ROLLOUT_STEPS)
    return (peak_memory(device) or 0) - before


def read_costs(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """The rows measured now, or as an earlier command of the same study has measured them."""
    path = places.out / f"{group.task}-{group.backbone.rpartition(':')[2]}-costs.json"
    found = measure_costs([row.configs[0] for row in group.rows], places.data, path)
    rows = []
    dims = group.rows[0].configs[0].source.dims
    for row in group.rows:
        cost = found.costs[row.configs[0].run_id()]
        values = {column.key: float(getattr(cost, column.key)) for column in columns}
        paper, differs = paper_of(group, row, task=f"{dims}d")
        if paper and paper["parameters"].mean != cost.parameters:
            paper = {}  # another network; the notes say so
        rows.append(finished_row(row, columns, [RunNumbers(values)], (), (paper, differs)))
    notes = (found.note, COST_NOTE) if group.backbone == "fno" and dims == 2 else (found.note,)
    yield group_of(group, rows).model_copy(update={"notes": notes})
