"""Display names of parts, which the parts carry themselves; a part that is not registered is called by its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hero.errors import HeroError
from hero.method.metrics import Metric, Scoring, metric_named


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
    from hero.strategies import STRATEGIES  # which loads torch; titles of metrics need none

    return title_of(STRATEGIES, strategy)


BASELINE_TITLES = {"persistence": "First state kept", "mean": "Mean state"}
BASELINE_MEANINGS = {
    "persistence": "The error of predicting that nothing changes: the last given state stays.",
    "mean": "The error of predicting the mean over all training trajectories and times.",
}


def find_metric(name: str, scoring: Scoring | None = None) -> Metric | None:
    """The metric `name` in a scoring; None for other columns, and for a metric that is not registered here."""
    try:
        return metric_named(name, scoring)
    except HeroError:
        return None


def metric_title(name: str, scoring: Scoring | None = None) -> str:
    """The display name of a metric."""
    found = find_metric(name, scoring)
    return found.title if found else name


def metric_definition(name: str, scoring: Scoring | None = None) -> str:
    """The definition of a metric, in a sentence or two."""
    found = find_metric(name, scoring)
    return found.definition if found else ""
