"""What each strategy costs: parameters, time and memory of a free rollout, rate and memory of training.

Timings are comparable only within one measurement: the strategies take turns, so that a slow moment of the machine
meets all of them, and medians are kept. Memory is measured in a process of its own for each figure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hero.console import progress_bar
from hero.data.windows import Context
from hero.errors import HeroError
from hero.files import write_atomic, write_json
from hero.method.rollout import rollout
from hero.models import count_parameters
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import choose_device, versions
from hero.runs.old import load_run
from hero.study.compare import seconds_per_update
from hero.study.cost.count import describe
from hero.study.cost.measure import Rehearsal, seconds_of
from hero.study.published import COST_NOTE
from hero.training.memory import peak_memory, release_memory, reset_peak, resident_memory

ROUNDS = 5
STEPS = 200
"""Steps of a rollout, as in the paper."""
HOW = "how"
"""The key under which `measure` says how it measured."""
FIGURES = ("parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s", "train_peak_memory_mb")
SMALL: dict[str, Any] = {
    "task.name": "burgers",
    "task.resolution": 16,
    "backbone.width": 2,
    "backbone.modes": 2,
    "data.train_trajectories": 2,
    "data.train_steps": 10,
    "data.val_trajectories": 1,
    "train.steps": 10,
    "train.batch": 2,
    "train.compile": "false",
}
"""A run that needs hardly any memory but all libraries."""

Costs = dict[str, dict[str, Any]]


def measure(
    configs: Mapping[str, RunConfig],
    data_dir: Path,
    rounds: int = ROUNDS,
    path: Path | None = None,
    steps: int = STEPS,
) -> Costs:
    """The cost of each run of `configs`, by its label there; smooth states stand in for data that is not there.

    Each label has `FIGURES`: parameters; milliseconds per step, of the whole batch, and peak memory in MB (10⁶ bytes)
    of a free rollout of `steps` steps; updates per second, averaged over the phases of a run, and peak memory of
    training. Beside them are `batch`, which is train.batch for both, and whether training was `compiled`.

    The further key `HOW` ("how") holds device, threads, compiled (as asked for), rounds, rollout_steps, versions, and
    as `note` some sentences for a table. train.compile=auto counts as uncompiled here: compiling takes minutes.

    With `path` the result is kept there by run id; it is used again if it holds all of `configs`, measured likewise.
    Otherwise all are measured, since numbers of different moments do not compare.
    """
    if rounds < 1 or steps < 1:
        raise HeroError(f"rounds={rounds} and steps={steps} measure nothing; give at least 1 of each.")
    if HOW in configs:
        raise HeroError(f"a run cannot be called {HOW!r} in a table of costs; give it another label.")
    ids = {label: config.run_id() for label, config in configs.items()}
    configs = {label: for_measuring(config) for label, config in configs.items()}
    how = conditions(configs, rounds, steps)
    known = read_costs(path, ids, how) if path is not None else None
    if known is not None:
        return known
    with (
        progress_bar("measuring costs", len(configs) * (2 * rounds + 3)) as advance,
        torch.random.fork_rng(devices=[]),  # dropout may draw
    ):
        rows = {label: memory(label, config, data_dir, steps, advance) for label, config in configs.items()}
        for label, figures in timed(configs, data_dir, rounds, steps, advance).items():
            rows[label] = figures | rows[label]
    if path is not None:
        write_json(path, {HOW: how, "costs": {ids[label]: row for label, row in rows.items()}})
    return {**rows, HOW: how}


def for_measuring(config: RunConfig) -> RunConfig:
    """The run uncompiled unless compiling is asked for, and with a single validation trajectory: none is measured."""
    compile = "true" if config.train.compile == "true" else "false"
    return dataclasses.replace(
        config,
        train=config.train.model_copy(update={"compile": compile}),
        data=config.data.model_copy(update={"val_trajectories": 1}),
    )


def conditions(configs: Mapping[str, RunConfig], rounds: int, steps: int) -> dict[str, Any]:
    """How it is measured, for the table and to tell an earlier measurement from this one."""
    devices = sorted({str(choose_device(config.train.device)) for config in configs.values()})
    compiled = sorted({config.train.compile == "true" for config in configs.values()})
    batches = sorted({config.train.batch for config in configs.values()})
    threads = torch.get_num_threads()
    words = " and ".join({False: "uncompiled", True: "compiled"}[choice] for choice in compiled)
    of_paper = any(config.backbone.name == "fno" and config.make_task().dims == 2 for config in configs.values())
    return {
        "device": ", ".join(devices),
        "threads": threads,
        "compiled": any(compiled),
        "rounds": rounds,
        "rollout_steps": steps,
        "versions": versions(),
        "note": (
            f"Measured on {', '.join(devices)} with {threads} thread{'s' if threads > 1 else ''}, batch "
            f"{', '.join(map(str, batches))}, in {rounds} turns of all strategies; times are medians. Inference is a "
            f"free rollout of {steps} steps, its time that of one step of the whole batch. Training is {words}, its "
            "rate averaged over the phases of a run without validation. Memory is the peak beyond what an idle process "
            f"holds, in MB of 10⁶ bytes, each in its own process.{f' {COST_NOTE}' if of_paper else ''}"
        ),
    }


def read_costs(path: Path, ids: Mapping[str, str], how: Mapping[str, Any]) -> Costs | None:
    """What `measure` has kept, or None if it is missing, damaged, measured otherwise or without one of the runs."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        rows = {label: stored["costs"][run] for label, run in ids.items()}
        whole = all(0 < row[name] < float("inf") for row in rows.values() for name in FIGURES)
        return {**rows, HOW: stored[HOW]} if whole and stored[HOW] == how else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def timed(
    configs: Mapping[str, RunConfig], data_dir: Path, rounds: int, steps: int, advance: Callable[..., None]
) -> Costs:
    """Parameters, milliseconds of a step and updates per second: the median over turns that all take.

    A rollout goes on from turn to turn and is complete after the last.
    """
    piece = -(-steps // rounds)
    rehearsals: dict[str, Rehearsal] = {}
    rollouts: dict[str, FreeRollout] = {}
    for label, config in configs.items():
        advance(note=f"{label}: preparing")
        rehearsals[label] = Rehearsal(config, data_dir, choose_device(config.train.device))
        rollouts[label] = FreeRollout(config, rehearsals[label].model)
    training: dict[str, list[float]] = {label: [] for label in configs}
    inference: dict[str, list[float]] = {label: [] for label in configs}
    for _ in range(rounds):
        for label, rehearsal in rehearsals.items():
            advance(note=f"{label}: training")
            training[label].append(seconds_per_update(rehearsal))
        for label, free in rollouts.items():
            advance(note=f"{label}: rollout")
            free(1)  # brings data and threads back
            inference[label].append(seconds_of(partial(free, piece)) / piece)
    return {
        label: {
            "parameters": count_parameters(rehearsal.model),
            "inference_ms_per_step": 1e3 * statistics.median(inference[label]),
            "train_steps_per_s": 1 / statistics.median(training[label]),
            "batch": configs[label].train.batch,
            "compiled": rehearsal.compiled,
        }
        for label, rehearsal in rehearsals.items()
    }


class FreeRollout:
    """A rollout of one batch from smooth states; each call goes on, keeps its steps, and returns when they are done."""

    def __init__(self, config: RunConfig, model: nn.Module) -> None:
        states = config.make_task().initial_states(config.train.batch, config.data.test_seed).float()
        states = states[:, None].repeat(1, config.train.history, *(1,) * (states.dim() - 1))
        self.context = Context(states.to(next(model.parameters()).device))
        self.step, self.model = config.make_strategy().stepper(model), model

    @torch.no_grad()
    def __call__(self, steps: int) -> None:
        self.model.eval()
        self.context = self.context.advance(rollout(self.step, self.context, steps))
        if self.context.states.is_cuda:
            torch.cuda.synchronize()
        self.model.train()


def memory(label: str, config: RunConfig, data_dir: Path, steps: int, advance: Callable[..., None]) -> dict[str, float]:
    """Peak memory of a rollout and of training, in MB."""
    found = {}
    for name, work in (("peak_memory_mb", "rollout"), ("train_peak_memory_mb", "training")):
        advance(note=f"{label}: memory of {work}")
        found[name] = peak_of_process(label, config, work, data_dir, steps) / 1e6
    return found


GIVE_BACK_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""glibc otherwise keeps some freed buffers: the same rollout then peaked at 85 or at 98 MB."""
CHILD = "import sys; from hero.study.cost.table import print_peak; print_peak(*sys.argv[1:])"


def peak_of_process(label: str, config: RunConfig, work: str, data_dir: Path, steps: int) -> int:
    """Bytes that `print_peak` prints in a process of its own, which holds nothing of earlier work."""
    threads = str(torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        write_atomic(Path(folder) / "config.toml", config.to_toml().encode())
        ended = subprocess.run(
            [sys.executable, "-c", CHILD, work, folder, str(data_dir), str(steps), threads],
            env=os.environ | {"OMP_NUM_THREADS": threads, **GIVE_BACK_AT_ONCE},
            capture_output=True,
            text=True,
        )
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or [f"code {ended.returncode}"])[-1]
        raise HeroError(f"the memory of {label} ({work}) cannot be measured: its process ended with {reason}.")
    return int(ended.stdout.splitlines()[-1])


def print_peak(work: str, folder: str, data_dir: str, steps: str, threads: str) -> None:
    """Do the work and print how many bytes it held at most, beyond what this process held before."""
    torch.set_num_threads(int(threads))
    config = load_run(Path(folder))
    device = choose_device(config.train.device)
    small = {"strategy": config.strategy, **SMALL}
    do_work(work, make_config(overrides={**small, "train.device": str(device)}), Path(folder), 2)  # loads libraries
    release_memory()
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_memory() or 0
    reset_peak(device)
    do_work(work, config, Path(data_dir), int(steps))
    peak = (peak_memory(device) or 0) - before
    if work == "training" and device.type == "cpu":
        peak += describe(config)["memory"]["strategy caches"]  # reserved, but hardly a page of them was touched here
    print(peak)


def do_work(work: str, config: RunConfig, data_dir: Path, steps: int) -> None:
    """A rollout of `steps` steps, or some updates of every phase of a run."""
    device = choose_device(config.train.device)
    if work == "rollout":
        FreeRollout(config, config.build_operator().to(device))(steps)
    else:
        Rehearsal(config, data_dir, device).phases(1)
