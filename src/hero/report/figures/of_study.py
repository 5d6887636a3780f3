"""Placeholder until `hero.study` returns typed results: see `studies.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure


def study_figures(*_: Any) -> Iterator[tuple[str, Figure]]:
    """No figures."""
    return iter(())
