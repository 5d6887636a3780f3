"""A study from its plan to study.json: compute the missing runs, then read the run folders.

Runs are computed in this process, in worker processes, or on a Ray cluster; the files are the same. The state of a run
is read from the end of its `log.jsonl`, so the view of them does not depend on where they are computed: live lines on
a terminal, one line per event in a log file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hero.console import console, on_signals, progress_bar, say
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.log import SCORE, parse_line
from hero.runs.stored import StoredRun, is_run
from hero.study import worker
from hero.study.collect import Places, Plan, collect
from hero.study.ray import run_on_cluster
from hero.study.records import StudyResult
from hero.study.worker import Failure, Job, Workers
from hero.training.loop import train

POLL_SECONDS = 0.1


def schedule(planned: Plan, runs_dir: Path) -> dict[str, str]:
    """The state of every run of a study by its id. Touches nothing."""
    found = {}
    for name in (config.run_id() for config in planned.configs):
        try:
            found[name] = StoredRun(runs_dir / name).status
        except HeroError:
            found[name] = "unreadable"
    return found


def run(
    planned: Plan,
    runs_dir: Path,
    data_dir: Path,
    workers: Workers | None = None,
    out: Path | None = None,
    table_only: bool = False,
    measure: Callable[[Path, Path], object] = evaluate,
) -> StudyResult:
    """Run what is missing unless `table_only`, read the run folders and write study.json.

    `measure(run, data_dir)` evaluates a run that was trained in this process. A failed run is a part of the result.
    Where the runs are interrupted, study.json has what is there, unless reading it would have to measure first.
    """
    out = out or runs_dir / planned.folder
    failed: dict[str, str] = {}
    if not table_only:
        try:
            failed = sweep(planned.configs, runs_dir, data_dir, workers, measure, planned.study.needs_kept)
        except KeyboardInterrupt:
            if not planned.study.measures:
                collect(planned, Places(runs_dir, data_dir, out, scoring=planned.scoring))
            raise
    return collect(planned, Places(runs_dir, data_dir, out, failed, planned.scoring))


def sweep(
    configs: Sequence[RunConfig],
    runs_dir: Path,
    data_dir: Path,
    workers: Workers | None = None,
    measure: Callable[[Path, Path], object] = evaluate,
    needs_kept: bool = False,
) -> dict[str, str]:
    """Train and evaluate every configuration in `runs_dir/<id>`, except the finished ones; equal ones once.

    Returns the reason of each run that failed, by its id: it does not stop the rest. `measure(run, data_dir)` evaluates
    a run that was trained in this process; worker processes do what `hero train` does. With `needs_kept` a finished run
    without the checkpoints of its train.keep_every is trained again.
    """
    workers = workers or Workers()
    if workers.cluster is not None:
        runs_dir, data_dir = runs_dir.absolute(), data_dir.absolute()
    unique = {config.run_id(): config for config in configs}
    failed: dict[str, str] = {}
    jobs = []
    for name, config in unique.items():
        try:
            if not is_finished(config, runs_dir / name, needs_kept):
                jobs.append(Job(config, runs_dir / name, data_dir))
        except HeroError as error:
            failed[name] = str(error)
            say(f"failed {name}: {error}", style="yellow")
    before = len(unique) - len(jobs)
    if before:
        say(f"{before} of {len(unique)} runs are there already")
    if not jobs:
        return failed
    if workers.cluster is None and workers.count == 0:
        return failed | run_here(jobs, measure)
    with progress_bar("runs", sum(job.config.train.steps for job in jobs)) as advance:
        progress = SweepProgress(len(unique), before, advance)
        if workers.cluster is None:
            with on_signals(signal.default_int_handler, signal.SIGTERM):
                run_in_processes(jobs, workers, progress)
        else:
            run_on_cluster(jobs, workers, progress)
    return failed | progress.failed


def is_finished(config: RunConfig, run: Path, needs_kept: bool) -> bool:
    """Whether a run is trained and evaluated and, if needed, kept its checkpoints; HeroError if it is damaged."""
    metrics = Run(run).metrics if is_run(run) else None
    if metrics is None:
        return False
    every = config.train.keep_every if needs_kept else 0
    return not every or set(range(every, metrics.training.steps + 1, every)) <= set(Run(run).kept_steps)


def run_here(jobs: Sequence[Job], measure: Callable[[Path, Path], object]) -> dict[str, str]:
    """One run after the other in this process; returns the reason of each failure by the name of the run."""
    failed = {}
    for number, job in enumerate(jobs, start=1):
        say(f"run {number} of {len(jobs)}: {job.run.name}")
        try:
            train(job.config, job.run.parent, job.data_dir)
            measure(job.run, job.data_dir)
        except Exception as error:
            failed[job.run.name] = sentence = worker.crash_of(job.run, error)
            say(f"failed: {sentence}", style="yellow")
    return failed


def run_in_processes(jobs: Sequence[Job], workers: Workers, progress: SweepProgress) -> None:
    """`count` runs at a time, each in its processes; an interrupt stops them after they have saved."""
    count, processes = workers.count, workers.processes
    waiting = list(reversed(jobs))
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
    threads = threads_of_each(count * processes)
    try:
        while waiting or running:
            for slot in range(count):
                if waiting and slot not in running:
                    job = waiting.pop()
                    progress.started(job)
                    try:
                        variables = worker.variables_of(job.config, threads, gpus_of(job.config, slot, processes))
                        process = worker.start_worker(job.config.to_toml(), job.run, job.data_dir, variables, processes)
                        running[slot] = (job, process)
                    except (HeroError, OSError) as error:
                        progress.ended(job, Failure(str(error)))
            time.sleep(POLL_SECONDS)
            for slot, (job, process) in list(running.items()):
                code = process.poll()
                if code is not None:
                    del running[slot]
                    progress.ended(job, worker.failure_of(job.run, code))
            progress.refresh()
    finally:
        worker.stop([process for _, process in running.values()])


def threads_of_each(count: int) -> int:
    """Threads of each of `count` processes: an equal share of the cores, never more than torch takes here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), cores // count))


def gpus_of(config: RunConfig, slot: int, processes: int = 1) -> str | None:
    """The GPU of each process of a slot, in turn; a run that names its own, such as cuda:1, must see them all."""
    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if count < processes or ":" in config.train.device:
        return None
    gpus = named.split(",") if named else [str(index) for index in range(count)]
    return ",".join(gpus[(slot * processes + number) % count] for number in range(processes))


def read_state(run: Path, steps: int) -> tuple[int, str]:
    """The updates of a run so far and a note, from its log; a line that is being written is left out."""
    found: dict[str, Any] = {"step": 0}
    for line in worker.last_lines(StoredRun(run).log_file):
        found |= parse_line(line.encode()) or {}
    if found["step"] >= steps:
        return steps, "evaluating"
    score = next(filter(SCORE.fullmatch, found), "")
    forms = {"loss": "loss {:.3g}", score: "val {:.3g}", "steps_per_second": "{:.3g} steps/s"}
    notes = [form.format(float(found[key])) for key, form in forms.items() if key in found]
    return found["step"], "  ".join(notes) or "starting"


class SweepProgress:
    """The runs of a sweep so far, of which `finished` were there before; `failed` has the sentence of each that did."""

    def __init__(self, count: int, finished: int, advance: Callable[..., None]) -> None:
        self.failed: dict[str, str] = {}
        self._count, self._finished, self._advance = count, finished, advance
        self._running: dict[str, tuple[Job, float]] = {}
        self._steps: dict[str, int] = {}
        self._shown = 0

    def started(self, job: Job) -> None:
        self._running[job.run.name] = (job, time.monotonic())
        if not console.is_terminal:
            say(f"started {job.run.name}")

    def ended(self, job: Job, failure: Failure | None) -> None:
        name = job.run.name
        _, since = self._running.pop(name, (job, time.monotonic()))
        self._steps[name] = job.config.train.steps
        if failure:
            self.failed[name] = failure.sentence
            say(f"failed {name}: {failure.sentence}", style="yellow")
            say(*(f"  | {text}" for text in failure.output), style="dim")
        else:
            self._finished += 1
            say(f"finished {name} in {time.monotonic() - since:.0f} s ({self._summary()})")

    def refresh(self) -> None:
        """Read how far the running jobs are; display only, so it does nothing without a terminal."""
        if not console.is_terminal:
            return
        lines = [self._summary()]
        for name, (job, _) in self._running.items():
            steps = job.config.train.steps
            self._steps[name], note = read_state(job.run, steps)
            lines.append(f"{name}  {self._steps[name]}/{steps}  {note}")
        done = sum(self._steps.values())
        self._advance(done - self._shown, note="\n".join(lines))
        self._shown = done

    def _summary(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{self._finished} of {self._count} finished{failed}"
