"""Training strategies by name: `STRATEGIES["mine"] = Mine` adds one; `package.module:Class` names one elsewhere."""

from __future__ import annotations

from typing import Any

from hero.config.registry import Registry, import_subclass
from hero.parts import STRATEGIES as BY_NAME
from hero.strategies.base import Compiler, Loss, Setup, Strategy
from hero.strategies.settings import TrainSettings

__all__ = ["STRATEGIES", "Compiler", "Loss", "Setup", "Strategy", "TrainSettings"]

STRATEGIES: Registry[type[Strategy[Any]]] = BY_NAME


def user_strategy(name: str) -> type[Strategy[Any]]:
    """The subclass of Strategy called `package.module:Class`."""
    found: type[Strategy[Any]] = import_subclass("strategy", name, Strategy)
    return found
