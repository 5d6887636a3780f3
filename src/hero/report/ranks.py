"""The statistics of a study for people: tables in the terminal, as Markdown, and the diagram of average ranks.

What the tables say is decided once, by `test_lines`, `win_lines` and `rank_lines`; terminal and Markdown lay it out.
The summary is that of `hero.significance.summarise`, fresh or read back from study.json.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from hero.report.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from hero.report.tables import MISSING, format_number

Summary = Mapping[str, Any]
Lines = list[list[str]]

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
_VERDICT_STYLE = {"better": "green", "worse": "red"}
# Inches of the rank diagram: height of a line of text, of a bar that joins methods, and width of a character.
LINE, BAR, CHARACTER = 0.3, 0.13, 0.09


def statistics_tables(summary: Summary) -> list[Table]:
    """Paired tests, win rates and average ranks for the terminal, those of them that there are."""
    (title, tests), *others = _parts(summary)
    tables = [_test_table(title, tests), *(_table(name, lines[0], lines[1:]) for name, lines in others)]
    return [table for table in tables if table.row_count]


def statistics_markdown(summary: Summary) -> str:
    """The same tables and the notes, ready for a document."""
    parts = [(title, lines) for title, lines in _parts(summary) if len(lines) > 1]
    text = "".join(f"### {title}\n\n{_markdown(lines)}\n\n" for title, lines in parts)
    return text + "\n".join(f"- {note}" for note in summary["notes"]) + "\n"


def test_lines(summary: Summary) -> Lines:
    """One line per comparison, headings first: ratio to the baseline with its interval, and the p of each test."""
    headings = ["group", "row", "seeds", "ratio", "95 % interval", "p t-\ntest", "p sign-\nflip", "p\nHolm", "verdict"]
    return [headings, *map(_test_line, summary["tests"])]


def win_lines(summary: Summary) -> Lines:
    """Wins of the row against the column, of the groups in which both were run; ties count half."""
    pairs = {(pair["method"], pair["against"]): pair for pair in summary["wins"]}
    methods = list(dict.fromkeys(pair["method"] for pair in summary["wins"]))
    letters = [_letter(i) for i in range(len(methods))]

    def cell(a: str, b: str) -> str:
        pair = pairs.get((a, b))
        return f"{pair['wins'] + pair['ties'] / 2:g}/{pair['groups']}" if pair and pair["groups"] else MISSING

    lines = [[letter, a, *(cell(a, b) for b in methods)] for letter, a in zip(letters, methods, strict=True)]
    return [["", "method", *letters], *lines]


def rank_lines(summary: Summary) -> Lines:
    """The methods and their average ranks, best first."""
    return [
        ["method", "average rank"],
        *([entry["method"], f"{entry['rank']:.2f}"] for entry in summary["ranks"]["methods"]),
    ]


def p_text(p: float | None) -> str:
    """Two digits, as many as a p value is good for."""
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _parts(summary: Summary) -> list[tuple[str, Lines]]:
    return [
        (f"{summary['metric']}: ratio to {summary['baseline']}", test_lines(summary)),
        ("groups won by the row against the column", win_lines(summary)),
        ("average ranks", rank_lines(summary)),
    ]


def _test_line(test: Mapping[str, Any]) -> list[str]:
    return [
        test["group"],
        test["label"],
        f"{test['n']}",
        format_number(test["ratio"]),
        _interval_text(test),
        p_text(test["t_p"]),
        p_text(test["sign_flip_p"]),
        p_text(test["p_holm"]),
        test["verdict"],
    ]


def _interval_text(test: Mapping[str, Any]) -> str:
    """ "0.78 to 1.13", or how many runs diverged on each side."""
    if test["interval"]:
        return " to ".join(map(format_number, test["interval"]))
    ours, theirs = test["diverged"]["ours"], test["diverged"]["baseline"]
    counts = [f"{ours} diverged"] * bool(ours) + [f"base: {theirs} diverged"] * bool(theirs)
    return ", ".join(counts) or MISSING


def _test_table(title: str, lines: Lines) -> Table:
    """The tests with groups as headings between them, so that the table fits a narrow screen."""
    headings, *tests = lines
    table = _table(title, ["group and row", *headings[3:]], [])
    for (group, seeds), part in itertools.groupby(tests, lambda line: (line[0], line[2])):
        table.add_section()
        table.add_row(f"{group}, {seeds} seeds" if seeds != "1" else f"{group}, 1 seed", style="bold")
        for line in part:
            table.add_row(f"  {line[1]}", *line[3:], style=_VERDICT_STYLE.get(line[-1]))
    return table


def _table(title: str, headings: list[str], lines: Lines) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        words = heading in ("group and row", "method")
        # Words may be broken, half a number is worse than a line more.
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def _markdown(lines: Lines) -> str:
    headings, *rows = [[cell.replace("-\n", "-").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *rows))


def _letter(i: int) -> str:
    """A, B, ..., Z, AA, ...: names of columns that fit a narrow screen."""
    return (_letter(i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)
