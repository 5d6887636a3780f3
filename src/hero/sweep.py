"""Many runs: in local worker processes or on a Ray cluster, into one folder of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hero.config import RunConfig
from hero.errors import HeroError
from hero.evaluate import evaluate, final_metrics
from hero.train import train


@dataclass(frozen=True)
class Workers:
    """Where runs are computed: `count` local processes, or the Ray cluster at an address."""

    count: int = 1
    cluster: str | None = None
    cpus: float | None = None
    gpus: float = 0.0
    retries: int = 3


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `failed` is None if it is trained and evaluated, else the reason."""

    config: RunConfig
    run: Path
    failed: str | None


def sweep(
    configs: Sequence[RunConfig], runs_dir: Path, data_dir: Path, workers: Workers | None = None
) -> list[Outcome]:
    """Train and evaluate every configuration, except those that are finished; a failed one does not stop the rest."""
    outcomes = []
    for config in configs:
        failed = None
        try:
            run = train(config, runs_dir, data_dir)
            final_metrics(run) or evaluate(run, data_dir)
        except HeroError as error:
            failed = str(error)
        outcomes.append(Outcome(config, runs_dir / config.run_id(), failed))
    return outcomes
