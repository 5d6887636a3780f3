"""study.json: one reader, one writer, infinities as numbers, damage named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fakes import ERROR, fake_group, fake_row, fake_study, fake_test
from hero.errors import HeroError
from hero.study.records import MethodRow, Published, RunEntry, StudyResult


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
    assert cell is not None
    assert (cell.mean, cell.values, cell.n, cell.std) == (math.inf, (1.0, math.inf), 2, None)
    assert written.failed == {"a-s2": "it is broken."}
    assert list(written.runs) == ["a-s0", "a-s1", "a-s2", "b-s0", "b-s1"]


def test_cells_and_their_best() -> None:
    (group,), (column,) = result().groups, ERROR
    cell = group.rows[1].cells["nrmse@100"]
    assert cell is not None
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
