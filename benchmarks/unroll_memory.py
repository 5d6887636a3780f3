"""Memory of one update against the length of its unroll, with and without recomputation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Generator

from hero.console import progress_bar
from hero.data.windows import Batch, Context
from hero.report.figures.style import BLUE, VERMILION, new_figure
from hero.runs.config import make_config
from hero.training.memory import KeptForBackward

LENGTHS = (1, 2, 5, 10, 20, 50)
TASK_OF_DIM = {1: "burgers", 2: "decaying_turbulence", 3: "swift_hohenberg"}


def unroll_memory(dims: int, lengths: Sequence[int] = LENGTHS) -> list[dict[str, Any]]:
    """Rows of unroll, recompute and bytes: what one uncompiled push_forward update keeps for its backward pass.

    Counted, because the memory of a process also shows what it freed long ago. A recomputed step needs, while it is
    computed again, what a single step keeps; that is added.
    """
    rows = []
    with progress_bar("memory of unrolls", 2 * len(lengths)) as advance:
        for recompute in (False, True):
            for steps in lengths:
                again = kept_bytes(dims, 1, False) if recompute else 0
                kept = kept_bytes(dims, steps, recompute) + again
                rows.append({"dims": dims, "unroll": steps, "recompute": recompute, "bytes": kept})
                advance()
    return rows


def kept_bytes(dims: int, steps: int, recompute: bool) -> int:
    """Bytes that the forward pass of an update leaves to its backward pass, without the model."""
    settings = {"task.name": TASK_OF_DIM[dims], "train.recompute": recompute, "train.unroll": steps}
    config = make_config(overrides={"strategy": "push_forward", **settings})
    source, size = config.source, config.train.batch
    states, truth = (torch.randn(size, n, source.channels, *source.space) for n in (1, steps))
    model = config.build_operator()
    model(states[:, 0])  # makes the matrices of the transform, which stay
    kept = KeptForBackward(model)
    with kept.hooks():
        config.make_strategy().loss(model, Batch(Context(states), truth, 0, None, Generator()))
    return kept.nbytes()


def unroll_memory_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Both curves of `unroll_memory`, on logarithmic axes."""
    figure = new_figure(5.2, 3.4)
    axes = figure.subplots()
    for recompute, colour, label in ((False, VERMILION, "activations kept"), (True, BLUE, "activations recomputed")):
        shown = [row for row in rows if row["recompute"] == recompute]
        x, y = [row["unroll"] for row in shown], [row["bytes"] / 2**20 for row in shown]
        axes.plot(x, y, marker="o", color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlabel="steps of the unroll", ylabel="MB kept for the backward pass")
    axes.set_xticks([row["unroll"] for row in rows if row["recompute"]])
    axes.set_yticks([10, 20, 50, 100, 200, 500])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_title(f"{rows[0]['dims']}D paper FNO, batch 20, one update")
    axes.grid(alpha=0.25)
    axes.legend()
    return figure
