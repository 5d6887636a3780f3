"""One view of many runs: live lines on a terminal, one line per event in a log file.

The state of a run is read from the end of its `log.jsonl`, so it does not matter where it is computed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hero.console import console, say
from hero.study.worker import Failure, Job, last_lines


class State(NamedTuple):
    """How far a run is, from its log."""

    step: int
    note: str


def read_state(run: Path, steps: int) -> State:
    """The last records of `log.jsonl`; a line that is being written is left out."""
    found: dict[str, Any] = {"step": 0}
    for line in last_lines(run / "log.jsonl"):
        try:
            found |= json.loads(line)
        except ValueError:
            continue
    step = int(found["step"])
    if step >= steps:
        return State(steps, "evaluating")
    notes = [
        f"{label} {float(found[key]):.3g}{unit}"
        for key, label, unit in (("loss", "loss", ""), ("val_gm100", "val", ""), ("steps_per_second", "", " steps/s"))
        if key in found
    ]
    return State(step, "  ".join(note.strip() for note in notes) or "starting")


class Bars(Progress):
    """A bar for all runs, and below it a line for each that is computed; a narrow terminal cuts their names."""

    def __init__(self, *columns: ProgressColumn, **options: Any) -> None:
        self.lines: dict[str, str] = {}
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, overflow="ellipsis")
        for name, note in list(self.lines.items()):
            table.add_row(name, Text(note, style="dim"))
        yield table


class SweepProgress:
    """The jobs of a sweep so far; `failed` holds the sentence of each that ended, or None."""

    def __init__(self, jobs: Sequence[Job], before: int) -> None:
        self.failed: dict[str, str | None] = {}
        self._all, self._finished = before + len(jobs), before
        self._running: dict[str, tuple[Job, float]] = {}
        self._steps = {job.run.name: 0 for job in jobs}
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )
        self._all_runs = self._bars.add_task(self._summary(), total=sum(job.config.train.steps for job in jobs))

    def __enter__(self) -> SweepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, job: Job) -> None:
        self._running[job.run.name] = (job, time.monotonic())
        if not console.is_terminal:
            say(f"started {job.run.name}")

    def ended(self, job: Job, failure: Failure | None) -> None:
        name = job.run.name
        _, since = self._running.pop(name, (job, time.monotonic()))
        self._bars.lines.pop(name, None)
        self._steps[name] = job.config.train.steps
        self.failed[name] = failure and failure.sentence
        if failure:
            say(f"failed {name}: {failure.sentence}", style="yellow")
            for text in failure.output:
                say(f"  | {text}", style="dim")
        else:
            self._finished += 1
            say(f"finished {name} in {time.monotonic() - since:.0f} s ({self._summary()})")

    def refresh(self) -> None:
        """Read how far the running jobs are; display only, so it does nothing without a terminal."""
        if not console.is_terminal:
            return
        for name, (job, _) in self._running.items():
            steps = job.config.train.steps
            state = read_state(job.run, steps)
            self._steps[name] = state.step
            self._bars.lines[name] = f"{state.step}/{steps}  {state.note}"
        self._bars.update(self._all_runs, completed=sum(self._steps.values()), description=self._summary())

    def _summary(self) -> str:
        failed = sum(sentence is not None for sentence in self.failed.values())
        return f"{self._finished} of {self._all} finished" + (f", {failed} failed" if failed else "")
