"""`hero data list|make|show`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from hero.cli.options import config_of
from hero.console import console
from hero.data import TASKS, data_summary, load_split, split_path
from hero.report.figures.tasks import draw_split


def add_data_commands(commands: Any, folders: argparse.ArgumentParser, settings: argparse.ArgumentParser) -> None:
    """`hero data list|make|show`."""
    command = commands.add_parser("data", help="list, make or show the benchmark data")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("list", parents=[folders], help="all benchmarks and their equations")
    action.set_defaults(call=run_data_list)
    for name, call, text in (
        ("make", run_data_make, "solve and store the training, validation and test trajectories"),
        ("show", run_data_show, "print the settings and provenance, and draw the fields"),
    ):
        action = actions.add_parser(name, parents=[folders, settings], help=text)
        action.add_argument("task", metavar="TASK")
        action.set_defaults(call=call)


def run_data_list(args: argparse.Namespace) -> None:
    table = Table(title="Benchmarks", caption="`hero settings TASK` shows the coefficients, extent, dt and warm-up")
    for name in ("task", "grid"):
        table.add_column(name, no_wrap=True)
    table.add_column("equation", overflow="fold")
    for task in TASKS.values():
        table.add_row(task.name, "×".join([str(task.resolution)] * task.dims), task.equation)
    console.print(table)


def run_data_make(args: argparse.Namespace) -> None:
    config = config_of(args)
    task = config.make_task()
    for name in ("train", "val", "test"):
        load_split(task, config.split(name), args.data)
        console.print(str(split_path(task, config.split(name), args.data)), highlight=False, soft_wrap=True)


def run_data_show(args: argparse.Namespace) -> None:
    config = config_of(args)
    task, split = config.make_task(), config.split("test")
    data = load_split(task, split, args.data)
    path = split_path(task, split, args.data)
    table = Table(show_header=False, title=task.title)
    for key, value in data_summary(path).items():
        table.add_row(key, str(value))
    console.print(table)
    picture = path.with_suffix(".png")
    draw_split(data, task, picture)
    console.print(f"picture: {picture}", highlight=False, soft_wrap=True)
