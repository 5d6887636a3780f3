"""One table, many forms: every form shows the same columns and the same number texts, and no sign of a text is lost."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fakes import ERROR, TITLE, Parsed, fake_group, fake_row, fake_study, fake_test
from hero.errors import HeroError
from hero.report.content import group_table, statistics_tables, study_csv, study_latex, study_markdown, study_tables
from hero.report.tables import LATEX, Column, Number, Row, Table, Text, tex
from hero.study.records import ROLLOUT_COLUMNS, MethodRow, Published, RunEntry, StudyResult

HOSTILE = "<b>&\"'|_%$#{}\\^~[bold]"


class Forms:
    """A table read back from each of its forms: lines of texts, headings first, without the paper's numbers."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def all(self) -> dict[str, list[list[str]]]:
        return {"terminal": self.terminal(), "markdown": self.markdown(), "latex": self.latex(), "html": self.html()}

    def terminal(self) -> list[list[str]]:
        table = self.table.to_rich()
        headings = [str(column.header).replace("\n@", "@").replace("\n", " ") for column in table.columns]
        lines = list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))
        return [headings, *(list(line) for line in lines if line[0] not in ("  paper", "  ratio") and any(line[1:]))]

    def markdown(self) -> list[list[str]]:
        headings, _, *lines = [line[2:-2].split(" | ") for line in self.table.to_markdown().splitlines()]
        found = [[re.sub(r" \(.*, ×.*\)$", "", cell).replace("**", "") for cell in line] for line in lines]
        return [headings, *(line for line in found if any(line[1:]))]

    def latex(self) -> list[list[str]]:
        back = {sign: text for text, sign in LATEX.items()}
        lines = []
        for line in self.table.to_latex().splitlines():
            if line.endswith(r"\\") and not line.startswith((r"\quad", r"\multicolumn")):
                cells = [re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell) for cell in line.removesuffix(r" \\").split(" & ")]
                for sign in sorted(back, key=len, reverse=True):
                    cells = [cell.replace(sign, back[sign]) for cell in cells]
                lines.append(cells)
        return lines

    def html(self) -> list[list[str]]:
        return Parsed(self.table.to_html()).rows


def study(values: dict[str, list[float]], title: str = TITLE) -> StudyResult:
    """A study of one group with these values of every metric, a row that was not run, and statistics."""
    paper = Published(mean=0.153, std=0.007)
    rows = [fake_row(label, found, paper=paper, note="a note" * (label == "hero")) for label, found in values.items()]
    rows.append(fake_row("refiner", statuses=["not run"]))
    first, second, *_ = values
    test = fake_test(second, first, title, p_holm=0.00012, verdict="better")
    group = fake_group(*rows, title=title)
    return fake_study(group, tests=[test], preset="quick", seeds=(0, 1))


VALUES = {
    "push_forward": [0.00432, 0.01],
    "hero": [0.031, 0.0353],
    "one_step": [1234.5, 1500.0],
    "lost": [1.0, math.inf],
}


def test_a_study_has_the_same_columns_and_number_texts_in_all_forms() -> None:
    result = study(VALUES)
    (table,) = study_tables(result)
    forms = Forms(table).all()
    assert forms["terminal"][0] == ["Method", "Note", "Val GM100 ↓", "Test GM100 ↓", "nRMSE@1 ↓", "nRMSE@100 ↓",
                                    "Stable step ↑", "Diverged"]  # fmt: skip
    assert forms["terminal"][2][2] == "0.0331 ±0.0030"
    assert [line[2] for line in forms["terminal"][3:]] == ["1367 ±188", "∞", "not run"]
    for name, lines in forms.items():
        assert lines == forms["terminal"], name
    # The files of a study hold these forms.
    assert table.to_markdown() in study_markdown(result)
    assert table.to_latex() in study_latex(result)
    lines = list(csv.DictReader(io.StringIO(study_csv(result))))
    assert len(lines) == len(table.rows)
    best = result.groups[0].best(result.columns[3])
    for line, row in zip(lines, result.groups[0].rows, strict=True):
        cell = row.cells["nrmse@100"]
        assert (line["group"], line["method"]) == (TITLE, row.label)
        if cell is not None:
            assert float(line["nrmse@100"]) == cell.mean
            assert float(line["nrmse@100_paper"]) == 0.153
            assert line["nrmse@100_best"] == ("True" if cell.mean == best else "")


def test_statistics_have_the_same_columns_and_number_texts_in_all_forms() -> None:
    (tests,) = map(Forms, statistics_tables(study(VALUES)))
    assert tests.terminal() == tests.markdown() == tests.latex() == tests.html()
    assert tests.terminal() == [
        ["Method", "Ratio", "95 % interval", "p t-test", "p sign-flip", "p Holm", "Verdict"],
        ["hero", "0.975", "0.812 to 1.10", "0.032", "0.5", "< 0.001", "better"],
    ]


def test_papers_numbers_and_ratios_are_in_every_form() -> None:
    number = Number(0.031, 0.0043, Published(mean=0.153, std=0.007), best=True)
    table = Table("t", [Column("Method"), Column("x", direction="lower")], [Row([Text("ours"), number])])
    assert "**0.0310 ±0.0043** (0.153 ±0.007, ×0.203)" in table.to_markdown()
    assert r"\quad paper & 0.153 $\pm$0.007 \\" in table.to_latex()
    assert r"\quad ratio & 0.203 \\" in table.to_latex()
    assert "<small>paper 0.153 ±0.007</small><small>ratio 0.203</small>" in table.to_html()
    assert 'title="0.031"><strong>0.0310 ±0.0043</strong>' in table.to_html()
    assert [str(cell) for cell in table.to_rich().columns[1].cells] == ["0.0310 ±0.0043", "0.153 ±0.007", "0.203"]


def test_signs_with_a_meaning_are_text() -> None:
    table = Table(HOSTILE, [Column(HOSTILE, words=True), Column("x")], [Row([Text(HOSTILE), Number(1.0)], HOSTILE)])
    assert "<b>" not in table.to_html()
    assert (
        unescape(table.to_html()).count(HOSTILE) == 6
    )  # title, name of the region, heading, section, cell, its key for sorting
    console = Console(width=200, file=io.StringIO())
    console.print(table.to_rich())
    assert console.file.getvalue().count(HOSTILE) == 3  # type: ignore[attr-defined]
    assert table.to_markdown().count(HOSTILE.replace("|", r"\|")) == 3
    assert tex(HOSTILE).isascii()


def test_optional_columns_are_shown_where_they_say_something() -> None:
    columns = [Column("a", words=True), Column("b", optional=True), Column("c", optional=True)]
    table = Table("", columns, [Row([Text("x"), Number(None), Number(1.0)])]).compact()
    assert [column.label for column in table.columns] == ["a", "c"]
    assert [cell.text for cell in table.rows[0].cells] == ["x", "1.00"]


def test_groups_of_a_task_are_sections_of_one_table() -> None:
    one, other = study(VALUES).groups[0], study(VALUES, "Burgers, Transolver").groups[0]
    table = group_table([one, other], ROLLOUT_COLUMNS)
    assert table.title == "Burgers"
    assert [section for section, _ in table.sections()] == ["Burgers, FNO", "Burgers, Transolver"]
    assert r"\multicolumn{8}{l}{\textit{Burgers, Transolver}} \\" in table.to_latex()
    assert table.to_html().count('<th scope="rowgroup" colspan="8">') == 2
    assert Forms(table).terminal() == Forms(table).html() == Forms(table).markdown() == Forms(table).latex()


def row(label: str, *values: float, **facts: Any) -> MethodRow:
    return fake_row(label, values, ERROR, **facts)


def result() -> StudyResult:
    lost = RunEntry(seed=2, run="a-s2", status="failed", reason="it is broken.")
    a, b = row("a", 1.0, math.inf), row("b", 0.5, 0.25, paper=Published(mean=0.75))
    rows = a.model_copy(update={"runs": (*a.runs, lost)}), b
    test = fake_test("a", "b", "g", ratio=math.inf, interval=None, diverged=1, t_p=None)
    return fake_study(fake_group(*rows, title="g"), tests=[test], changed={"train.steps": 20})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = result()
    path = written.write(tmp_path / "study.json")
    assert json.loads(path.read_text())["groups"][0]["rows"][0]["cells"]["nrmse@100"]["mean"] == "inf"
    assert StudyResult.read(path) == written
    cell = StudyResult.read(path).groups[0].rows[0].cells["nrmse@100"]
    assert (cell.mean, cell.values, cell.n, cell.std) == (math.inf, (1.0, math.inf), 2, None)
    assert written.failed == {"a-s2": "it is broken."}
    assert list(written.runs) == ["a-s0", "a-s1", "a-s2", "b-s0", "b-s1"]


def test_cells_and_their_best() -> None:
    (group,), (column,) = result().groups, ERROR
    cell = group.rows[1].cells["nrmse@100"]
    assert cell.mean == 0.375 == group.best(column)
    assert fake_group(row("a", 1.0), row("b"), row("c", 1.0)).best(column) is None
    assert fake_group(row("a", math.inf), row("b", math.inf)).best(column) is None
    (test,) = result().statistics[0].tests
    assert (test.p, test.n) == (0.5, 2)


@pytest.mark.parametrize("damage", ['{"study": "main"}', "no JSON", '{"version": 99}'])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(damage)
    with pytest.raises(HeroError, match=r"study\.json .*the same `hero study` or `hero compare` command rewrites it\."):
        StudyResult.read(tmp_path / "study.json")
