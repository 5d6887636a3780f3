"""Runs and studies for people: tables, figures, and one self-contained page.

Functions import what they need when they are called: a table in the terminal needs no matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hero.study.records import StudyResult


def write_run_page(run: Path) -> Path:
    """Write `report.html` of an evaluated run into its folder.

    Figures as files are drawn by `hero report --figures`: drawing them takes far longer than the page.
    """
    from hero.report.inputs import ReportInputs
    from hero.report.page.page import write_page

    inputs = ReportInputs()
    inputs.add(run, named=True, finished=False)
    return write_page(inputs, run / "report.html")


def write_tables(out: Path, result: StudyResult) -> None:
    """Write `study.json` and the tables of a study as Markdown, LaTeX and CSV."""
    from hero.files import write_atomic
    from hero.report.content import study_csv, study_latex, study_markdown
    from hero.study.records import FILE

    for suffix, form in (("md", study_markdown), ("tex", study_latex), ("csv", study_csv)):
        write_atomic(out / f"table.{suffix}", form(result).encode())
    result.write(out / FILE)


def write_study(out: Path, result: StudyResult, runs_dir: Path) -> list[Path]:
    """Write the tables and figures of a study into `out`; returns the figures."""
    from hero.report.figures.runs import study_figures
    from hero.report.figures.style import save_png_and_pdf

    write_tables(out, result)
    written = []
    for name, figure in study_figures(result, runs_dir):
        save_png_and_pdf(figure, out, name)
        written.append(out / f"{name}.png")
    return written
