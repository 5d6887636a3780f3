"""The paper's protocol on Burgers for the peers of `solution.py`; without torch, which one of them never loads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

PAPER_1D = {"width": 28, "modes": 28, "depth": 1}
BATCH, UNROLL, LR, WEIGHT_DECAY, CLIP = 20, 5, 1e-3, 0.01, 1.0


def learning_rate(step: int, updates: int) -> float:
    """Linear over the first fifth, then cosine to 0."""
    warmup = max(1, updates // 5)
    if step < warmup:
        return LR * (step + 1) / warmup
    return LR * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, updates - warmup)))


def learning_rates(updates: int) -> np.ndarray:
    return np.array([learning_rate(step, updates) for step in range(updates)], np.float32)


def windows(shape: tuple[int, int], updates: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and first states of the windows of each update, all windows once per epoch in a random order."""
    trajectories, times = shape
    starts, draw = times - UNROLL, np.random.default_rng(0)
    order = np.empty(0, int)
    for _ in range(updates):
        if len(order) < BATCH:
            order = draw.permutation(trajectories * starts)
        batch, order = order[:BATCH], order[BATCH:]
        yield np.divmod(batch, starts)


def scores(errors: np.ndarray) -> dict[str, float]:
    """GM100 and nRMSE@100 of errors (trajectory, step)."""
    first = errors[:, :100].astype(np.float64)
    gm = np.exp(np.log(first + 1e-8).mean(axis=1)).mean()
    return {"gm100": float(gm), "nrmse@100": float(first[:, -1].mean())}
