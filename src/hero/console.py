"""The console of library and command line; progress of long work is a live bar on a terminal, silence in a log file."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from hero.errors import visible
from hero.ranks import RANKS

PIPE_WIDTH = 160  # columns of a pipe or file unless $COLUMNS says otherwise: room for every table with whole names


class VisibleConsole(Console):
    """A console on which no name of a file, label or channel can move the cursor or colour the terminal."""

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*given, **options):
            yield Segment(text if control else "\n".join(map(visible, text.split("\n"))), style, control)


console = VisibleConsole(
    width=None if (sys.stdout and sys.stdout.isatty()) or "COLUMNS" in os.environ else PIPE_WIDTH,
    markup=False,
    emoji=False,
    quiet=not RANKS.is_first,
    # A notebook shows lines as a log file does: neither each as a block of HTML, nor bars, which its kernel asks for.
    force_jupyter=False,
    force_terminal=False if "ipykernel" in sys.modules else None,
)
"""The only console: everything is printed through it, and no name of a file is read as markup or as an emoji."""


def is_plain() -> bool:
    """Whether the output is read by a program or kept in a file: tables then have one line per row, without rules."""
    return not console.is_terminal and "COLUMNS" not in os.environ


def say(*sentences: str, style: str | None = None) -> None:
    """Print sentences as they are, one per line: nothing is cut, wrapped, highlighted or read as markup."""
    for sentence in sentences:
        console.print(sentence, style=style, highlight=False, soft_wrap=True)


class NotedProgress(Progress):
    """A bar with a note on the line below it, so that both fit a narrow terminal."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.note:
            yield Text(self.note, style="dim", no_wrap=True, overflow="ellipsis")


@contextmanager
def on_signals(handler: Callable[..., object], *signals: signal.Signals) -> Iterator[None]:
    """Within, `handler` gets these signals; in other threads than the main one, where none arrive, nothing changes."""
    try:
        previous = {number: signal.signal(number, handler) for number in signals}
    except ValueError:
        previous = {}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield `advance(n=1, note=None)`, which moves a bar of `total` steps and shows `note` below it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with NotedProgress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)

        def advance(n: int = 1, note: str | None = None) -> None:
            progress.note = note or progress.note
            progress.advance(task, n)

        yield advance
