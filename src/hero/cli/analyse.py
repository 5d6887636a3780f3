"""`hero evaluate`, `hero landscape` and `hero probe`: a trained run, looked at again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hero.cli.options import evaluated, show_result
from hero.console import console
from hero.evaluation.landscape import landscape
from hero.evaluation.probe import probe
from hero.report.figures.analysis import landscape_sentence, probe_table
from hero.runs.folder import find_run


def add_analysis_commands(commands: Any, folders: argparse.ArgumentParser) -> None:
    """`hero evaluate`, `hero landscape` and `hero probe`."""
    command = commands.add_parser("evaluate", parents=[folders], help="measure a trained run and redraw its report")
    command.add_argument("run", metavar="RUN", help="run folder or id; part of an id will do")
    command.set_defaults(call=run_evaluate)

    command = commands.add_parser("landscape", parents=[folders], help="draw kept checkpoints against the final one")
    command.add_argument("run", metavar="RUN", help="run folder or id, trained with train.keep_every")
    command.set_defaults(call=run_landscape)

    command = commands.add_parser("probe", parents=[folders], help="measure the theory of HERO on a run")
    command.add_argument("run", metavar="RUN", help="run folder or id of a HERO run")
    command.add_argument("--step", type=int, action="append", default=[], metavar="N", dest="steps",
                         help="probe the checkpoint after N updates; repeatable (default: all there are)")  # fmt: skip
    command.add_argument("--horizon", type=int, default=50, help="steps of the long-horizon risk (default 50)")
    command.add_argument("--windows", type=int, default=120, help="validation windows measured (default 120)")
    command.set_defaults(call=run_probe)


def run_evaluate(args: argparse.Namespace) -> None:
    run = find_run(args.run, args.runs)
    show_result(evaluated(run, args.data), run)


def run_landscape(args: argparse.Namespace) -> None:
    run = find_run(args.run, args.runs)
    console.print(landscape_sentence(landscape(run, args.data)), highlight=False)
    show_figure(run, "landscape")


def run_probe(args: argparse.Namespace) -> None:
    run = find_run(args.run, args.runs)
    rows = probe(run, args.data, args.steps, args.horizon, args.windows)
    console.print(probe_table(rows))
    for row in rows:
        console.print(row["conclusion"], highlight=False)
    show_figure(run, "probe")


def show_figure(run: Path, name: str) -> None:
    console.print(f"figure: {run / 'figures' / name}.png", highlight=False, soft_wrap=True)
    console.print(f"`hero report {run.name}` puts it into the report", style="dim", highlight=False, soft_wrap=True)
