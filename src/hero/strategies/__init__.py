"""Training strategies by name: `STRATEGIES["mine"] = Mine` adds one; `package.module:Class` names one elsewhere."""

from __future__ import annotations

from typing import Any

from hero.config import Registry
from hero.strategies.base import Compiler, Loss, Setup, Strategy
from hero.strategies.diverted_chain import DivertedChain
from hero.strategies.hero import FixedWeightStrategy, HeroStrategy
from hero.strategies.one_step import OneStep
from hero.strategies.push_forward import PushForward, Recurrent
from hero.strategies.refiner import Refiner
from hero.strategies.settings import TrainSettings

__all__ = ["STRATEGIES", "Compiler", "Loss", "Setup", "Strategy", "TrainSettings"]

STRATEGIES: Registry[type[Strategy[Any]]] = Registry(
    "strategy",
    {
        "one_step": OneStep,
        "push_forward": PushForward,
        "recurrent": Recurrent,
        "diverted_chain": DivertedChain,
        "hero": HeroStrategy,
        "fixed_weight": FixedWeightStrategy,
        "refiner": Refiner,
    },
    base=Strategy,
)
