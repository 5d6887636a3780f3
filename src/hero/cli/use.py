"""Commands that apply an operator: `hero evaluate`, `hero predict` and `hero export`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hero import parts
from hero.cli.options import Folders, JsonFile, RunName, argument, not_a_folder, option, run_ids
from hero.cli.show import measure, show_result, show_rows
from hero.console import say
from hero.errors import HeroError

if TYPE_CHECKING:
    from torch import Tensor

    from hero.evaluation.elsewhere import OtherMetrics
    from hero.evaluation.foreign import Score

READ_BY = {"two files": ("--offset",), "a model": ("RUN", "--model", "--split", "--steps"), "a run": ("RUN", "--split")}
"""Options of `hero evaluate` by what it evaluates; others are read by all."""


def evaluate(
    where: Folders,
    run: Annotated[
        str | None, argument("RUN|TASK|FILE", "Run folder or id; with --model the benchmark or file.", run_ids)
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

    kind = "two files" if prediction or truth else "a model" if model else "a run"
    given = {"RUN": run, "--model": model, "--split": split, "--offset": offset, "--steps": steps}
    for name, value in given.items():
        if value is not None and name not in READ_BY[kind]:
            raise HeroError(f"{name} does not apply to {kind}; leave it out.")
    if kind == "two files" and not (prediction and truth):
        raise HeroError("a file is scored against another; give --prediction and --truth.")
    if model and not run:
        raise HeroError("--model needs data; name a benchmark or file: `hero evaluate flow.h5 --model my.code:step`.")
    if figure and (figure.suffix not in (".png", ".pdf") or not (prediction or model or set or split)):
        raise HeroError(f"--figure {figure} cannot be drawn; name a .png or .pdf (of a run itself: `hero report`).")
    values = dict(map(parse_override, set or ()))
    if not (run or prediction):
        raise HeroError("name a RUN, or files to score; see `hero evaluate --help`.")
    if run and not (model or values or split):
        folder = where.find(run)
        metrics = measure(folder, where.data)
        show_result(metrics, folder)
        if json:
            metrics.write(json)
    elif run and not model:
        from hero.evaluation.elsewhere import evaluate_on

        folder = where.find(run)
        found, errors = evaluate_on(folder, where.data, values, split or "test")
        show_score(f"{found.run} on {found.data}, {found.split}", found, errors, json, figure)
        say(f"written: {folder / 'evaluations' / found.name}.json")
    else:
        from hero.evaluation.foreign import score_files, score_model

        if prediction and truth:
            unread = [key for key in values if key != "data.layout"]
            if unread:
                raise HeroError(f"{unread[0]} does not apply to two files; set data.layout alone.")
            score, errors = score_files(prediction, truth, offset, str(values.get("data.layout", "")))
        else:
            chosen = {parts.key_of(run): run, **values}
            score, errors = score_model(str(model), chosen, where.data, steps, history, split or "test")
        title = f"{score.prediction} against {score.truth}: {score.trajectories} trajectories, {score.steps} steps"
        show_score(title, score, errors, json, figure)


def show_score(
    title: str, record: "Score | OtherMetrics", errors: "Mapping[str, Tensor]", json: Path | None, figure: Path | None
) -> None:
    """Print metrics by their titles, next to what doing nothing gives; write record and curve if they are asked for."""
    from hero.method.measures import scored_by
    from hero.method.metrics import scoring_of
    from hero.report.listing import BASELINE_TITLES, metric_title

    scoring = scoring_of(record.metrics)

    def shown(name: str, value: float | None) -> str:
        if value is None:
            return ""
        return f"{value:.0f} of {record.trajectories}" if name == "diverged" else f"{value:.4g}"

    columns = [record.metrics, *record.baselines.values()]
    rows = [(metric_title(name, scoring), *(shown(name, one.get(name)) for one in columns)) for name in record.metrics]
    show_rows(title, ("Metric", "Value", *(BASELINE_TITLES[name] for name in record.baselines)), rows, numbers=True)
    if json:
        say(f"numbers: {record.write(json)}")
    if figure:
        from hero.report.figures.charts import curves_figure
        from hero.report.figures.runs import errors_chart
        from hero.report.figures.style import save
        from hero.runs.records import Errors

        measure, arrays = scored_by(errors), {name: values.numpy() for name, values in errors.items()}
        chart = errors_chart(title, Errors(arrays, arrays[measure], measure=measure))
        say(f"figure: {save(curves_figure(chart), figure)}")


def predict(
    model: Annotated[str, argument("RUN|FILE", "Run folder or id, model folder, .onnx, .pt2 or .aot file.", run_ids)],
    where: Folders,
    source: Annotated[
        Path | None,
        option(
            "FILE",
            "Trajectories, of which the first states are taken, or an array of states (default: the test states).",
            spelled=["--from", "--input"],
        ),
    ] = None,
    steps: Annotated[int, option("N", "Steps to roll out.")] = 200,
    out: Annotated[Path, option("FILE", "Rollout: .h5, .nc or .zarr of any length, .npz or .npy up to 2 GB.")] = Path(
        "predictions.npz"
    ),
    trajectories: Annotated[int | None, option("N", "The first N trajectories (default: all).")] = None,
) -> int:
    """Roll out a run or an exported file from your own states.

    Errors are shown where the file holds the truth of these steps. The exit code is 1 if the rollout ended early.
    """
    from hero.deploy import predict
    from hero.method.measures import nrmse_at, scored_by
    from hero.method.metrics import Scoring

    result = predict.predict(model, where.runs, where.data, source, steps, out, trajectories, where.trust_code)
    say(*result.notes, style="dim")
    if result.errors:
        measure = scored_by(result.errors)
        errors, title = result.errors[measure], Scoring(measure=measure).title
        rows = [(f"{title}@{t}", f"{nrmse_at(errors, t):.4g}") for t in predict.truth_steps(errors.shape[1])]
        show_rows(f"{len(errors)} trajectories against the truth", ("Metric", "Mean"), rows, numbers=True)
    count, made = result.shape[:2]
    say(f"prediction {'×'.join(map(str, result.shape))} in {result.seconds:.2f} s, {made / result.seconds:.0f} steps/s")
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


def export(
    run: RunName,
    where: Folders,
    format: Annotated[
        str, option("NAME", "One of: NAMES (compiled for this processor), both (onnx, torch), folder.", parts.FORMATS)
    ] = "both",
    out: Annotated[Path | None, option("DIR", "Folder of the files (default: RUN/export).")] = None,
    license: Annotated[str, option("NAME", "Licence in the card of a model folder, such as mit.")] = "unknown",
) -> None:
    """Write a run as ONNX, torch.export or compiled files, checked along a rollout, or as a model folder to hand on."""
    folder = where.find(run)
    from hero.deploy.export import export_run
    from hero.deploy.model_folder import write_folder

    if format == "folder":
        say(f"model folder: {write_folder(folder, out or folder / 'export' / 'model', license)}")
        return
    say(f"exporting {folder.name}: some seconds without progress", style="dim")
    checks = export_run(folder, where.data, out, ("onnx", "torch") if format == "both" else (format,)).values()
    rows = {"one step, largest along its rollout": [check.one_step for check in checks]}
    steps, shown, title = next((check.steps, check.rollout, check.measure) for check in checks)
    rows |= {f"free rollout, step {k}": [check.rollout[k] for check in checks] for k in shown}
    rows[f"test {title}@{steps} of the file"] = [check.error for check in checks]
    rows[f"test {title}@{steps} of the original"] = [check.original_error for check in checks]
    headings = "relative difference from the original", *(check.path.name for check in checks)
    show_rows("", headings, [(text, *(f"{x:.4g}" for x in values)) for text, values in rows.items()], numbers=True)
    say(*(f"{check.path}: {check.path.stat().st_size / 1000:.0f} kB" for check in checks))


COMMANDS = {"Look at runs": (evaluate,), "Use a trained operator": (export, predict)}
