"""The rows of studies: a strategy, and its settings in addition to the study's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hero.parts import PRESETS, RECOMMENDED
from hero.runs.config import RunConfig
from hero.strategies import STRATEGIES
from hero.strategies.hero import HeroSettings

RowSettings = Callable[[RunConfig], Mapping[str, Any]]
"""Settings of a row from the configuration that it would have without them."""


def shared(config: RunConfig) -> Mapping[str, Any]:
    """No settings in addition to the study's."""
    return {}


def fixed(settings: Mapping[str, Any]) -> RowSettings:
    """The same settings whatever the study is run with."""
    return lambda config: settings


def share(setting: str, part: float) -> RowSettings:
    """A setting as a share of the updates."""
    return lambda config: {setting: max(1, round(part * config.train.steps))}


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


def no_note(config: RunConfig) -> str:
    """Nothing to say."""
    return ""


def always(config: RunConfig) -> bool:
    """For every task and backbone."""
    return True


def windows_note(config: RunConfig) -> str:
    """The windows of a row that does not have the shared ones."""
    return f"unroll {config.train.unroll} from the first state, batch {config.train.batch}"


def relative_interval(config: RunConfig) -> str:
    """The updates in which the relative term acts."""
    return f"{config.method.start}–{config.train.steps}" if isinstance(config.method, HeroSettings) else ""


def refresh_steps(config: RunConfig) -> str:
    """The updates at which the lagged operator is copied: all of a few, else the first two and the last."""
    if not isinstance(config.method, HeroSettings):
        return ""
    steps = list(range(config.method.start, config.train.steps, config.method.refresh))
    shown = [*steps[:2], "…", steps[-1]] if len(steps) > 4 else steps
    return ", ".join(map(str, shown))


@dataclass(frozen=True)
class StudyRow:
    """A line of the table: a strategy, and its settings in addition to the study's."""

    strategy: str
    label: str = ""
    """Default: the name of the backbone with the suffix of the strategy; {} stands for the value of `varied`."""
    settings: RowSettings = shared
    published: str = ""
    """The name of the row in the paper's table; default: the strategy."""
    note: Callable[[RunConfig], str] = no_note
    applies: Callable[[RunConfig], bool] = always
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


FULL_HERO = dataclasses.replace(SPECIAL_ROWS["hero"], label="Full HERO", published="Full HERO")
PUBLISHED_SIZE = StudyRow(
    "push_forward",
    "FNO-PF, 30,541 parameters",
    fixed({"backbone.size": "paper_count"}),
    applies=lambda config: config.backbone.name == "fno" and config.source.dims == 2,
)
"""The 2D FNO with the parameters that the paper counts, next to the one that its layout gives."""


def recipe_row(label: str) -> StudyRow:
    """The recommended preset; the paper does not have it."""
    settings = dict(PRESETS[RECOMMENDED])
    return StudyRow(settings.pop("strategy"), label, fixed(settings), published=label)


def control_row(label: str) -> StudyRow:
    """The strategy and the optimizer of the recommended preset, and nothing else of it."""
    preset = PRESETS[RECOMMENDED]
    return StudyRow(preset["strategy"], label, fixed({"train.optimizer": preset["train.optimizer"]}), published=label)


def ablation_row(label: str, **settings: Any) -> StudyRow:
    """HERO with settings of its section."""
    return StudyRow("hero", label, fixed({f"hero.{name}": value for name, value in settings.items()}), label)


def varied_rows(
    setting: str, symbol: str, note: Callable[[RunConfig], str], published: Mapping[float, int]
) -> tuple[StudyRow, ...]:
    """Push-forward, and HERO with a setting at shares of the updates; `published` has the paper's values."""
    hero = (
        StudyRow(
            "hero", f"HERO ({symbol}={{}})", share(setting, part), f"HERO ({symbol}={value})", note, varied=setting
        )
        for part, value in published.items()
    )
    return (StudyRow("push_forward", published="FNO-PF"), *hero)
