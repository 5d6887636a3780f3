"""Commands that train: `hero train`, `hero compare` and `hero study`."""

from pathlib import Path
from typing import Annotated

from hero.cli import options
from hero.cli.options import Folders, OneRun, Settings, WorkerOptions, argument, flag, option, split_names
from hero.cli.runs import measure, show_result
from hero.console import console, say
from hero.errors import HeroError

Strategies = Annotated[str, option("A,B,...", "Some of: NAMES.", "strategy")]


def train(
    run: OneRun,
    settings: Settings,
    where: Folders,
    resume: Annotated[str | None, option("RUN", "Continue this run; it keeps its settings.", "run")] = None,
    log: Annotated[list[str] | None, option("NAME", "Also log to: NAMES (default $HERO_LOG).", "logger")] = None,
) -> None:
    """Train, evaluate and report one run.

    The same command, or --resume RUN, continues a run that was stopped; on CPU to the same bits.
    """
    from hero.runs.folder import Run
    from hero.training import loop

    if resume is None:
        folder = loop.train(settings.resolve("train", **vars(run)), where.runs, where.data, log or None)
    elif run == OneRun() and settings in (Settings(), Settings(set=[])):
        folder = loop.resume(where.find(resume), where.data, log or None)
    else:
        raise HeroError("--resume keeps the run's own settings; leave out the others, or start a new run.")
    show_result(Run(folder).metrics or measure(folder, where.data), folder)


def compare(
    settings: Settings,
    where: Folders,
    workers: WorkerOptions,
    task: options.Task = None,
    strategies: Strategies = "one_step,push_forward,hero,fixed_weight",
    backbone: options.Backbone = None,
    seeds: Annotated[int, option("N", "Seeds 0 to N-1.")] = 5,
    budget: Annotated[
        str, option("NAME", "Equal for all: updates (steps) or measured time (compute).", "budget")
    ] = "steps",
    baseline: Annotated[
        str | None, option("NAME", "Compare with this strategy (default push_forward).", "strategy")
    ] = None,
    json: options.JsonFile = None,
    out: Annotated[Path | None, option("DIR", "Folder of table and figure (default: RUNS/compare-ID).")] = None,
) -> int:
    """Train strategies with shared seeds and compare them: a table with intervals, and curves."""
    from hero.files import write_json
    from hero.report.comparison import comparison_table, notes
    from hero.runs.config import merge_settings
    from hero.study import compare as comparison

    values = settings.values("compare", task=task, backbone=backbone)
    if values.keys() & {"strategy", "seed"}:
        raise HeroError("strategy and seed are compared, not set; use --strategies and --seeds instead of --set.")
    chosen = merge_settings(settings.preset, settings.config, values), split_names(strategies) or [], range(seeds)
    result = comparison.compare(*chosen, where.runs, where.data, budget, baseline, out, workers.build())
    console.print(comparison_table(result))
    say(*notes(result), style="dim")
    out = out or where.runs / result["comparison"]
    say(f"table: {out / 'comparison.md'}", f"figure: {out / 'curves.png'}")
    if json:
        write_json(json, result)
    return int(any("failed" in run for row in result["rows"] for run in row["runs"]))


def study(
    study: Annotated[str, argument("STUDY", "One of: NAMES.", "study")],
    settings: Settings,
    where: Folders,
    workers: WorkerOptions,
    tasks: Annotated[str | None, option("A,B,...", "Benchmarks (default: as in the paper).", "task")] = None,
    backbones: Annotated[str | None, option("A,B,...", "Some of: NAMES, or package.module:Class.", "backbone")] = None,
    strategies: Strategies | None = None,
    seeds: Annotated[int | None, option("N", "Seeds 0 to N-1 (default 5).")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only list the runs, their state and estimated time.")] = False,
    table_only: Annotated[bool, flag("--table-only", "Train nothing; write the tables of the finished runs.")] = False,
    out: Annotated[Path | None, option("DIR", "Folder of tables and figures (default: RUNS/study-NAME-ID).")] = None,
) -> int:
    """Train the runs of a table of the paper; write tables and figures.

    Finished runs are found and not repeated: after a kill the same command continues and ends with the same table.
    """
    from hero.report.ranks import statistics_tables
    from hero.report.study import study_tables, title
    from hero.study.cost.dry_run import schedule, schedule_sentences, schedule_table
    from hero.study.plans import plan
    from hero.study.run import carry_out

    if dry_run and table_only:
        raise HeroError("--dry-run writes nothing, so it excludes --table-only; leave out one of them.")
    chosen = split_names(tasks), split_names(backbones), split_names(strategies)
    values, only = settings.values(), None if seeds is None else range(seeds)
    planned = plan(study, settings.preset, settings.config, values, *chosen, only)
    if dry_run:
        lines = schedule(planned, where.runs)
        if lines:
            console.print(schedule_table(lines))
        say(*schedule_sentences(lines, workers.workers), style="dim")
        return 0
    result = carry_out(planned, where.runs, where.data, workers.build(), out, table_only, measure)
    say(title(result), style="bold")
    console.print(*study_tables(result), sep="\n")
    say(*result["notes"], style="dim")
    if result["statistics"]:
        console.print(*statistics_tables(result["statistics"]), sep="\n")
        say(*result["statistics"]["notes"], style="dim")
    out = out or where.runs / planned.folder
    say(f"table: {out / 'table.md'}", *(f"figure: {out / file}" for file in result["figures"]))
    say(f"`hero report {out}` writes it as a page", style="dim")
    runs = [run for group in result["groups"] for row in group["rows"] for run in row["runs"]]
    return int(any(run["status"] == "failed" for run in runs))
