"""A comparison is fair (shared weights and batches), can be had again, and says what its runs measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import hero
from conftest import TINY, Call, set_options
from hero.cli.options import seed_numbers
from hero.errors import HeroError
from hero.runs.config import PRESETS, RECOMMENDED, make_config
from hero.runs.folder import Run
from hero.runs.log import Log, TrainingRecord
from hero.study.collect import Plan
from hero.study.compare import logged_seconds, plan_comparison
from hero.study.records import FILE, StudyResult

NAMES = ["push_forward", "hero"]


def test_the_baseline_is_push_forward_or_the_first() -> None:
    def plan(baseline: str | None, *names: str) -> Plan:
        return plan_comparison(TINY, names or NAMES, [0], baseline)

    assert plan(None).folder == plan("push_forward").folder != plan("hero").folder
    assert plan(None).study.baseline == "push_forward"
    assert plan(None, "hero", "one_step").study.baseline == "hero"
    assert plan("one_step", "hero", "one_step").study.baseline == "one_step"
    with pytest.raises(HeroError, match="baseline"):
        plan("refiner")


def test_logged_seconds_leave_a_validation_out() -> None:
    """Updates take half a second; a validation falls into one stretch of three."""
    common = {"loss": 1.0, "grad_norm": 1.0, "lr": 1.0, "seconds": 1.0, "compiled": False, "device": "cpu"}
    rates = {5: 2.0, 10: 0.05, 15: 2.0}
    records = ({"step": step, "steps_per_second": rate, **common} for step, rate in rates.items())
    assert logged_seconds(Log(tuple(map(TrainingRecord.model_validate, records)))) == 0.5


def test_seeds_are_counted_or_named() -> None:
    assert seed_numbers("3") == [0, 1, 2]
    assert seed_numbers("10-12") == [10, 11, 12]
    assert seed_numbers("7,3") == [7, 3]
    for text in ("", "-1", "3-", "1e3", "٣", "4-2", "0", "999999999", "1-2-3", "9" * 5000):
        with pytest.raises(HeroError, match="--seeds"):
            seed_numbers(text)


def test_by_default_every_strategy_has_the_recipe(call: Call, runs_dir: Path, data_dir: Path) -> None:
    """The command and the function train the same runs: the ones that `hero train` makes, with another strategy."""
    folders = ["--runs", runs_dir, "--data", data_dir]
    short = {**TINY, "train.steps": 2}
    chosen = ["--strategies", "push_forward,one_step", "--seeds", 1, "--workers", 0]
    code, _, err = call("compare", "burgers", *set_options(short), *chosen, *folders)
    assert code == 0, err
    (folder,) = runs_dir.glob("compare-*")
    result = StudyResult.read(folder / FILE)
    assert (result.study, result.folder, result.title) == ("compare", folder.name, "Comparison at equal updates")
    assert result.changed["train.optimizer"] == PRESETS[RECOMMENDED]["train.optimizer"]
    assert [row.label for row in result.rows] == ["FNO-PF (recipe)", "FNO (else recipe)"]
    for row in result.rows:
        score = Run(runs_dir / row.runs[0].run).errors.score
        assert [cell and cell.mean for cell in (row.cells["nrmse@100"],)] == [pytest.approx(score[:, 99].mean())]
    costs = [row.cells["cost"] for row in result.rows]
    assert [cell and cell.values for cell in costs[:1]] == [(1,)]
    assert result.statistics[0].tests[0].baseline == "FNO-PF (recipe)"
    assert (folder / "curves-burgers-fno.png").is_file()
    runs = {path.parent.name for path in runs_dir.glob("*/config.toml")}
    assert make_config(RECOMMENDED, overrides={"task.name": "burgers", **short}).run_id() in runs
    again = hero.compare(
        "burgers", ["push_forward", "one_step"], seeds=1, runs=runs_dir, data_dir=data_dir, settings=short
    )
    assert not again.study.failed
    assert {path.parent.name for path in runs_dir.glob("*/config.toml")} == runs
