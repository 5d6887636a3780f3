"""What a study would do: every run with its state, and about how long the rest takes.

The time of an update is taken from the logs of runs of the same cost in the folder of the runs. Where there are none
it is counted, for two CPU cores: a strategy in passes through its operator, on a tiny one; the operator by one pass
without numbers. Making data, evaluation and drawing are left out.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table

from hero.errors import HeroError
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import list_runs
from hero.runs.old import load_run, read_log
from hero.study.collect import state_of, steps_done
from hero.study.compare import logged_seconds
from hero.study.cost.count import count_at, count_forward
from hero.study.cost.phases import phases_of
from hero.study.plans import Plan
from hero.training.compile import COMPILE_SECONDS, COMPILED_SAVES
from hero.training.memory import KeptForBackward

FIXED_SECONDS = 10e-3
"""Of an uncompiled update, whatever its size; see `hero.train.compiling_pays`."""
SECONDS_PER_KEPT = 5e-9
"""Of a forward and backward pass, for each number kept between them."""
FLOPS = 1e11
"""Per second, in the large matrix products of a wide operator."""
STAND_IN: dict[str, Any] = {
    "task.name": "burgers",
    "task.resolution": 16,
    "task.cutoff": 2,
    "backbone.name": "transolver",
    "backbone.width": 4,
    "backbone.depth": 1,
    "backbone.heads": 1,
    "backbone.slices": 2,
    "train.batch": 2,
}
"""An operator on which the passes of a strategy are counted quickly."""
WITHOUT_COST = {
    "train": ("steps", "warmup", "validate_every", "checkpoint_every", "keep_every", "lr", "weight_decay", "clip"),
    "hero": ("start", "refresh", "warmup", "lambda_max", "margin", "beta", "perturbation", "fixed_alpha"),
}
"""Settings that hardly change the cost of an update: schedules are shares of a run."""


@dataclass(frozen=True)
class Speed:
    """Seconds of an update (mean over a run) and of a validation, and where they are known from."""

    update: float
    validation: float
    source: str


def schedule(plan: Plan, runs_dir: Path) -> list[dict[str, Any]]:
    """A line for each run: its id, state, and the seconds that are left of it. Touches nothing."""
    speeds = Speeds(runs_dir)
    lines = []
    for config in plan.configs:
        run = runs_dir / config.run_id()
        try:
            state = state_of(run, config)
        except HeroError:
            state = "unreadable"
        done = steps_done(run) if state == "unfinished" else 0
        line: dict[str, Any] = {"run": run.name, "state": f"at step {done}" if done else state}
        if state == "finished":
            line |= {"seconds": 0.0, "source": ""}
        else:
            speed = speeds.of(config)
            every, left = config.train.validate_every or 1, config.train.steps - done
            line |= {"seconds": left * speed.update + -(-left // every) * speed.validation, "source": speed.source}
        lines.append(line)
    return lines


class Speeds:
    """The speed of runs, each kind looked up or counted once."""

    def __init__(self, runs_dir: Path) -> None:
        self.logged: dict[str, list[Path]] = {}
        self.known: dict[str, Speed] = {}
        self.passes: dict[str, float] = {}
        self.operators: dict[str, float] = {}
        for run in list_runs(runs_dir):
            try:
                self.logged.setdefault(cost_key(load_run(run)), []).append(run)
            except HeroError:
                continue  # of another version, say

    def of(self, config: RunConfig) -> Speed:
        """The speed of the run of `config`."""
        key = cost_key(config)
        if key not in self.known:
            found = (from_log(run) for run in reversed(self.logged.get(key, [])))
            self.known[key] = next((speed for speed in found if speed), None) or self.counted(config)
        return self.known[key]

    def counted(self, config: RunConfig) -> Speed:
        """By counting; a compiled run pays for its compilation in every update."""
        task = config.make_task()
        key = json.dumps([task.channels, task.dims, task.resolution, config.backbone.plain(), config.train.history])
        if key not in self.operators:
            self.operators[key] = operator_seconds(config)
        settings = config.method.plain()
        key_of_strategy = json.dumps([config.strategy, settings, config.train.steps, config.train.unroll], default=str)
        if key_of_strategy not in self.passes:
            self.passes[key_of_strategy] = passes_per_window(config)
        one_pass, train = self.operators[key], config.train
        update = FIXED_SECONDS + train.batch * self.passes[key_of_strategy] * one_pass
        compiling = COMPILE_SECONDS * config.backbone.blocks
        varies = config.make_strategy().has_variable_length
        if train.compile != "false" and not varies and COMPILED_SAVES * train.steps * update > compiling:
            update = (1 - COMPILED_SAVES) * update + compiling / train.steps
        return Speed(update, 100 * config.data.val_trajectories * one_pass, "counted")


def cost_key(config: RunConfig) -> str:
    """Equal for runs whose updates cost the same."""
    values = copy.deepcopy(config.to_dict())
    del values["seed"]
    for section, names in WITHOUT_COST.items():
        for name in names:
            values.get(section, {}).pop(name, None)
    return json.dumps(values, sort_keys=True)


def from_log(run: Path) -> Speed | None:
    """As a run of the same kind has logged it; what its updates do not explain are the validations."""
    log = read_log(run)
    trained = [record for record in log if "seconds" in record]
    if not trained:
        return None
    update, last = logged_seconds(log), trained[-1]
    validations = sum("val_gm100" in record for record in log)
    rest = max(0.0, last["seconds"] - update * last["step"])
    return Speed(update, rest / max(1, validations), "logged")


def operator_seconds(config: RunConfig) -> float:
    """Seconds of a forward pass of one sample, a third of forward and backward."""
    task = config.make_task()
    # Any strategy will do except one with an operator of its own.
    plain = make_config(overrides={**flat(config), "strategy": "one_step"})
    try:
        with torch.device("meta"):
            model = plain.build_operator()
        return pass_seconds(model, plain, task.channels, task.grid("meta").space, "meta")
    except Exception:  # whatever anyone's module may raise when there are no numbers to look at
        return pass_seconds(plain.build_operator(), plain, task.channels, task.grid().space, "cpu")


def pass_seconds(
    model: torch.nn.Module, config: RunConfig, channels: int, space: tuple[int, ...], device: str
) -> float:
    """The slower of what its products and what its memory take."""
    inputs = (config.train.history * channels, *space)
    flops = count_forward(model, torch.ones(1, *inputs, device=device))
    kept = []
    for size in (1, 2):  # the difference leaves out what does not depend on the batch
        counter = KeptForBackward(model)
        with counter.hooks():
            model(torch.ones(size, *inputs, device=device))
        kept.append(counter.nbytes())
    return max(SECONDS_PER_KEPT * (kept[1] - kept[0]) / 4 / 3, flops / FLOPS)


def passes_per_window(config: RunConfig) -> float:
    """Forward passes that an update makes for each window, a backward one counting twice; the mean over a run."""
    sections = {key: value for key, value in flat(config).items() if not key.startswith(("task.", "backbone."))}
    small = make_config(overrides={**sections, **STAND_IN})
    task = small.make_task()
    model = small.build_operator()
    phases = phases_of(config)
    counts = count_at(small, model, phases, STAND_IN["train.batch"])
    plain = make_config(overrides={**STAND_IN, "strategy": "one_step"}).build_operator()
    step = count_forward(plain, torch.ones(1, task.channels, task.resolution))
    total = sum(phase.updates * count.flops for phase, count in zip(phases, counts, strict=True))
    return total / (config.train.steps * STAND_IN["train.batch"] * step)


def flat(config: RunConfig) -> dict[str, Any]:
    """A configuration as dotted keys."""
    out: dict[str, Any] = {}
    for key, value in config.to_dict().items():
        out |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return out


def duration(seconds: float) -> str:
    """For people: "40 s", "12 min", "3.5 h", "8 days"."""
    for unit, size, until in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < until * size:
            return f"{seconds / size:.0f} {unit}" if unit != "h" else f"{seconds / size:.1f} h"
    return f"{seconds / 86400:,.0f} days"


def schedule_table(lines: list[dict[str, Any]]) -> Table:
    """One line per run."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for name in ("state", "left", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        left = duration(line["seconds"]) if line["state"] != "finished" else ""
        table.add_row(line["run"], line["state"], left, line["source"])
    return table


def schedule_sentences(lines: list[dict[str, Any]], workers: int) -> list[str]:
    """The totals, and how far they can be trusted."""
    if not lines:
        return ["This study trains nothing: it measures, about a minute for each row."]
    rest = [line for line in lines if line["state"] != "finished"]
    total = sum(line["seconds"] for line in rest)
    done = len(lines) - len(rest)
    found = [f"{len(lines)} runs, {done} finished; about {duration(total)} left, one after the other."]
    if workers > 1 and rest:
        longest = max(line["seconds"] for line in rest)
        found.append(
            f"With {workers} workers at best {duration(max(total / workers, longest))}: if each has cores of its own."
        )
    if any(line["source"] == "logged" for line in rest):
        found.append("Logged: as a run of the same kind has logged its updates and validations here.")
    if any(line["source"] == "counted" for line in rest):
        found.append("Counted: for two CPU cores, right within a factor of three; a GPU is faster.")
    return found
