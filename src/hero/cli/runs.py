"""Commands on one run that exists, from its report to `hero export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hero.cli.options import Folders, Open, RunName, argument, flag, option
from hero.cli.show import show, show_file, show_rows
from hero.console import say
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.records import Record
    from hero.runs.records import Metrics


def measure(run: Path, data_dir: Path) -> "Metrics":
    """Evaluate a run and write its page."""
    from hero.evaluation.evaluate import evaluate
    from hero.report import write_run_page
    from hero.runs.folder import Run

    metrics = evaluate(run, data_dir)
    opened = Run(run)
    if opened.before:
        from hero.report.figures.curves import finetune_figure
        from hero.report.figures.style import save

        figure = finetune_figure(opened.before_errors, opened.errors, opened.config.source.title)
        save(figure, run / "figures" / "finetune.png")
    write_run_page(run)
    return metrics


def show_result(metrics: "Metrics", run: Path) -> None:
    """Print the metrics of a run and the place of its page."""
    from hero.report.content import change_table, metrics_tables
    from hero.runs.folder import Run

    before = Run(run).before
    tables = metrics_tables(metrics, Run(run).config)
    for table in [change_table(before, metrics), *tables[1:]] if before else tables:
        show(table)
    say(f"report: {run / 'report.html'}")


def report(
    where: Folders,
    names: Annotated[
        list[str] | None,
        argument("RUN|STUDY|COMPARISON", "Folder, id or unique part of the id (default: all finished runs).", "run"),
    ] = None,
    out: Annotated[Path | None, option("FILE.html", "The page (default: report.html in the folder named).")] = None,
    figures: Annotated[Path | None, option("DIR", "Also write every figure as PDF and PNG here.")] = None,
    open: Open = False,
) -> None:
    """Write one HTML page of runs, a study or a comparison."""
    from hero.report.figures.runs import write_figures
    from hero.report.inputs import gather
    from hero.report.page.page import write_page

    if out and out.suffix.lower() not in (".html", ".htm"):
        raise HeroError(f"--out {out} is not an HTML file; use a name that ends in .html.")
    inputs = gather(names or [], where.runs)
    page = write_page(inputs, out or (inputs.folder if len(names or []) == 1 else where.runs) / "report.html")
    say(*inputs.notices, style="yellow")
    say(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if figures:
        say(f"figures: {len(write_figures(inputs, figures))} as PDF and PNG in {figures}")
    if open:
        show_file(page)


def animate(
    run: RunName,
    where: Folders,
    out: Annotated[Path | None, option("FILE", ".gif or .mp4 (default: rollout.gif in the run).")] = None,
    steps: Annotated[int | None, option("N", "The first N rollout steps (default: all).")] = None,
    fps: Annotated[int, option("N", "Frames per second.")] = 12,
    channel: Annotated[str | None, option("NAME", "The channel that is drawn (default: the first).")] = None,
    open: Open = False,
) -> None:
    """Draw the rollout of an evaluated run as GIF or MP4."""
    folder = where.find(run)
    from hero.report.figures import animation

    path = animation.animate(folder, out, steps, fps, channel)
    say(f"animation: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if open:
        show_file(path)


def landscape(run: RunName, where: Folders, open: Open = False) -> None:
    """Draw kept checkpoints (train.keep_every) against the final one, along the rollout."""
    folder = where.find(run)
    from hero.paper.landscape import measure_landscape

    show_analysis(folder, "landscape", measure_landscape(folder, where.data), open)


def probe(
    run: RunName,
    where: Folders,
    step: Annotated[list[int] | None, option("N", "Checkpoint after N updates; repeatable (default: all).")] = None,
    horizon: Annotated[
        int | None, option("N", "Steps of the long-horizon risk (default: 50, or what the data have).")
    ] = None,
    windows: Annotated[int, option("N", "Validation windows measured.")] = 120,
    open: Open = False,
) -> None:
    """Measure the quantities of HERO's theory on the checkpoints of a HERO run."""
    folder = where.find(run)
    from hero.paper import probe

    show_analysis(folder, "probe", probe.probe(folder, where.data, step or [], horizon, windows), open)


def anatomy(
    run: RunName,
    where: Folders,
    steps: Annotated[
        int | None, option("T", "Rollout step whose error is explained (default: 100, or the last).")
    ] = None,
    trajectories: Annotated[int, option("N", "The first N trajectories.")] = 10,
    split: Annotated[str, option("NAME", "val, or test once nothing is tuned any more.")] = "val",
    without_solver: Annotated[bool, flag("--without-solver", "Do not use the solver (faster).")] = False,
    open: Open = False,
) -> None:
    """Show which wavenumbers dominate the error of a trained operator at step T."""
    folder = where.find(run)
    from hero.analysis import anatomy

    found = anatomy.anatomy(folder, where.data, steps, trajectories, split, not without_solver)
    show_analysis(folder, "anatomy", found, open)


def show_analysis(run: Path, name: str, found: "Record", open: bool) -> None:
    """Print an analysis of a run, write its figure into the run folder, and name the command that makes its page."""
    from hero.report.figures.style import save
    from hero.report.registries import ANALYSES
    from hero.runs.folder import Run

    analysis = ANALYSES[name]
    if analysis.table:
        show(analysis.table(found))
    say(*analysis.sentences(found))
    path = save(analysis.figure(found, Run(run).config), run / "figures" / f"{name}.png")
    say(f"figure: {path}")
    say(f"`hero report {run.name}` adds it to the report", style="dim")
    if open:
        show_file(path)


def export(
    run: RunName,
    where: Folders,
    format: Annotated[str, option("NAME", "One of: NAMES, both of them, or folder.", "format")] = "both",
    out: Annotated[Path | None, option("DIR", "Folder of the files (default: RUN/export).")] = None,
    license: Annotated[str, option("NAME", "Licence in the card of a model folder, such as mit.")] = "unknown",
) -> None:
    """Write a run as ONNX and torch.export files, checked along a rollout, or as a model folder to hand on."""
    folder = where.find(run)
    from hero.deploy.export import FORMATS, export_run
    from hero.deploy.model_folder import write_folder

    if format == "folder":
        say(f"model folder: {write_folder(folder, out or folder / 'export' / 'model', license)}")
        return
    say(f"exporting {folder.name}: some seconds without progress", style="dim")
    checks = export_run(folder, where.data, out, tuple(FORMATS) if format == "both" else (format,)).values()
    rows = {"one step, largest along its rollout": [check.one_step for check in checks]}
    steps, shown, title = next((check.steps, check.rollout, check.measure) for check in checks)
    rows |= {f"free rollout, step {k}": [check.rollout[k] for check in checks] for k in shown}
    rows[f"test {title}@{steps} of the file"] = [check.error for check in checks]
    rows[f"test {title}@{steps} of the original"] = [check.original_error for check in checks]
    headings = "relative difference from the original", *(check.path.name for check in checks)
    show_rows("", headings, [(text, *(f"{x:.4g}" for x in values)) for text, values in rows.items()], numbers=True)
    say(*(f"{check.path}: {check.path.stat().st_size / 1000:.0f} kB" for check in checks))
