"""Readers of run folders that return plain dicts; every caller moves to `Run` and this file goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.records import read_lines


def load_run(folder: Path) -> RunConfig:
    """The configuration of a run folder."""
    return Run(folder).config


def read_log(run: Path) -> list[dict[str, Any]]:
    """The records of `log.jsonl`."""
    return read_lines(run / "log.jsonl")


def read_metrics(run: Path) -> dict[str, Any] | None:
    """`metrics.json`, or None if the run has not been evaluated."""
    found = Run(run).stored_metrics
    return None if found is None else found.plain()


def final_metrics(run: Path) -> dict[str, Any] | None:
    """The stored metrics of a run, unless they were measured before the training ended."""
    found = Run(run).metrics
    return None if found is None else found.plain()


def read_errors(run: Path) -> dict[str, np.ndarray]:
    """nrmse and correlation of the test rollouts."""
    errors = Run(run).errors
    return {"nrmse": errors.nrmse, "correlation": errors.correlation}
