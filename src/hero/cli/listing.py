"""The command `hero runs`: list, remove and rename runs. None of it loads torch."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hero.cli.options import AsJson, Folders, RunName, argument, flag
from hero.cli.show import show, show_json
from hero.console import say
from hero.errors import HeroError, visible

if TYPE_CHECKING:
    from hero.report.listing import ListedRun


def list_runs(
    context: typer.Context,
    where: Folders,
    as_json: AsJson = False,
) -> None:
    """List the runs; remove or rename them."""
    if context.invoked_subcommand:
        if any(is_typed(context, name) for name in context.params):
            action = context.invoked_subcommand
            raise HeroError(f"options come after the action; write them as in `hero runs {action} RUN --runs DIR`.")
        return
    from hero.report.listing import runs_table

    listed, notices = read_runs(where.runs)
    if as_json:
        show_json([as_plain(run) for run in listed])
    elif listed:
        show(runs_table(listed))
    else:
        say(f"there are no runs in {where.runs} yet; `hero train burgers` starts one")
    for notice in notices:
        print(f"hero: {visible(notice)}", file=sys.stderr)


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, and not only in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_runs(folder: Path) -> "tuple[list[ListedRun], list[str]]":
    """The runs in a folder, oldest first, and what could not be read."""
    from hero.report.listing import ListedRun
    from hero.runs import stored

    listed: list[ListedRun] = []
    notices: list[str] = []
    for run in map(stored.StoredRun, stored.list_runs(folder)):
        try:
            label = run.label
        except HeroError as error:
            label = stored.Label()
            notices.append(str(error))
        try:
            metrics = run.metrics
            notice = None if metrics else run.log.notice
            listed.append(ListedRun(run.name, metrics, "finished" if metrics else run.status, label))
            notices += [notice] if notice else []
        except HeroError as error:
            listed.append(ListedRun(run.name, None, "unreadable", label))
            notices.append(str(error))
    return listed, notices


def as_plain(run: "ListedRun") -> dict[str, object]:
    """A run for `--json`: what the table says, and all its metrics."""
    metrics = run.metrics.model_dump() if run.metrics else None
    return {"run": run.name, **run.label.model_dump(), "status": run.status, "metrics": metrics}


def remove(
    names: Annotated[list[str], argument("RUN...", "Ids of runs, or unique parts of them.", "run")],
    where: Folders,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
) -> int:
    """Delete runs with their weights and results; asks first."""
    from hero.files import run_lock

    folders = list(dict.fromkeys(map(where.find, names)))
    for folder in folders:
        if folder.is_symlink() or folder.resolve().parent != where.runs.resolve():
            raise HeroError(f"{folder} is not in the folder of the runs, {where.runs}; name that with --runs.")
    if not yes and not is_agreed(f"delete {', '.join(folder.name for folder in folders)}?"):
        say("nothing is deleted; `--yes` deletes without asking")
        return 1
    for folder in folders:
        with run_lock(folder):
            (folder / "config.toml").unlink()  # first: what a kill leaves is not a run
            shutil.rmtree(folder)
        say(f"deleted: {folder}")
    return 0


def is_agreed(question: str) -> bool:
    """Whether the answer on the terminal, or in a pipe, is yes."""
    print(visible(question), "[y/N] ", end="", flush=True)
    return bool(sys.stdin) and sys.stdin.readline().strip().lower() in ("y", "yes")


def rename(
    run: RunName,
    name: Annotated[str, argument("NAME", "What tables and pages call it; '' for no name.")],
    where: Folders,
) -> None:
    """Give a run a name; its id and its folder stay."""
    from hero.runs.stored import StoredRun

    found = StoredRun(where.find(run))
    found.rename(name)
    say(f"{found.name}: {found.label.name or 'no name'}")
