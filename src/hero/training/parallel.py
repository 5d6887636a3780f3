"""A run of several processes: what their shares of a batch cannot train, and whether they begin alike."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from hero.errors import HeroError
from hero.method.cache import mixes_samples
from hero.parallel import from_first
from hero.ranks import RANKS


def check_shares(model: nn.Module, batch: int, parts: int) -> None:
    """Refuse more processes than windows of a batch, and modules whose output for a sample depends on the others."""
    if RANKS.count == 1 and parts == 1:
        return
    if RANKS.count > 1 and parts > 1:
        raise HeroError(f"train.accumulate={parts} is for one process; {RANKS.count} compute a batch in parts already.")
    if batch < RANKS.count:
        raise HeroError(
            f"train.batch={batch} leaves nothing to some of the {RANKS.count} processes; raise it, or start fewer."
        )
    for name, module in model.named_modules():
        if mixes_samples(module):
            raise HeroError(
                f"{type(module).__name__} ({name}) mixes the samples of a batch, which is computed in parts; "
                "train it in one process with train.accumulate=1, or normalise each sample, as GroupNorm does."
            )


def check_same_start(run: Path, step: int) -> None:
    """Refuse processes that found another checkpoint than the first one, as without a shared folder."""
    expected = from_first(lambda: step)
    if step != expected:
        raise HeroError(
            f"process {RANKS.rank} finds {run} at update {step}, the first process at {expected}; put the "
            "folder of the runs where all machines see it."
        )
