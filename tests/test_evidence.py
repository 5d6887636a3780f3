"""The kept runs of docs/results.md: pages say what the files say, and damage to either is noticed."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.evidence import (
    ARMS,
    READINGS,
    Evidence,
    Key,
    Spread,
    key_of,
    read_evidence,
    repeat_factor,
    spreads,
    verify_predictions,
)
from benchmarks.evidence_page import Found, Ratio, Row, blew_up, compare, filled, outdated, ratio_table, recipe_table
from benchmarks.predictability import growth_rate, measure_predictability
from fakes import fake_metrics
from hero.errors import HeroError
from hero.method.metrics import summarise
from hero.runs.config import make_config
from hero.runs.records import write_arrays
from hero.study.plans import plan

ROOT = Path(__file__).parents[1]


def evidence(arm: str, task: str, seed: int, error: float) -> Evidence:
    errors = np.full((3, 200), error)
    values = summarise({"nrmse": errors, "correlation": 1 - np.minimum(errors, 1), "apebench_nrmse": errors})
    facts = {"task": task, "strategy": "push_forward", "seed": seed, "trajectories": 3}
    metrics = fake_metrics(f"{arm}-{task}-{seed}", values, **facts)
    return Evidence(arm=arm, task=task, seed=seed, updates=10_000, commit="", command="",
                    settings={"train": {"optimizer": "soap"}}, metrics=metrics,
                    nrmse=tuple(errors[0]))  # fmt: skip


def row_of(text: str, task: str) -> list[str]:
    line = next(line for line in text.split("\n") if line.startswith(f"| {task} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_paired_by_seed() -> None:
    runs = [evidence("recipe", "burgers", seed, 0.05 * 2.0**seed) for seed in range(3)]
    runs += [evidence("control", "burgers", seed, 0.1 * 2.0**seed) for seed in (2, 1, 0, 5)]
    cells = [Found(runs).cell(arm, "burgers", 10_000, range(9)) for arm in ("recipe", "control")]
    pairs = compare(*cells)
    assert pairs.ratio == pytest.approx(0.5)
    assert compare(cells[0], {}) is None


def test_all_cells_of_a_row_have_the_same_seeds() -> None:
    runs = [evidence("control", "burgers", seed, 0.4) for seed in (40, 41, 42)]
    runs += [evidence("recipe", "burgers", seed, 0.1 * seed / 40) for seed in (40, 41, 42)]
    runs += [evidence("push_forward", "burgers", seed, 0.8) for seed in (41, 42, 43)]
    cells = row_of(recipe_table(Found(runs)), "burgers")
    assert cells[1:4] == ["0.800", "0.400", "0.104"]  # √(0.1025 · 0.105)
    assert cells[-1] == "41 to 42"
    assert row_of(recipe_table(Found(runs)), "kdv")[1:4] == ["not run"] * 3


def test_a_star_is_corrected_over_the_table() -> None:
    """A p of 0.028 is a difference alone, not as one of five."""
    factors = (0.80, 0.84, 0.70, 0.90)
    tasks = ("burgers", "kdv", "dispersion", "kdv_difficulty", "kuramoto_sivashinsky")
    runs = [evidence("control", task, seed, 1.0) for task in tasks for seed in range(4)]
    runs += [evidence("recipe", task, seed, factor) for task in tasks for seed, factor in enumerate(factors)]
    rows = [Row([task], [Ratio("recipe", "control", task)]) for task in tasks]
    assert "*" in ratio_table(Found(runs), ["task", "ratio"], rows[:1], range(4))
    assert "*" not in ratio_table(Found(runs), ["task", "ratio"], rows, range(4))


def test_a_diverged_run_is_counted_and_said() -> None:
    runs = [evidence("recipe", "burgers", 40, 0.1), evidence("recipe", "burgers", 41, math.inf)]
    runs += [evidence(arm, "burgers", seed, 0.2) for arm in ("control", "push_forward") for seed in (40, 41)]
    cells = row_of(recipe_table(Found(runs)), "burgers")
    assert cells[3] == "1.00 (1 of 2 above 10, counted as it)"  # √(0.1 · 10)
    assert cells[4] == "0 of 2, 0 of 2, 1 of 2"
    assert cells[5].split()[0] == ">5.00"  # √(0.5 · 50), a bound


def test_ratios_of_few_runs_have_the_band_of_repeats() -> None:
    """Two trainings differ by the factor f, means of n pairs by f^(1/√n); three pairs have an interval of their own."""
    powers = {"recipe": 2, "control": 1}
    runs = [evidence(arm, "burgers", seed, 1.1 ** (power * seed)) for arm, power in powers.items() for seed in range(4)]
    found, ratio = Found(runs), Ratio("recipe", "control", "burgers")
    factor = repeat_factor(spreads(ROOT / "results"), "soap", "burgers")
    assert found.band(ratio, [0]) == pytest.approx(factor)
    assert found.band(ratio, [0, 1]) == pytest.approx(factor ** (1 / math.sqrt(2)))
    row = [Row(["burgers"], [ratio])]
    assert f"×÷{factor:.2f}" in ratio_table(found, ["task", "ratio"], row, [0])
    assert "×÷" not in ratio_table(found, ["task", "ratio"], row, range(4))


def test_one_trajectory_above_ten_at_one_step_is_a_blow_up() -> None:
    calm = evidence("recipe", "burgers", 40, 0.1)
    assert not blew_up(calm)
    assert blew_up(calm.model_copy(update={"worst": (0.1, 11.0, 0.1)}))


def test_between_its_marks_a_page_is_written_and_nothing_else() -> None:
    found = Found([evidence("recipe", "burgers", 40, 0.1)])
    page = "before\n<!-- begin recipe -->\nold\n<!-- end recipe -->\nafter\n"
    text = filled(page, found)
    assert text.startswith("before\n<!-- begin recipe -->\n| task |")
    assert text.endswith("<!-- end recipe -->\nafter\n")
    assert "old" not in text
    assert filled(text, found) == text
    with pytest.raises(HeroError, match="no table 'x'"):
        filled("<!-- begin x -->\n<!-- end x -->", found)


def test_the_pages_say_what_the_kept_runs_say() -> None:
    assert outdated(ROOT / "results", ROOT) == []


def test_kept_runs_are_trained_by_their_commands_with_code_that_exists() -> None:
    runs = read_evidence(ROOT / "results")
    for run in runs:
        assert len(run.nrmse) == run.settings["data"]["test_steps"]
        if run.arm in ARMS:
            assert run.command == run.key.command
            facts = run.metrics.task, run.metrics.seed, run.metrics.training.steps
            assert (run.key.config.task.name, run.seed, run.updates) == facts
    commits = {run.commit for run in runs} - {""}
    assert all(len(commit) == 40 for commit in commits)
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True)
    if shallow.stdout.strip() == "false":
        for commit in commits:
            assert subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT).returncode == 0, commit


def test_every_arm_and_reading_has_its_own_id() -> None:
    keys = [Key(arm, "burgers", 10, 10_000) for arm in ARMS] + [Key("balanced", task, 10, 2000) for task in READINGS]
    assert [key_of(key.config) for key in keys] == keys
    assert len({key.config.run_id() for key in keys}) == len(keys)
    assert key_of(make_config(overrides={"task.name": "burgers", "train.lr": 0.5})) is None
    short = Key("hero", "burgers", 0, 2000)  # some variants of HERO would start after the last of so few updates
    assert key_of(short.config) == short
    command = "hero train kolmogorov_flow --preset paper --strategy push_forward --seed 10"
    more = "--set train.loss=balanced --set train.optimizer=soap --set task.drag=0.2 --set train.steps=2000"
    assert keys[-1].command == f"{command} {more}"


@pytest.mark.parametrize("study", ["complete", "ablation", "start_step", "refresh"])
def test_the_arms_are_the_rows_of_the_studies(study: str) -> None:
    planned = plan(study, tasks=("burgers",), backbones=("fno",), loss="relative", seeds=(3,))
    missing = [row.label for group in planned.groups for row in group.rows if key_of(row.configs[0]) is None]
    without_term = ["HERO w/o Relative"]  # is push-forward training, bit for bit
    assert missing == (without_term if study == "ablation" else [])


def test_the_spread_of_repeating_is_that_of_its_optimizer_and_task() -> None:
    """Log-normal repeats: two of them differ by more than the factor once in twenty pairs."""
    logs = np.random.default_rng(0).normal(-4, 0.1, (400, 7))
    factors = np.array([Spread("burgers", "soap", tuple(np.exp(row[:6]))).factor for row in logs])
    within = np.abs(logs[:, 6] - logs[:, 0]) < np.log(factors)
    assert 0.92 < within.mean() < 0.98
    measured = [Spread("burgers", "soap", (1.0, 1.1, 1.2)), Spread("kuramoto_sivashinsky", "soap", (1.0, 2.0, 4.0))]
    assert repeat_factor(measured, "soap", "burgers") == measured[0].factor
    assert repeat_factor(measured, "soap", "kdv") == measured[1].factor
    assert repeat_factor(measured, "adamw", "kdv") is None


def test_stored_predictions_are_checked(tmp_path: Path) -> None:
    truth, prediction = np.ones((2, 1, 4)), np.full((2, 1, 4), 1.25)
    arrays = {"steps": np.array([1, 10]), "truth": truth, "prediction": prediction, "nrmse": np.array([0.25, 0.25])}
    write_arrays(tmp_path / "predictions" / "run.npz", arrays)
    assert [holds for _, holds, _ in verify_predictions(tmp_path)] == [True]
    write_arrays(tmp_path / "predictions" / "run.npz", {**arrays, "nrmse": np.array([0.25, 0.26])})
    assert [holds for _, holds, _ in verify_predictions(tmp_path)] == [False]


def test_the_command_checks_pages_and_predictions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                  tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.chdir(ROOT)
    for tier in "AB":
        assert main(["results", "--verify", tier]) == 0
        assert "holds" in capsys.readouterr().out
    assert main(["results", "--results", str(tmp_path)]) == 2
    assert main(["results", "--verify", "D", "--run", "nothing"]) == 2
    assert main(["results", "--results", str(tmp_path), "--add", str(tmp_path), "--commit", "no-such-commit"]) == 2
    assert "no commit of this repository" in capsys.readouterr().err
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.json").write_text(json.dumps({"arm": "recipe"}))
    assert main(["results", "--results", str(tmp_path), "--verify", "A"]) == 2


def test_growth_of_differences() -> None:
    assert growth_rate(1e-4 * 1.05 ** np.arange(200)) == pytest.approx(1.05)
    grown = np.minimum(1e-4 * 1.2 ** np.arange(200), 1.4)
    assert growth_rate(grown) == pytest.approx(1.2)
    advection = measure_predictability("dispersion", states=2, steps=50)
    assert advection.growth == pytest.approx(1.0, abs=1e-9)  # dispersion keeps every norm
    assert advection.steps_until(1e-3, 1.0) > 1e6
