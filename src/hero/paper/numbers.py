"""The numbers that the HERO paper published, and whether a run may stand next to them. References, never targets.

`paper.csv` has one line for each row of the paper's tables: `mean±std` over five seeds where the paper gives both, else
the mean. Rows of the table `complete` and of the `ood` and `cost` tables are named by their strategy, the rows of the
others by the paper's label.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

from hero.data import FileSettings
from hero.method.measures import HORIZON
from hero.runs.config import RunConfig, make_config
from hero.study.collect import Publication
from hero.study.records import Published

KEY = ("table", "task", "backbone", "row")
STEPS = 10_000  # updates of every run of the paper

SECOND_READINGS: dict[str, dict[str, Any]] = {
    "kuramoto_sivashinsky": {"task.gradient_norm": -2.0, "task.kept_mean": 1.0}  # as printed: docs/reference/tasks.md
}
"""Settings of a task that the paper can be read to mean as well as our default."""


def published_row(table: str, task: str, backbone: str, row: str) -> Mapping[str, Published] | None:
    """A row of one of the paper's tables by the name of its columns, or None where the paper has none."""
    return _paper().get((table, task, backbone, row))


def differences(config: RunConfig, own: Collection[str] = ()) -> list[str]:
    """How a run departs from the paper's protocol, such as "train.steps=400 (paper: 10000)"; empty if it does not.

    `own` names settings that the published row itself changes, for example hero.start in the table of start steps.
    """
    if isinstance(config.data, FileSettings):
        return [f"the data, {config.task.name}, are not in the paper"]
    _, *published = zip(*(key for key in _paper() if key[0] == "complete"), strict=True)
    for known, kind in zip(published, ("task", "backbone", "strategy"), strict=True):
        if (name := config.identity()[kind]) not in known:
            return [f"{kind} {name} is not in the paper"]
    found = config.flat()
    # Settings that others are derived from: another number of updates is one difference, not five.
    shared = ("task.name", "backbone.name", "backbone.size", "strategy", "train.steps")
    protocol = make_config(overrides={name: found[name] for name in shared if name in found}).flat()
    protocol["train.steps"] = STEPS
    if (second := SECOND_READINGS.get(config.task.name, {})).items() <= found.items():
        protocol |= second
    unstated = config.flagged("stated", False)
    differing = [
        f"{name}={_text(value)} (paper: {_text(protocol.get(name, 'not set'))})"
        for name, value in found.items()
        if protocol.get(name) != value and name not in own and name not in unstated
    ]
    if config.horizon != HORIZON:
        differing.append(f"rollouts are scored over {config.horizon} steps (paper: {HORIZON})")
    return differing


@cache
def _paper() -> dict[tuple[str, ...], dict[str, Published]]:
    """Every row of paper.csv by its key."""
    text = resources.files("hero.paper").joinpath("paper.csv").read_text(encoding="utf-8")
    rows = {}
    for line in csv.DictReader(text.splitlines()):
        key = tuple(line.pop(name) for name in KEY)
        cells = {name: map(float, cell.split("±")) for name, cell in line.items() if cell}
        rows[key] = {name: Published(mean=next(numbers), std=next(numbers, None)) for name, numbers in cells.items()}
    return rows


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else f"{value}"


PAPER = Publication(published_row, differences)
