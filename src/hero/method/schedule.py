"""Pure functions of the step: the learning rate, and the weight of HERO's relative term."""

from __future__ import annotations

import math

from hero.seeding import seed_of


def learning_rate(step: int, peak: float, warmup: int, total: int) -> float:
    """Linear to `peak` over `warmup` updates, then cosine towards 0 at `total`; `step` counts from 0."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def relative_weight(step: int, start: int, warmup: int, lambda_max: float) -> float:
    """λ_s = λ_max clip((s - s_0) / W, 0, 1)."""
    return lambda_max * min(max((step - start) / warmup, 0.0), 1.0)


def refresh_due(step: int, start: int, refresh: int) -> bool:
    """Whether the lagged operator is copied before update s: at s_0 and where (s - s_0) mod R = 0 after it."""
    return step >= start and (step - start) % refresh == 0


def unroll_length(curriculum: str, step: int, steps: int, longest: int, seed: int) -> int:
    """K of update `step`: the longest, or growing to it in equal stages, or drawn evenly from 1 to it."""
    if curriculum == "steps":
        return min(longest, 1 + step * longest // steps)
    if curriculum == "random":
        return 1 + seed_of(seed, "unroll", step) % longest
    return longest
