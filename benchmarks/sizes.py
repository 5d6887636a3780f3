"""Updates at the sizes that people train: `python -m benchmarks sizes`.

Our FNO with the transform that counting chooses, with the other one, and neuraloperator's; our Transolver and U-Net
beside their authors' layers. All run eagerly: at these sizes compiling takes minutes for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.participant import Workload
from benchmarks.peers import alternate, children
from benchmarks.speed_files import keep_speed
from hero.console import progress_bar
from hero.models.spectral import prefers_fft

Labels = dict[str, tuple[str, bool]]

PARTS = ("1", "2", "3", "networks")
"""The grids by their dimension, and the other networks."""


def people_sizes(part: str) -> list[Workload]:
    """One-step updates of four layers at batch 8; in 3D, where weights alone take gigabytes, batch 2."""

    def fno(dims: int, points: int, width: int, modes: int) -> Workload:
        return Workload("training", dims, points, width, modes, depth=4, batch=2 if dims == 3 else 8, steps=1)

    if part == "1":
        return [fno(1, 1024, width, modes) for width in (32, 64) for modes in (16, 32)]
    if part == "2":
        sizes = [(128, 32, 16), (128, 32, 32), (128, 64, 16), (128, 64, 32), (256, 32, 16), (256, 64, 32)]
        return [fno(2, *size) for size in sizes]
    if part == "3":
        return [fno(3, 64, 32, 16), fno(3, 64, 16, 32)]
    return [
        Workload("training", 2, 64, width=64, modes=32, depth=4, batch=8, steps=1, network="transolver"),
        Workload("training", 2, 128, width=32, modes=0, depth=3, batch=8, steps=1, network="unet"),
    ]


def small(work: Workload) -> Workload:
    """The same kind of work on eight points, for a try."""
    return Workload(work.kind, work.dims, 8, 8, 4, depth=2, batch=2, steps=1, network=work.network)


def taking_part(work: Workload) -> Labels:
    """By label: whose process; `hero` has the transform that counting chooses."""
    if work.network != "fno":
        return {"hero": ("hero", False), "authors": ("authors", False)}
    ours = ["hero_fft", "hero_matrices"]
    if not prefers_fft((work.modes,) * work.dims, work.space):
        ours.reverse()
    return {"hero": (ours[0], False), "other transform": (ours[1], False), "neuralop": ("neuralop", False)}


def measure_sizes(parts: Sequence[str], rounds: int, threads: int, quick: bool, folder: Path) -> None:
    """Rows of every size, stored after each."""
    works = {part: [small(work) if quick else work for work in people_sizes(part)] for part in parts}
    everyone = [taking_part(work) for some in works.values() for work in some]
    total = sum(len(labels) for labels in everyone) * (rounds + 2)
    with progress_bar("sizes", total) as advance:
        for part, some in works.items():
            rows: list[dict[str, Any]] = []
            with children({key for work in some for key in taking_part(work).values()}, threads) as pool:
                for work in some:
                    rows += alternate(pool, taking_part(work), work, rounds, advance)
                    keep_speed("sizes", part, rows, folder)
