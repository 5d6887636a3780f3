"""A study for people: its table in the terminal, as Markdown, LaTeX and CSV.

`row_lines` decides what the tables say: ours, below it the paper's and the ratio. Terminal, Markdown and LaTeX lay it
out. CSV holds the bare numbers, a line for each row and metric.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich import box
from rich.markup import escape
from rich.table import Table

from hero.files import write_atomic, write_json
from hero.report.figures.style import save_png_and_pdf
from hero.report.ranks import statistics_markdown
from hero.report.tables import MISSING, format_number

ARROWS = {"lower": "↓", "higher": "↑"}
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "×": r"$\times$",
    "−": r"$-$",
    "²": r"$^2$",
    "³": r"$^3$",
    "–": "--",
    "…": r"\ldots{}",
}

Result = Mapping[str, Any]
Row = Mapping[str, Any]


class Stack(NamedTuple):
    """A cell of the table: three numbers on each other, the lower two empty where the paper has none."""

    ours: str
    paper: str = ""
    ratio: str = ""
    best: bool = False


def write_study(folder: Path, result: dict[str, Any], figures: Iterable[tuple[str, Figure]]) -> None:
    """All files of a study; the names of the figures are put into `result`."""
    for name, figure in figures:
        save_png_and_pdf(figure, folder, name)
        result["figures"].append(f"{name}.png")
    write_tables(folder, result)


def write_tables(folder: Path, result: Result) -> None:
    """The table as Markdown, LaTeX and CSV, and study.json."""
    for suffix, write in (("md", markdown), ("tex", latex), ("csv", csv_text)):
        write_atomic(folder / f"table.{suffix}", write(result).encode())
    write_json(folder / "study.json", result)


def row_stacks(row: Row, columns: Iterable[Mapping[str, str]]) -> list[Stack]:
    """The cells of one row."""
    return [stack(row["cells"][column["key"]], row) for column in columns]


def stack(cell: Mapping[str, Any] | None, row: Row) -> Stack:
    """One cell: mean ± deviation, the paper's, the ratio; in words where there is nothing."""
    if cell is None:
        return Stack(missing_word(row))
    published = cell["paper"]
    return Stack(
        format_number(cell["mean"]) + deviation(cell["std"]),
        "" if published is None else f"{published['mean']:g}" + published_deviation(published["std"]),
        "" if cell["ratio"] is None else format_number(cell["ratio"]),
        cell["best"],
    )


def deviation(std: float | None) -> str:
    """Two significant digits, as many as a few seeds support."""
    if std is None:
        return ""
    return f" ±{std:.0f}" if std >= 100 else f" ±{std:#.2g}".removesuffix(".")


def published_deviation(std: float | None) -> str:
    return "" if std is None else f" ±{std:g}"


def missing_word(row: Row) -> str:
    """Why a cell is empty."""
    states = {run["status"] for run in row["runs"]}
    return next((word for word in ("failed", "unfinished", "not run") if word in states - {"finished"}), MISSING)


def label_of(row: Row) -> str:
    """The name of a row, and how many of its runs the means are of unless it is all or none."""
    finished = sum(run["status"] == "finished" for run in row["runs"])
    return row["label"] + (f" ({finished} of {len(row['runs'])} seeds)" if 0 < finished < len(row["runs"]) else "")


def diverged_text(row: Row) -> str:
    return f"{row['diverged']} of {row['rollouts']}" if row["rollouts"] else MISSING


def headings(result: Result) -> list[str]:
    """Of the numbers: "nRMSE@100 ↓"."""
    return [f"{column['label']} {ARROWS[column['direction']]}" for column in result["columns"]]


def has_notes(result: Result) -> bool:
    return any(row["note"] for group in result["groups"] for row in group["rows"])


def has_rollouts(result: Result) -> bool:
    """Whether a column of diverged rollouts says anything: a measurement of costs has none."""
    return result["study"] not in ("cost", "landscape")


def title(result: Result) -> str:
    """ "Main results (study main, preset quick, 2 seeds)"."""
    count = len(result["seeds"])
    seeds = f", {count} seed{'s' if count > 1 else ''}" if count else ""
    return f"{result['title']} (study {result['study']}, preset {result['preset']}{seeds})"


def study_tables(result: Result) -> list[Table]:
    """A table for each group, for a terminal of 100 columns."""
    return [_group_table(result, group) for group in result["groups"]]


def _group_table(result: Result, group: Mapping[str, Any]) -> Table:
    table = Table(title=group["title"], title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for heading in headings(result):
        words = heading.replace("@", "\n@").replace(" ", "\n", heading.count(" ") - 1)
        # On a narrow screen a deviation goes below its mean; half a number would be worse.
        table.add_column(words, justify="right", overflow="fold")
    if has_rollouts(result):
        table.add_column("diverged", justify="right")
    for row in group["rows"]:
        stacks = row_stacks(row, result["columns"])
        label = escape(label_of(row)) + (f"\n[dim]{escape(row['note'])}[/dim]" if row["note"] else "")
        last = [diverged_text(row)] if has_rollouts(result) else []
        table.add_row(label, *(f"[bold]{s.ours}[/bold]" if s.best else s.ours for s in stacks), *last)
        if any(s.paper for s in stacks):
            table.add_row("  paper", *(s.paper for s in stacks), style="dim")
            table.add_row("  ratio", *(s.ratio for s in stacks), style="dim")
    return table


def markdown(result: Result) -> str:
    """A table for each group, the notes, and the statistics."""
    noted, counted = has_notes(result), has_rollouts(result)
    first = ["method", *(["note"] if noted else []), *headings(result), *(["diverged"] if counted else [])]
    parts = [f"# {title(result)}"]
    for group in result["groups"]:
        lines = [first, ["---"] * len(first)]
        for row in group["rows"]:
            cells = map(_markdown_cell, row_stacks(row, result["columns"]))
            note, last = [row["note"]] if noted else [], [diverged_text(row)] if counted else []
            lines.append([label_of(row), *note, *cells, *last])
        parts += [f"## {group['title']}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    shown = ["A cell: ours (the paper's, ratio)."] if _any_paper(result) else []
    parts.append("\n".join(f"- {note}" for note in (*shown, *result["notes"])))
    if result["statistics"]:
        parts += ["## Statistics", statistics_markdown(result["statistics"]).strip()]
    return "\n\n".join(parts) + "\n"


def _markdown_cell(stack: Stack) -> str:
    ours = f"**{stack.ours}**" if stack.best else stack.ours
    return ours + (f" ({stack.paper}, ×{stack.ratio})" if stack.paper else "")


def _any_paper(result: Result) -> bool:
    cells = (cell for group in result["groups"] for row in group["rows"] for cell in row["cells"].values() if cell)
    return any(cell["paper"] for cell in cells)


def latex(result: Result) -> str:
    """A `table` for each task, since all in one would not fit a page; needs the package booktabs."""
    tables = [
        _latex_table(result, list(groups))
        for _, groups in itertools.groupby(result["groups"], key=lambda group: group["task"])
    ]
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def _latex_table(result: Result, groups: list[Mapping[str, Any]]) -> str:
    noted, counted = has_notes(result), has_rollouts(result)
    columns = [*(["note"] if noted else []), *headings(result), *(["diverged"] if counted else [])]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        r"\scriptsize",
        rf"\caption{{{tex(title(result))}.}}",
        rf"\begin{{tabular}}{{l{'l' if noted else ''}{'r' * (len(columns) - noted)}}}",
        r"\toprule",
        _tex_line(["method", *columns]),
    ]
    for group in groups:
        lines += [r"\midrule", rf"\multicolumn{{{1 + len(columns)}}}{{l}}{{\textit{{{tex(group['title'])}}}}} \\"]
        for row in group["rows"]:
            stacks = row_stacks(row, result["columns"])
            before, after = [row["note"]] if noted else [], [diverged_text(row)] if counted else []
            ours = [rf"\textbf{{{tex(s.ours)}}}" if s.best else tex(s.ours) for s in stacks]
            lines.append(" & ".join([tex(label_of(row)), *map(tex, before), *ours, *map(tex, after)]) + r" \\")
            if any(s.paper for s in stacks):
                blank = [""] * noted, [""] * counted
                lines.append(r"\quad " + _tex_line(["paper", *blank[0], *(s.paper for s in stacks), *blank[1]]))
                lines.append(r"\quad " + _tex_line(["ratio", *blank[0], *(s.ratio for s in stacks), *blank[1]]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _tex_line(cells: list[str]) -> str:
    return " & ".join(map(tex, cells)) + r" \\"


def tex(text: str) -> str:
    """Text for LaTeX: no sign of it has a meaning there."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def csv_text(result: Result) -> str:
    """Long format: a line for each group, row and metric, unrounded; empty where nothing was run."""
    lines = []
    for group in result["groups"]:
        for row in group["rows"]:
            finished = sum(run["status"] == "finished" for run in row["runs"])
            for column in result["columns"]:
                cell = row["cells"][column["key"]] or {}
                published = cell.get("paper") or {}
                lines.append(
                    {"study": result["study"], "group": group["title"]}
                    | {name: group[name] for name in ("task", "backbone", "shift")}
                    | {name: row[name] for name in ("label", "strategy", "note")}
                    | {"metric": column["key"], "direction": column["direction"]}
                    | {name: cell.get(name) for name in ("mean", "std")}
                    | {"paper_mean": published.get("mean"), "paper_std": published.get("std")}
                    | {name: cell.get(name) for name in ("ratio", "best")}
                    | {"finished": finished, "seeds": len(row["runs"])}
                    | {name: row[name] for name in ("diverged", "rollouts")}
                )
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()
