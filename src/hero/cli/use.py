"""Commands that apply an operator: `hero predict` and `hero evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hero.cli.options import Folders, RunName, argument, flag, option
from hero.cli.runs import measure, show_result
from hero.cli.show import show_rows
from hero.console import say

if TYPE_CHECKING:
    from hero.evaluation.predict import Prediction


def evaluate(run: RunName, where: Folders) -> None:
    """Measure a trained run again and rewrite its report."""
    folder = where.find(run)
    show_result(measure(folder, where.data), folder)


def predict(
    model: Annotated[str, argument("RUN|FILE", "Run folder or id, or an .onnx or .pt2 file.", "run")],
    where: Folders,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            "--input",
            metavar="FILE",
            help="File or folder of trajectories, of which the first states are taken, or an array of states "
            "(default: the test states).",
        ),
    ] = None,
    steps: Annotated[int, option("N", "Steps to roll out.")] = 200,
    out: Annotated[Path, option("FILE", "Rollout: .h5 or .zarr of any length, .npz or .npy up to 2 GB.")] = Path(
        "predictions.npz"
    ),
    trajectories: Annotated[int | None, option("N", "The first N trajectories (default: all).")] = None,
    compile: Annotated[bool, flag("--compile", "Compile first: for long rollouts of a run.")] = False,
) -> int:
    """Roll out a run or an exported file from your own states.

    Errors are shown where the file holds the truth of these steps. The exit code is 1 if the rollout ended early.
    """
    from hero.evaluation import predict

    result = predict.predict(model, where.runs, where.data, source, steps, out, compile, trajectories)
    say(*result.notes, style="dim")
    show_errors(result)
    shape, made = "×".join(map(str, result.shape)), result.shape[1]
    say(f"prediction {shape} in {result.seconds:.2f} s, {made / result.seconds:.0f} steps/s")
    say(f"{result.diverged} of {result.shape[0]} trajectories left the finite range")
    if not result.complete:
        ended = "interrupted" if result.interrupted else "every trajectory left the finite range"
        kept = f"the first {made} are kept" if made else "nothing is written"
        say(f"{ended} at step {made + 1} of {steps}; {kept}", style="yellow")
    if made:
        say(f"written: {result.path}")
    return 0 if result.complete else 1


def show_errors(result: "Prediction") -> None:
    """Print the mean error at some steps, if the truth is known."""
    from hero.evaluation.predict import truth_steps
    from hero.method.metrics import nrmse_at

    if "nrmse" not in result.errors:
        return
    errors = result.errors["nrmse"]
    rows = [(f"nRMSE@{t}", f"{nrmse_at(errors, t):.4g}") for t in truth_steps(errors.shape[1])]
    show_rows(f"{len(errors)} trajectories against the truth", ("Metric", "Mean"), rows, numbers=True)
