"""The size of the default network for files: trains networks of several sizes on several kinds of data.

A row is added as soon as its run ends and finished rows are not repeated, so the table survives a kill. Its scores are
validation scores; the test split is never read here.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.network_data import file_settings
from benchmarks.tuning import append_row, read_rows
from hero.config import parse_override
from hero.errors import HeroError
from hero.method.metrics import summarise
from hero.method.rollout_errors import baseline_errors
from hero.models import count_parameters
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run, load_data
from hero.study.cost.measure import DryRun
from hero.training.loop import train

COLUMNS = (
    *("data", "backbone", "width", "depth", "modes", "more", "updates", "seed"),
    *("parameters", "seconds", "cost", "score", "persistence", "failure"),
)
"""`seconds` of an update on one thread, `cost` the same over the paper's network on the same data, `score` the best
validation score (geometric mean of VRMSE over the rollout)."""
PAPER = "backbone.size=apebench"
"""The network that the cost is measured against."""
TURNS, UPDATES = 3, 2
"""Turns of the two networks whose costs are compared, and updates in each."""


def measure(
    kinds: Sequence[str], arms: Sequence[str], updates: int, seeds: Sequence[int], table: Path, folder: Path
) -> None:
    """Train what is missing in `table`; an arm is its settings, separated by spaces."""
    torch.set_num_threads(1)
    for kind in kinds:
        for arm in arms:
            for seed in seeds:
                config = arm_config(kind, arm, updates, seed, folder)
                described = description(kind, config, arm)
                if any(all(row[key] == str(value) for key, value in described.items()) for row in read_rows(table)):
                    continue
                row = described | trained(config, arm_config(kind, PAPER, updates, seed, folder), folder)
                append_row(table, row, COLUMNS)
                print(row, flush=True)


def arm_config(kind: str, arm: str, updates: int, seed: int, folder: Path) -> RunConfig:
    """The recommended preset on one kind of data with the settings of an arm, uncompiled."""
    common = {"seed": seed, "train.steps": updates, "train.compile": "false", "train.validate_every": updates // 5}
    given = file_settings(kind, folder / "data") | dict(map(parse_override, arm.split())) | common
    return make_config("recipe", overrides=given)


def description(kind: str, config: RunConfig, arm: str) -> dict[str, Any]:
    """The columns that name a row; `more` has the settings of the arm that are neither width, depth nor modes."""
    backbone = config.backbone.model_dump()
    named = ("backbone.name", "backbone.width", "backbone.depth", "backbone.modes")
    more = [word for word in arm.split() if not word.startswith(tuple(f"{name}=" for name in named))]
    return {
        "data": kind,
        "backbone": config.backbone.name,
        "width": backbone["width"],
        "depth": backbone["depth"],
        "modes": " ".join(map(str, backbone.get("modes", ()))),
        "more": " ".join(more),
        "updates": config.train.steps,
        "seed": config.seed,
    }


def trained(config: RunConfig, paper: RunConfig, folder: Path) -> dict[str, Any]:
    """The measured columns of one run."""
    parameters = count_parameters(config.build_operator())
    try:
        device = torch.device("cpu")
        ours, theirs = (DryRun(one, folder / "data", device) for one in (config, paper))
        turns = [(ours.seconds_per_update(UPDATES), theirs.seconds_per_update(UPDATES)) for _ in range(TURNS)]
        run = Run(train(config, folder / "runs", folder / "data"))
        score = min(record.score for record in run.log.validation)
    except HeroError as error:
        return {"parameters": parameters, "failure": str(error)}
    return {
        "parameters": parameters,
        "seconds": f"{statistics.median(mine for mine, _ in turns):.3g}",
        "cost": f"{statistics.median(mine / other for mine, other in turns):.3g}",
        "score": f"{score:.4g}",
        "persistence": f"{persistence(config, folder):.4g}",
        "failure": "",
    }


def persistence(config: RunConfig, folder: Path) -> float:
    """The validation score of the prediction that nothing changes."""
    val, norm = load_data(config, "val", folder / "data", torch.device("cpu")), config.make_strategy().norm
    norm.fit(load_data(config, "train", folder / "data", torch.device("cpu")))
    errors = baseline_errors(val, config.horizon, config.train.history, norm)["persistence"]
    return summarise(errors, config.scoring)[config.scoring.gm]


SHOWN = ("width", "depth", "modes", "more", "updates", "seed", "parameters", "cost", "score")


def table_lines(table: Path) -> list[str]:
    """The table in Markdown, the networks of each kind of data by their score, below the score of persistence."""
    rows = [row for row in read_rows(table) if not row["failure"]]
    rows.sort(key=lambda row: (row["data"], row["updates"], float(row["score"])))
    lines = [f"| data | backbone | {' | '.join(SHOWN)} | persistence |", "|---" * (len(SHOWN) + 3) + "|"]
    return lines + [
        f"| {row['data']} | {row['backbone']} | {' | '.join(row[name] for name in SHOWN)} | {row['persistence']} |"
        for row in rows
    ]
