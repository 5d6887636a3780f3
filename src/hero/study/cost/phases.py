"""Updates of a run that cost the same: what a strategy does early, late, and while a cache is filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hero.data.windows import Batches
from hero.strategies import Strategy, TrainSettings
from hero.strategies.hero import HeroStrategy, RelativeStrategy


@dataclass(frozen=True)
class Phase:
    """Updates that cost the same, and an update that stands for them: repeating it repeats that cost."""

    name: str
    updates: int
    step: int


def phases_of(strategy: Strategy[Any], windows: Batches) -> list[Phase]:
    """The phases of a run with these windows, in their order; the updates add up to train.steps.

    HERO's cache saves much of the lagged candidate, once it is filled after a refresh.
    """
    steps = strategy.train.steps
    if not isinstance(strategy, RelativeStrategy):
        return [Phase("training", steps, steps - 1)]
    start, filling, between = strategy.settings.start, 0, steps - 1
    last_refresh = between
    if isinstance(strategy, HeroStrategy):
        refresh = strategy.settings.refresh
        last_refresh = start + (steps - 1 - start) // refresh * refresh
        between = steps - 1 if steps - 1 != last_refresh else steps - 2
        if strategy.settings.lambda_max and windows_repeat(strategy.train):
            filling = filling_updates(windows, start, steps, refresh)
    found = [
        Phase("before hero.start", start, start - 1),
        Phase("cache filling", filling, last_refresh),
        Phase("cache filled" if filling else "after hero.start", steps - start - filling, between),
    ]
    return [phase for phase in found if phase.updates > 0]


def filling_updates(windows: Batches, start: int, steps: int, refresh: int) -> int:
    """How many updates roll the lagged operator out because a window of theirs is not in the cache: the expectation.

    With E batches of B windows per epoch and a refresh at position p of an epoch, the E - p batches left are all new.
    Of the next epoch's windows a share p/E is still missing, and a batch meets one with probability 1 - (1 - p/E)^B.
    """
    epoch, total = windows.per_epoch, 0.0
    for step in range(start, steps, refresh):
        length = min(refresh, steps - step)
        position = step % epoch
        first = min(length, epoch - position)
        second = min(length - first, epoch)
        total += first + second * (1 - (1 - position / epoch) ** windows.batch)
    return round(total)


def windows_repeat(train: TrainSettings) -> bool:
    """Whether windows are identical on every visit, so that results can be cached per window."""
    return train.curriculum == "fixed" and not train.noise and train.scale == 1


def cache_bytes(strategy: Strategy[Any]) -> int:
    """Bytes of the caches that a strategy holds now."""
    return strategy.state.cache.nbytes() if isinstance(strategy, RelativeStrategy) else 0
