"""A comparison is fair (shared weights, batches, budget), can be had again, and says what its runs measured."""

from __future__ import annotations

import copy
import csv
import importlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

import hero.study.compare as module
from conftest import TINY, Call, assert_refused, options, tiny
from hero.cli import main
from hero.errors import HeroError
from hero.report.comparison import COLOURS, comparison_figure, comparison_table, markdown, notes, write_comparison
from hero.report.tables import format_number
from hero.runs.config import RunConfig, make_config
from hero.strategies import STRATEGIES
from hero.study.compare import compare, comparison_id, logged_seconds, relative_costs
from hero.study.cost.phases import empty_windows
from hero.study.paired import mean_and_deviation, paired_difference
from hero.study.published import paper_value
from hero.study.worker import Workers

NAMES = ["push_forward", "hero"]
SEEDS = [0, 1]


def command(runs: Path, data: Path, *more: object) -> list[object]:
    chosen = ["--strategies", ",".join(NAMES), "--seeds", len(SEEDS), "--workers", 0]
    return ["compare", "burgers", *options(), *chosen, "--runs", runs, "--data", data, *more]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """The runs folder of a finished comparison."""
    runs = tmp_path_factory.mktemp("runs")
    assert main([str(part) for part in command(runs, data_dir)]) == 0
    return runs


@pytest.fixture
def again(compared: Path, runs_dir: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(compared, runs_dir)
    return runs_dir


def folder_of(runs: Path) -> Path:
    (folder,) = runs.glob("compare-*")
    return folder


def stored(runs: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder_of(runs) / "comparison.json").read_text())
    return content


def untimed(result: dict[str, Any]) -> dict[str, Any]:
    """The same without what a clock decides."""
    result = copy.deepcopy(result)
    for row in result["rows"]:
        del row["cost"]
        for run in row["runs"]:
            del run["seconds_per_update"], run["training"]
    return result


def errors_of(runs: Path, name: str, seed: int) -> np.ndarray:
    with np.load(runs / tiny(strategy=name, seed=seed).run_id() / "errors.npz") as arrays:
        return np.array(arrays["nrmse"])


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


def test_the_numbers_are_those_of_the_runs(compared: Path) -> None:
    result = stored(compared)
    assert [row["strategy"] for row in result["rows"]] == NAMES
    base, ours = (np.stack([errors_of(compared, name, seed)[:, 99] for seed in SEEDS]) for name in NAMES)
    for row, errors in zip(result["rows"], (base, ours), strict=True):
        of_seed = errors.mean(axis=1)
        metric = row["metrics"]["nrmse@100"]
        assert metric["values"] == pytest.approx(of_seed)
        assert metric["mean"] == pytest.approx(of_seed.mean())
        assert metric["std"] == pytest.approx(of_seed.std(ddof=1))
        assert row["paper"] == paper_value("burgers", "fno", row["strategy"])
        assert (row["steps"], row["diverged"], row["rollouts"]) == (20, 0, 4)
    assert result["rows"][0]["difference"] is None
    assert result["rows"][0]["cost"] == 1
    difference = result["rows"][1]["difference"]
    assert difference["percent"] == pytest.approx(100 * (ours.mean() / base.mean() - 1))
    assert difference["per_seed"] == pytest.approx(100 * (ours.mean(axis=1) / base.mean(axis=1) - 1))
    assert difference["interval"] == paired_difference(ours, base)["interval"]


def test_the_files_say_the_same(compared: Path) -> None:
    folder, result = folder_of(compared), stored(compared)
    lines = [line.strip("| ").split(" | ") for line in (folder / "comparison.md").read_text().splitlines()[4:6]]
    rows = list(csv.DictReader(io.StringIO((folder / "comparison.csv").read_text())))
    for line, numbers, row in zip(lines, rows, result["rows"], strict=True):
        metric, published = row["metrics"]["nrmse@100"], row["paper"]["nrmse@100"]
        ours = f"{format_number(metric['mean'])} ±{format_number(metric['std'])}"
        assert line[0] == numbers["strategy"] == row["strategy"]
        assert line[3] == f"{ours} ({published['mean']:g})"
        assert line[6] == f"{row['cost']:.2f}"
        assert float(numbers["nrmse@100_mean"]) == metric["mean"]
        assert float(numbers["paper_nrmse@100_std"]) == published["std"]
        assert float(numbers["cost"]) == row["cost"]
    picture = imread(folder / "curves.png")
    assert picture.shape[0] > 400
    assert picture.shape[1] > 1000
    assert picture[..., :3].std() > 0.05
    assert (folder / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert list(folder.glob(".*")) == []


def test_repeating_trains_nothing_and_says_the_same(call: Call, compared: Path, data_dir: Path, tmp_path: Path) -> None:
    files = [path for path in compared.rglob("*") if path.is_file() and "compare-" not in str(path.parent.name)]
    times = {path: path.stat().st_mtime_ns for path in files if path.name != ".lock"}
    before = {path: path.read_bytes() for path in folder_of(compared).iterdir()}
    code, out, err = call(*command(compared, data_dir, "--json", tmp_path / "copy.json"))
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert {path: path.read_bytes() for path in folder_of(compared).iterdir()} == before
    assert (tmp_path / "copy.json").read_bytes() == before[folder_of(compared) / "comparison.json"]
    assert "4 of 4 runs are there already" in out
    assert "step 20/20" not in out
    for expected in (
        "(0.153)",
        "equal steps (20), 2 seeds",
        "nRMSE@100 vs",
        "95 % bootstrap interval over seeds",
        "curves.png",
    ):
        assert expected in out


def test_a_comparison_that_was_killed_goes_on_to_the_same_table(call: Call, again: Path, data_dir: Path) -> None:
    before = stored(again)
    shutil.rmtree(again / tiny(strategy="hero", seed=1).run_id())
    (again / tiny(strategy="push_forward", seed=1).run_id() / "metrics.json").unlink()
    shutil.rmtree(folder_of(again))
    code, out, _ = call(*command(again, data_dir))
    assert code == 0
    assert out.count("step 20/20") == 1
    assert untimed(stored(again)) == untimed(before)


def test_a_failed_run_is_told_and_the_rest_goes_on(
    call: Call, again: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: RunConfig, runs: Path, data: Path) -> Path:
        raise HeroError("training became non-finite; lower train.lr.")

    def unfinish(name: str, seed: int) -> None:
        (again / tiny(strategy=name, seed=seed).run_id() / "metrics.json").unlink()

    monkeypatch.setattr(importlib.import_module("hero.study.sweep"), "train", train)
    unfinish("hero", 0)
    code, out, _ = call(*command(again, data_dir))
    assert code == 1
    for expected in ("1 of 2 failed", "hero, seed 0 failed: training became non-finite", "as there is one seed"):
        assert expected in out
    hero = stored(again)["rows"][1]
    assert hero["rollouts"] == 2
    assert hero["metrics"]["test_gm100"]["std"] is None
    assert hero["difference"]["seeds"] == [1]
    unfinish("push_forward", 0)
    unfinish("push_forward", 1)
    assert call(*command(again, data_dir))[0] == 1
    base, hero = stored(again)["rows"]
    assert base["metrics"]["nrmse@100"]["mean"] is base["cost"] is hero["difference"] is hero["cost"] is None
    unfinish("hero", 1)
    assert_refused(call(*command(again, data_dir)), "no run could be finished", "push_forward, seed 0", "non-finite")


@pytest.mark.parametrize("file", ["errors.npz", "metrics.json"])
def test_damaged_results_are_failures(again: Path, data_dir: Path, file: str) -> None:
    (again / tiny(strategy="hero", seed=1).run_id() / file).write_bytes(b"{")
    result = compare({"task.name": "burgers", **TINY}, NAMES, SEEDS, again, data_dir)
    assert "hero evaluate burgers-fno-hero-s1" in result["rows"][1]["runs"][1]["failed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["burgers", "--strategies", "push_forward,heroo"], ("'heroo'", "did you mean 'hero'?")),
        (["burgers", "--strategies", " , "], ("no strategy", "push_forward")),
        (["burgers", "--strategies", "hero,one_step,hero"], ("hero is named twice",)),
        (["burgers", "--seeds", "0"], ("at least one seed",)),
        (["burgers", "--baseline", "hero", "--strategies", "one_step"], ("baseline 'hero'", "one_step")),
        (["burgers", "--set", "seed=3"], ("--seeds",)),
        (["burgers", "--preset", "fast"], ("preset", "'fast'")),
        (["burgers", "--set", "train.steps=20", "--set", "hero.start=20"], ("hero.start=20",)),
        ([], ("hero compare burgers",)),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(
    arguments: list[str], words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    assert_refused(call("compare", *arguments, "--runs", tmp_path / "runs", "--data", tmp_path / "data"), *words)
    assert list(tmp_path.iterdir()) == []


def test_the_baseline_is_push_forward_or_the_first() -> None:
    assert module.checked_baseline(["hero", "push_forward"], [0], "steps", None) == "push_forward"
    assert module.checked_baseline(["hero", "one_step"], [0], "steps", None) == "hero"
    assert module.checked_baseline(["hero", "one_step"], [0], "steps", "one_step") == "one_step"
    with pytest.raises(HeroError, match="budget"):
        module.checked_baseline(["hero"], [0], "time", None)


def test_the_folder_is_named_after_what_is_compared() -> None:
    planned = {name: tiny(strategy=name) for name in NAMES}
    others = [
        comparison_id({**planned, "hero": tiny(hero__margin=0.1)}, SEEDS, "steps", "hero"),
        comparison_id(planned, [0], "steps", "hero"),
        comparison_id(planned, SEEDS, "compute", "hero"),
        comparison_id(planned, SEEDS, "steps", "push_forward"),
    ]
    assert len({comparison_id(planned, SEEDS, "steps", "hero"), *others}) == 5


def test_equal_compute_gives_steps_by_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: dict[tuple[str, int], RunConfig] = {}

    def run_all(configs: Mapping[tuple[str, int], RunConfig], runs: Path, data: Path, _: Workers) -> None:
        planned.update(configs)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_all", run_all)
    settings = {"task.name": "burgers", **TINY, "train.steps": 1000, "train.warmup": 50}
    names = ["push_forward", "one_step", "hero"]
    base, *others = (make_config(overrides={**settings, "strategy": name}).run_id() for name in names)
    costs = {"baseline": base, "costs": dict(zip(others, (0.3, 1.6), strict=True))}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    with pytest.raises(KeyboardInterrupt):
        compare(settings, names, [0], tmp_path, tmp_path, "compute", out=tmp_path)
    assert {name: planned[name, 0].train.steps for name in names} == dict(zip(names, (1000, 3333, 625), strict=True))
    # What is a share of the steps goes with them; what was set stays.
    assert [planned[name, 0].hero.start for name in names[2:]] == [250]
    assert {config.train.warmup for config in planned.values()} == {50}


def test_costs_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out" / "costs.json"
    planned = {name: tiny(strategy=name) for name in ("push_forward", "one_step")}
    costs = relative_costs(planned, "push_forward", tmp_path, path)
    assert costs["push_forward"] == 1
    assert 0.02 < costs["one_step"] < 1
    monkeypatch.setattr(module, "Rehearsal", None)
    assert relative_costs(planned, "push_forward", tmp_path, path) == costs
    path.write_text('{"baseline": 3')
    with pytest.raises(HeroError, match=r"costs\.json is damaged; delete it"):
        relative_costs(planned, "push_forward", tmp_path, path)


def test_logged_seconds_leave_validations_out() -> None:
    # Updates take 1 s until step 20 and 2 s after it; each validation takes 100 s.
    seconds = {5: 5, 10: 10, 15: 115, 20: 120, 25: 230, 30: 240}
    log: list[dict[str, Any]] = [{"step": step, "seconds": value} for step, value in seconds.items()]
    log += [{"step": step, "val_gm100": 0.1} for step in (10, 20, 30)]
    assert logged_seconds(log) == pytest.approx((5 + 5 + 5 + 10) / 20)
    log += [{"step": step, "val_gm100": 0.1} for step in (0, 5, 15, 25)]
    assert logged_seconds(log) == pytest.approx(240 / 30)


def synthetic(seeds: int = 4, trajectories: int = 30) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    base = np.exp(generator.normal(size=(seeds, trajectories)))
    return base * (0.9 + 0.1 * generator.normal(size=(seeds, 1)) + 0.1 * generator.normal(size=base.shape)), base


def test_differences_with_a_known_answer() -> None:
    _, base = synthetic()
    assert paired_difference(base, base) == {"percent": 0, "per_seed": [0] * 4, "interval": [0, 0]}
    assert paired_difference(2 * base, base) == {"percent": 100, "per_seed": [100] * 4, "interval": [100, 100]}
    assert paired_difference(0.7 * base, base)["interval"] == pytest.approx([-30, -30])


def test_the_interval_equals_that_of_a_naive_bootstrap() -> None:
    ours, base = synthetic()
    generator, drawn = np.random.default_rng(11), []
    for _ in range(4000):
        seeds, trajectories = generator.integers(4, size=4), generator.integers(30, size=30)
        e, e0 = (x[np.ix_(seeds, trajectories)] for x in (ours, base))
        drawn.append(100 * (e.mean() - e0.mean()) / e0.mean())
    low, high = np.quantile(drawn, (0.025, 0.975))
    result = paired_difference(ours, base)
    assert result["interval"] == pytest.approx([low, high], abs=0.06 * (high - low))
    assert low < result["percent"] < high


def test_the_order_of_seeds_and_trajectories_does_not_matter() -> None:
    ours, base = synthetic()
    first = paired_difference(ours, base)
    for order, axis in (([2, 0, 3, 1], 0), (np.random.default_rng(1).permutation(30), 1)):
        other = paired_difference(ours.take(order, axis=axis), base.take(order, axis=axis))
        assert other["percent"] == pytest.approx(first["percent"], rel=1e-12)
        width = first["interval"][1] - first["interval"][0]
        assert other["interval"] == pytest.approx(first["interval"], abs=0.06 * width)


def test_one_seed_resamples_trajectories_only() -> None:
    ours, base = synthetic()
    one = paired_difference(ours[:1], base[:1])
    assert one["interval"][0] < one["percent"] < one["interval"][1]
    assert paired_difference(ours[:1, :1], base[:1, :1])["interval"] == pytest.approx([one_cell(ours, base)] * 2)
    assert mean_and_deviation([0.5]) == {"mean": 0.5, "std": None, "values": [0.5]}


def one_cell(ours: np.ndarray, base: np.ndarray) -> float:
    return float(100 * (ours[0, 0] / base[0, 0] - 1))


def test_divergence_is_never_dropped(compared: Path, tmp_path: Path) -> None:
    ours, base = synthetic()
    ours[1, 2] = np.inf
    assert paired_difference(ours, base)["percent"] == np.inf
    assert paired_difference(ours, base)["interval"] is None
    assert np.isnan(paired_difference(base, ours)["percent"])
    assert mean_and_deviation([1.0, np.inf, 2.0])["mean"] == np.inf

    result = stored(compared)
    row = result["rows"][1]
    row["metrics"]["nrmse@100"] = mean_and_deviation([1.0, np.inf])
    row |= {"diverged": 1, "difference": {"seeds": SEEDS, **paired_difference(ours, base)}}
    errors = {name: np.stack([errors_of(compared, name, seed) for seed in SEEDS]) for name in NAMES}
    errors["hero"][0, 0, 40:] = np.inf
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(comparison_table(result))
    for text in (console.export_text(), markdown(result)):
        for expected in ("∞", "diverged", "1 of 4"):
            assert expected in text
    write_comparison(tmp_path, result, errors)
    assert imread(tmp_path / "curves.png").std() > 0.05
    assert '"percent": "inf"' in (tmp_path / "comparison.json").read_text()


def test_many_strategies_keep_apart_and_differences_of_kind_are_told(compared: Path) -> None:
    result = stored(compared)
    base, row = result["rows"]
    result["rows"] = [base, *({**copy.deepcopy(row), "strategy": f"s{i}"} for i in range(10))]
    errors = np.stack([errors_of(compared, "hero", seed) for seed in SEEDS])
    lines = comparison_figure(result, {row["strategy"]: errors for row in result["rows"]}).axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines[: len(COLOURS)]}) == len(COLOURS)
    assert not any("compilation" in note for note in notes(result))
    result["rows"][3]["runs"][0]["training"]["compiled"] = True
    assert any("compilation" in note for note in notes(result))


def test_help_mentions_every_option(call: Call) -> None:
    code, out, _ = call("compare", "--help")
    assert code == 0
    for word in ("--strategies", "--seeds", "--budget", "--baseline", "--out", "--json", "--preset", "--set", "--runs"):
        assert word in out
