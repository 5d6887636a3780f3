"""`hero export` and `hero predict`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from hero.console import console
from hero.evaluation.export import FORMATS, export_run
from hero.evaluation.predict import predict
from hero.runs.folder import find_run


def add_export_commands(commands: Any, folders: argparse.ArgumentParser) -> None:
    """`hero export` and `hero predict`."""
    command = commands.add_parser("export", parents=[folders], help="write a run as ONNX and torch.export files")
    command.add_argument("run", metavar="RUN", help="run folder or id")
    command.add_argument("--format", choices=(*FORMATS, "both"), default="both", help="default: both")
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the files (default: RUN/export)")
    command.set_defaults(call=run_export)

    command = commands.add_parser("predict", parents=[folders], help="roll out a run or an exported file")
    command.add_argument("model", metavar="RUN|FILE", help="run folder or id, or an .onnx or .pt2 file")
    command.add_argument("--input", type=Path, metavar="FILE",
                         help="initial states: .npy, .npz or .h5 (default: the test states of the run)")  # fmt: skip
    command.add_argument("--steps", type=int, default=200, help="default: 200")
    command.add_argument("--out", type=Path, metavar="FILE", default=Path("predictions.npz"),
                         help=".npz or .npy (default: predictions.npz)")  # fmt: skip
    command.add_argument("--compile", action="store_true", help="compile first: for long rollouts of a run")
    command.set_defaults(call=run_predict)


def run_export(args: argparse.Namespace) -> None:
    formats = tuple(FORMATS) if args.format == "both" else (args.format,)
    results = export_run(find_run(args.run, args.runs), args.data, args.out, formats)
    table = Table("relative difference from the original", *(Path(row["path"]).name for row in results.values()))
    for text, name in (
        ("one step, largest along its rollout", "one_step"),
        *((f"free rollout, step {k}", f"rollout@{k}") for k in (1, 10, 100)),
        ("test nRMSE@100 of the file", "nrmse@100"),
        ("test nRMSE@100 of the original", "original_nrmse@100"),
    ):
        table.add_row(text, *(f"{row[name]:.4g}" for row in results.values()))
    console.print(table)
    for row in results.values():
        console.print(f"{row['path']}: {row['bytes'] / 1000:.0f} kB", highlight=False, soft_wrap=True)


def run_predict(args: argparse.Namespace) -> None:
    result = predict(args.model, args.runs, args.data, args.input, args.steps, args.out, args.compile)
    shape, seconds = "×".join(map(str, result["shape"])), result["seconds"]
    console.print(f"prediction {shape} in {seconds:.2f} s, {args.steps / seconds:.0f} steps/s", highlight=False)
    console.print(f"{result['diverged']} of {result['shape'][0]} trajectories left the finite range", highlight=False)
    console.print(f"written: {result['path']}", highlight=False, soft_wrap=True)
