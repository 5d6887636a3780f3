"""A cell of a table: ours over seeds, the paper's, their ratio, and whether it is the best of its column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hero.report.tables import as_float


def cell(values: Mapping[str, Any], published: Mapping[str, Any] | None) -> dict[str, Any]:
    """A mean over seeds, as `mean_and_deviation` gives it, beside the published one."""
    ratio = as_float(values["mean"]) / published["mean"] if published and published["mean"] else None
    return {**values, "paper": published, "ratio": ratio, "best": False}


def mark_best(cells: Sequence[dict[str, Any] | None], direction: str) -> None:
    """Mark the best finite means of a column, unless there is nothing they are better than."""
    present = [(as_float(cell["mean"]), cell) for cell in cells if cell]
    finite = [mean for mean, _ in present if math.isfinite(mean)]
    if not finite or len({mean for mean, _ in present}) < 2:
        return
    best = min(finite) if direction == "lower" else max(finite)
    for mean, found in present:
        found["best"] = mean == best
