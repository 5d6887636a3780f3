"""From the command to a trained and evaluated operator: `python -m benchmarks solution`.

The paper's protocol on Burgers: 10,000 push-forward updates, batch 20, unroll of 5 steps, relative loss, AdamW with
warm-up and cosine, clipping, validation twenty times, rollouts of 200 steps at the end. Each participant is a fresh
process, and its whole life is timed: imports, compiling, training, evaluation. `cold` begins without compiled code,
`warm` with the code of an earlier process. Data are made before, the same for all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed_files import keep_speed
from hero.console import progress_bar
from hero.errors import HeroError
from hero.runs.config import make_config
from hero.runs.folder import load_data

SOLVERS = ("hero", "neuralop", "apebench")
ROOT = Path(__file__).parent.parent


def measure_solution(names: Sequence[str], updates: int, threads: int, folder: Path) -> dict[str, Any]:
    """Seconds of each participant, cold and warm, stored as they come; neuralop, which compiles nothing, runs once."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, progress_bar("solution", 2 * len(names)) as advance:
        place = Path(scratch)
        advance(0, note="data")
        export_data(place, updates)
        for name in names:
            found[name] = {"updates": updates}
            for state in ("cold", "warm"):
                advance(0, note=f"{name}, {state}")
                if name != "neuralop" or state == "cold":
                    found[name] |= {state: solve(name, state, updates, threads, place)}
                else:
                    found[name] |= {"warm": found[name]["cold"]}
                keep_speed("solution", name, found[name], folder)
                advance()
    return found


def export_data(place: Path, updates: int) -> None:
    """The data of the task in our store, and as one file of arrays for the others."""
    config = make_config(overrides=overrides(updates))
    splits = {name: load_data(config, name, place / "data", "cpu").states.numpy() for name in ("train", "val", "test")}
    np.savez(place / "data.npz", allow_pickle=False, **splits)


def overrides(updates: int) -> dict[str, Any]:
    return {"task.name": "burgers", "strategy": "push_forward", "train.steps": updates}


def solve(name: str, state: str, updates: int, threads: int, place: Path) -> dict[str, float]:
    """Seconds of one fresh process from its start to its end, and the GM100 and nRMSE@100 that it reached."""
    caches = place / f"caches_{name}"  # empty at the first, cold, process
    left_out = ("TORCHINDUCTOR_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")  # nobody compiles all imports in each process
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment |= {"XDG_CACHE_HOME": str(caches), "JAX_COMPILATION_CACHE_DIR": str(caches)}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "OMP_NUM_THREADS": str(threads)}
    runs = place / f"runs {state}"
    if name == "hero":
        command = ["hero", "train", "burgers", "--strategy", "push_forward", "--set", f"train.steps={updates}"]
        command += ["--runs", str(runs), "--data", str(place / "data")]
    else:
        command = [f"benchmarks.solution_{name}", str(place / "data.npz"), str(updates), str(threads)]
    begin = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if ended.returncode:
        raise HeroError(f"{name} failed after {seconds:.0f} s: {(ended.stderr or ended.stdout).strip()[-300:]}")
    if name != "hero":
        return {"seconds": seconds, **json.loads(ended.stdout.splitlines()[-1])}
    metrics = json.loads(next(runs.glob("*/metrics.json")).read_text(encoding="utf-8"))
    compiled = {"compiled": metrics["training"]["compiled"]}
    return {
        "seconds": seconds,
        "gm100": metrics["test"]["gm100"],
        "nrmse@100": metrics["test"]["nrmse@100"],
        **compiled,
    }
