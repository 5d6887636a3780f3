"""What run folders show: figures, tables beside the paper's numbers, and one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hero.report.drawn import run_figures
from hero.report.figures import save
from hero.report.page import write_page
from hero.report.sources import Sources

__all__ = ["report_run"]


def report_run(run: Path, metrics: Mapping[str, Any]) -> Path:
    """Draw the figures of a run into its folder and write `report.html`; `metrics` is what metrics.json will hold.

    Everything else is read from the run folder. A diverged run gives a report like any other.
    """
    sources = Sources()
    sources.add(run, metrics)
    sources.named.add(run.name)
    for name, figure in run_figures(sources.runs[0]):
        save(figure, run / "figures" / f"{name}.png")
    return write_page(sources, run / "report.html")
