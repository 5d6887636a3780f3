"""Data with less than 100 steps: every number, name, table and picture follows the horizon that the data have."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import tiny
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.method import measures
from hero.method.metrics import METRICS, Scoring, metric_at, metric_named, scoring_of
from hero.paper.numbers import differences
from hero.report.content import metrics_table
from hero.report.inputs import ReportInputs
from hero.report.listing import ListedRun, runs_table
from hero.report.panels import results_of
from hero.runs.checkpoint import read_weights
from hero.runs.config import make_config
from hero.runs.folder import Run
from hero.study.records import ROLLOUT_COLUMNS, rollout_columns
from hero.study.run import read_state
from hero.training.loop import train

SHORT: dict[str, Any] = {"data__val_steps": 20, "data__test_steps": 25}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Run:
    found = train(tiny(**SHORT, train__steps=10, hero__start=2), tmp_path_factory.mktemp("short"), data_dir)
    evaluate(found, data_dir)
    return Run(found)


def naive_gm(errors: np.ndarray, steps: int) -> float:
    """exp of the mean log of each trajectory, then the mean of trajectories, one number at a time."""
    rows = [math.exp(sum(math.log(float(e) + 1e-12) for e in row[:steps]) / steps) for row in errors]
    return sum(rows) / len(rows)


def naive_stable(errors: np.ndarray, steps: int) -> float:
    """The last step before the first error above the threshold, at least 1."""
    found = []
    for row in errors:
        good = 0
        while good < steps and row[good] <= measures.TAU:
            good += 1
        found.append(max(1, good))
    return sum(found) / len(found)


def test_the_horizon_is_what_validation_and_test_data_have() -> None:
    assert make_config().horizon == 100
    assert tiny(**SHORT).horizon == 20
    assert tiny(data__val_steps=40, data__test_steps=25, train__history=3).horizon == 23
    assert tiny(data__val_steps=100, data__test_steps=100).horizon == 100
    assert tiny(data__val_steps=2, data__test_steps=9, train__history=2).horizon == 1
    with pytest.raises(HeroError, match=r"data.test_steps=2 leaves no step to predict after train.history=3"):
        tiny(data__test_steps=2, train__history=3)


def test_at_the_usual_horizon_names_are_what_they_were() -> None:
    names = ["gm100", "nrmse@1", "nrmse@10", "nrmse@50", "nrmse@100", "nrmse@200", "stable_step", "stable_step_from_0"]
    names += ["stability_horizon_200", "correlation_time", "diverged", "apebench_gmean_mean_nrmse"]
    assert list(METRICS) == names
    assert Scoring().metrics() == METRICS
    assert rollout_columns(Scoring()) == ROLLOUT_COLUMNS
    assert [column.key for column in ROLLOUT_COLUMNS] == ["val_gm100", "test_gm100", "nrmse@1", "nrmse@100",
                                                          "stable_step"]  # fmt: skip


def test_a_metric_is_found_by_the_number_in_its_name() -> None:
    assert [metric_named(name).steps for name in ("nrmse@33", "vrmse@33")] == [33, 33]
    assert metric_named("stable_step") is METRICS["stable_step"]
    assert metric_named("stable_step", Scoring(40)).title == "Stable step (40)"
    names = ("gm100", "nrmse@1", "nrmse@200", "stability_horizon_200", "diverged")
    assert [metric_at(name, Scoring(40)) for name in names] == [
        "gm40", "nrmse@1", "nrmse@40", "stable_step", "diverged"]  # fmt: skip
    files = Scoring(40, "vrmse")
    assert [metric_at(name, files) for name in (*names, "correlation_time")] == [
        "vrmse_gm40", "vrmse@1", "vrmse@40", "skilful_step", "diverged", "anomaly_correlation_time"]  # fmt: skip
    assert scoring_of(["nrmse@1", "vrmse_gm40"]) == files
    for unknown in ("gm0", "nrmse@", "gm40x", "vrmse@0", "vrmse_gm", "nothing"):
        with pytest.raises(HeroError, match="metric"):
            metric_named(unknown)


def test_training_validates_over_the_horizon(run: Run, data_dir: Path) -> None:
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "val_gm20" in line] == [5, 10]
    assert not any("val_gm100" in line for line in lines)
    scores = {record.step: record.score for record in run.log.validation}
    assert {record.metric for record in run.log.validation} == {"gm20"}
    best = min(scores, key=scores.__getitem__)
    assert read_weights(run.path / "model.safetensors")[1] == {"step": best, "val_gm20": str(scores[best])}
    assert run.errors.val.shape == (2, 20)
    assert scores[best] == pytest.approx(naive_gm(run.errors.val, 20), rel=1e-6)
    assert f"val {scores[10]:.3g}" in read_state(run.path, 11)[1]
    state = (run.path / "last" / "state.pt").read_bytes()
    assert train(run.config, run.path.parent, data_dir) == run.path  # finished: the state is read and kept
    assert (run.path / "last" / "state.pt").read_bytes() == state


def test_an_evaluation_over_the_horizon(run: Run, data_dir: Path) -> None:
    found, errors = evaluate(run.path, data_dir), run.errors.score
    assert errors.shape == (2, 25)
    assert found.scoring == Scoring(20)
    assert found.test["gm20"] == pytest.approx(naive_gm(errors, 20), rel=1e-9)
    assert found.test["nrmse@20"] == pytest.approx(errors[:, 19].mean(), rel=1e-9)
    assert found.test["stable_step"] == pytest.approx(naive_stable(errors, 20))
    assert not {"gm100", "nrmse@50", "nrmse@100", "stability_horizon_200"} & found.test.keys()
    table = metrics_table(found, run.config)
    labels = [row.cells[0].text for row in table.rows]
    assert labels[:5] == ["Val GM20", "Test GM20", "nRMSE@1", "nRMSE@20", "Stable step (20)"]
    assert any("20 steps (paper: 100)" in one for one in differences(tiny(**SHORT)))


def test_runs_of_different_horizons_are_compared_over_the_shortest(run: Run, runs_dir: Path, data_dir: Path) -> None:
    """A run with 100 steps has no gm20 in its metrics.json: it comes from its errors."""
    longer = Run(train(tiny(train__steps=5), runs_dir, data_dir))
    found = evaluate(longer.path, data_dir)
    inputs = ReportInputs()
    for one in (longer, run):
        inputs.add(one.path, named=True)
    (result,) = results_of(inputs)
    assert [column.key for column in result.columns][:2] == ["val_gm20", "test_gm20"]
    cells = {row.runs[0].run: row.cells for row in result.rows}
    for one in (longer, run):
        errors = one.errors.score
        expected = {"test_gm20": naive_gm(errors, 20), "val_gm20": naive_gm(one.errors.val, 20)}
        expected |= {"nrmse@20": errors[:, 19].mean(), "stable_step": naive_stable(errors, 20)}
        assert {key: cells[one.name][key].mean for key in expected} == pytest.approx(expected, rel=1e-6)  # type: ignore[union-attr]
    table = runs_table([ListedRun(one.name, one.metrics, one.status) for one in (longer, run)])
    shown = {column.label: place for place, column in enumerate(table.columns)}
    assert list(shown)[3:11] == ["Val GM100", "Test GM100", "nRMSE@1", "nRMSE@100", "Stable step",
                                 "Val GM20", "Test GM20", "nRMSE@20"]  # fmt: skip
    assert table.rows[0].cells[shown["Test GM100"]].value == found.test["gm100"]  # type: ignore[union-attr]
    assert table.rows[0].cells[shown["Stable step (20)"]].value is None  # type: ignore[union-attr]
    assert table.rows[1].cells[shown["Test GM100"]].value is None  # type: ignore[union-attr]
