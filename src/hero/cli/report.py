"""`hero report`: runs, a study or a comparison as one page, and as figures for a paper."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import Any

from hero.console import console
from hero.errors import HeroError
from hero.report.figures.of_run import write_figures
from hero.report.page.page import write_page
from hero.report.page.sources import Sources, gather


def add_report_command(commands: Any, folders: argparse.ArgumentParser) -> None:
    """`hero report`."""
    command = commands.add_parser("report", parents=[folders], help="one HTML page of runs, a study or a comparison")
    command.add_argument("names", nargs="*", metavar="RUN|STUDY|COMPARISON",
                         help="folder, id or part of an id; repeatable (default: all finished runs)")  # fmt: skip
    command.add_argument("--out", type=Path, metavar="FILE.html",
                         help="the page (default: report.html in the folder named, or that of the runs)")  # fmt: skip
    command.add_argument("--figures", type=Path, metavar="DIR", help="also write every figure as PDF and PNG here")
    command.add_argument("--open", action="store_true", help="show the page in a browser")
    command.set_defaults(call=run_report)


def run_report(args: argparse.Namespace) -> None:
    if args.out and args.out.suffix.lower() not in (".html", ".htm"):
        raise HeroError(f"--out {args.out} is not an HTML file; give a name that ends in .html.")
    sources = gather(args.names, args.runs)
    page = write_page(sources, args.out or default_page(sources, args.names, args.runs))
    for notice in sources.notices:
        console.print(notice, style="yellow", highlight=False, soft_wrap=True)
    console.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)
    if args.figures:
        written = write_figures(sources, args.figures)
        console.print(f"figures: {len(written)} as PDF and PNG in {args.figures}", highlight=False, soft_wrap=True)
    if args.open:
        webbrowser.open(page.resolve().as_uri())


def default_page(sources: Sources, names: list[str], runs_dir: Path) -> Path:
    """Beside what the page is about."""
    folders = [document.folder for document in (*sources.studies, *sources.comparisons)]
    folders += [run.folder for run in sources.runs if run.name in sources.named]
    return (folders[0] if len(names) == len(folders) == 1 else runs_dir) / "report.html"
