"""Statistics of a comparison: means over seeds, and differences of two strategies paired by seed and trajectory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000


def mean_and_deviation(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation; infinite and undefined if a value is infinite, for none is left out."""
    if not np.isfinite(values).all():
        return {"mean": float("inf"), "std": None, "values": list(values)}
    mean = statistics.fmean(values) if values else None
    return {"mean": mean, "std": statistics.stdev(values) if len(values) > 1 else None, "values": list(values)}


def paired_difference(ours: np.ndarray, baseline: np.ndarray, resamples: int = RESAMPLES) -> dict[str, Any]:
    """100 (ē − ē⁰) / ē⁰ for errors e, e⁰ (seed, trajectory), with its 95 % percentile bootstrap interval.

    Seeds are drawn with replacement, and so are trajectories, the same ones for both strategies. One draw of
    trajectories serves all seeds, because they are all tested on the same. A diverged rollout makes the difference
    infinite, or undefined if it is the baseline's, and leaves no interval.
    """

    def percent(e: np.ndarray, e0: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return 100 * ((e - e0) / e0)

    seeds, trajectories = ours.shape
    known = {
        "percent": float(percent(ours.mean(), baseline.mean())),
        "per_seed": percent(ours.mean(axis=1), baseline.mean(axis=1)).tolist(),
    }
    if not (np.isfinite(ours).all() and np.isfinite(baseline).all()):
        return {**known, "interval": None}
    # How often each seed and each trajectory is drawn is all that a resampled mean depends on.
    generator = np.random.default_rng(0)
    drawn_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    drawn = generator.multinomial(trajectories, np.full(trajectories, 1 / trajectories), size=resamples)
    resampled = percent(*(((drawn_seeds @ e) * drawn).sum(axis=1) for e in (ours, baseline)))
    return {**known, "interval": np.quantile(resampled, (0.025, 0.975)).tolist()}
