"""Mixed work for as long as wanted: train, kill, resume, evaluate, report, predict, on all tasks and own files.

Commands that are killed run in children; the others in this process, whose memory and handles are watched.
"""

from __future__ import annotations

import contextlib
import io
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.children import content, contents, resources, run, run_and_kill
from benchmarks.crashes import SETTINGS, Bench, options, own_file
from hero.cli import main
from hero.data import TASKS
from hero.evaluation.evaluate import evaluate
from hero.strategies import STRATEGIES

SAMPLES = 10
"""Rows of the table of memory and handles."""


@dataclass
class Tally:
    """One kind of work: how often, its seconds, and what failed."""

    count: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class Soak:
    """The state of a soak: its folder, its random choices and its counts."""

    bench: Bench
    draw: random.Random
    tallies: dict[str, Tally] = field(default_factory=dict)
    samples: list[tuple[float, float, int]] = field(default_factory=list)
    """Seconds, memory in MB, handles."""
    trained: dict[str, Path] = field(default_factory=dict)
    """Folders of runs by name of the work."""

    def training(self) -> tuple[str, Callable[[Path], Sequence[object]]]:
        """A task and strategy by chance, as a command."""
        task, strategy = self.draw.choice(list(TASKS)), self.draw.choice(list(STRATEGIES))
        changes: dict[str, Any] = {"task__cutoff": 1, "task__warmup": 2, "backbone__modes": 2}
        if task == "kolmogorov_flow":
            changes["task__forcing_mode"] = 1
        command = ["train", task, "--strategy", strategy, *options(**changes)]
        return f"{task} {strategy}", lambda runs: [*command, "--runs", runs, "--data", self.bench.data]

    def own(self) -> tuple[str, Callable[[Path], Sequence[object]]]:
        """Training from one of the files of a stranger."""
        path = self.draw.choice(self.files())
        parts = [f"{key}={value}" for key, value in SETTINGS.items() if key.startswith(("train.", "backbone."))]
        layout = ["data.layout=btcx"] if path.suffix.startswith(".np") else []
        command = ["train", path, *(part for text in [*parts, *layout] for part in ("--set", text))]
        return path.name, lambda runs: [*command, "--runs", runs, "--data", self.bench.data]

    def files(self) -> list[Path]:
        """Files of strangers: NumPy arrays, and HDF5 in the layout of PDEBench."""
        npz = own_file(self.bench.folder / "own")
        npy, hdf5 = npz.with_suffix(".npy"), npz.with_suffix(".h5")
        if not hdf5.is_file():
            with np.load(npz) as arrays:
                np.save(npy, u := arrays["u"])
            with h5py.File(hdf5, "w") as file:
                file["tensor"] = u[:, :, 0]
                file["t-coordinate"] = np.arange(u.shape[1] + 1, dtype=np.float32)
                file["x-coordinate"] = np.arange(u.shape[3], dtype=np.float32)
        return [npz, npy, hdf5]

    def here(self, *arguments: object) -> str:
        """`hero ARGUMENTS` in this process; empty if it succeeds, or its output."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main([str(argument) for argument in arguments])
        return "" if code == 0 and "Traceback" not in text.getvalue() else f"exit code {code}: {text.getvalue()[-800:]}"

    def train_once(self, name: str, command: Callable[[Path], Sequence[object]]) -> Path:
        """The folder of an unbroken training, which is made at the first call."""
        if name not in self.trained:
            self.bench.measure(name, command)
            self.trained[name] = self.bench.folder / str(self.bench.count)
        return self.trained[name]

    def train(self) -> str:
        """Train in this process: the same bits as in a child."""
        name, command = self.training()
        whole, runs = contents(self.train_once(name, command)), self.bench.new_folder()
        return self.here(*command(runs)) or differing(whole, contents(runs))

    def kill(self, chosen: tuple[str, Callable[[Path], Sequence[object]]]) -> str:
        """Kill a training up to three times, then let it end: the same bits as without."""
        name, command = chosen
        self.train_once(name, command)
        runs = self.bench.new_folder()
        for _ in range(self.draw.randint(1, 3)):
            run_and_kill(command(runs), self.bench.output, self.draw.uniform(0, self.bench.seconds[name]), self.draw)
        return self.bench.failure(name, command, runs)

    def kill_benchmark(self) -> str:
        return self.kill(self.training())

    def kill_own(self) -> str:
        return self.kill(self.own())

    def some_run(self) -> Path:
        """One of the runs that were trained."""
        if not self.trained:
            self.train_once(*self.training())
        runs = self.trained[self.draw.choice(list(self.trained))]
        return next(path.parent for path in runs.glob("*/config.toml"))

    def evaluate(self) -> str:
        run = self.some_run()
        before = contents(run)
        return self.here("evaluate", run, "--data", self.bench.data) or differing(before, contents(run))

    def report(self) -> str:
        named = {str(self.some_run()) for _ in range(3)}
        page = self.bench.folder / "page.html"
        return self.here("report", *sorted(named), "--out", page) or ("" if page.stat().st_size > 1000 else "no page")

    def predict(self) -> str:
        """Roll a run out, here and in a child: the same bits."""
        run_folder, out = self.some_run(), self.bench.folder / "prediction.npz"
        command = ["predict", run_folder, "--steps", 12, "--out", out, "--data", self.bench.data]
        if failure := self.here(*command):
            return failure
        first = content(out)
        code = run(command, self.bench.output)
        return "" if code == 0 and content(out) == first else f"exit code {code}, or other numbers in a child"

    def work(self, seconds: float) -> None:
        """Kinds of work in a random order, until the time is over."""
        kinds: dict[str, Callable[[], str]] = {
            "train, again in another process": self.train,
            "kill a training, resume": self.kill_benchmark,
            "kill a training on own files, resume": self.kill_own,
            "evaluate": self.evaluate,
            "report": self.report,
            "predict": self.predict,
        }
        self.tallies = {name: Tally() for name in kinds}
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < seconds:
            if now >= len(self.samples) * seconds / SAMPLES:
                self.samples.append((now, *resources()))
            name = self.draw.choice(list(kinds))
            self.time(name, kinds[name])
        self.samples.append((time.monotonic() - begin, *resources()))

    def time(self, name: str, call: Callable[[], str]) -> None:
        """Do one piece of work and count it; an exception is a failure of it, not the end."""
        tally, begin = self.tallies[name], time.monotonic()
        try:
            failure = call()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        tally.count += 1
        tally.seconds += time.monotonic() - begin
        if failure:
            tally.failures.append(failure)

    def print_summary(self) -> int:
        """The tables; returns the number of failures."""
        print(f"{'times':>6}  {'failed':>6}  {'seconds':>8}  work")
        for name, tally in self.tallies.items():
            print(f"{tally.count:6}  {len(tally.failures):6}  {tally.seconds:8.0f}  {name}")
        tasks = {name.split()[0] for name in self.trained} & set(TASKS)
        print(f"{len(self.trained)} different trainings, on {len(tasks)} of {len(TASKS)} tasks and on own files")
        print(f"\n{'minute':>6}  {'MB':>6}  {'handles':>7}")
        for seconds, memory, handles in self.samples:
            print(f"{seconds / 60:6.1f}  {memory:6.0f}  {handles:7}")
        failures = [failure for tally in self.tallies.values() for failure in tally.failures]
        print("\n".join(failures))
        return len(failures)


def differing(before: dict[str, str], after: dict[str, str]) -> str:
    """The files that are not the same, as a sentence; empty if all are."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"{', '.join(names)} differ" if names else ""


def soak(minutes: float, seed: int) -> int:
    """Mixed work for `minutes`; prints the summary and returns the number of failures."""
    with tempfile.TemporaryDirectory() as folder:
        state = Soak(Bench(Path(folder)), random.Random(seed))
        state.work(60 * minutes)
        return state.print_summary()


def repeat_evaluation(count: int) -> list[tuple[int, float, int]]:
    """Evaluate one run `count` times in this process: evaluations so far, memory in MB and handles, eleven times."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        run_folder = next(path.parent for path in Path(folder).glob("*/*/config.toml"))
        rows = []
        for number in range(count + 1):
            if number % max(1, count // SAMPLES) == 0:
                rows.append((number, *resources()))
            evaluate(run_folder, bench.data)
    return rows
