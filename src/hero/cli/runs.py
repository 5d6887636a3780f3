"""Commands on runs that exist: `hero runs`, `evaluate`, `report`, `animate`, `landscape` and `probe`."""

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hero.cli.options import Folders, RunName, argument, flag, option
from hero.console import console, say
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.runs.records import Metrics


def runs(where: Folders) -> None:
    """List the runs."""
    from hero.report.content import runs_table
    from hero.runs.folder import Run, list_runs

    rows: list[dict[str, Any]] = []
    notices: list[str] = []
    for run in map(Run, list_runs(where.runs)):
        try:
            metrics = run.metrics
            unfinished = {"run": run.name, **run.config.identity(), "training": {"steps": run.log.steps}}
            rows.append(metrics.plain() if metrics else {**unfinished, "status": run.status})
        except HeroError as error:
            rows.append({"run": run.name, "status": "unreadable"})
            notices.append(str(error))
    if not rows:
        raise HeroError(f"there are no runs in {where.runs}; start one with `hero train burgers`.")
    console.print(runs_table(rows).to_rich())
    for notice in notices:
        print(f"hero: {notice}", file=sys.stderr)


def evaluate(run: RunName, where: Folders) -> None:
    """Measure a trained run again and rewrite its report."""
    folder = where.find(run)
    show_result(measure(folder, where.data), folder)


def measure(run: Path, data_dir: Path) -> "Metrics":
    """Evaluate a run and write its page."""
    from hero.evaluation.evaluate import evaluate
    from hero.report import report_run

    metrics = evaluate(run, data_dir)
    report_run(run, metrics.plain())
    return metrics


def show_result(metrics: "Metrics", run: Path) -> None:
    """Print the metrics of a run and the place of its page."""
    from hero.report.content import metrics_table

    console.print(metrics_table(metrics.plain()).to_rich())
    say(f"report: {run / 'report.html'}")


def report(
    where: Folders,
    names: Annotated[
        list[str] | None, argument("RUN|STUDY|COMPARISON", "Folders or ids (default: all finished runs).", "run")
    ] = None,
    out: Annotated[Path | None, option("--out", "FILE.html", "The page (default: next to its subject).")] = None,
    figures: Annotated[Path | None, option("--figures", "DIR", "Also write every figure as PDF and PNG here.")] = None,
    open: Annotated[bool, flag("--open", "Show the page in a browser.")] = False,
) -> None:
    """Write one HTML page of runs, a study or a comparison."""
    from hero.report.figures.of_run import write_figures
    from hero.report.page.page import write_page
    from hero.report.page.sources import gather

    if out and out.suffix.lower() not in (".html", ".htm"):
        raise HeroError(f"--out {out} is not an HTML file; use a name that ends in .html.")
    sources = gather(names or [], where.runs)
    folders = [document.folder for document in sources.studies]
    folders += [run.folder for run in sources.runs if run.name in sources.named]
    single = len(names or []) == len(folders) == 1
    page = write_page(sources, out or (folders[0] if single else where.runs) / "report.html")
    say(*sources.notices, style="yellow")
    say(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if figures:
        say(f"figures: {len(write_figures(sources, figures))} as PDF and PNG in {figures}")
    if open:
        webbrowser.open(page.resolve().as_uri())


def animate(
    run: RunName,
    where: Folders,
    out: Annotated[Path | None, option("--out", "FILE", ".gif or .mp4 (default: rollout.gif in the run).")] = None,
    steps: Annotated[int | None, option("--steps", "N", "The first N rollout steps (default: all).")] = None,
    fps: Annotated[int, option("--fps", "N", "Frames per second.")] = 12,
) -> None:
    """Draw the rollout of an evaluated run as GIF or MP4."""
    from hero.report.figures import animation

    path = animation.animate(where.find(run), out, steps, fps)
    say(f"animation: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def landscape(run: RunName, where: Folders) -> None:
    """Draw kept checkpoints (train.keep_every) against the final one, along the rollout."""
    from hero.evaluation import landscape
    from hero.report.figures.analysis import landscape_sentence

    folder = where.find(run)
    say(landscape_sentence(landscape.landscape(folder, where.data)))
    show_figure(folder, "landscape")


def probe(
    run: RunName,
    where: Folders,
    step: Annotated[list[int] | None, option("--step", "N", "Only after N updates; repeatable (default: all).")] = None,
    horizon: Annotated[int, option("--horizon", "N", "Steps of the long-horizon risk.")] = 50,
    windows: Annotated[int, option("--windows", "N", "Validation windows measured.")] = 120,
) -> None:
    """Measure the quantities of HERO's theory on the checkpoints of a HERO run."""
    from hero.evaluation import probe
    from hero.report.figures.analysis import probe_table

    folder = where.find(run)
    rows = probe.probe(folder, where.data, step or [], horizon, windows)
    console.print(probe_table(rows))
    say(*(row["conclusion"] for row in rows))
    show_figure(folder, "probe")


def show_figure(run: Path, name: str) -> None:
    """Print the place of a figure, and the command that shows it on the page."""
    say(f"figure: {run / 'figures' / name}.png")
    say(f"`hero report {run.name}` adds it to the report", style="dim")
