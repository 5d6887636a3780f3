"""Pure functions of the update: the weight of HERO's relative term and the refreshes of the lagged operator."""

from __future__ import annotations


def relative_weight(step: int, start: int, warmup: int, lambda_max: float) -> float:
    """λ_s = λ_max clip((s - s_0) / W, 0, 1)."""
    return lambda_max * min(max((step - start) / warmup, 0.0), 1.0)


def refresh_due(step: int, start: int, refresh: int) -> bool:
    """Whether the lagged operator is copied before update s: at s_0 and where (s - s_0) mod R = 0 after it."""
    return step >= start and (step - start) % refresh == 0
