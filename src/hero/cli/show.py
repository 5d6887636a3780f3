"""Tables on the screen."""

import dataclasses
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hero.console import console, is_plain, say

if TYPE_CHECKING:
    from hero.report.tables import Table


def show(table: "Table") -> None:
    """Print a table as wide as the screen allows, in a pipe as wide as it is, and its notes."""
    if table.title:
        say(table.title, style="bold")  # a title above the table would be broken at its width
    if table.rows and is_plain():
        say(table.to_text())
    elif table.rows:
        console.print(dataclasses.replace(table, title="").fitting(console.width).to_rich())
    say(*(f"warning: {warning}" for warning in table.warnings), style="yellow")
    say(*table.notes, style="dim")


def show_file(path: Path) -> None:
    """Show a page or picture in the browser."""
    webbrowser.open(path.resolve().as_uri())


def show_json(content: object) -> None:
    """Print plain JSON for other programs."""
    from hero.files import json_text

    print(json_text(content))


def show_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False) -> None:
    """Print rows of words below headings; `numbers`: all but the first column are aligned on the right."""
    from hero.report.tables import Table

    show(Table.of_words(title, headings, rows, numbers))
