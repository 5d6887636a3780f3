"""Conformance of the studies: every row of every registered study trains to its end, past the start of HERO.

The command is the one that a user types. A new study is tested by being registered.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Call, options
from hero.evaluation import shifts
from hero.study.cost import table
from hero.study.plans import STUDIES

SMALL = {"tasks": "burgers", "backbones": "fno", "seeds": 1}


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of runs for all studies: equal rows are trained once."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_finishes(
    name: str, call: Call, shared_runs: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "peak_of_process", lambda *_: 10**6)  # two processes for each row: in test_cost.py
    first_shift = next(iter(shifts.SHIFTS))
    monkeypatch.setattr(shifts, "SHIFTS", {first_shift: shifts.SHIFTS[first_shift]})  # finer grids take their time
    axes = {axis: value for axis, value in SMALL.items() if axis in STUDIES[name].axes}
    narrowed = [part for axis, value in axes.items() for part in (f"--{axis}", value)]
    code, out, err = call(
        "study", name, *narrowed, *options(task__warmup=0), "--workers", 0, "--runs", shared_runs, "--data", data_dir
    )
    assert (code, err) == (0, ""), out
    (path,) = shared_runs.glob(f"study-{name}-*/study.json")
    rows = [row for group in json.loads(path.read_text())["groups"] for row in group["rows"]]
    assert len(rows) >= len(STUDIES[name].rows)
    for row in rows:
        assert [run["status"] for run in row["runs"]] == ["finished"] * (1 if "seeds" in STUDIES[name].axes else 0)
        assert any(row["cells"].values()), row["label"]
        for run in row["runs"]:
            log = [json.loads(line) for line in (shared_runs / run["run"] / "log.jsonl").read_text().splitlines()]
            assert max(record["step"] for record in log) == 20
            # The relative term was logged wherever the strategy has one.
            assert any("alpha" in record for record in log) == (row["strategy"] == "hero"), row["label"]
