"""Commands that use a trained operator: `hero export` and `hero predict`."""

from pathlib import Path
from typing import Annotated

from rich.table import Table

from hero.cli.options import Folders, RunName, argument, flag, option
from hero.console import console, say

DIFFERENCES = {
    "one_step": "one step, largest along its rollout",
    "rollout@1": "free rollout, step 1",
    "rollout@10": "free rollout, step 10",
    "rollout@100": "free rollout, step 100",
    "nrmse@100": "test nRMSE@100 of the file",
    "original_nrmse@100": "test nRMSE@100 of the original",
}


def export(
    run: RunName,
    where: Folders,
    format: Annotated[str, option("--format", "NAME", "NAMES, or both.", "format")] = "both",
    out: Annotated[Path | None, option("--out", "DIR", "Folder of the files (default: RUN/export).")] = None,
) -> None:
    """Write a run as ONNX and torch.export files, checked over 100 steps."""
    from hero.evaluation.export import FORMATS, export_run

    folder = where.find(run)
    say(f"exporting {folder.name}: some seconds without progress", style="dim")
    results = export_run(folder, where.data, out, tuple(FORMATS) if format == "both" else (format,)).values()
    table = Table("relative difference from the original", *(Path(row["path"]).name for row in results))
    for name, text in DIFFERENCES.items():
        table.add_row(text, *(f"{row[name]:.4g}" for row in results))
    console.print(table)
    say(*(f"{row['path']}: {row['bytes'] / 1000:.0f} kB" for row in results))


def predict(
    model: Annotated[str, argument("RUN|FILE", "Run folder or id, or an .onnx or .pt2 file.", "run")],
    where: Folders,
    input: Annotated[Path | None, option("--input", "FILE", ".npy, .npz or .h5 (default: the test states).")] = None,
    steps: Annotated[int, option("--steps", "N", "Steps to roll out.")] = 200,
    out: Annotated[Path, option("--out", "FILE", ".npz or .npy.")] = Path("predictions.npz"),
    compile: Annotated[bool, flag("--compile", "Compile first: for long rollouts of a run.")] = False,
) -> None:
    """Roll out a run or an exported file from your own states."""
    from hero.evaluation import predict

    result = predict.predict(model, where.runs, where.data, input, steps, out, compile)
    shape, seconds = "×".join(map(str, result["shape"])), result["seconds"]
    say(f"prediction {shape} in {seconds:.2f} s, {steps / seconds:.0f} steps/s")
    say(f"{result['diverged']} of {result['shape'][0]} trajectories left the finite range")
    say(f"written: {result['path']}")
