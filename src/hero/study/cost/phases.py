"""The phases of a run: updates that cost the same.

HERO adds its candidates at s_0, and a cache saves much of them; history_replay fills its buffer now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hero.data.windows import Windows
from hero.method.objective import HeroObjective
from hero.method.schedule import refresh_due
from hero.runs.config import RunConfig
from hero.strategies import Strategy
from hero.strategies.history_replay import HistoryReplay


@dataclass(frozen=True)
class Phase:
    """Updates of a run that cost the same, and a step that stands for them: repeating it repeats that cost."""

    name: str
    updates: int
    step: int


def phases_of(config: RunConfig) -> list[Phase]:
    """The phases of a run in their order; the updates add up to train.steps."""
    steps = config.train.steps
    strategy = config.make_strategy()
    if isinstance(strategy, HistoryReplay):
        return replay_phases(config)
    if "hero" not in strategy.sections:
        return [Phase("training", steps, steps - 1)]
    start, refresh = config.hero.start or 0, config.hero.refresh or 1
    last_refresh = start + (steps - 1 - start) // refresh * refresh
    between = steps - 1 if steps - 1 != last_refresh else steps - 2
    filling = filling_updates(config) if objective_of(strategy) is not None and numbered(config) else 0
    found = [
        Phase("before hero.start", start, start - 1),
        Phase("cache filling", filling, last_refresh),
        Phase("cache filled" if filling else "after hero.start", steps - start - filling, between),
    ]
    return [phase for phase in found if phase.updates > 0]


def replay_phases(config: RunConfig) -> list[Phase]:
    """Updates that fill the buffer, and those between them; the relative term, if asked for, never finds a cache.

    Without replayed windows (share 0) no buffer is filled either.
    """
    replay, start = config.history_replay, config.history_replay.start or 0
    found: dict[str, list[int]] = {}
    for step in range(config.train.steps):
        if round(replay.share * config.train.batch) == 0:
            name = "training"
        elif step < start:
            name = "before history_replay.start"
        else:
            name = "buffer refresh" if refresh_due(step, start, replay.refresh or 1) else "replaying"
        if replay.relative and step >= (config.hero.start or 0):
            name += ", relative term"
        found.setdefault(name, []).append(step)
    return [Phase(name, len(steps), steps[-1]) for name, steps in found.items()]


def filling_updates(config: RunConfig) -> int:
    """How many updates roll the lagged operator out because a window of theirs is not in the cache: the expectation.

    With E batches of B windows per epoch and a refresh at position p of an epoch, the E - p batches left are all new.
    Of the next epoch's windows a share p/E is still missing, and a batch meets one with probability 1 - (1 - p/E)^B.
    """
    windows = empty_windows(config)
    epoch, steps, refresh = windows.per_epoch, config.train.steps, config.hero.refresh or 1
    total = 0.0
    for step in range(config.hero.start or 0, steps, refresh):
        length = min(refresh, steps - step)
        position = step % epoch
        first = min(length, epoch - position)
        second = min(length - first, epoch)
        total += first + second * (1 - (1 - position / epoch) ** windows.batch)
    return round(total)


def empty_windows(config: RunConfig) -> Windows:
    """The run's windows without their data, for how many there are."""
    return config.windows(torch.empty(config.data.train_trajectories, config.data.train_steps + 1, 0))


def numbered(config: RunConfig) -> bool:
    """Whether a window is the same whenever it comes by, so that something may be kept for it: see `windows.vary`."""
    return config.train.curriculum == "fixed" and not config.train.noise


def objective_of(strategy: Strategy) -> HeroObjective | None:
    """The part of a strategy that caches per window, if it has one."""
    found = getattr(getattr(strategy, "base", strategy), "objective", None)
    return found if isinstance(found, HeroObjective) else None
