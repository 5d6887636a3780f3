"""Commands that apply an operator: `hero predict` and `hero evaluate`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hero.cli.options import Folders, JsonFile, argument, flag, not_a_folder, option
from hero.cli.runs import measure, show_result
from hero.cli.show import show_rows
from hero.console import say
from hero.errors import HeroError
from hero.parts import key_of

if TYPE_CHECKING:
    from torch import Tensor

    from hero.deploy.predict import Prediction
    from hero.evaluation.foreign import Scored
    from hero.records import Record


def evaluate(
    where: Folders,
    run: Annotated[
        str | None, argument("RUN|TASK|FILE", "Run folder or id; with --model the benchmark or file.", "run")
    ] = None,
    set: Annotated[
        list[str] | None, option("KEY=VALUE", "Other data: data.path=FILE, task.resolution=128; repeatable.")
    ] = None,
    split: Annotated[str | None, option("NAME", "train, val or test (default test).")] = None,
    prediction: Annotated[Path | None, option("FILE", "Score this file against --truth instead of a run.")] = None,
    truth: Annotated[Path | None, option("FILE", "The true trajectories.")] = None,
    offset: Annotated[
        int | None, option("N", "State of the truth that the prediction begins with (default: by length).")
    ] = None,
    model: Annotated[str | None, option("MODULE:NAME", "Score your function or nn.Module instead of a run.")] = None,
    steps: Annotated[int | None, option("N", "With --model: steps of the rollouts (default: all).")] = None,
    history: Annotated[int, option("N", "With --model: states that it sees.")] = 1,
    json: JsonFile = None,
    figure: Annotated[
        Path | None, option("FILE", "Draw the error along the rollout, .png or .pdf.", callback=not_a_folder)
    ] = None,
) -> None:
    """Evaluate a run again and rewrite its report; or on other data, or a prediction file, or your own function.

    With --set or --split the numbers go to RUN/evaluations, and the run keeps its own. A function maps
    (batch, history * channel, *space) to the next state (batch, channel, *space).
    """
    from hero.config import parse_override

    refused = {
        "a file is scored against another; give --prediction and --truth.": bool(prediction) != bool(truth),
        "--prediction and --truth are scored by themselves; leave out RUN, --model and --split.": (
            prediction and (run or model or split)
        ),
        "--model needs data; name a benchmark or file, as in `hero evaluate flow.h5 --model my.code:step`.": (
            model and not run
        ),
        "name a RUN, or files to score; see `hero evaluate --help`.": not (prediction or run),
        "--offset is for --prediction and --truth; leave it out.": offset is not None and not prediction,
        "--steps is for --model; leave it out.": steps is not None and not model,
        f"--figure {figure} cannot be drawn; name a .png or .pdf (of a run itself: `hero report`).": (
            figure and (figure.suffix not in (".png", ".pdf") or not (prediction or model or set or split))
        ),
    }
    for sentence in (sentence for sentence, applies in refused.items() if applies):
        raise HeroError(sentence)
    values = dict(map(parse_override, set or ()))
    if prediction and truth:
        from hero.evaluation.foreign import score_files

        unread = [key for key in values if key != "data.layout"]
        if unread:
            raise HeroError(f"{unread[0]} does not apply to two files; set data.layout alone.")
        show_score(score_files(prediction, truth, offset, str(values.get("data.layout", ""))), json, figure)
    elif model and run:
        from hero.evaluation.foreign import score_model

        data = {key_of(run): run, **values}
        show_score(score_model(model, data, where.data, steps, history, split or "test"), json, figure)
    elif run and (values or split):
        from hero.evaluation.elsewhere import evaluate_on

        folder = where.find(run)
        found, errors = evaluate_on(folder, where.data, values, split or "test")
        title = f"{found.run} on {found.data}, {found.split}"
        show_numbers(title, found.metrics, found.baselines, found.trajectories)
        say(f"written: {folder / 'evaluations' / found.name}.json")
        keep(found, errors, f"{found.run}, {found.name}", json, figure)
    elif run:
        folder = where.find(run)
        metrics = measure(folder, where.data)
        show_result(metrics, folder)
        if json:
            metrics.write(json)


def show_score(scored: "Scored", json: Path | None, figure: Path | None) -> None:
    """Print a score, and write what was asked for."""
    score, errors = scored
    title = f"{score.prediction} against {score.truth}: {score.trajectories} trajectories, {score.steps} steps"
    show_numbers(title, score.metrics, score.baselines, score.trajectories)
    keep(score, errors, Path(score.prediction).name, json, figure)


def show_numbers(
    title: str, numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]], trajectories: int
) -> None:
    """Print metrics by their titles, next to what doing nothing gives."""
    from hero.method.metrics import scoring_of
    from hero.report.names import BASELINE_TITLES, metric_title

    scoring = scoring_of(numbers)

    def shown(name: str, value: float | None) -> str:
        if value is None:
            return ""
        return f"{value:.0f} of {trajectories}" if name == "diverged" else f"{value:.4g}"

    columns = [numbers, *baselines.values()]
    rows = [(metric_title(name, scoring), *(shown(name, column.get(name)) for column in columns)) for name in numbers]
    show_rows(title, ("Metric", "Value", *(BASELINE_TITLES[name] for name in baselines)), rows, numbers=True)


def keep(record: "Record", errors: "Mapping[str, Tensor]", title: str, json: Path | None, figure: Path | None) -> None:
    """Write the record and the curve if they are asked for."""
    if json:
        say(f"numbers: {record.write(json)}")
    if figure:
        from hero.method.metrics import scored_by
        from hero.report.figures.curves import error_figure
        from hero.report.figures.style import save
        from hero.runs.records import Errors

        measure, arrays = scored_by(errors), {name: values.numpy() for name, values in errors.items()}
        found = Errors(arrays, arrays[measure], measure=measure)
        say(f"figure: {save(error_figure(found, title), figure)}")


def predict(
    model: Annotated[str, argument("RUN|FILE", "Run folder or id, model folder, .onnx or .pt2 file.", "run")],
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
    out: Annotated[Path, option("FILE", "Rollout: .h5, .nc or .zarr of any length, .npz or .npy up to 2 GB.")] = Path(
        "predictions.npz"
    ),
    trajectories: Annotated[int | None, option("N", "The first N trajectories (default: all).")] = None,
    compile: Annotated[bool, flag("--compile", "Compile first: for long rollouts of a run.")] = False,
) -> int:
    """Roll out a run or an exported file from your own states.

    Errors are shown where the file holds the truth of these steps. The exit code is 1 if the rollout ended early.
    """
    from hero.deploy import predict

    result = predict.predict(model, where.runs, where.data, source, steps, out, compile, trajectories, where.trust_code)
    say(*result.notes, style="dim")
    show_errors(result)
    shape, made = "×".join(map(str, result.shape)), result.shape[1]
    say(f"prediction {shape} in {result.seconds:.2f} s, {made / result.seconds:.0f} steps/s")
    count = result.shape[0]
    say(f"{result.diverged} of {count} trajectories left the finite range")
    if result.outside is not None:
        say(f"{result.outside} of {count} left the range of the training data by more than a tenth of its width")
    if not result.complete:
        ended = "interrupted" if result.interrupted else "every trajectory left the finite range"
        kept = f"the first {made} are kept" if made else "nothing is written"
        say(f"{ended} at step {made + 1} of {steps}; {kept}", style="yellow")
    if made:
        say(f"written: {result.path}")
    return 0 if result.complete else 1


def show_errors(result: "Prediction") -> None:
    """Print the mean error at some steps, if the truth is known."""
    from hero.deploy.predict import truth_steps
    from hero.method.metrics import Scoring, nrmse_at, scored_by

    if not result.errors:
        return
    measure = scored_by(result.errors)
    errors, title = result.errors[measure], Scoring(measure=measure).title
    rows = [(f"{title}@{t}", f"{nrmse_at(errors, t):.4g}") for t in truth_steps(errors.shape[1])]
    show_rows(f"{len(errors)} trajectories against the truth", ("Metric", "Mean"), rows, numbers=True)
