"""The figures that the HERO paper published, to print beside ours. They are references, never targets."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

Published = dict[str, dict[str, float]]


def paper_value(task: str, backbone: str, strategy: str) -> Published | None:
    """The paper's row for this combination, or None where it has none (`kdv_difficulty`, `fixed_weight`, own models).

    Keys are `val_gm100`, `test_gm100`, `nrmse@1`, `nrmse@100`, `stable_step`, each with its `mean` and `std`.
    """
    row: Published | None = _paper()["complete"].get(task, {}).get(backbone, {}).get(strategy)
    return row


def paper_row(table: str, *keys: str) -> dict[str, dict[str, float | None]] | None:
    """A row of one of the paper's other tables, where it gives means alone: the `std` is None."""
    row = _paper()[table]
    for key in keys:
        row = row.get(key, {})
    return {name: {"mean": value, "std": None} for name, value in row.items()} or None


@cache
def _paper() -> dict[str, Any]:
    text = resources.files("hero.report").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
