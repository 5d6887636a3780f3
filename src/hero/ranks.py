"""This process among those that torchrun started for one run. Free of torch, so that help is immediate."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """Number `rank` of `count` processes, and number `local` of those on this machine."""

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes, prints and evaluates for all of them."""
        return self.rank == 0


def ranks_of_environment() -> Ranks:
    """The variables that torchrun sets; one process where they are not there."""
    values = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    is_ours = "MASTER_ADDR" in os.environ and all(value.isdecimal() for value in values)
    return Ranks(*map(int, values)) if is_ours and int(values[1]) > 1 else Ranks()


RANKS = ranks_of_environment()
