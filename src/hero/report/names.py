"""Display names of parts, which the parts carry themselves; an unregistered part is called by its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.models import BACKBONES
from hero.strategies import STRATEGIES


def part_title(registry: Mapping[str, Any], name: str) -> str:
    """The title of a registered part; of a user's own `package.module:Name` the name."""
    return getattr(registry.get(name), "title", "") or name.rpartition(":")[2]


def method_title(strategy: str) -> str:
    """The display name of a strategy."""
    return part_title(STRATEGIES, strategy)


def method_phrase(strategy: str) -> str:
    """The strategy in a sentence: "trained with ..."."""
    return getattr(STRATEGIES.get(strategy), "phrase", "") or method_title(strategy)


def backbone_title(name: str) -> str:
    """The display name of a backbone."""
    return part_title(BACKBONES, name)


def candidate_titles(names: Iterable[str]) -> dict[str, str]:
    """The titles of these candidates, in the order of the registry and then of the names."""
    return _titles(CANDIDATES, set(names))


def diagnostic_titles(names: Iterable[str]) -> dict[str, str]:
    """The titles of these diagnostics, in the order of the registry and then of the names."""
    return _titles(DIAGNOSTICS, set(names))


def _titles(registry: Mapping[str, Any], names: set[str]) -> dict[str, str]:
    ordered = [*(name for name in registry if name in names), *sorted(names - registry.keys())]
    return {name: part_title(registry, name) for name in ordered}
