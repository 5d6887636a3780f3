"""Training from a file ten times larger than data.memory next to the same training with all data in memory."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.runs.config import make_config
from hero.runs.folder import load_data
from hero.training.update import Trainee, update

SHAPE = (600, 201, 1024)  # 0.5 GB of float32
MEMORY = {"streamed": 0.05, "in memory": 4.0}


def write_waves(path: Path, storage: str) -> None:
    """Travelling waves in the layout of PDEBench; `storage` is contiguous, chunked or gzip (whole states)."""
    count, frames, points = SHAPE
    options: dict[str, dict[str, Any]] = {
        "contiguous": {},
        "chunked": {"chunks": (1, 50, points)},
        "gzip": {"chunks": (1, 50, points), "compression": "gzip"},
    }
    x, t = (np.arange(points) + 0.5) / points, np.arange(frames)[:, None] / frames
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        states = file.create_dataset("tensor", SHAPE, "f4", **options[storage])
        for number in range(count):
            waves = zip(rng.random(3), rng.random(3), (1, 2, 3), strict=True)
            states[number] = sum(a * np.sin(2 * np.pi * (k * (x - 0.3 * t) + phase)) for a, phase, k in waves)
        file["t-coordinate"], file["x-coordinate"] = np.arange(frames + 1) / frames, x


def streaming_ratios(storage: str, rounds: int, updates: int = 20) -> list[dict[str, float]]:
    """Seconds of an update of push_forward, streamed and in memory in turn, and their ratio, for each round."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "waves.h5"
        write_waves(path, storage)
        arms = {}
        for name, memory in MEMORY.items():
            config = make_config(
                overrides={
                    "data.path": str(path),
                    "data.memory": memory,
                    "strategy": "push_forward",
                    "train.compile": "false",
                    "train.device": "cpu",
                }
            )
            data, model = load_data(config, "train", Path(folder), "cpu"), config.build_operator()
            arms[name] = config.windows(data), Trainee.of(config, model)
        rows = []
        for number in range(rounds + 1):
            row = {}
            for name, (windows, trainee) in sorted(arms.items(), reverse=bool(number % 2)):
                begin = time.perf_counter()
                with windows.ahead(range(number * updates, (number + 1) * updates)) as batches:
                    for batch in batches:
                        update(trainee, batch)
                row[name] = (time.perf_counter() - begin) / updates
            rows.append(row | {"ratio": row["streamed"] / row["in memory"]})
        return rows[1:]  # the first allocates


def print_streaming(storage: str, rows: list[dict[str, float]]) -> None:
    """The median ratio and its spread."""
    ratios = [row["ratio"] for row in rows]
    each = 1e3 * statistics.median(row["in memory"] for row in rows)
    print(
        f"{storage}: streamed / in memory {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f} "
        f"in {len(ratios)} rounds); an update in memory takes {each:.0f} ms"
    )
