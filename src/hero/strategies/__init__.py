"""Training strategies by name."""

from __future__ import annotations

from hero.strategies.base import Batch, Loss, Strategy
from hero.strategies.fixed_weight import FixedWeight
from hero.strategies.hero import Hero
from hero.strategies.one_step import OneStep
from hero.strategies.push_forward import PushForward

__all__ = ["STRATEGIES", "Batch", "Loss", "Strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "one_step": OneStep,
    "push_forward": PushForward,
    "hero": Hero,
    "fixed_weight": FixedWeight,
}
