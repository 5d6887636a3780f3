"""One table as terminal, plain text, Markdown, LaTeX and HTML, with the same columns and number texts.

The text of a cell is decided here, once, and the writers only lay it out. `content.py` says which tables there are.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import jinja2
from rich import box
from rich.console import JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text as RichText

from hero.study.records import Published

MISSING = "–"
ARROWS = {"lower": "↓", "higher": "↑"}
VERDICT_STYLES = {"better": "green", "worse": "red"}
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
    "<": r"$<$",
    "χ": r"$\chi$",
}


def format_number(value: float | None) -> str:
    """Three significant digits: 0.0310, 80.8, 1234, 1.00e-12; ∞ for a diverged value and – for a missing one."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0 or 999.5 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")


def format_std(std: float | None) -> str:
    """ " ±0.0043": two significant digits, as many as a few seeds support; nothing where there is no std."""
    if std is None:
        return ""
    return f" ±{std:.0f}" if std >= 100 or std == 0 else f" ±{std:#.2g}".removesuffix(".")


def format_published(mean: float, std: float | None = None) -> str:
    """A number of the paper as it is printed there: 0.153 ±0.007."""
    return f"{mean:g}" + ("" if std is None else f" ±{std:g}")


def format_p(p: float | None) -> str:
    """A p value with the two digits that it is good for."""
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


@dataclass(frozen=True)
class Column:
    """A column; `direction` says whether "lower" or "higher" numbers are better, if either is."""

    label: str
    direction: str = ""
    meaning: str = ""  # definition, which the page shows on demand
    words: bool = False  # text, aligned left and free to wrap; numbers are aligned right and kept whole
    optional: bool = False  # left out where no cell of it says anything
    minor: bool = False  # left out of a terminal that is too narrow for all columns

    @property
    def heading(self) -> str:
        return f"{self.label} {ARROWS[self.direction]}" if self.direction else self.label

    @property
    def hint(self) -> str:
        better = f"{self.direction.capitalize()} is better." if self.direction else ""
        return f"{self.meaning} {better}".strip()


@dataclass(frozen=True)
class Cell:
    """A cell: its text in every form, and what only some of them show."""

    text: str
    value: float | str | None  # unrounded; the page sorts by it
    detail: str = ""  # shown by the page alone, below the text
    verdict: str = ""  # "better" and "worse" are coloured
    best: bool = False
    paper: str = ""
    ratio: str = ""  # the paper's number, and ours over it


class Text(Cell):
    """Words in a cell."""

    def __init__(self, text: str, detail: str = "", verdict: str = "") -> None:
        super().__init__(text, text, detail, verdict)


class Number(Cell):
    """A number with its std over seeds, next to the paper's and the ratio of the two.

    `shown` is a text in place of the rounded number, such as "2 of 30", `missing` one where there is no value, such as
    "not run".
    """

    def __init__(
        self,
        value: float | None,
        std: float | None = None,
        published: Published | None = None,
        best: bool = False,
        shown: str = "",
        missing: str = MISSING,
    ) -> None:
        known = None if value is None or math.isnan(value) else value
        text = shown or (missing if known is None else format_number(known) + format_std(std))
        paper = ratio = ""
        if published:
            paper = format_published(published.mean, published.std)
            ratio = format_number(known / published.mean if known is not None and published.mean else None)
        super().__init__(text, known, best=best, paper=paper, ratio=ratio)


@dataclass(frozen=True)
class Row:
    """The cells of one line; rows that share a `section` stand below its heading."""

    cells: Sequence[Cell]
    section: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of typed cells under named columns."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()  # what must not be overlooked, such as a run that is no better than doing nothing
    folded: bool = False  # whether the page shows it on demand only

    @classmethod
    def of_words(
        cls, title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False
    ) -> Table:
        """Rows of words below headings; `numbers`: all but the first column are aligned on the right."""
        columns = [Column(heading, words=not (numbers and i)) for i, heading in enumerate(headings)]
        return cls(title, columns, [Row([Text(str(cell)) for cell in row]) for row in rows])

    def compact(self) -> Table:
        """The table without the optional columns in which no cell says anything."""
        said = [any(row.cells[i].text not in ("", MISSING) for row in self.rows) for i in range(len(self.columns))]
        return self._of_columns([i for i, column in enumerate(self.columns) if said[i] or not column.optional])

    def fitting(self, width: int) -> Table:
        """The table without as many minor columns, from the right, as `width` characters have no room for."""
        kept = list(range(len(self.columns)))
        needed = [self._narrowest(i) + 2 for i in kept]
        for i in reversed(range(len(self.columns))):
            if self.columns[i].minor and sum(needed[k] for k in kept) > width:
                kept.remove(i)
        return self._of_columns(kept)

    def _of_columns(self, kept: Sequence[int]) -> Table:
        rows = [replace(row, cells=[row.cells[i] for i in kept]) for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def _narrowest(self, column: int) -> int:
        """Characters of the longest word in a column: names and numbers are not broken."""
        heading = self.columns[column].heading
        words = [*_broken(heading).split("\n"), *(w for row in self.rows for w in row.cells[column].text.split())]
        return max(map(len, words), default=0)

    def sections(self) -> Iterator[tuple[str, list[Row]]]:
        """The rows in their sections; a table without headings has one section, called ""."""
        for section, rows in itertools.groupby(self.rows, key=lambda row: row.section):
            yield section, list(rows)

    def lines(self) -> Iterator[tuple[str, list[Cell]]]:
        """The lines below the headings: sections, rows, and the paper's numbers and ratios as lines below ours."""
        for section, rows in self.sections():
            if section:
                yield "section", [Text(section)]
            for row in rows:
                yield "row", list(row.cells)
                if any(cell.paper for cell in row.cells):
                    yield "paper", [Text("  paper"), *(Text(cell.paper) for cell in row.cells[1:])]
                    yield "paper", [Text("  ratio"), *(Text(cell.ratio) for cell in row.cells[1:])]

    def to_rich(self) -> RichTable:
        """For the terminal, without the title."""
        table = RichTable(box=box.SIMPLE_HEAD, padding=0)
        for i, column in enumerate(self.columns):
            # A std may move below its mean and an interval may be broken; half a number or name would be worse.
            heading = column.heading if column.words else _broken(column.heading)
            side: JustifyMethod = "left" if column.words else "right"
            # Rich takes room from columns that may wrap, and applies min_width only afterwards.
            whole = not any(" " in row.cells[i].text.strip() for row in self.rows)
            narrowest = self._narrowest(i)
            table.add_column(RichText(heading), justify=side, overflow="fold", no_wrap=whole, min_width=narrowest)
        for kind, cells in self.lines():
            if kind == "section":
                table.add_section()
            styles = ["bold" if cell.best else VERDICT_STYLES.get(cell.verdict, "") for cell in cells]
            texts = [RichText(cell.text, style) for cell, style in zip(cells, styles, strict=True)]
            table.add_row(*texts, style={"section": "bold", "paper": "dim"}.get(kind))
        return table

    def to_text(self) -> str:
        """For pipes and files: aligned columns, one line per row whatever its width, no rules."""
        lines = [[column.heading for column in self.columns]]
        lines += [[cell.text for cell in cells] for _, cells in self.lines()]
        whole = [line for line in lines if len(line) == len(self.columns)]
        widths = [max(map(len, cells)) for cells in zip(*whole, strict=True)]

        def aligned(line: Sequence[str]) -> str:
            cells = zip(line, self.columns, widths, strict=False)
            return "  ".join(text.ljust(w) if column.words else text.rjust(w) for text, column, w in cells).rstrip()

        return "\n".join(map(aligned, lines))

    def to_markdown(self) -> str:
        """The table without its title and notes; the paper's number and the ratio in parentheses."""
        lines = [[column.heading for column in self.columns], ["---"] * len(self.columns)]
        for section, rows in self.sections():
            if section:
                lines.append([f"**{section}**", *[""] * (len(self.columns) - 1)])
            for cells in (row.cells for row in rows):
                ours = [f"**{cell.text}**" if cell.best else cell.text for cell in cells]
                papers = [f" ({cell.paper}, ×{cell.ratio})" if cell.paper else "" for cell in cells]
                lines.append([text + paper for text, paper in zip(ours, papers, strict=True)])
        return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """A `table` with a caption; needs the package booktabs."""
        lines = [
            r"\begin{table}[t]",
            r"\centering",
            r"\scriptsize",
            rf"\caption{{{tex(self.title)}.}}",
            rf"\begin{{tabular}}{{{''.join('l' if column.words else 'r' for column in self.columns)}}}",
            r"\toprule",
            " & ".join(tex(column.heading) for column in self.columns) + r" \\",
            r"\midrule",
        ]
        for kind, cells in self.lines():
            if kind == "section":
                lines += [r"\midrule"] * (lines[-1] != r"\midrule")
                lines.append(rf"\multicolumn{{{len(self.columns)}}}{{l}}{{\textit{{{tex(cells[0].text)}}}}} \\")
            else:
                texts = [rf"\textbf{{{tex(cell.text)}}}" if cell.best else tex(cell.text) for cell in cells]
                lines.append(r"\quad " * (kind == "paper") + " & ".join(texts).lstrip() + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def to_html(self) -> str:
        """For the page: headings that sort, and numbers that show themselves unrounded under the mouse."""
        return template("table.html").render(table=self)


@cache
def template(name: str) -> jinja2.Template:
    """A template of the page; every value that it shows is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hero.report", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)


def tex(text: str) -> str:
    """Text for LaTeX: no sign of it has a meaning there."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def _broken(heading: str) -> str:
    """A heading in short lines, for a narrow terminal."""
    return re.sub(" (?!%)", "\n", heading.replace("@", "\n@"))
