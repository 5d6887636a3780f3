"""A comparison is fair (shared weights, batches, budget), can be had again, and says what its runs measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hero
import hero.study.compare as module
from conftest import TINY, Call, tiny
from hero.cli.options import seed_numbers
from hero.errors import HeroError
from hero.files import write_json
from hero.runs.config import PRESETS, RECOMMENDED, make_config
from hero.runs.folder import Run
from hero.runs.log import Log, TrainingRecord, ValidationRecord
from hero.strategies import STRATEGIES
from hero.study.collect import Places
from hero.study.compare import at_cost, logged_seconds, plan_comparison, relative_costs
from hero.study.cost.count import empty_windows
from hero.study.plans import strategy_rows
from hero.study.records import FILE, StudyResult

NAMES = ["push_forward", "hero"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_seed_shares_weights_and_batches(name: str) -> None:
    ours, base = (tiny(strategy=which, seed=3) for which in (name, "push_forward"))
    for step in (0, 1, 17):
        assert torch.equal(empty_windows(ours).indices(step), empty_windows(base).indices(step))
    weights, expected = (config.build_operator().state_dict() for config in (ours, base))
    same_shapes = {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in expected.items()}
    assert same_shapes or name not in ("one_step", "hero", "fixed_weight")
    if same_shapes:  # a strategy with further input channels needs further weights
        assert all(torch.equal(weights[key], expected[key]) for key in expected)
    other = tiny(strategy=name, seed=4)
    assert not torch.equal(empty_windows(other).indices(0), empty_windows(base).indices(0))


def test_the_baseline_is_push_forward_or_the_first(tmp_path: Path) -> None:
    folders = {
        plan_comparison(TINY, NAMES, seeds, tmp_path, tmp_path, baseline=baseline).folder
        for seeds, baseline in (([0], None), ([0], "push_forward"), ([0], "hero"), ([0, 1], None))
    }
    assert len(folders) == 3
    assert module.checked_baseline(["hero", "push_forward"], [0], "steps", None) == "push_forward"
    assert module.checked_baseline(["hero", "one_step"], [0], "steps", None) == "hero"
    assert module.checked_baseline(["hero", "one_step"], [0], "steps", "one_step") == "one_step"
    with pytest.raises(HeroError, match="budget"):
        module.checked_baseline(["hero"], [0], "time", None)


def test_equal_compute_gives_updates_by_cost(tmp_path: Path) -> None:
    settings = {"task.name": "burgers", **TINY, "train.steps": 1000, "train.warmup": 50}
    names = ["push_forward", "one_step", "hero"]
    base, *others = (make_config(overrides={**settings, "strategy": name}).run_id() for name in names)
    costs = {"baseline": base, "costs": dict(zip(others, (0.3, 1.6), strict=True))}
    write_json(tmp_path / "costs.json", costs)
    planned = plan_comparison(settings, names, [0], tmp_path, tmp_path, "compute", out=tmp_path)
    configs = {config.strategy: config for config in planned.configs}
    assert {name: configs[name].train.steps for name in names} == dict(zip(names, (1000, 3333, 625), strict=True))
    assert [row.note for row in planned.groups[0].rows] == ["1000 updates", "3333 updates", "625 updates"]
    # A share of the updates goes with them; a setting stays.
    assert configs["hero"].to_dict()["hero"]["start"] == 250
    assert {config.train.warmup for config in configs.values()} == {50}
    assert at_cost(*strategy_rows("recurrent"), 2.0).note(configs["hero"]).startswith("625 updates; unroll")
    (group,) = planned.groups
    (found,) = planned.study.read(group, planned.study.columns, Places(tmp_path, tmp_path, tmp_path))
    assert [cell and cell.mean for row in found.rows for cell in (row.cells["cost"],)] == [1, 0.3, 1.6]
    assert "measured before the runs" in found.notes[0]


def test_costs_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out" / "costs.json"
    planned = plan_comparison(TINY, ["push_forward", "one_step"], [0], tmp_path, tmp_path)
    (group,) = planned.groups
    costs = relative_costs(group, "push_forward", tmp_path, path)
    assert costs["push_forward"] == 1
    assert 0.02 < costs["one_step"] < 1
    monkeypatch.setattr(module, "seconds_in_turns", None)
    assert relative_costs(group, "push_forward", tmp_path, path) == costs
    path.write_text('{"baseline": "a", "costs": {"b": -1.0}}')
    with pytest.raises(HeroError, match=r"costs\.json is damaged .*; delete it"):
        relative_costs(group, "push_forward", tmp_path, path)


def test_logged_seconds_leave_validations_out() -> None:
    # Updates take 1 s until step 20 and 2 s after it; each validation takes 100 s.
    seconds = {5: 5, 10: 10, 15: 115, 20: 120, 25: 230, 30: 240}
    common = {"loss": 1.0, "grad_norm": 1.0, "lr": 1.0, "steps_per_second": 1.0, "compiled": False, "device": "cpu"}
    training = tuple(TrainingRecord.model_validate({"step": s, "seconds": t, **common}) for s, t in seconds.items())

    def validated(*steps: int) -> Log:
        return Log(
            training, tuple(ValidationRecord(step=step, score=0.1, metric="gm100", val_diverged=0) for step in steps)
        )

    assert logged_seconds(validated(10, 20, 30)) == pytest.approx((5 + 5 + 5 + 10) / 20)
    assert logged_seconds(validated(0, 5, 10, 15, 20, 25, 30)) == pytest.approx(240 / 30)


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
    settings = [part for key, value in short.items() for part in ("--set", f"{key}={value}")]
    chosen = ["--strategies", "push_forward,one_step", "--seeds", 1, "--workers", 0]
    code, out, err = call("compare", "burgers", *settings, *chosen, *folders)
    assert code == 0, err
    assert "every strategy with the settings of the preset recipe" in out
    (folder,) = runs_dir.glob("compare-*")
    result = StudyResult.read(folder / FILE)
    assert (result.study, result.folder, result.title) == ("compare", folder.name, "Comparison at equal steps")
    assert result.changed["train.optimizer"] == PRESETS[RECOMMENDED]["train.optimizer"]
    assert [row.label for row in result.rows] == ["FNO-PF (recipe)", "FNO (else recipe)"]
    for row in result.rows:
        score = Run(runs_dir / row.runs[0].run).errors.score
        assert [cell and cell.mean for cell in (row.cells["nrmse@100"],)] == [pytest.approx(score[:, 99].mean())]
    costs = [row.cells["cost"] for row in result.rows]
    assert [cell and cell.values for cell in costs[:1]] == [(1,)]
    assert result.statistics[0].tests[0].baseline == "FNO-PF (recipe)"
    assert "Cost: time of an update over the time of push_forward" in (folder / "table.md").read_text()
    assert (folder / "curves-burgers-fno.png").is_file()
    runs = {path.parent.name for path in runs_dir.glob("*/config.toml")}
    assert make_config(RECOMMENDED, overrides={"task.name": "burgers", **short}).run_id() in runs
    again = hero.compare(
        "burgers", ["push_forward", "one_step"], seeds=1, runs=runs_dir, data_dir=data_dir, settings=short
    )
    assert not again.study.failed
    assert {path.parent.name for path in runs_dir.glob("*/config.toml")} == runs
