"""The rows of studies: a strategy, and its settings in addition to the study's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hero.runs.config import RunConfig
from hero.strategies import STRATEGIES

RowSettings = Callable[[RunConfig], Mapping[str, Any]]
"""Settings of a row from the configuration that it would have without them."""


def whole_trajectories(config: RunConfig) -> Mapping[str, Any]:
    """Recurrent training as its name says: whole trajectories from their first state, at an equal budget.

    The batch is scaled so that an update makes as many operator steps, batch * unroll, as in the other rows.
    """
    train = config.train
    unroll = config.split("train").steps + 1 - train.history
    unroll -= unroll % train.bundle
    return {
        "recurrent.starts": "first",
        "train.unroll": unroll,
        "train.batch": max(1, round(train.batch * train.unroll / unroll)),
    }


def keep_checkpoints(config: RunConfig) -> Mapping[str, Any]:
    """Five checkpoints for analysis, unless the study is run with others; they change no number of a run."""
    return {"train.keep_every": config.train.keep_every or max(1, round(0.2 * config.train.steps))}


def windows_note(config: RunConfig) -> str:
    """The windows of a row that does not have the shared ones."""
    return f"unroll {config.train.unroll} from the first state, batch {config.train.batch}"


@dataclass(frozen=True)
class StudyRow:
    """A line of the table: a strategy, and its settings in addition to the study's."""

    strategy: str
    label: str = ""
    """Default: the name of the backbone with the suffix of the strategy; {} stands for the value of `varied`."""
    settings: RowSettings = lambda config: {}
    published: str = ""
    """The name of the row in the published table; default: the strategy."""
    note: Callable[[RunConfig], str] = lambda config: ""
    applies: Callable[[RunConfig], bool] = lambda config: True
    """Whether the group of a configuration has the row."""
    varied: str = ""
    """The dotted name of the setting that the rows of the study vary."""


SPECIAL_ROWS = {
    "hero": StudyRow("hero", settings=keep_checkpoints),  # so that `landscape` can read the runs of `main`
    "recurrent": StudyRow("recurrent", settings=whole_trajectories, note=windows_note),
}
"""Rows of strategies that have settings beyond the shared ones in every study."""


def strategy_row(name: str) -> StudyRow:
    """The row of a strategy, which may also be one that the paper does not have."""
    STRATEGIES[name]  # refuses an unknown name
    return SPECIAL_ROWS.get(name) or StudyRow(name)


def strategy_rows(*names: str) -> tuple[StudyRow, ...]:
    """A row for each strategy."""
    return tuple(map(strategy_row, names))
