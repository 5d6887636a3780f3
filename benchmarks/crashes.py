"""Kills at every named point for every strategy, and at random moments of every stage: the same bits as without."""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import contents, run, run_and_kill, timed, warm_up

SETTINGS: dict[str, Any] = {
    "task.resolution": 16,
    "task.substeps": 1,
    "backbone.width": 3,
    "backbone.modes": 4,
    "backbone.depth": 2,
    "data.train_trajectories": 4,
    "data.train_steps": 8,
    "data.val_trajectories": 2,
    "data.val_steps": 20,
    "data.test_trajectories": 2,
    "data.test_steps": 20,
    "train.batch": 5,
    "train.steps": 6,
    "train.unroll": 3,
    "train.validate_every": 2,
    "train.checkpoint_every": 3,
    "train.compile": "false",
    "train.device": "cpu",
    "hero.start": 1,
    "hero.refresh": 2,
}
"""A run of a moment: lagged weights, validations and checkpoints lie on both sides of every kill."""

DATA_POINTS = ("half-hdf5 *-train-*", "before-rename *-train-*.h5", "after-rename *-val-*.h5", "half-hdf5 *-test-*")
POINTS = (
    "half-write config.toml",
    "after-rename config.toml",
    "before-rename log.jsonl",
    "half-line log.jsonl",
    "half-line log.jsonl:5",
    "after-line log.jsonl:9",
    "before-validation-record",
    "before-validation-record:3",
    "after-validation-record:2",
    "half-write model.safetensors",
    "before-rename model.safetensors",
    "after-rename model.safetensors",
    "half-write state.pt",
    "before-rename state.pt:2",
    "after-rename state.pt",
    "after-rename state.pt:2",
    "half-write errors.npz",
    "after-rename rollout.npz",
    "before-rename metrics.json",
    "after-rename metrics.json",
    "before-rename report.html",
    *DATA_POINTS,
)
"""Where `hero train` can die, in its order but for the data."""

SHORT = 3
"""The first stages train one run, and are killed more often than the long ones."""


def options(**changes: Any) -> list[str]:
    """Settings as options of the command line; `train__steps=4` stands for train.steps=4."""
    values = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


@dataclass
class Bench:
    """A folder with the data, and the results of unbroken commands by name."""

    folder: Path
    whole: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        warm_up(training("one_step", self.data)(self.new_folder()))

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def output(self) -> Path:
        """Where the last command prints to."""
        return self.folder / "output.txt"

    def new_folder(self) -> Path:
        self.count += 1
        return self.folder / f"{self.count}"

    def measure(self, name: str, command: Callable[[Path], Sequence[object]]) -> dict[str, str]:
        """The results of the command without a kill; computed once."""
        if name not in self.whole:
            runs = self.new_folder()
            self.seconds[name] = timed(command(runs), self.output)
            self.whole[name] = contents(runs)
        return self.whole[name]

    def failure(self, name: str, command: Callable[[Path], Sequence[object]], runs: Path) -> str:
        """Repeat a command that was killed; empty if all is as without the kill, or a sentence."""
        whole = self.measure(name, command)
        self.output.unlink(missing_ok=True)
        code = run(command(runs), self.output)
        printed = self.output.read_text()
        if code:
            return f"the repeated command ended with {code}: {printed[-1000:]}"
        if "Traceback" in printed:
            return f"a traceback: {printed[-1000:]}"
        found = contents(runs)
        differing = sorted(path for path in whole.keys() | found.keys() if whole.get(path) != found.get(path))
        return f"{', '.join(differing)} differ" if differing else ""


def training(strategy: str, data: Path) -> Callable[[Path], Sequence[object]]:
    """`hero train` of a strategy on Burgers, as a function of the folder of runs."""
    return lambda runs: ["train", "burgers", "--strategy", strategy, *options(), "--runs", runs, "--data", data]


def die_at(bench: Bench, strategy: str, point: str) -> str:
    """Kill a training at a point and repeat it; empty if all is as without the kill, or a sentence."""
    runs, name = bench.new_folder(), f"train {strategy}"
    bench.measure(name, training(strategy, bench.data))
    data = runs.with_suffix(".data") if point in DATA_POINTS else bench.data
    code = run(training(strategy, data)(runs), bench.output, point)
    if code != -signal.SIGKILL:
        return f"the point was not reached: exit code {code}"
    return bench.failure(name, training(strategy, data), runs)


def own_file(folder: Path) -> Path:
    """Decaying waves in a file of a stranger."""
    path = folder / "waves.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(3)
        x, t = np.arange(16) / 16, np.arange(24)[:, None]
        waves = [np.exp(-0.02 * t) * np.sin(2 * np.pi * (x - 0.03 * t + phase)) for phase in rng.random(8)]
        np.savez(path, u=np.stack(waves).astype(np.float32)[:, :, None])
    return path


def stages(bench: Bench, cluster: bool) -> dict[str, Callable[[Path], Sequence[object]]]:
    """Commands by name, each as a function of the folder of runs."""
    path = own_file(bench.folder / "own")
    own = [
        part for key, value in SETTINGS.items() if key[:4] in ("trai", "back") for part in ("--set", f"{key}={value}")
    ]

    def where(runs: Path) -> list[object]:
        return ["--runs", runs, "--data", bench.data]

    arms = ["--strategies", "one_step,hero", "--seeds", 1]
    found: dict[str, Callable[[Path], Sequence[object]]] = {
        "train a benchmark": lambda runs: ["train", "burgers", *options(), *where(runs)],
        "train and make data": lambda runs: [
            "train",
            "kdv",
            *options(),
            "--runs",
            runs,
            "--data",
            runs.with_suffix(".data"),
        ],
        "train an own file": lambda runs: ["train", path, "--set", "data.layout=btcx", *own, *where(runs)],
        "compare": lambda runs: ["compare", "burgers", *arms, *options(), *where(runs), "--workers", 0],
        "study main": lambda runs: [
            *("study", "main", "--tasks", "burgers", "--backbones", "fno", *arms, *options(), *where(runs))
        ],
    }
    if cluster:
        found["compare on Ray"] = lambda runs: [
            *("compare", "burgers", *arms, *options(), *where(runs), "--cluster", "local", "--cpus", 0.5)
        ]
    return found


def random_kill(bench: Bench, name: str, command: Callable[[Path], Sequence[object]], draw: random.Random) -> str:
    """Kill a stage at a random moment and repeat it; empty if all is as without the kill, or a sentence."""
    bench.measure(name, command)
    runs = bench.new_folder()
    run_and_kill(command(runs), bench.output, draw.uniform(0, bench.seconds[name]), draw)
    return bench.failure(name, command, runs)


@dataclass
class Count:
    """A row of the summary."""

    what: str
    kills: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, failure: str, label: str) -> None:
        self.kills += 1
        if failure:
            self.failures.append(f"{label}: {failure}")


def crash_all(strategies: Iterable[str], points: Sequence[str], kills: int, seed: int, cluster: bool) -> list[Count]:
    """All points for all strategies, then random kills in turn over the stages."""
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for strategy in strategies:
            counts.append(count := Count(f"{len(points)} points of {strategy}"))
            for point in points:
                count.add(die_at(bench, strategy, point), point)
        draw, chosen = random.Random(seed), stages(bench, cluster)
        turns = [*list(chosen)[:SHORT] * 3, *list(chosen)[SHORT:]]
        rows = {name: Count(f"random, {name}") for name in chosen}
        for number in range(kills):
            name = turns[number % len(turns)]
            rows[name].add(random_kill(bench, name, chosen[name], draw), f"kill {number} of seed {seed}")
    return [*counts, *rows.values()]


def print_counts(counts: Sequence[Count]) -> int:
    """The summary; returns the number of failures."""
    width = max(len(count.what) for count in counts)
    print(f"{'kills':>6}  {'same bits':>9}  what")
    for count in counts:
        print(f"{count.kills:6}  {count.kills - len(count.failures):9}  {count.what:{width}}")
    failures = [failure for count in counts for failure in count.failures]
    total = sum(count.kills for count in counts)
    print(f"{total:6}  {total - len(failures):9}  in all")
    print("\n".join(failures))
    return len(failures)
