"""Many runs into one folder: in this process, in worker processes, or on a Ray cluster; the files are the same."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from hero.console import say
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.runs.stored import is_run
from hero.study.ray import run_on_cluster
from hero.study.watch import SweepProgress, sweep_progress
from hero.study.worker import (
    Failure,
    Job,
    Workers,
    crash_of,
    failure_of,
    start_worker,
    stop,
    stop_on_sigterm,
    variables_of,
)
from hero.training.loop import train

POLL_SECONDS = 0.1


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
    failed: dict[str, str | None] = {}
    jobs = []
    for name, config in {config.run_id(): config for config in configs}.items():
        try:
            if is_finished(config, runs_dir / name, needs_kept):
                failed[name] = None
            else:
                jobs.append(Job(config, runs_dir / name, data_dir))
        except HeroError as error:
            failed[name] = str(error)
            say(f"failed {name}: {error}", style="yellow")
    if failed:
        say(f"{len(failed)} of {len(failed) + len(jobs)} runs are there already")
    if jobs and workers.cluster is None and workers.count == 0:
        failed |= run_here(jobs, measure)
    elif jobs:
        with sweep_progress(jobs, before=len(failed)) as progress:
            if workers.cluster is None:
                with stop_on_sigterm():
                    run_in_processes(jobs, workers, progress)
            else:
                run_on_cluster(jobs, workers, progress)
            failed |= progress.failed
    return {name: reason for name, reason in failed.items() if reason is not None}


def is_finished(config: RunConfig, run: Path, needs_kept: bool) -> bool:
    """Whether a run is trained and evaluated and, if needed, kept its checkpoints; HeroError if it is damaged."""
    metrics = Run(run).metrics if is_run(run) else None
    if metrics is None:
        return False
    every = config.train.keep_every if needs_kept else 0
    return not every or set(range(every, metrics.training.steps + 1, every)) <= set(Run(run).kept_steps)


def run_here(jobs: Sequence[Job], measure: Callable[[Path, Path], object]) -> dict[str, str | None]:
    """One run after the other in this process; returns the reason of each failure by the name of the run."""
    failed: dict[str, str | None] = {}
    for number, job in enumerate(jobs, start=1):
        say(f"run {number} of {len(jobs)}: {job.run.name}")
        try:
            train(job.config, job.run.parent, job.data_dir)
            measure(job.run, job.data_dir)
            failed[job.run.name] = None
        except Exception as error:
            failure = crash_of(job.run, error)
            failed[job.run.name] = failure.sentence
            say(f"failed: {failure.sentence}", style="yellow")
    return failed


def run_in_processes(jobs: Sequence[Job], workers: Workers, progress: SweepProgress) -> None:
    """`count` runs at a time, each in its processes; an interrupt stops them after they have saved."""
    count, processes = workers.count, workers.processes
    waiting = list(reversed(jobs))
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
    threads, gpus = threads_of_each(count * processes), visible_gpus()
    try:
        while waiting or running:
            for slot in range(count):
                if waiting and slot not in running:
                    job = waiting.pop()
                    progress.started(job)
                    try:
                        variables = variables_of(threads, gpu_of(job.config, gpus, slot, processes))
                        process = start_worker(job.config.to_toml(), job.run, job.data_dir, variables, processes)
                        running[slot] = (job, process)
                    except (HeroError, OSError) as error:
                        progress.ended(job, Failure(str(error), []))
            time.sleep(POLL_SECONDS)
            for slot, (job, process) in list(running.items()):
                code = process.poll()
                if code is not None:
                    del running[slot]
                    progress.ended(job, failure_of(job.run, code))
            progress.refresh()
    finally:
        stop([process for _, process in running.values()])


def threads_of_each(count: int) -> int:
    """Threads of each of `count` processes: an equal share of the cores, never more than torch takes here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), cores // count))


def visible_gpus() -> list[str]:
    """The CUDA devices of this process, as their variable names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(index) for index in range(count)]


def gpu_of(config: RunConfig, gpus: Sequence[str], slot: int, processes: int = 1) -> str | None:
    """The GPU of each process of a slot, in turn; a run that names its own, such as cuda:1, must see them all."""
    if len(gpus) < processes or ":" in config.train.device:
        return None
    return ",".join(gpus[(slot * processes + number) % len(gpus)] for number in range(processes))
