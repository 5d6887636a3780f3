"""What run folders show: one self-contained page, tables beside the paper's numbers, and figures on demand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hero.report.page.page import write_page
from hero.report.page.sources import Sources

__all__ = ["report_run"]


def report_run(run: Path, metrics: Mapping[str, Any]) -> Path:
    """Write `report.html` of a run from its folder; `metrics` is what metrics.json will hold.

    Figures as files are drawn by `hero report --figures`: drawing them takes far longer than all else that an
    evaluation does. A diverged run gives a page like any other.
    """
    sources = Sources()
    sources.add(run, metrics)
    sources.named.add(run.name)
    return write_page(sources, run / "report.html")
