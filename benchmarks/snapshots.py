"""A folder with one file per state: time to examine it and to its first batch, and memory, for two numbers of files."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

COUNTS = (1000, 10_000)
POINTS = 64


def write_states(folder: Path, count: int) -> None:
    """A travelling wave on 64 x 64 points, a .npy file for each state."""
    x = np.arange(POINTS) / POINTS
    for number in range(count):
        state = np.sin(2 * np.pi * (x[:, None] + 2 * x - 0.01 * number)) + 0.1 * np.cos(6 * np.pi * x)
        np.save(folder / f"t_{number}.npy", state.astype("f4"))


def measure_folder(folder: Path) -> dict[str, float]:
    """Seconds to open the folder, to a first batch read from its files, and to examine it; MB that each adds."""
    from hero.analysis.doctor import diagnose
    from hero.data.formats import open_recording
    from hero.runs.config import make_config
    from hero.runs.folder import load_data

    marks = [(time.perf_counter(), _memory())]
    recording = open_recording(folder)
    marks.append((time.perf_counter(), _memory()))
    config = make_config(overrides={"data.path": str(folder), "data.memory": 1e-3, "strategy": "push_forward"})
    config.windows(load_data(config, "train", folder, "cpu"))(0)
    marks.append((time.perf_counter(), _memory()))
    diagnose(recording, str(folder))
    marks.append((time.perf_counter(), _memory()))
    found: dict[str, float] = {}
    for name, (begin, before), (end, after) in zip(("open", "batch", "doctor"), marks, marks[1:], strict=False):
        found |= {f"{name} s": end - begin, f"{name} MB": after - before}
    return found


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_snapshots() -> dict[int, dict[str, float]]:
    """The numbers of each folder, each in a process of its own."""
    found = {}
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            write_states(Path(folder), count)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[count] = pool.submit(measure_folder, Path(folder)).result()
    return found


def print_snapshots(rows: dict[int, dict[str, float]]) -> None:
    """A line for each number of files."""
    for count, row in rows.items():
        size = count * POINTS**2 * 4 / 1e6
        steps = ", ".join(f"{n} {row[f'{n} s']:.1f} s and {row[f'{n} MB']:.0f} MB" for n in ("open", "batch", "doctor"))
        print(f"{count} files of {POINTS} x {POINTS} ({size:.0f} MB): {steps}")
