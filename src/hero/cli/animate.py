"""`hero animate`: the rollout of a run as a moving picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hero.console import console
from hero.report.figures.animation import animate
from hero.runs.folder import find_run


def add_animate_command(commands: Any, folders: argparse.ArgumentParser) -> None:
    """`hero animate`."""
    command = commands.add_parser("animate", parents=[folders], help="GIF or MP4 of the rollout of a run")
    command.add_argument("run", metavar="RUN", help="evaluated run: folder, id or part of an id")
    command.add_argument("--out", type=Path, metavar="FILE", help=".gif or .mp4 (default: rollout.gif in the run)")
    command.add_argument("--steps", type=int, metavar="N", help="the first N rollout steps (default: all)")
    command.add_argument("--fps", type=int, default=12, metavar="N", help="frames per second (default 12)")
    command.set_defaults(call=run_animate)


def run_animate(args: argparse.Namespace) -> None:
    path = animate(find_run(args.run, args.runs), args.out, args.steps, args.fps)
    console.print(f"animation: {path} ({path.stat().st_size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)
