"""Display names of parts, which the parts carry themselves; a part that is not registered is called by its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.metrics import METRICS
from hero.models import BACKBONES
from hero.strategies import STRATEGIES


def title_of(registry: Mapping[str, Any], name: str) -> str:
    """The title of a registered part; of a user's own `package.module:Name` the name."""
    return getattr(registry.get(name), "title", "") or name.rpartition(":")[2]


def method_title(strategy: str) -> str:
    """The display name of a strategy."""
    return title_of(STRATEGIES, strategy)


def backbone_title(name: str) -> str:
    """The display name of a backbone."""
    return title_of(BACKBONES, name)


def metric_title(name: str) -> str:
    """The display name of a metric."""
    return title_of(METRICS, name)


def candidate_titles(names: Iterable[str]) -> dict[str, str]:
    """The titles of these candidates, in the order of the registry and then of the names."""
    return _titles(CANDIDATES, set(names))


def diagnostic_titles(names: Iterable[str]) -> dict[str, str]:
    """The titles of these diagnostics, in the order of the registry and then of the names."""
    return _titles(DIAGNOSTICS, set(names))


def _titles(registry: Mapping[str, Any], names: set[str]) -> dict[str, str]:
    ordered = [*(name for name in registry if name in names), *sorted(names - registry.keys())]
    return {name: title_of(registry, name) for name in ordered}
