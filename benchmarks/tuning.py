"""Settings chosen on validation: trains each arm on each task and seed, and keeps a table of what came out.

A row is added as soon as its run ends and finished rows are not repeated, so the table survives a kill. It holds
validation errors only; the test split is never read here. Seeds 0 to 2 are for tuning.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from hero.config import parse_override
from hero.console import console
from hero.errors import HeroError
from hero.method import metrics
from hero.method.rollout_errors import rollout_errors
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run, choose_device, load_data
from hero.training.loop import train

LOSSES = ("train.loss=relative", "train.loss=balanced")
STRUCTURES = (
    "",
    "backbone.keep=auto",
    "backbone.residual=true",
    "backbone.keep=auto backbone.residual=true",
    "backbone.keep=auto backbone.residual=auto",
)
MEASURED = ("gm100", "nrmse@1", "nrmse@100", "nrmse@200", "diverged", "blown")
"""Metrics of the rollouts, and `blown`: trajectories whose error is above `BLOWN` at some step."""
BLOWN = 10.0
COLUMNS = ("task", "updates", "seed", "arm", *MEASURED, "seconds", "failure")


def grid() -> list[str]:
    """Each loss with each way to keep invariants and to predict the change; the control is the first."""
    return [f"{loss} {structure}".strip() for structure, loss in itertools.product(STRUCTURES, LOSSES)]


def tune(
    tasks: Sequence[str],
    updates: int,
    seeds: Sequence[int],
    arms: Sequence[str],
    table: Path,
    runs_dir: Path,
    data_dir: Path,
    workers: int,
) -> None:
    """Train what is missing in `table`; an arm is its settings, separated by spaces."""
    done = {row_key(row) for row in read_rows(table)}
    jobs = [
        {"task": task, "updates": updates, "seed": seed, "arm": " ".join(sorted(arm.split()))}
        for seed, arm, task in itertools.product(seeds, arms, tasks)
    ]
    jobs = [job for job in jobs if row_key(job) not in done]
    for job in {job["task"]: job for job in reversed(jobs)}.values():  # data once, not by each worker
        config = job_config(job)
        for split in ("train", "val"):
            load_data(config, split, data_dir, "cpu")
    for count, row in enumerate(rows_of(jobs, runs_dir, data_dir, workers), start=1):
        append_row(table, row)
        console.print(f"{count}/{len(jobs)} {row}", highlight=False, soft_wrap=True)


def rows_of(
    jobs: Sequence[Mapping[str, Any]], runs_dir: Path, data_dir: Path, workers: int
) -> Iterator[dict[str, Any]]:
    """The rows as they come, from `workers` processes of one thread each; from this process if there are none."""
    if workers == 0:
        yield from (validation_row(job, runs_dir, data_dir) for job in jobs)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        pending = [pool.submit(validation_row, job, runs_dir, data_dir) for job in jobs]
        yield from (future.result() for future in as_completed(pending))


def job_config(job: Mapping[str, Any]) -> RunConfig:
    """The configuration of one row."""
    overrides = dict(map(parse_override, job["arm"].split()))
    return make_config(
        overrides=overrides | {"task.name": job["task"], "seed": job["seed"], "train.steps": job["updates"]}
    )


def summary(table: Path, measure: str = "nrmse@100") -> list[str]:
    """The table in Markdown: an arm per line, a column per task and number of updates, and the mean ratio to the first.

    A cell is the geometric mean over seeds; a failed or diverged run counts as infinite. The last column is the
    geometric mean, over the columns that both have, of the ratio to the arm that comes first in the file.
    """
    cells: dict[str, dict[str, list[float]]] = {}
    for row in read_rows(table):
        value = math.inf if row["failure"] else float(row[measure])
        column = f"{row['task']}, {row['updates']}"
        cells.setdefault(row["arm"], {}).setdefault(column, []).append(value)
    columns = list(dict.fromkeys(column for arm in cells.values() for column in arm))
    means = {arm: {column: geometric_mean(values) for column, values in found.items()} for arm, found in cells.items()}
    first = next(iter(means.values()), {})
    lines = [f"| arm | {' | '.join(columns)} | ratio |", "|---" * (len(columns) + 2) + "|"]
    for arm, found in means.items():
        shown = [f"{found[column]:.3g}" if column in found else "" for column in columns]
        ratio = geometric_mean([found[column] / first[column] for column in found if column in first])
        lines.append(f"| `{arm}` | {' | '.join(shown)} | {ratio:.2f} |")
    return lines


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def validation_row(job: Mapping[str, Any], runs_dir: Path, data_dir: Path) -> dict[str, Any]:
    """Train one run and measure its best weights on the validation split."""
    try:
        config = job_config(job)
        run = Run(train(config, runs_dir, data_dir))
        device, history = choose_device(config.train.device), config.train.history
        val = load_data(config, "val", data_dir, device)
        step = run.stepper(run.operator(device))
        errors = rollout_errors(step, val, config.data.val_steps + 1 - history, device, history)
        found = {**metrics.summarise(errors), "blown": int((errors["nrmse"] > BLOWN).any(dim=1).sum())}
        seconds = run.log.training[-1].seconds
        measured = {name: f"{found[name]:.5g}" for name in MEASURED if name in found}
        return {**job, **measured, "seconds": f"{seconds:.0f}", "failure": ""}
    except HeroError as error:
        return {**job, "failure": str(error)}


def read_rows(table: Path) -> Iterator[dict[str, str]]:
    """The rows of a table so far."""
    if table.is_file():
        with table.open(newline="") as file:
            yield from csv.DictReader(file)


def row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("task", "updates", "seed", "arm"))


def append_row(table: Path, row: Mapping[str, Any], columns: Sequence[str] = COLUMNS) -> None:
    """Add one row, and the heading to a new table."""
    new = not table.is_file()
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        if new:
            writer.writeheader()
        writer.writerow(row)
