"""`hero bench`, `hero describe` and `hero estimate`: what runs cost."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from hero.bench import (
    compare,
    measure_scaling,
    paper_sweeps,
    paper_workloads,
    print_comparison,
    print_cost,
    scaling_figure,
    strategy_cost,
    unroll_memory,
    unroll_memory_figure,
)
from hero.cli.options import config_of
from hero.console import console
from hero.errors import HeroError
from hero.files import write_json
from hero.models import BACKBONES
from hero.report.figures.style import save
from hero.runs import config as configuration
from hero.strategies import STRATEGIES
from hero.study.cost.count import describe, print_description
from hero.study.cost.measure import UPDATES, estimate, print_estimate

BENCH = """\
How fast the paper's FNOs train and roll out here, beside neuraloperator and APEBench (pdequinox, trainax) as the same
network on the same work: updates through a five-step unroll at batch 20, rollouts of 200 steps at batch 1 and 30.

  pip install 'hero[bench]'                        the peers; one that is missing is named, the rest goes on
  hero bench --dims 1 --eager                      a first look
  hero bench --json speed.json                     all of it; in 3D compiling alone takes minutes
  hero bench --figure speed.png                    and the cost against grid size and batch
  hero bench --strategies --dims 1                 what HERO costs over push_forward
  hero bench --memory memory.png --dims 2          memory against the length of the unroll

Each participant has a process of its own; they take turns, and medians of one run are compared. `x hero` is the time
over ours, `x limit` the time over what the matrix products and the memory of this machine allow, measured first.
"""


def add_bench_command(commands: Any) -> None:
    """`hero bench`."""
    command = commands.add_parser("bench", help="speed of our FNO against its peers, as ratios in one run",
                                  description=BENCH, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.add_argument("--dims", type=int, nargs="+", choices=(1, 2, 3),
                         help="default: 1 2 3; with --strategies 1 2")  # fmt: skip
    command.add_argument("--rounds", type=int, metavar="N",
                         help="turns of each participant (default 10), or updates of each strategy (30)")  # fmt: skip
    command.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), metavar="N",
                         help="cores of each participant (default 2, or what there is)")  # fmt: skip
    command.add_argument("--eager", action="store_true", help="ours without torch.compile, which saves minutes")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
    command.add_argument("--figure", type=Path, metavar="PNG",
                         help="also measure updates against grid and batch, which is long, and draw them")  # fmt: skip
    command.add_argument("--strategies", action="store_true",
                         help="instead: cost of the training strategies relative to push_forward")  # fmt: skip
    command.add_argument("--memory", type=Path, metavar="PNG",
                         help="instead: draw the memory of one update against the length of its unroll")  # fmt: skip
    command.set_defaults(call=run_bench)


def add_cost_commands(commands: Any, folders: argparse.ArgumentParser, settings: argparse.ArgumentParser) -> None:
    """`hero describe` and `hero estimate`, with the options of `hero train`."""
    backbones = f"one of: {', '.join(BACKBONES)}, or package.module:Class (default fno)"
    for name, call, text in (
        ("describe", run_describe, "parameters, FLOPs, memory and files of a run, before anything is made"),
        ("estimate", run_estimate, "predict time and peak memory of a run from a few real updates"),
    ):
        command = commands.add_parser(name, parents=[folders, settings], help=text)
        command.add_argument("task", nargs="?", metavar="TASK", help="benchmark, see `hero data list`")
        command.add_argument("--strategy", help=f"one of: {', '.join(STRATEGIES)} (default hero)")
        command.add_argument("--backbone", help=backbones)
        command.add_argument("--seed", type=int, help="initial weights and batch order (default 0)")
        command.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
        command.set_defaults(call=call)
        if name == "estimate":
            command.add_argument("--updates", type=int, default=UPDATES, metavar="N",
                                 help=f"updates measured per phase (default {UPDATES})")  # fmt: skip


def run_bench(args: argparse.Namespace) -> None:
    for name, value in (("rounds", args.rounds), ("threads", args.threads)):
        if value is not None and value < 1:
            raise HeroError(f"--{name} {value} is too few; give 1 or more.")
    for name, path in (("figure", args.figure), ("memory", args.memory)):
        if path and path.suffix.lower() != ".png":
            raise HeroError(f"--{name} {path} is not a PNG file; give a name that ends in .png.")
    if args.memory:
        rows = unroll_memory((args.dims or [2])[0])
        save(unroll_memory_figure(rows), args.memory)
        console.print(f"figure: {args.memory}", highlight=False, soft_wrap=True)
        if args.json:
            write_json(args.json, rows)
        return
    if args.strategies:
        costs = []
        for dims in args.dims or (1, 2):
            costs.append(strategy_cost(dims, not args.eager, args.rounds or 30))
            print_cost(costs[-1])
        if args.json:
            write_json(args.json, costs)
        return
    result = compare(paper_workloads(args.dims or (1, 2, 3)), args.rounds or 10, args.threads, args.eager)
    print_comparison(result)
    if args.json:
        write_json(args.json, result)
    if args.figure:
        result["scaling"] = measure_scaling(paper_sweeps(), 3, args.threads, args.eager)
        save(scaling_figure(result["scaling"]), args.figure)
        if args.json:  # again: the first was in case the long sweep is interrupted
            write_json(args.json, result)


def run_describe(args: argparse.Namespace) -> None:
    numbers = describe(named_config(args))
    print_description(numbers)
    if args.json:
        write_json(args.json, numbers)


def run_estimate(args: argparse.Namespace) -> None:
    numbers = estimate(named_config(args), args.data, args.updates)
    print_estimate(numbers)
    if args.json:
        write_json(args.json, numbers)


def named_config(args: argparse.Namespace) -> configuration.RunConfig:
    """The configuration of a command that would be a mistake without a benchmark."""
    if not (args.task or args.config):
        raise HeroError("name a benchmark, for example `hero describe burgers`; `hero data list` shows all.")
    return config_of(args)
