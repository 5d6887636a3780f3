"""study.json: one reader, one writer, infinities as numbers, damage named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hero.errors import HeroError
from hero.study.records import (
    ROLLOUT_COLUMNS,
    Cell,
    Column,
    Group,
    PairedTest,
    Published,
    Ranks,
    Row,
    RunEntry,
    StudyResult,
    Summary,
    Wins,
    best_marked,
)


def row(label: str, *values: float, paper: Published | None = None) -> Row:
    runs = tuple(RunEntry(seed=i, run=f"{label}-s{i}", status="finished") for i in range(len(values)))
    cells = {"nrmse@100": Cell.of(values, paper) if values else None}
    return Row(label=label, method=label, strategy=label, cells=cells, runs=runs)


def result() -> StudyResult:
    lost = RunEntry(seed=2, run="a-s2", status="failed", reason="it is broken.")
    a, b = row("a", 1.0, math.inf), row("b", 0.5, 0.25, paper=Published(mean=0.75))
    rows = best_marked([a.model_copy(update={"runs": (*a.runs, lost)}), b], [Column.of("nrmse@100")])
    test = PairedTest(
        group="g", label="a", method="a", baseline="b", seeds=(0, 1), ratio=math.inf, interval=None, diverged=1,
        baseline_diverged=0, t_p=None, is_better=False, sign_flip_p=0.5, p_holm=0.5, verdict="open",
    )  # fmt: skip
    wins = Wins(method="a", against="b", wins=1, ties=1, losses=0, left_out=0)
    summary = Summary(
        metric="nrmse@100", baseline="b", direction="lower", alpha=0.05, tests=(test,), wins=(wins,),
        ranks=Ranks(groups=1),
    )  # fmt: skip
    group = Group(title="g", task="burgers", backbone="fno", rows=rows)
    return StudyResult(
        study="main", title="Main", folder="study-main-1", columns=ROLLOUT_COLUMNS, groups=(group,),
        statistics=(summary,), changed={"train.steps": 20},
    )  # fmt: skip


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
    same = best_marked([row("a", 1.0), row("b"), row("c", 1.0)], [Column.of("nrmse@100")])
    assert not any(cell.best for found in same if (cell := found.cells["nrmse@100"]))
    diverged = best_marked([row("a", math.inf), row("b", math.inf)], [Column.of("nrmse@100")])
    assert not any(cell.best for found in diverged if (cell := found.cells["nrmse@100"]))
    (test,), (wins,) = result().statistics[0].tests, result().statistics[0].wins
    assert (test.test, test.p, test.n) == ("sign-flip", 0.5, 2)
    assert (wins.groups, wins.rate) == (2, 0.75)


@pytest.mark.parametrize("damage", ['{"study": "main"}', "no JSON", '{"version": 99}'])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(damage)
    with pytest.raises(HeroError, match=r"study\.json .*the same `hero study` or `hero compare` command rewrites it\."):
        StudyResult.read(tmp_path / "study.json")
