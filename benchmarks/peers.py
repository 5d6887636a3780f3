"""Our FNO against neuraloperator and APEBench on the same work, in one run: `python -m benchmarks peers`.

Each participant is a child process (`participant.py`). All are prepared, then they take turns while the others wait,
so that a slow moment of the machine meets everyone; medians are compared, and only within one run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.limits import limit_of
from benchmarks.participant import Workload
from hero.console import progress_bar
from hero.errors import HeroError
from hero.runs.folder import versions

PAPER: dict[int, dict[str, int]] = {
    1: {"points": 160, "width": 28, "modes": 28, "depth": 1},
    2: {"points": 64, "width": 20, "modes": 8, "depth": 1},
    3: {"points": 32, "width": 4, "modes": 8, "depth": 5},
}
"""Grid and FNO of the paper's experiments, per dimension."""
ROUND_SECONDS = 0.5
"""A turn repeats the work until about this long has passed."""

SETTLE_SECONDS = 0.3
"""Threads of the participant before may wait actively for a while; they must not share its cores with the next."""

Advance = Callable[..., None]
Row = dict[str, Any]


def paper_workloads(dims: Iterable[int]) -> list[Workload]:
    """Updates of the five-step unroll at batch 20, and 200-step rollouts of batch 1 and 30, of the paper's FNOs.

    In 3D the large batch is rolled out for 20 steps: they are alike, and 200 would take the peers a minute each time.
    """
    works = []
    for d in dims:
        works.append(Workload("training", d, **PAPER[d], batch=20, steps=5))
        for batch in (1, 30):
            works.append(Workload("inference", d, **PAPER[d], batch=batch, steps=20 if (d, batch) == (3, 30) else 200))
    return works


PEERS = ("neuralop", "apebench")


def taking_part(kind: str, eager: bool) -> dict[str, tuple[str, bool]]:
    """By label: whose process, and whether compiled.

    `hero` runs as a user runs it, without a flag: training compiles, `hero.rollout` does not. The other way has its own
    row.
    """
    peers = {name: (name, False) for name in PEERS}
    if eager:
        return {"hero": ("hero", False), **peers}
    if kind == "training":
        return {"hero": ("hero", True), "hero eager": ("hero", False), **peers}
    return {"hero": ("hero", False), "hero compiled": ("hero", True), **peers}


class ChildError(Exception):
    """A participant cannot take part, and why: this is shown in its place, the others continue."""


class Child:
    """The process of one participant, and what it has measured of the present workload."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, str(threads)
        self.row: Row = {}
        self._repetitions = 1
        self._start()

    def _start(self) -> None:
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.participant", self.name, self.threads],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            env=os.environ | {"OMP_NUM_THREADS": self.threads, "MKL_NUM_THREADS": self.threads},
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> Row:
        """One request and its reply; ChildError if the participant is out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._messages.seek(0)
            last = (self._messages.read().strip().splitlines() or ["no message"])[-1]
            code = self._process.wait()
            self.close()
            self._start()  # for the next workload, which may be smaller
            raise ChildError(f"its process ended with code {code}: {last}")
        reply: Row = json.loads(line)
        if reply.get("missing"):
            raise ChildError(f"{reply['error']}; install the peers with: pip install -e '.[test]'")
        if "error" in reply:
            raise ChildError(reply["error"])
        return reply

    def prepare(self, work: Workload, compiled: bool) -> None:
        """Build, compile and run the work a few times."""
        self.row.update(self.ask("prepare", work=asdict(work), compiled=compiled))
        self._repetitions = max(1, min(100, int(ROUND_SECONDS / self.row.pop("estimate"))))

    def take_turn(self) -> None:
        """Time the work for about ROUND_SECONDS; work that takes many of them is timed three times in all."""
        if len(self.row["seconds"]) >= 3 and self.row["seconds"][0] > 10 * ROUND_SECONDS:
            return
        time.sleep(SETTLE_SECONDS)
        if self._repetitions > 1:
            self.ask("time", repetitions=1)  # brings data and threads back
        self.row["seconds"] += self.ask("time", repetitions=self._repetitions)["seconds"]

    def measure_memory(self) -> None:
        self.row.update(self.ask("memory"))

    def attempt(self, doing: str, action: Callable[[], None], advance: Advance) -> None:
        """Do `action` unless this participant is out; if it fails it is out."""
        if "failed" not in self.row:
            advance(0, note=f"{self.row['participant']}: {doing}")
            try:
                action()
            except ChildError as error:
                self.row["failed"] = str(error)
        advance()

    def close(self) -> None:
        """Let the process end, with the processes it may have started to compile; a busy one is killed."""
        try:
            self._process.communicate(timeout=5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.communicate()
        self._messages.close()


@contextmanager
def children(keys: Iterable[tuple[str, bool]], threads: int) -> Iterator[dict[tuple[str, bool], Child]]:
    """A process for each (name, compiled); they load their libraries side by side, before anything is measured."""
    started = {key: Child(key[0], threads) for key in keys}
    try:
        for child in started.values():
            with suppress(ChildError):  # told when it is asked to work
                child.ask("ready")
        yield started
    finally:
        for child in started.values():
            child.close()


def alternate(
    pool: dict[tuple[str, bool], Child],
    labels: dict[str, tuple[str, bool]],
    work: Workload,
    rounds: int,
    advance: Advance,
) -> list[Row]:
    """One row per participant: its times over all rounds, median, ratio to ours and memory, or why there are none."""
    started = [(pool[key], key[1]) for key in labels.values()]
    for label, (child, _) in zip(labels, started, strict=True):
        child.row = {"participant": label, **asdict(work), "seconds": []}
    for child, compiled in started:
        child.attempt("preparing", partial(child.prepare, work, compiled), advance)
    for _ in range(rounds):
        for child, _ in started:
            child.attempt("timing", child.take_turn, advance)
    for child, _ in started:
        child.attempt("memory", child.measure_memory, advance)
    rows = [child.row for child, _ in started]
    measured = [row for row in rows if "failed" not in row]
    for row in measured:
        row["median_seconds"] = statistics.median(row["seconds"])
    ours = next((row["median_seconds"] for row in measured if row["participant"] == "hero"), None)
    for row in measured if ours else ():
        row["ratio_to_hero"] = row["median_seconds"] / ours
    return rows


def compare(works: Sequence[Workload], rounds: int, threads: int, eager: bool) -> dict[str, Any]:
    """Measure all workloads; `ratios` holds the time of every participant and of the fastest peer over ours."""
    result: dict[str, Any] = {"machine": {"threads": threads}, "training": [], "inference": [], "ratios": {}}
    labels = {kind: taking_part(kind, eager) for kind in ("training", "inference")}
    keys = {key for part in labels.values() for key in part.values()}
    total = sum(len(labels[work.kind]) for work in works) * (rounds + 2)
    with progress_bar("peers", total) as advance, children(keys, threads) as pool:
        try:
            advance(0, note="limits of the machine")
            ours = pool["hero", False]
            result["machine"] |= ours.ask("machine")
            needs = [ours.ask("flops", work=asdict(work)) for work in works]
        except ChildError as error:
            raise HeroError(
                f"the limits of the machine cannot be measured ({error}); check the installation of torch."
            ) from None
        result["machine"]["versions"] = peer_versions()
        for work, need in zip(works, needs, strict=True):
            rows = alternate(pool, labels[work.kind], work, rounds, advance)
            for row in rows:
                row |= limit_of(work, need["flops"], need["parameters"], result["machine"])
            result[work.kind] += rows
            result["ratios"] |= ratios(work, rows)
    return result


def ratios(work: Workload, rows: Sequence[Row]) -> dict[str, float]:
    """Named ratios of one workload, for example "1D training neuralop"."""
    title = f"{work.dims}D {work.kind}" + (f" batch {work.batch}" if work.kind == "inference" else "")
    found = {row["participant"]: row["ratio_to_hero"] for row in rows if "ratio_to_hero" in row}
    peers = [found[name] for name in PEERS if name in found]
    best = {"best peer": min(peers)} if peers else {}
    return {f"{title} {label}": ratio for label, ratio in (found | best).items() if label != "hero"}


def peer_versions() -> dict[str, str]:
    """Versions of everything that takes part and is installed."""
    found = versions()
    for package in ("neuraloperator", "jax", "pdequinox", "trainax"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
