"""How time and memory of an update grow: `python -m benchmarks growth`.

From the paper's 2D network one number at a time is varied; ours and neuraloperator's run eagerly, beside the limit of
the machine. Updates in several processes are those of `torchrun -m hero train`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from benchmarks.limits import limit_of
from benchmarks.participant import Workload
from benchmarks.peers import PAPER, alternate, children
from benchmarks.speed_files import keep_speed
from hero.console import progress_bar
from hero.errors import HeroError
from hero.report.figures.style import BLUE, GREEN, VERMILION, new_figure

BASE = Workload("training", 2, **PAPER[2], batch=20, steps=5)
VARIED: dict[str, tuple[int, ...]] = {
    "points": (32, 64, 128, 256),
    "width": (8, 20, 40, 80),
    "modes": (4, 8, 16, 32),
    "steps": (1, 5, 10, 20),
    "batch": (1, 5, 20, 80),
}
TITLES = {"points": "points per axis", "steps": "steps of the unroll"}
LABELS = {"hero": ("hero", False), "neuralop": ("neuralop", False)}
SMALL = Workload("training", 2, points=16, width=4, modes=2, depth=1, batch=2, steps=2)
"""For a try."""


def measure_growth(parts: Sequence[str], rounds: int, threads: int, quick: bool, folder: Path) -> None:
    """Rows of each number that is varied, stored after each; processes last."""
    varied = [part for part in parts if part in VARIED]
    values = {part: (2, 4) if quick and part != "points" else (8, 16) if quick else VARIED[part] for part in varied}
    total = sum(map(len, values.values())) * len(LABELS) * (rounds + 2)
    with progress_bar("growth", total) as advance, children(LABELS.values(), threads) as pool:
        machine = pool["hero", False].ask("machine") if varied else {}
        for part in varied:
            rows: list[dict[str, Any]] = []
            for value in values[part]:
                changed: dict[str, Any] = {part: value}
                work = replace(SMALL if quick else BASE, **changed)
                need = pool["hero", False].ask("flops", work=asdict(work))
                limit = limit_of(work, need["flops"], need["parameters"], machine)
                rows += [row | limit for row in alternate(pool, LABELS, work, rounds, advance)]
                keep_speed("growth", part, rows, folder)
    if "processes" in parts:
        counts = range(1, min(2, os.cpu_count() or 1) + 1)
        rows = [{"participant": "hero", "processes": n, "median_seconds": seconds_with(n, quick)} for n in counts]
        keep_speed("growth", "processes", rows, folder)


def seconds_with(processes: int, quick: bool) -> float:
    """Seconds of an update of the paper's 2D run in so many processes of one thread each."""
    updates = 4 if quick else 40
    settings = {"train.steps": updates, "train.validate_every": updates, "train.compile": "false"}
    settings |= {f"data.{split}_trajectories": 4 for split in ("train", "val", "test")}
    settings |= {f"data.{split}_steps": 12 for split in ("train", "val", "test")}
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command += ["-m", "hero", "train", "decaying_turbulence", "--strategy", "push_forward", *changes]
        command += ["--runs", str(runs), "--data", str(Path(folder) / "data")]
        ended = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
        logs = list(runs.glob("*/log.jsonl"))
        if ended.returncode or not logs:
            raise HeroError(f"training in {processes} processes failed: {ended.stderr.strip()[-300:]}")
        rows = [json.loads(line) for line in logs[0].read_text(encoding="utf-8").splitlines()]
    speeds = [row["steps_per_second"] for row in rows if row.get("steps_per_second")]
    return float(1 / speeds[-1])


def growth_figure(parts: Mapping[str, Any]) -> Figure:
    """Time above, memory below, a column for each number that was varied; all axes logarithmic."""
    figure = new_figure(2.3 * len(parts), 4.6)
    panels = figure.subplots(2, len(parts), squeeze=False)
    styles = {"hero": (BLUE, "o"), "neuralop": (VERMILION, "s")}
    for (upper, lower), (varies, stored) in zip(panels.T, parts.items(), strict=True):
        rows = [row for row in stored["rows"] if "median_seconds" in row]
        for label, (colour, marker) in styles.items():
            own = [row for row in rows if row["participant"] == label]
            x, style = (
                [row[varies] for row in own],
                {"color": colour, "marker": marker, "markersize": 4, "label": label},
            )
            upper.plot(x, [1e3 * row["median_seconds"] for row in own], **style)
            kept = [(row[varies], row["peak_bytes"] / 2**20) for row in own if row.get("peak_bytes", 0) > 0]
            lower.plot(*zip(*kept, strict=True), **style) if kept else None
        limits = [
            (row[varies], 1e3 * row["limit_seconds"])
            for row in rows
            if row["participant"] == "hero" and "limit_seconds" in row
        ]
        if limits:
            upper.plot(*zip(*limits, strict=True), color=GREEN, linestyle="--", label="limit of the machine")
        lower.set_xlabel(TITLES.get(varies, varies))
        for axes in (upper, lower):
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(sorted({row[varies] for row in rows}))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(alpha=0.25)
        if varies == "processes":
            lower.set_visible(False)
            upper.set_xlabel(varies)
    panels[0, 0].set_ylabel("ms per update")
    panels[1, 0].set_ylabel("MB at most")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure
