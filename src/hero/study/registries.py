"""What others add to studies: the studies themselves, and published numbers. `hero.paper` adds its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hero import parts
from hero.config.registry import Registry

if TYPE_CHECKING:
    from hero.runs.config import RunConfig
    from hero.study.plans import Study
    from hero.study.records import Published

STUDIES: Registry[Study] = parts.STUDIES


@dataclass(frozen=True)
class Publication:
    """Published numbers by table, and the protocol behind them. They are references, never targets."""

    row: Callable[[str, str, str, str], Mapping[str, Published] | None]
    """By the name of the column: a row by table, task, backbone and name; None where there is none."""
    differences: Callable[[RunConfig, Collection[str]], list[str]]
    """How a run departs from the protocol, apart from the named settings, which the published row changes as well."""


PUBLICATIONS: Registry[Publication] = parts.PUBLICATIONS


def published_row(table: str, task: str, backbone: str, row: str) -> Mapping[str, Published]:
    """The published numbers of a row by the name of their column."""
    found = (publication.row(table, task, backbone, row) for publication in PUBLICATIONS.values())
    return next(filter(None, found), {})


def differences(config: RunConfig, own: Collection[str] = ()) -> list[str]:
    """How a run departs from the published protocol, such as "train.steps=400 (paper: 10000)"; empty if it does not."""
    return [text for publication in PUBLICATIONS.values() for text in publication.differences(config, own)]


def published_numbers(config: RunConfig) -> Mapping[str, Published]:
    """The published numbers of a run by the key of their column; none unless the run follows the protocol."""
    names = (config.task.name, config.backbone.name, config.strategy)
    return {} if differences(config) else published_row("complete", *names)
