"""Options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hero.config import parse_override
from hero.console import console
from hero.evaluation.evaluate import evaluate
from hero.report import report_run
from hero.report.tables import metrics_table
from hero.runs import config as configuration
from hero.study.sweep import Workers


def config_of(args: argparse.Namespace) -> configuration.RunConfig:
    """The configuration that the options of a command describe."""
    return configuration.make_config(args.preset, args.config, overrides_of(args))


def overrides_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the options of a command set beyond preset and file, as dotted keys."""
    overrides: dict[str, Any] = dict(map(parse_override, args.overrides))
    named = {"strategy": "strategy", "backbone": "backbone.name", "seed": "seed", "task": "task.name"}
    for option, key in named.items():
        if getattr(args, option, None) is not None:
            overrides[key] = getattr(args, option)
    return overrides


def show_result(metrics: dict[str, Any], run: Path) -> None:
    console.print(metrics_table(metrics))
    console.print(f"report: {run / 'report.html'}", highlight=False, soft_wrap=True)


def add_worker_options(command: argparse.ArgumentParser) -> None:
    """Where the runs of a command are computed."""
    group = command.add_argument_group("where the runs are computed")
    group.add_argument("--workers", type=int, default=1, metavar="N",
                       help="runs at a time, each in a process of its own with its share of the cores (default 1); "
                       "0 computes in this process; on a cluster: runs at a time on each machine")  # fmt: skip
    group.add_argument("--cluster", metavar="ADDRESS",
                       help="compute on a Ray cluster: host:port, auto for the one on this machine, "
                       "local to start one")  # fmt: skip
    group.add_argument("--cpus", type=float, metavar="X",
                       help="with --cluster: CPUs of each run (default: the smallest machine / N)")  # fmt: skip
    group.add_argument("--gpus", type=float, default=0.0, metavar="X",
                       help="with --cluster: GPUs of each run, such as 0.5 to share one (default 0)")  # fmt: skip
    group.add_argument("--retries", type=int, default=3, metavar="N",
                       help="with --cluster: further tries of a run whose worker dies (default 3)")  # fmt: skip


def workers_of(args: argparse.Namespace) -> Workers:
    """What `add_worker_options` was told."""
    return Workers(args.workers, args.cluster, args.cpus, args.gpus, args.retries)


def evaluated(run: Path, data_dir: Path) -> dict[str, Any]:
    """The metrics of a run, measured now and shown on its page."""
    metrics = evaluate(run, data_dir).plain()
    report_run(run, metrics)
    return metrics
