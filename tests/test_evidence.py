"""The kept runs of docs/results.md: pages say what the files say, and damage to either is noticed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.evidence import ARMS, HERO_VARIANTS, READINGS, Evidence, Key, key_of, read_evidence, verify_predictions
from benchmarks.evidence_page import (
    PAPER_SEEDS,
    PUBLISHED_VARIANTS,
    Found,
    equal_time_table,
    filled,
    hero_pairs_table,
    outdated,
    paper_table,
    ratio_text,
    recipe_table,
    transolver_table,
    variants_table,
)
from benchmarks.predictability import growth_rate, measure_predictability
from fakes import fake_metrics
from hero.errors import HeroError
from hero.method.metrics import summarise
from hero.runs.config import make_config
from hero.runs.records import write_arrays
from hero.study.plans import plan

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.usefixtures("foresight")


def evidence(arm: str, task: str, seed: int, error: float) -> Evidence:
    errors = np.full((3, 200), error)
    values = summarise({"nrmse": errors, "correlation": 1 - np.minimum(errors, 1), "apebench_nrmse": errors})
    facts = {"task": task, "strategy": "foresight", "seed": seed, "trajectories": 3}
    metrics = fake_metrics(f"{arm}-{task}-{seed}", values, **facts)
    return Evidence(arm=arm, task=task, seed=seed, updates=10_000, tag="t", command="", settings={}, metrics=metrics,
                    nrmse=tuple(errors[0]))  # fmt: skip


def test_ratios_are_paired_by_seed() -> None:
    runs = [evidence("recipe", "burgers", seed, 0.05 * 2.0**seed) for seed in range(3)]
    runs += [evidence("control", "burgers", seed, 0.1 * 2.0**seed) for seed in (2, 1, 0, 5)]
    found = Found(runs)
    pairs = found.pairs("recipe", "control", "burgers", 10_000)
    assert pairs is not None
    assert pairs.ratio == pytest.approx(0.5)
    assert found.pairs("recipe", "control", "kdv", 10_000) is None
    line = recipe_table(found, ("burgers", "kdv"), 10_000).split("\n")[2]
    assert line == "| burgers | 0.400 | 0.100 | not run | 0.500 | not run | 0 to 2 |"
    assert "not run" in ratio_text(None)


def test_a_diverged_run_is_not_left_out() -> None:
    runs = [evidence("recipe", "burgers", 0, 0.1), evidence("recipe", "burgers", 1, math.inf)]
    runs += [evidence("control", "burgers", seed, 0.2) for seed in (0, 1)]
    table = recipe_table(Found(runs), ("burgers",), 10_000)
    assert "| 1.00 (1 of 2 blew up) | not run | 5.00 |" in table  # √(0.1 · 10), and √(0.5 · 50)


def test_seeds_of_the_paper_and_ours_are_kept_apart() -> None:
    runs = [evidence(arm, "burgers", seed, 0.1 * 2.0**seed) for arm in ("push_forward", "hero") for seed in (0, 1, 10)]
    found = Found(runs)
    assert sorted(found.of_seeds(PAPER_SEEDS).cell("hero", "burgers", 10_000)) == [0, 1]
    assert "| 0.150 ±0.071 |" in paper_table(found.of_seeds(PAPER_SEEDS), ("burgers",), 10_000)
    line = hero_pairs_table(found.of_seeds(PAPER_SEEDS), ("burgers",), 10_000).split("\n")[2]
    assert line.startswith("| burgers | 0.141 | 1.00")
    assert line.endswith("| not run | not run | 0 to 1 |")


def test_tasks_are_averaged_for_each_seed() -> None:
    runs = [evidence("control", task, seed, 0.4) for task in ("burgers", "kdv") for seed in (10, 11)]
    runs += [evidence("recipe", "burgers", seed, 0.1) for seed in (10, 11)]
    runs += [evidence("recipe", "kdv", seed, 0.4) for seed in (10, 12)]
    pairs = Found(runs).averaged("recipe", "control", ("burgers", "kdv"), 10_000)
    assert pairs is not None
    assert pairs.ratio == pytest.approx(0.5)  # √(¼ · 1), for the one seed that all four cells have
    assert pairs.interval is None


def test_variants_stand_next_to_the_papers() -> None:
    found = Found([evidence("hero, lag only", "burgers", 0, 0.1), evidence("push_forward", "burgers", 0, 0.2)])
    lines = variants_table(found, ("burgers",), 10_000).split("\n")
    assert "| lag only | 0.500 | 0.777 |" in lines  # 4.873 / 6.271
    assert "| start=2000 | not run | 0.780 |" in lines  # 4.917 / 6.306
    assert len(lines) == 2 + len(PUBLISHED_VARIANTS) == 3 + len(HERO_VARIANTS)


def test_a_longer_control_is_not_the_control() -> None:
    runs = [evidence("recipe", "burgers", 10, 0.1), evidence("control", "burgers", 10, 0.4)]
    runs.append(evidence("control", "burgers", 10, 0.2).model_copy(update={"updates": 12_000}))
    line = equal_time_table(Found(runs), ("burgers",), 10_000, 12_000).split("\n")[2]
    assert line == "| burgers | 0.400 | 0.200 | 0.100 | 0.500 |"


def test_between_its_marks_a_page_is_written_and_nothing_else() -> None:
    found = Found([evidence("recipe", "burgers", 10, 0.1)])
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


def test_kept_runs_are_trained_by_their_commands() -> None:
    for run in read_evidence(ROOT / "results"):
        assert run.command == run.key.command
        assert (run.key.config.task.name, run.metrics.seed, run.metrics.training.steps) == (
            run.metrics.task,
            run.seed,
            run.updates,
        )
        assert len(run.nrmse) == run.settings["data"]["test_steps"]


def test_every_arm_and_reading_has_its_own_id() -> None:
    keys = [Key(arm, "burgers", 10, 10_000) for arm in ARMS] + [Key("foresight", task, 10, 2000) for task in READINGS]
    assert [key_of(key.config) for key in keys] == keys
    assert len({key.config.run_id() for key in keys}) == len(keys)
    assert key_of(make_config(overrides={"task.name": "burgers", "train.lr": 0.5})) is None
    short = Key("hero", "burgers", 0, 2000)  # some variants of HERO would start after the last of so few updates
    assert key_of(short.config) == short
    command = "hero train kolmogorov_flow --preset paper --strategy foresight --seed 10"
    more = "--set train.loss=balanced --set train.optimizer=soap --set task.drag=0.2 --set train.steps=2000"
    assert keys[-1].command == f"{command} {more}"


@pytest.mark.parametrize("study", ["complete", "ablation", "start_step", "refresh"])
def test_the_arms_are_the_rows_of_the_studies(study: str) -> None:
    planned = plan(study, tasks=("burgers",), backbones=("fno",), loss="relative", seeds=(3,))
    missing = [row.label for group in planned.groups for row in group.rows if key_of(row.configs[0]) is None]
    without_term = ["HERO w/o Relative"]  # is push-forward training, bit for bit
    assert missing == (without_term if study == "ablation" else [])


def test_variants_are_compared_on_the_seeds_that_they_have() -> None:
    runs = [evidence("push_forward", "burgers", seed, 0.1) for seed in range(3)]
    runs += [evidence("hero", "burgers", seed, error) for seed, error in enumerate((0.05, 0.1, 0.1))]
    runs.append(evidence("hero, lag only", "burgers", 0, 0.09))
    lines = variants_table(Found(runs), ("burgers",), 10_000).split("\n")
    assert lines[2].startswith("| as published | 0.500 |")
    assert "| lag only | 0.900 |" in lines[4]


def test_transolver_has_a_table_with_both_comparisons() -> None:
    arms = {"push_forward": 0.2, "hero": 0.1, "control": 0.4, "recipe": 0.1}
    runs = [evidence(f"{arm}, Transolver", "burgers", 0, error) for arm, error in arms.items()]
    line = transolver_table(Found(runs), ("burgers",), {"Transolver": 10_000}).split("\n")[2]
    assert line == "| burgers | Transolver | 10,000 | 0.200 | 0.100 | 0.500 | 0 | 0.400 | 0.100 | 0.250 | 0 |"


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
    assert "has no runs" in capsys.readouterr().err
    assert main(["results", "--verify", "D", "--run", "nothing"]) == 2
    assert "there is no run nothing" in capsys.readouterr().err
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
