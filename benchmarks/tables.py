"""The comparison with the peers as tables on the screen."""

from __future__ import annotations

from typing import Any

from hero.cli.show import show
from hero.console import console
from hero.report.tables import Column, Row, Table, Text

WORDS, NUMBERS = ("participant", "bound by"), ("ms", "x hero", "peak MB", "x limit")
COLUMNS = [Column(name, words=name in WORDS) for name in (WORDS[0], *NUMBERS, WORDS[1])]


def print_comparison(result: dict[str, Any]) -> None:
    """One table for training, one for inference, and how to read them."""
    machine = result["machine"]
    for kind, title in (("training", "Training: one update"), ("inference", "Inference: one rollout")):
        show(Table(title, COLUMNS, [Row([*map(Text, cells(row))], work_text(row)) for row in result[kind]]))
    for row in result["training"] + result["inference"]:
        if "failed" in row:
            console.print(f"{row['participant']}, {work_text(row)}: {row['failed']}", style="yellow", soft_wrap=True)
    console.print(
        f"{machine['device']}, {machine['threads']} threads: matrix product {machine['gemm_gflops']:.0f} GFLOP/s,"
        f" memory {machine['bandwidth_gbs']:.1f} GB/s; `x limit` is the time over what these two allow, `peak MB`"
        " the memory beyond what the library holds before it has any work; work is batch x steps.",
        soft_wrap=True,
        highlight=False,
    )


def work_text(row: dict[str, Any]) -> str:
    """Dimension, batch and steps, for example `2D, 20 x 5 steps`."""
    return f"{row['dims']}D, {row['batch']} x {row['steps']} steps"


def cells(row: dict[str, Any]) -> list[str]:
    """The participant and its numbers as text."""
    label = row["participant"]
    if "failed" in row:
        return [label, "failed", "", "", "", ""]
    if label == "hero" and row["kind"] == "training" and not row["compiled"]:
        label = "hero (eager)"
    ms = 1e3 * row["median_seconds"]
    return [
        label,
        f"{ms:.2f}" if ms < 100 else f"{ms:.0f}",
        f"{row['ratio_to_hero']:.2f}" if "ratio_to_hero" in row else "",
        f"{row['peak_bytes'] / 2**20:.1f}",
        f"{row['median_seconds'] / row['limit_seconds']:.1f}",
        row["bound_by"],
    ]
