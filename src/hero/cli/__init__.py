"""The `hero` command: parse, call, print. Everything it does is one import away in Python."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from hero.cli.analyse import add_analysis_commands
from hero.cli.animate import add_animate_command
from hero.cli.cost import add_bench_command, add_cost_commands
from hero.cli.data import add_data_commands
from hero.cli.export import add_export_commands
from hero.cli.options import config_of
from hero.cli.report import add_report_command
from hero.cli.study import add_study_command
from hero.cli.train import add_compare_command, add_train_commands
from hero.errors import HeroError
from hero.runs import config as configuration

__all__ = ["config_of", "main", "parser"]

DESCRIPTION = """\
Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it.

  hero data list                                   the benchmarks
  hero train burgers                               FNO with HERO at the paper's protocol; evaluates and reports
  hero train burgers --strategy push_forward       another strategy, same seed: same weights, same windows
  hero train burgers --preset quick --set train.lr=3e-3
  hero train --resume RUN                          go on after a kill, to the same bits
  hero compare burgers --seeds 5                   strategies with shared weights and batches: table and figure
  hero study main --dry-run                        the tables and figures of the paper: what there is to run
  hero evaluate RUN                                measure again and redraw
  hero report                                      all finished runs, a study or a comparison as one page
  hero animate RUN                                 its rollout as a GIF or MP4
  hero landscape RUN                               kept checkpoints against the final one, along the rollout
  hero probe RUN                                   what the theory of HERO says about this run, in numbers
  hero export RUN                                  ONNX and torch.export files of the operator, checked
  hero predict RUN --input states.npy              roll out a run or an exported file from your own states
  hero describe burgers                            parameters, FLOPs, memory and files of a run, before it is trained
  hero estimate burgers                            time and peak memory of a run, from a few real updates
  hero runs                                        what has been trained
  hero settings                                    every setting with its default and meaning
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

    add_train_commands(commands, folders, settings)
    add_compare_command(commands, folders, settings)
    add_study_command(commands, folders, settings)
    add_analysis_commands(commands, folders)
    add_report_command(commands, folders)
    add_animate_command(commands, folders)
    add_cost_commands(commands, folders, settings)
    add_bench_command(commands)
    add_export_commands(commands, folders)
    add_data_commands(commands, folders, settings)
    return top
