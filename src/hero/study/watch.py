"""One view of many runs: live lines on a terminal, one line per event in a log file.

The state of a run is read from the end of its `log.jsonl`, so it does not matter where it is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hero.console import console, progress_bar, say
from hero.runs.records import SCORE, parse_line
from hero.runs.stored import StoredRun
from hero.study.worker import Failure, Job, last_lines


class State(NamedTuple):
    """How far a run is, from its log."""

    step: int
    note: str


def read_state(run: Path, steps: int) -> State:
    """The last records of `log.jsonl`; a line that is being written is left out."""
    found: dict[str, Any] = {"step": 0}
    for line in last_lines(StoredRun(run).log_file):
        found |= parse_line(line.encode()) or {}
    step = int(found["step"])
    if step >= steps:
        return State(steps, "evaluating")
    score = next(filter(SCORE.fullmatch, found), "")
    notes = [
        f"{label} {float(found[key]):.3g}{unit}"
        for key, label, unit in (("loss", "loss", ""), (score, "val", ""), ("steps_per_second", "", " steps/s"))
        if key in found
    ]
    return State(step, "  ".join(note.strip() for note in notes) or "starting")


@contextmanager
def sweep_progress(jobs: Sequence[Job], before: int) -> Iterator[SweepProgress]:
    """The progress of `jobs`, shown until the end of the context; `before` runs were finished earlier."""
    with progress_bar("runs", sum(job.config.train.steps for job in jobs)) as advance:
        yield SweepProgress(jobs, before, advance)


class SweepProgress:
    """The jobs of a sweep so far; `failed` holds the sentence of each that ended, or None."""

    def __init__(self, jobs: Sequence[Job], before: int, advance: Callable[..., None]) -> None:
        self.failed: dict[str, str | None] = {}
        self._all, self._before, self._advance = before + len(jobs), before, advance
        self._running: dict[str, tuple[Job, float]] = {}
        self._steps: dict[str, int] = {}
        self._shown = 0

    def started(self, job: Job) -> None:
        """A run is being computed."""
        self._running[job.run.name] = (job, time.monotonic())
        if not console.is_terminal:
            say(f"started {job.run.name}")

    def ended(self, job: Job, failure: Failure | None) -> None:
        """A run has ended, with a result or a failure."""
        name = job.run.name
        _, since = self._running.pop(name, (job, time.monotonic()))
        self._steps[name] = job.config.train.steps
        self.failed[name] = failure and failure.sentence
        if failure:
            say(f"failed {name}: {failure.sentence}", style="yellow")
            say(*(f"  | {text}" for text in failure.output), style="dim")
        else:
            say(f"finished {name} in {time.monotonic() - since:.0f} s ({self._summary()})")

    def refresh(self) -> None:
        """Read how far the running jobs are; display only, so it does nothing without a terminal."""
        if not console.is_terminal:
            return
        lines = [self._summary()]
        for name, (job, _) in self._running.items():
            steps = job.config.train.steps
            state = read_state(job.run, steps)
            self._steps[name] = state.step
            lines.append(f"{name}  {state.step}/{steps}  {state.note}")
        done = sum(self._steps.values())
        self._advance(done - self._shown, note="\n".join(lines))
        self._shown = done

    def _summary(self) -> str:
        failed = sum(sentence is not None for sentence in self.failed.values())
        finished = self._before + len(self.failed) - failed
        return f"{finished} of {self._all} finished" + (f", {failed} failed" if failed else "")
