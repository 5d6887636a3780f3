"""`hero train`, `hero compare`, `hero runs` and `hero settings`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from hero.cli.options import add_worker_options, config_of, evaluated, overrides_of, show_result, workers_of
from hero.config.settings import default_text
from hero.console import console
from hero.errors import HeroError
from hero.files import write_json
from hero.models import BACKBONES
from hero.report.comparison import comparison_table, notes
from hero.report.tables import runs_table
from hero.runs import config as configuration
from hero.runs.folder import find_run, list_runs
from hero.runs.old import final_metrics, load_run, read_log
from hero.strategies import STRATEGIES
from hero.study.compare import BUDGETS
from hero.study.compare import compare as compare_strategies
from hero.training.loggers import LOGGERS
from hero.training.loop import resume, train


def add_train_commands(commands: Any, folders: argparse.ArgumentParser, settings: argparse.ArgumentParser) -> None:
    """`hero train`, `hero runs` and `hero settings`."""
    command = commands.add_parser("train", parents=[folders, settings], help="train, evaluate and report one run")
    command.add_argument("task", nargs="?", metavar="TASK", help="benchmark, see `hero data list`")
    command.add_argument("--strategy", help=f"one of: {', '.join(STRATEGIES)} (default hero)")
    command.add_argument("--backbone", help=f"one of: {', '.join(BACKBONES)}, or package.module:Class (default fno)")
    command.add_argument("--seed", type=int, help="initial weights and batch order (default 0)")
    command.add_argument("--resume", metavar="RUN", help="go on with an unfinished run")
    command.add_argument("--log", action="append", metavar="NAME",
                         help=f"log to these too: {', '.join(LOGGERS)} (default: $HERO_LOG)")  # fmt: skip
    command.set_defaults(call=run_train)

    command = commands.add_parser("runs", parents=[folders], help="list the runs")
    command.set_defaults(call=run_runs)

    command = commands.add_parser("settings", parents=[settings], help="every setting, its default and its meaning")
    command.add_argument("task", nargs="?", metavar="TASK", help="show the values resolved for this benchmark")
    command.set_defaults(call=run_settings)


def add_compare_command(commands: Any, folders: argparse.ArgumentParser, settings: argparse.ArgumentParser) -> None:
    """`hero compare`."""
    command = commands.add_parser("compare", parents=[folders, settings],
                                  help="train strategies with shared seeds and compare them")  # fmt: skip
    command.add_argument("task", nargs="?", metavar="TASK", help="benchmark, see `hero data list`")
    command.add_argument("--strategies", default="one_step,push_forward,hero,fixed_weight", metavar="A,B,...",
                         help="some of: " + ", ".join(STRATEGIES) + " (default: %(default)s)")  # fmt: skip
    command.add_argument("--backbone", help=f"one of: {', '.join(BACKBONES)}, or package.module:Class (default fno)")
    command.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N-1 (default 5)")
    command.add_argument("--budget", choices=BUDGETS, default="steps",
                         help="what is equal: optimiser updates (default), or their measured time")  # fmt: skip
    command.add_argument("--baseline", metavar="A",
                         help="what the others are compared with (default push_forward, else the first)")  # fmt: skip
    command.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
    command.add_argument("--out", type=Path, metavar="DIR",
                         help="folder of table and figure (default: compare-ID in the folder of the runs)")  # fmt: skip
    add_worker_options(command)
    command.set_defaults(call=run_compare)


def run_train(args: argparse.Namespace) -> None:
    if args.resume is not None:
        changed = (args.task, args.config, args.strategy, args.backbone, args.seed, *args.overrides)
        if any(value is not None for value in changed) or args.preset != "paper":
            raise HeroError("--resume goes on with the run's own settings; leave out the others, or start a new run.")
        run = resume(find_run(args.resume, args.runs), args.data, args.log)
    elif args.task or args.config:
        run = train(config_of(args), args.runs, args.data, args.log)
    else:
        raise HeroError("name a benchmark, for example `hero train burgers`; `hero data list` shows all.")
    show_result(final_metrics(run) or evaluated(run, args.data), run)


def run_compare(args: argparse.Namespace) -> None:
    if not (args.task or args.config):
        raise HeroError("name a benchmark, for example `hero compare burgers`; `hero data list` shows all.")
    overrides = overrides_of(args)
    if overrides.keys() & {"strategy", "seed"}:
        raise HeroError("strategy and seed are what is compared; give --strategies and --seeds instead of --set.")
    settings = configuration.merge_settings(args.preset, args.config, overrides)
    strategies = [name.strip() for name in args.strategies.split(",") if name.strip()]
    result = compare_strategies(
        settings,
        strategies,
        range(args.seeds),
        args.runs,
        args.data,
        args.budget,
        args.baseline,
        args.out,
        workers_of(args),
    )
    console.print(comparison_table(result))
    for note in notes(result):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    out = args.out or args.runs / result["comparison"]
    for what, name in (("table", "comparison.md"), ("figure", "curves.png")):
        console.print(f"{what}: {out / name}", highlight=False, soft_wrap=True)
    if args.json:
        write_json(args.json, result)


def run_runs(args: argparse.Namespace) -> None:
    rows, notices = [], []
    for run in list_runs(args.runs):
        try:
            rows.append(final_metrics(run) or unfinished_row(run))
        except HeroError as error:
            rows.append({"run": run.name, "status": "unreadable"})
            notices.append(str(error))
    if not rows:
        raise HeroError(f"there are no runs in {args.runs}; start one with `hero train burgers`.")
    console.print(runs_table(rows))
    for notice in notices:
        print(f"hero: {notice}", file=sys.stderr)


def unfinished_row(run: Path) -> dict[str, Any]:
    """What is known of a run that has no final metrics."""
    config = load_run(run)
    steps = max((record["step"] for record in read_log(run)), default=0)
    status = f"at step {steps} of {config.train.steps}" if steps < config.train.steps else "not evaluated"
    return {
        "run": run.name,
        **config.identity(),
        "training": {"steps": steps},
        "status": status,
    }


def run_settings(args: argparse.Namespace) -> None:
    config = config_of(args)
    values = config.to_dict()
    table = Table("setting", "value" if args.task else "default", "meaning", title=f"Settings for {config.task.name}")
    for key, value in values["task"].items():
        table.add_row(f"task.{key}", str(value), "")
    section = "task"
    for key, field in configuration.all_settings():
        where, _, name = key.rpartition(".")
        if where != section:
            table.add_section()
        section = where
        found = values.get(where, {}) if where else values
        table.add_row(key, str(found.get(name, default_text(field))), field.description or "")
    console.print(table)
