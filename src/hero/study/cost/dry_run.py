"""A study before it is run: every run with its state, and about how long the rest takes.

The time of an update is taken from the logs of runs of the same cost in the folder of the runs; where there are none it
is unknown. Making data, evaluation and drawing are left out.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from hero.errors import HeroError
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.records import Log
from hero.runs.stored import list_runs
from hero.study.plans import Plan


@dataclass(frozen=True)
class ScheduledRun:
    """A run of a study; `seconds` are left of it, None if no run of its kind has logged its speed."""

    run: str
    state: str
    seconds: float | None


@dataclass(frozen=True)
class Speed:
    """Seconds of an update, the mean over a run, and of a validation."""

    update: float
    validation: float


def schedule(plan: Plan, runs_dir: Path) -> list[ScheduledRun]:
    """Every run of a study. Touches nothing."""
    logged = logged_speeds(runs_dir)
    found = []
    for config in plan.configs:
        run = Run(runs_dir / config.run_id())
        try:
            state = run.status
            done = run.log.steps if state.startswith("at step") else 0
        except HeroError:
            state, done = "unreadable", 0
        seconds, left = None, config.train.steps - done
        if state in ("finished", "not evaluated"):
            seconds = 0.0
        elif speed := logged.get(cost_key(config)):
            seconds = left * speed.update + -(-left // config.train.validate_every) * speed.validation
        found.append(ScheduledRun(run.name, state, seconds))
    return found


def logged_speeds(runs_dir: Path) -> dict[str, Speed]:
    """Kind of run -> the speed that the newest run of it has logged; the rest of its time went to validations."""
    found = {}
    for run in map(Run, list_runs(runs_dir)):
        try:
            log, key = run.log, cost_key(run.config)
        except HeroError:
            continue  # of another version, say
        if log.training:
            update, last = logged_seconds(log), log.training[-1]
            rest = max(0.0, last.seconds - update * last.step)
            found[key] = Speed(update, rest / max(1, len(log.validation)))
    return found


def cost_key(config: RunConfig) -> str:
    """Equal for runs whose updates cost the same."""
    return json.dumps(config.flat("seed", *config.flagged("cost", False)), sort_keys=True)


def logged_seconds(log: Log) -> float:
    """Mean seconds of an update, from the stretches of a log without a validation: in short runs those dominate.

    A stretch reaches from one record of training to the next; the validation after update n falls into the one that
    begins at n or holds it. Where every stretch has one, all count.
    """
    validated = [record.step for record in log.validation]
    trained = [(0, 0.0), *((record.step, record.seconds) for record in log.training)]
    stretches = list(itertools.pairwise(trained))
    free = [(a, b) for a, b in stretches if not any(a[0] <= step < b[0] for step in validated)]
    chosen = free or stretches
    return sum(b[1] - a[1] for a, b in chosen) / sum(b[0] - a[0] for a, b in chosen)
