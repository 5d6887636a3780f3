"""Display names of parts, which the parts carry themselves; a part that is not registered is called by its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hero.method.metrics import METRICS
from hero.strategies import STRATEGIES


def title_of(registry: Mapping[str, Any], name: str) -> str:
    """The title of a registered part; of a user's own `package.module:Name` the name."""
    return getattr(registry.get(name), "title", "") or name.rpartition(":")[2]


def titles_of(registry: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """The titles of these parts, in the order of the registry and then of the names."""
    names = set(names)
    ordered = [*(name for name in registry if name in names), *sorted(names - registry.keys())]
    return {name: title_of(registry, name) for name in ordered}


def method_title(strategy: str) -> str:
    """The display name of a strategy."""
    return title_of(STRATEGIES, strategy)


def metric_title(name: str) -> str:
    """The display name of a metric."""
    return title_of(METRICS, name)
