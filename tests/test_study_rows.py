"""Conformance of the studies: every row of every registered study trains to its end, past the start of HERO.

The command is the one that a user types. A new study is tested by being registered.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Call, options, tiny
from hero.paper import cost as table
from hero.paper import shifts
from hero.runs.folder import Run
from hero.strategies.hero import HeroSettings
from hero.study.plans import STUDIES
from hero.study.records import StudyResult

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
    study = STUDIES[name]
    axes = {axis: value for axis, value in SMALL.items() if axis in study.axes}
    narrowed = [part for axis, value in axes.items() for part in (f"--{axis}", value)]
    settings = options(task__warmup=0)
    if any(not row.applies(tiny()) for row in study.rows):  # one that burgers does not have
        narrowed[narrowed.index("burgers")] = "decaying_turbulence"
    code, out, err = call(
        "study", name, *narrowed, *settings, "--workers", 0, "--runs", shared_runs, "--data", data_dir
    )
    assert (code, err) == (0, ""), out
    (path,) = shared_runs.glob(f"study-{name}-*/study.json")
    rows = list(StudyResult.read(path).rows)
    losses = len(study.losses) if "loss" in study.axes else 1
    assert len(rows) >= losses * len(study.rows)
    for row in rows:
        assert [run.status for run in row.runs] == ["finished"] * (1 if "seeds" in study.axes else 0)
        assert any(row.cells.values()), row.label
        for run in (Run(shared_runs / entry.run) for entry in row.runs):
            assert run.log.steps == 20
            # The relative term was logged wherever the strategy has one.
            method = run.config.method
            relative = isinstance(method, HeroSettings) and method.lambda_max > 0
            assert any("alpha" in record.statistics for record in run.log.training) == relative, row.label
