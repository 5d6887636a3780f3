"""log.jsonl: the records of training and validation, line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, ValidationError, model_validator

from hero.errors import HeroError
from hero.files import FIELD, is_whole
from hero.method.metrics import Scoring
from hero.records import Record

SCORE = re.compile(r"val_((?:vrmse_)?gm[1-9]\d*)")


def score_name(scoring: Scoring) -> str:
    """The validation score in log and checkpoint, such as `val_gm100`."""
    return f"val_{scoring.gm}"


class LogRecord(Record):
    """A line of log.jsonl; statistics of the strategy are further fields."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=True)
    __pydantic_extra__: dict[str, float]

    step: int

    @property
    def statistics(self) -> dict[str, float]:
        return {name: float(value) for name, value in (self.model_extra or {}).items()}


class TrainingRecord(LogRecord):
    """Means over the updates since the last record."""

    loss: float
    grad_norm: float
    lr: float
    steps_per_second: float
    seconds: float
    compiled: bool
    device: str


class ValidationRecord(LogRecord):
    """A validation rollout; in the file the score is named by its horizon, as in `val_gm100`."""

    score: float
    metric: str  # the score's name, such as gm100
    val_diverged: int

    @model_validator(mode="before")
    @classmethod
    def _find_score(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in values:
            if found := SCORE.fullmatch(name):
                others = {other: value for other, value in values.items() if other != name}
                return {**others, "score": values[name], "metric": found[1]}
        return values


@dataclass(frozen=True)
class Log:
    """log.jsonl: its records by kind, in order."""

    training: tuple[TrainingRecord, ...] = ()
    validation: tuple[ValidationRecord, ...] = ()
    stopped_early: bool = False
    notice: str | None = None  # a sentence on the lines that were skipped

    @classmethod
    def read(cls, path: Path) -> Self:
        """The records of a log; damaged lines are skipped with a notice, HeroError if there are no others."""
        kinds: dict[type[LogRecord], list[Any]] = {TrainingRecord: [], ValidationRecord: []}
        stopped, damaged = False, []
        for number, line in numbered_lines(path):
            found = line or {}
            stopped |= "stopped_early" in found
            if found.keys() & {"stopped_early", "spectra"}:  # version 0.2 logged the weights of a balanced loss
                continue
            kind = ValidationRecord if "val_diverged" in found else TrainingRecord
            try:
                kinds[kind].append(kind.model_validate(line))
            except ValidationError:
                damaged.append(number)
        training, validation = map(tuple, kinds.values())
        if not damaged:
            return cls(training, validation, stopped)
        others = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        where = f"{path} is damaged in line {damaged[0]}{others}"
        if not any(kinds.values()):
            raise HeroError(f"{where} and has no other records; delete the run and train it again.")
        return cls(training, validation, stopped, f"{where}, which is skipped.")

    @property
    def steps(self) -> int:
        return max((record.step for record in (*self.training, *self.validation)), default=0)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [line for _, line in numbered_lines(path) if line is not None]


def numbered_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The lines of a log from 1, None for a damaged one; a last line that a kill cut short is left out."""
    try:
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
    except OSError as error:
        raise HeroError(f"cannot read {path} ({error.strerror or error}); check its permissions.") from None
    for number, line in enumerate(lines, start=1):
        found = parse_line(line)
        if found is not None or number < len(lines):
            yield number, found


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The content of a line of a log; None if it is damaged or foreign."""
    try:
        found = json.loads(line) if is_whole(line) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        return None
    found.pop(FIELD, None)
    return found
