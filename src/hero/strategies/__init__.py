"""Training strategies by name."""

from __future__ import annotations

from hero.strategies.base import Batch, Loss, Strategy
from hero.strategies.diverted_chain import DivertedChain
from hero.strategies.fixed_weight import FixedWeight
from hero.strategies.hero import Hero
from hero.strategies.history_replay import HistoryReplay
from hero.strategies.one_step import OneStep
from hero.strategies.push_forward import PushForward
from hero.strategies.recurrent import Recurrent
from hero.strategies.refiner import Refiner

__all__ = ["STRATEGIES", "Batch", "Loss", "Strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "one_step": OneStep,
    "push_forward": PushForward,
    "recurrent": Recurrent,
    "diverted_chain": DivertedChain,
    "history_replay": HistoryReplay,
    "hero": Hero,
    "fixed_weight": FixedWeight,
    "refiner": Refiner,
}
