"""The phases of a run: updates that cost the same. HERO adds its candidates at s_0, and a cache saves much of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hero.data.windows import Windows
from hero.runs.config import RunConfig
from hero.strategies.hero import HeroSettings, RelativeSettings


@dataclass(frozen=True)
class Phase:
    """Updates of a run that cost the same, and a step that stands for them: repeating it repeats that cost."""

    name: str
    updates: int
    step: int


def phases_of(config: RunConfig) -> list[Phase]:
    """The phases of a run in their order; the updates add up to train.steps."""
    steps = config.train.steps
    method = config.method
    if not isinstance(method, RelativeSettings):
        return [Phase("training", steps, steps - 1)]
    start, refresh = method.start, method.refresh if isinstance(method, HeroSettings) else steps
    last_refresh = start + (steps - 1 - start) // refresh * refresh
    between = steps - 1 if steps - 1 != last_refresh else steps - 2
    filling = 0
    if isinstance(method, HeroSettings) and method.lambda_max and numbered(config):
        filling = filling_updates(config, method)
    found = [
        Phase("before hero.start", start, start - 1),
        Phase("cache filling", filling, last_refresh),
        Phase("cache filled" if filling else "after hero.start", steps - start - filling, between),
    ]
    return [phase for phase in found if phase.updates > 0]


def filling_updates(config: RunConfig, method: HeroSettings) -> int:
    """How many updates roll the lagged operator out because a window of theirs is not in the cache: the expectation.

    With E batches of B windows per epoch and a refresh at position p of an epoch, the E - p batches left are all new.
    Of the next epoch's windows a share p/E is still missing, and a batch meets one with probability 1 - (1 - p/E)^B.
    """
    windows = empty_windows(config)
    epoch, steps, refresh = windows.per_epoch, config.train.steps, method.refresh
    total = 0.0
    for step in range(method.start, steps, refresh):
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
    """Whether windows are identical on every visit, so that results can be cached per window."""
    return config.train.curriculum == "fixed" and not config.train.noise
