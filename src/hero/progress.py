"""Progress on long work: a live bar on a terminal, silence in a log file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console()


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield `advance(n=1, note="")`, which moves a bar of `total` steps and shows `note` beside it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total, note="")

        def advance(n: int = 1, note: str | None = None) -> None:
            if note is None:
                progress.advance(task, n)
            else:
                progress.update(task, advance=n, note=note)

        yield advance
