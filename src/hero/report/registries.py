"""What others add to reports: analyses of a run, and figures of a study. `hero.paper` adds its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hero import parts
from hero.config.registry import Registry
from hero.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hero.report.tables import Table
    from hero.runs.config import RunConfig
    from hero.study.records import Group, StudyResult


@dataclass(frozen=True)
class Analysis:
    """How an analysis of a trained run, kept as `NAME.json` in its folder, is read and shown."""

    record: type[Record]
    title: str
    """The heading on the page."""
    caption: str
    """How to read the figure."""
    figure: Callable[[Any, RunConfig], Figure]
    sentences: Callable[[Any], Sequence[str]]
    table: Callable[[Any], Table] | None = None


ANALYSES: Registry[Analysis] = parts.ANALYSES
StudyFigures = Callable[["StudyResult", "Group", str, Path, Path], Iterator[tuple[str, "Figure"]]]
"""The figures of a group by name, from the result, the group, a name for it, the folder of runs and that of data."""
STUDY_FIGURES: Registry[StudyFigures] = parts.STUDY_FIGURES
