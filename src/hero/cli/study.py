"""`hero study`: the tables and figures of the paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hero.cli.options import add_worker_options, workers_of
from hero.config import parse_override
from hero.console import console
from hero.errors import HeroError
from hero.models import BACKBONES
from hero.report.ranks import statistics_tables
from hero.report.study import study_tables, title
from hero.strategies import STRATEGIES
from hero.study.cost.dry_run import schedule, schedule_sentences, schedule_table
from hero.study.plans import STUDIES, plan
from hero.study.run import carry_out

STUDY = """\
The tables and figures of the paper: build the list of runs, run what is missing, write table and figures.

  hero study main --dry-run                        every run with its state, and about how long the rest takes
  hero study main --tasks burgers --backbones fno --preset quick --seeds 2 --workers 2
  hero study ablation                              parts of HERO left out
  hero study ood                                   zero-shot under shifts of viscosity, forcing and resolution

Finished runs are found and not repeated: after a kill the same command goes on, and ends with the same table.
"""


def add_study_command(commands: Any, folders: argparse.ArgumentParser, settings: argparse.ArgumentParser) -> None:
    """`hero study`."""
    command = commands.add_parser("study", parents=[folders, settings], help="the tables and figures of the paper",
                                  description=STUDY, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.add_argument("study", metavar="STUDY", help=f"one of: {', '.join(STUDIES)}")
    command.add_argument("--tasks", type=names, metavar="A,B,...", help="benchmarks (default: those of the paper)")
    command.add_argument("--backbones", type=names, metavar="A,B,...",
                         help=f"some of: {', '.join(BACKBONES)}, or package.module:Class")  # fmt: skip
    command.add_argument("--strategies", type=names, metavar="A,B,...", help=f"some of: {', '.join(STRATEGIES)}")
    command.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 (default 5)")
    command.add_argument("--dry-run", action="store_true", help="only list the runs, their state and estimated time")
    command.add_argument("--table-only", action="store_true", help="run nothing; write the table of what is there")
    command.add_argument("--out", type=Path, metavar="DIR",
                         help="folder of table and figures (default: study-NAME-ID among the runs)")  # fmt: skip
    add_worker_options(command)
    command.set_defaults(call=run_study)


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def run_study(args: argparse.Namespace) -> None:
    if args.dry_run and args.table_only:
        raise HeroError("--dry-run writes nothing, so --table-only cannot go with it; leave out one of them.")
    overrides = dict(map(parse_override, args.overrides))
    seeds = None if args.seeds is None else range(args.seeds)
    planned = plan(args.study, args.preset, args.config, overrides, args.tasks, args.backbones, args.strategies, seeds)
    workers = workers_of(args)
    if args.dry_run:
        lines = schedule(planned, args.runs)
        if lines:
            console.print(schedule_table(lines))
        say(schedule_sentences(lines, workers.count))
        return
    result = carry_out(planned, args.runs, args.data, workers, args.out, args.table_only)
    console.print(title(result), style="bold", highlight=False)
    for table in study_tables(result):
        console.print(table)
    say(result["notes"])
    if result["statistics"]:
        for table in statistics_tables(result["statistics"]):
            console.print(table)
        say(result["statistics"]["notes"])
    out = args.out or args.runs / planned.folder
    for what, files in (("table", ["table.md"]), ("figure", result["figures"])):
        for file in files:
            console.print(f"{what}: {out / file}", highlight=False, soft_wrap=True)
    console.print(f"`hero report {out}` makes a page of it", style="dim", highlight=False, soft_wrap=True)


def say(sentences: list[str]) -> None:
    for sentence in sentences:
        console.print(sentence, style="dim", highlight=False, markup=False, soft_wrap=True)
