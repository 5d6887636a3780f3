"""study.json: one reader, one writer, infinities as numbers, damage named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fakes import ERROR, fake_group, fake_row, fake_study, fake_test
from hero.errors import HeroError
from hero.study.records import (
    MethodRow,
    Published,
    RunEntry,
    StudyResult,
    best_marked,
)


def row(label: str, *values: float, **facts: Any) -> MethodRow:
    return fake_row(label, values, ERROR, **facts)


def result() -> StudyResult:
    lost = RunEntry(seed=2, run="a-s2", status="failed", reason="it is broken.")
    a, b = row("a", 1.0, math.inf), row("b", 0.5, 0.25, paper=Published(mean=0.75))
    rows = best_marked([a.model_copy(update={"runs": (*a.runs, lost)}), b], ERROR)
    test = fake_test("a", "b", "g", ratio=math.inf, interval=None, diverged=1, t_p=None)
    return fake_study(fake_group(*rows, title="g"), tests=[test], methods="ab", changed={"train.steps": 20})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = result()
    path = written.write(tmp_path / "study.json")
    assert json.loads(path.read_text())["groups"][0]["rows"][0]["cells"]["nrmse@100"]["mean"] == "inf"
    assert StudyResult.read(path) == written
    cell = StudyResult.read(path).groups[0].rows[0].cells["nrmse@100"]
    assert cell is not None
    assert (cell.mean, cell.values, cell.n, cell.std, cell.ratio) == (math.inf, (1.0, math.inf), 2, None, None)
    assert written.failed == {"a-s2": "it is broken."}
    assert list(written.runs) == ["a-s0", "a-s1", "a-s2", "b-s0", "b-s1"]


def test_cells_and_their_best() -> None:
    a, b = result().groups[0].rows
    best = [found.cells["nrmse@100"] for found in (a, b)]
    assert [cell and cell.best for cell in best] == [False, True]
    assert best[1] is not None
    assert best[1].ratio == 0.5
    same = best_marked([row("a", 1.0), row("b"), row("c", 1.0)], ERROR)
    assert not any(cell.best for found in same if (cell := found.cells["nrmse@100"]))
    diverged = best_marked([row("a", math.inf), row("b", math.inf)], ERROR)
    assert not any(cell.best for found in diverged if (cell := found.cells["nrmse@100"]))
    (test,), (wins, _) = result().statistics[0].tests, result().statistics[0].wins
    assert (test.test, test.p, test.n) == ("sign-flip", 0.5, 2)
    assert (wins.groups, wins.rate) == (2, 0.75)


@pytest.mark.parametrize("damage", ['{"study": "main"}', "no JSON", '{"version": 99}'])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(damage)
    with pytest.raises(HeroError, match=r"study\.json .*the same `hero study` or `hero compare` command rewrites it\."):
        StudyResult.read(tmp_path / "study.json")
