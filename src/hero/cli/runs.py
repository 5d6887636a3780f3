"""Commands on runs that exist: `hero runs`, which loads no torch, their report, pictures and analyses."""

import shutil
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hero.cli.options import AsJson, Folders, RunName, argument, flag, option, run_ids
from hero.cli.show import show, show_json
from hero.console import say
from hero.errors import HeroError, visible

if TYPE_CHECKING:
    from hero.records import Record


def list_runs(context: typer.Context, where: Folders, as_json: AsJson = False) -> None:
    """List the runs, or remove some."""
    if context.invoked_subcommand:
        if any(str(context.get_parameter_source(name)).endswith("COMMANDLINE") for name in context.params):
            action = context.invoked_subcommand
            raise HeroError(f"options come after the action; write them as in `hero runs {action} RUN --runs DIR`.")
        return
    from hero.report.listing import ListedRun, runs_table
    from hero.runs import stored

    listed: list[ListedRun] = []
    notices: list[str] = []
    for run in map(stored.StoredRun, stored.list_runs(where.runs)):
        metrics, status = None, "unreadable"
        try:
            metrics = run.metrics
            status = "finished" if metrics else run.status
            notices += filter(None, [None if metrics else run.log.notice])
        except HeroError as error:
            notices.append(str(error))
        listed.append(ListedRun(run.name, metrics, status))
    if as_json:
        show_json(
            [{"run": name, "status": status, "metrics": found and found.model_dump()} for name, found, status in listed]
        )
    elif listed:
        show(runs_table(listed))
    else:
        say(f"there are no runs in {where.runs} yet; `hero train burgers` starts one")
    for notice in notices:
        print(f"hero: {visible(notice)}", file=sys.stderr)


def remove(
    names: Annotated[list[str], argument("RUN...", "Ids of runs, or unique parts of them.", run_ids)],
    where: Folders,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
) -> int:
    """Delete runs with their weights and results; asks first."""
    from hero.files import run_lock

    folders = list(dict.fromkeys(map(where.find, names)))
    for folder in folders:
        if folder.is_symlink() or folder.resolve().parent != where.runs.resolve():
            raise HeroError(f"{folder} is not in the folder of the runs, {where.runs}; name that with --runs.")
    if not yes:
        print(visible(f"delete {', '.join(folder.name for folder in folders)}?"), "[y/N] ", end="", flush=True)
        if not sys.stdin or sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("nothing is deleted; `--yes` deletes without asking")
            return 1
    for folder in folders:
        with run_lock(folder):
            (folder / "config.toml").unlink()  # first: what a kill leaves is not a run
            shutil.rmtree(folder)
        say(f"deleted: {folder}")
    return 0


def report(
    where: Folders,
    names: Annotated[
        list[str] | None,
        argument("RUN|STUDY|COMPARISON", "Folder, id or unique part of the id (default: all finished runs).", run_ids),
    ] = None,
    out: Annotated[Path | None, option("FILE.html", "The page (default: report.html in the folder named).")] = None,
    figures: Annotated[Path | None, option("DIR", "Also write every figure as PDF and PNG here.")] = None,
    open: Annotated[bool, flag("--open", "Show it in the browser.")] = False,
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
        webbrowser.open(page.resolve().as_uri())


def animate(
    run: RunName,
    where: Folders,
    out: Annotated[Path | None, option("FILE", ".gif or .mp4 (default: rollout.gif in the run).")] = None,
    steps: Annotated[int | None, option("N", "The first N rollout steps (default: all).")] = None,
    fps: Annotated[int, option("N", "Frames per second.")] = 12,
    channel: Annotated[str | None, option("NAME", "The channel that is drawn (default: the first).")] = None,
) -> None:
    """Draw the rollout of an evaluated run as GIF or MP4."""
    folder = where.find(run)
    from hero.report.figures import animation

    path = animation.animate(folder, out, steps, fps, channel)
    say(f"animation: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def landscape(run: RunName, where: Folders) -> None:
    """Draw kept checkpoints (train.keep_every) against the final one, along the rollout."""
    folder = where.find(run)
    from hero.paper.landscape import measure_landscape

    show_analysis(folder, "landscape", measure_landscape(folder, where.data))


def probe(
    run: RunName,
    where: Folders,
    step: Annotated[list[int] | None, option("N", "Checkpoint after N updates; repeatable (default: all).")] = None,
    horizon: Annotated[
        int | None, option("N", "Steps of the long-horizon risk (default: 50, or what the data have).")
    ] = None,
    windows: Annotated[int, option("N", "Validation windows measured.")] = 120,
) -> None:
    """Measure the quantities of HERO's theory on the checkpoints of a HERO run."""
    folder = where.find(run)
    from hero.paper import probe

    show_analysis(folder, "probe", probe.probe(folder, where.data, step or [], horizon, windows))


def anatomy(
    run: RunName,
    where: Folders,
    steps: Annotated[
        int | None, option("T", "Rollout step whose error is explained (default: 100, or the last).")
    ] = None,
    trajectories: Annotated[int, option("N", "The first N trajectories.")] = 10,
    split: Annotated[str, option("NAME", "val, or test once nothing is tuned any more.")] = "val",
    without_solver: Annotated[bool, flag("--without-solver", "Do not use the solver (faster).")] = False,
) -> None:
    """Show which wavenumbers dominate the error of a trained operator at step T."""
    folder = where.find(run)
    from hero.analysis import anatomy

    found = anatomy.anatomy(folder, where.data, steps, trajectories, split, not without_solver)
    show_analysis(folder, "anatomy", found)


def show_analysis(run: Path, name: str, found: "Record") -> None:
    """Print an analysis of a run, write its figure into the run folder, and name the command that makes its page."""
    from hero.report.figures.style import save
    from hero.report.inputs import ANALYSES
    from hero.runs.folder import Run

    analysis = ANALYSES[name]
    if analysis.table:
        show(analysis.table(found))
    say(*analysis.sentences(found))
    path = save(analysis.figure(found, Run(run).config), run / "figures" / f"{name}.png")
    say(f"figure: {path}")
    say(f"`hero report {run.name}` adds it to the report", style="dim")


COMMANDS = {"Look at runs": (report, animate, landscape, probe, anatomy)}
ACTIONS: dict[str, Any] = {"rm": remove}
