"""The `hero` command: parse, call, print. Everything it does is one import away in Python."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from hero import config as configuration
from hero.backbones import BACKBONES
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
from hero.checkpoint import load_run
from hero.compare import BUDGETS
from hero.compare import compare as compare_strategies
from hero.describe import describe, print_description
from hero.errors import HeroError
from hero.estimate import UPDATES, estimate, print_estimate
from hero.evaluate import evaluate, final_metrics
from hero.export import FORMATS, export_run
from hero.files import write_json
from hero.landscape import landscape
from hero.predict import predict
from hero.probe import probe
from hero.progress import console
from hero.report.analysis import landscape_sentence, probe_table
from hero.report.comparison import comparison_table, notes
from hero.report.figures import save
from hero.report.tables import metrics_table, runs_table
from hero.runs import find_run, list_runs, read_log
from hero.strategies import STRATEGIES
from hero.tasks import TASKS, data_summary, draw_split, load_split, split_path
from hero.train import resume, train

DESCRIPTION = """\
Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it.

  hero data list                                   the benchmarks
  hero train burgers                               FNO with HERO at the paper's protocol; evaluates and reports
  hero train burgers --strategy push_forward       another strategy, same seed: same weights, same windows
  hero train burgers --preset quick --set train.lr=3e-3
  hero train --resume RUN                          go on after a kill, to the same bits
  hero compare burgers --seeds 5                   strategies with shared weights and batches: table and figure
  hero evaluate RUN                                measure again and redraw
  hero landscape RUN                               kept checkpoints against the final one, along the rollout
  hero probe RUN                                   what the theory of HERO says about this run, in numbers
  hero export RUN                                  ONNX and torch.export files of the operator, checked
  hero predict RUN --input states.npy              roll out a run or an exported file from your own states
  hero describe burgers                            parameters, FLOPs, memory and files of a run, before it is trained
  hero estimate burgers                            time and peak memory of a run, from a few real updates
  hero runs                                        what has been trained
  hero settings                                    every setting with its default and meaning
"""

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 2 for a mistake of the user, 130 after Ctrl-C."""
    parsed = parser().parse_args(arguments)
    try:
        parsed.call(parsed)
    except HeroError as error:
        print(f"hero: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        name, reason = error.filename or "a file", error.strerror or error
        print(f"hero: cannot use {name} ({reason}); check the path, its permissions and the space.", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        print("hero: the memory is too small for these settings; lower the batch or the backbone.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hero: interrupted; what was finished is saved, the same command goes on from there.", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands and options."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="hero", description=DESCRIPTION, formatter_class=raw)
    top.add_argument("--version", action="version", version=f"hero {version('hero')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    folders = argparse.ArgumentParser(add_help=False)
    folders.add_argument("--runs", type=Path, default=Path(os.environ.get("HERO_RUNS", "runs")), metavar="DIR",
                         help="folder of the runs (default: $HERO_RUNS or ./runs)")  # fmt: skip
    folders.add_argument("--data", type=Path, default=Path(os.environ.get("HERO_DATA", "data")), metavar="DIR",
                         help="folder of the data (default: $HERO_DATA or ./data)")  # fmt: skip
    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument("--preset", default="paper", help=f"base values: {', '.join(configuration.PRESETS)}")
    settings.add_argument("--config", type=Path, metavar="FILE", help="TOML file, such as a run's config.toml")
    settings.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                          help="change one setting; repeatable; `hero settings` lists them")  # fmt: skip

    command = commands.add_parser("train", parents=[folders, settings], help="train, evaluate and report one run")
    command.add_argument("task", nargs="?", metavar="TASK", help="benchmark, see `hero data list`")
    command.add_argument("--strategy", help=f"one of: {', '.join(STRATEGIES)} (default hero)")
    command.add_argument("--backbone", help=f"one of: {', '.join(BACKBONES)}, or package.module:Class (default fno)")
    command.add_argument("--seed", type=int, help="initial weights and batch order (default 0)")
    command.add_argument("--resume", metavar="RUN", help="go on with an unfinished run")
    command.set_defaults(call=run_train)

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

    command = commands.add_parser("runs", parents=[folders], help="list the runs")
    command.set_defaults(call=run_runs)

    command = commands.add_parser("settings", parents=[settings], help="every setting, its default and its meaning")
    command.add_argument("task", nargs="?", metavar="TASK", help="show the values resolved for this benchmark")
    command.set_defaults(call=run_settings)

    add_compare_command(commands, folders, settings)
    add_bench_command(commands)
    add_cost_commands(commands, folders, settings)
    add_export_commands(commands, folders)
    add_data_commands(commands, folders, settings)
    return top


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
    command.set_defaults(call=run_compare)


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


def add_export_commands(commands: Any, folders: argparse.ArgumentParser) -> None:
    """`hero export` and `hero predict`."""
    command = commands.add_parser("export", parents=[folders], help="write a run as ONNX and torch.export files")
    command.add_argument("run", metavar="RUN", help="run folder or id")
    command.add_argument("--format", choices=(*FORMATS, "both"), default="both", help="default: both")
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the files (default: RUN/export)")
    command.set_defaults(call=run_export)

    command = commands.add_parser("predict", parents=[folders], help="roll out a run or an exported file")
    command.add_argument("model", metavar="RUN|FILE", help="run folder or id, or an .onnx or .pt2 file")
    command.add_argument("--input", type=Path, metavar="FILE",
                         help="initial states: .npy, .npz or .h5 (default: the test states of the run)")  # fmt: skip
    command.add_argument("--steps", type=int, default=200, help="default: 200")
    command.add_argument("--out", type=Path, metavar="FILE", default=Path("predictions.npz"),
                         help=".npz or .npy (default: predictions.npz)")  # fmt: skip
    command.add_argument("--compile", action="store_true", help="compile first: for long rollouts of a run")
    command.set_defaults(call=run_predict)


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


def config_of(args: argparse.Namespace) -> configuration.RunConfig:
    """The configuration that the options of a command describe."""
    return configuration.make_config(args.preset, args.config, overrides_of(args))


def overrides_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the options of a command set beyond preset and file, as dotted keys."""
    overrides: dict[str, Any] = dict(map(configuration.parse_override, args.overrides))
    named = {"strategy": "strategy", "backbone": "backbone.name", "seed": "seed", "task": "task.name"}
    for option, key in named.items():
        if getattr(args, option, None) is not None:
            overrides[key] = getattr(args, option)
    return overrides


def run_train(args: argparse.Namespace) -> None:
    if args.resume is not None:
        changed = (args.task, args.config, args.strategy, args.backbone, args.seed, *args.overrides)
        if any(value is not None for value in changed) or args.preset != "paper":
            raise HeroError("--resume goes on with the run's own settings; leave out the others, or start a new run.")
        run = resume(find_run(args.resume, args.runs), args.data)
    elif args.task or args.config:
        run = train(config_of(args), args.runs, args.data)
    else:
        raise HeroError("name a benchmark, for example `hero train burgers`; `hero data list` shows all.")
    show_result(final_metrics(run) or evaluate(run, args.data), run)


def run_compare(args: argparse.Namespace) -> None:
    if not (args.task or args.config):
        raise HeroError("name a benchmark, for example `hero compare burgers`; `hero data list` shows all.")
    overrides = overrides_of(args)
    if overrides.keys() & {"strategy", "seed"}:
        raise HeroError("strategy and seed are what is compared; give --strategies and --seeds instead of --set.")
    settings = configuration.merge_settings(args.preset, args.config, overrides)
    strategies = [name.strip() for name in args.strategies.split(",") if name.strip()]
    result = compare_strategies(
        settings, strategies, range(args.seeds), args.runs, args.data, args.budget, args.baseline, args.out
    )
    console.print(comparison_table(result))
    for note in notes(result):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    out = args.out or args.runs / result["comparison"]
    for what, name in (("table", "comparison.md"), ("figure", "curves.png")):
        console.print(f"{what}: {out / name}", highlight=False, soft_wrap=True)
    if args.json:
        write_json(args.json, result)


def run_evaluate(args: argparse.Namespace) -> None:
    run = find_run(args.run, args.runs)
    show_result(evaluate(run, args.data), run)


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
    console.print(f"`hero evaluate {run.name}` puts it into the report", style="dim", highlight=False, soft_wrap=True)


def show_result(metrics: dict[str, Any], run: Path) -> None:
    console.print(metrics_table(metrics))
    console.print(f"report: {run / 'report.html'}", highlight=False, soft_wrap=True)


def run_export(args: argparse.Namespace) -> None:
    formats = tuple(FORMATS) if args.format == "both" else (args.format,)
    results = export_run(find_run(args.run, args.runs), args.data, args.out, formats)
    table = Table("relative difference from the original", *(Path(row["path"]).name for row in results.values()))
    for text, name in (
        ("one step, largest along its rollout", "one_step"),
        *((f"free rollout, step {k}", f"rollout@{k}") for k in (1, 10, 100)),
        ("test nRMSE@100 of the file", "nrmse@100"),
        ("test nRMSE@100 of the original", "original_nrmse@100"),
    ):
        table.add_row(text, *(f"{row[name]:.4g}" for row in results.values()))
    console.print(table)
    for row in results.values():
        console.print(f"{row['path']}: {row['bytes'] / 1000:.0f} kB", highlight=False, soft_wrap=True)


def run_predict(args: argparse.Namespace) -> None:
    result = predict(args.model, args.runs, args.data, args.input, args.steps, args.out, args.compile)
    shape, seconds = "×".join(map(str, result["shape"])), result["seconds"]
    console.print(f"prediction {shape} in {seconds:.2f} s, {args.steps / seconds:.0f} steps/s", highlight=False)
    console.print(f"{result['diverged']} of {result['shape'][0]} trajectories left the finite range", highlight=False)
    console.print(f"written: {result['path']}", highlight=False, soft_wrap=True)


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
    table = Table("setting", "value" if args.task else "default", "meaning", title=f"Settings for {config.task.name}")
    for item in dataclasses.fields(config)[:2]:  # strategy and seed, which have no section
        table.add_row(item.name, str(getattr(config, item.name)), item.metadata["doc"])
    for section, cls in configuration.SECTIONS.items():
        table.add_section()
        for item in dataclasses.fields(cls):
            if (section, item.name) == ("task", "settings"):
                for key, value in config.task.settings.items():
                    table.add_row(f"task.{key}", str(value), "")
                continue
            value = getattr(getattr(config, section), item.name)
            table.add_row(f"{section}.{item.name}", str(value), item.metadata["doc"])
    console.print(table)


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
