"""Tables and results on the screen."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hero.console import console, is_plain, say

if TYPE_CHECKING:
    from hero.report.tables import Table
    from hero.runs.records import Metrics


def show(table: "Table") -> None:
    """Print a table as wide as the screen allows, in a pipe as wide as it is, and its notes."""
    if table.title:
        say(table.title, style="bold")  # a title above the table would be broken at its width
    if table.rows and is_plain():
        say(table.to_text())
    elif table.rows:
        console.print(table.fitting(console.width).to_rich())
    say(*(f"warning: {warning}" for warning in table.warnings), style="yellow")
    say(*table.notes, style="dim")


def show_json(content: object) -> None:
    """Print plain JSON for other programs."""
    from hero.files import json_text

    print(json_text(content))


def show_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False) -> None:
    """Print rows of words below headings; `numbers`: all but the first column are aligned on the right."""
    from hero.report.tables import Table

    show(Table.of_words(title, headings, rows, numbers))


def measure(run: Path, data_dir: Path) -> "Metrics":
    """Evaluate a run and write its page."""
    from hero.evaluation.evaluate import evaluate
    from hero.report.page.page import write_run_page
    from hero.runs.folder import Run

    metrics = evaluate(run, data_dir)
    opened = Run(run)
    if opened.before:
        from hero.report.figures.runs import finetune_figure
        from hero.report.figures.style import save

        save(finetune_figure(opened), run / "figures" / "finetune.png")
    write_run_page(run)
    return metrics


def show_result(metrics: "Metrics", run: Path) -> None:
    """Print the metrics of a run and the place of its page."""
    from hero.report.content import metrics_tables
    from hero.runs.folder import Run

    for table in metrics_tables(metrics, Run(run).config, Run(run).before):
        show(table)
    say(f"report: {run / 'report.html'}")
