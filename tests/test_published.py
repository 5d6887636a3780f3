"""The paper's numbers: a reviewable file, a typed reader, and which runs may stand next to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hero.paper.numbers import _paper, differences, published_row
from hero.runs.config import make_config
from hero.study.records import Published

ROLLOUT = {"val_gm100", "test_gm100", "nrmse@1", "nrmse@100", "stable_step"}
COST = {"parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s"}


def test_every_table_is_complete() -> None:
    rows = _paper()
    counts = Counter("ood" if key[0].startswith("ood_") else key[0] for key in rows)
    assert counts == {"complete": 90, "ablation": 9, "start_step": 5, "refresh": 5, "ood": 16, "cost": 5}
    columns = {"ood": {"gm100", "nrmse@200", "mean_stability_horizon"}, "cost": COST}
    for key, row in rows.items():
        assert set(row) == columns.get(key[0].partition("_")[0], ROLLOUT), key
        assert all((value.std is not None) == (key[0] == "complete") for value in row.values())
        assert all(value.mean > 0 and (value.std is None or 0 < value.std < value.mean) for value in row.values())


@pytest.mark.parametrize(
    ("key", "column", "mean", "std"),
    [
        (("complete", "burgers", "fno", "hero"), "nrmse@100", 0.153, 0.007),
        (("complete", "decaying_turbulence", "transolver", "one_step"), "nrmse@100", 18.084, 1.652),
        (("complete", "unbalanced_advection", "transolver", "hero"), "val_gm100", 1.197, 0.064),
        (("ablation", "decaying_turbulence", "fno", "Lag-only HERO"), "test_gm100", 1.346, None),
        (("start_step", "decaying_turbulence", "fno", "HERO (s0=6000)"), "nrmse@1", 0.0323, None),
        (("refresh", "decaying_turbulence", "fno", "HERO (R=500)"), "val_gm100", 1.176, None),
        (("ood_forcing_1.50", "kolmogorov_flow", "fno", "hero"), "mean_stability_horizon", 2.7, None),
        (("cost", "2d", "fno", "hero"), "train_steps_per_s", 336.92, None),
    ],
)
def test_numbers_of_the_paper(key: tuple[str, str, str, str], column: str, mean: float, std: float | None) -> None:
    row = published_row(*key)
    assert row[column] == Published(mean=mean, std=std)


def test_what_the_paper_does_not_have_is_none() -> None:
    assert published_row("complete", "kdv_difficulty", "fno", "hero") is None
    assert published_row("complete", "burgers", "fno", "fixed_weight") is None


@pytest.mark.parametrize("strategy", ["one_step", "push_forward", "refiner", "recurrent", "hero"])
def test_the_preset_is_the_papers_protocol(strategy: str) -> None:
    for task, backbone in (("burgers", "fno"), ("kolmogorov_flow", "transolver"), ("swift_hohenberg", "fno")):
        config = make_config(overrides={"task.name": task, "strategy": strategy, "backbone.name": backbone})
        assert differences(config) == []


@pytest.mark.parametrize(
    "free",
    [
        {"seed": 4},
        {"train.loss": "mse", "train.patience": 5},
        {"train.device": "cpu", "train.compile": "false"},
        {"data.val_trajectories": 5, "data.val_seed": 9},
        {"strategy": "refiner", "refiner.steps": 1},
        {"task.name": "kuramoto_sivashinsky", "task.gradient_norm": -2.0, "task.kept_mean": 1.0},
        {"task.name": "kolmogorov_flow", "backbone.size": "paper_count"},
    ],
)
def test_what_the_paper_does_not_fix_is_no_difference(free: dict[str, Any]) -> None:
    assert differences(make_config(overrides=free)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"task.viscosity": 0.01}, ["task.viscosity=0.01"]),
        ({"task.name": "kuramoto_sivashinsky", "task.gradient_norm": -2.0}, ["gradient_norm=-2.0 (paper: -1.0)"]),
        ({"task.name": "kdv_difficulty"}, ["task kdv_difficulty is not in the paper"]),
        ({"strategy": "fixed_weight"}, ["strategy fixed_weight is not in the paper"]),
        (
            {"backbone.name": "torch.nn:Conv1d", "backbone.kwargs.kernel_size": 1},
            ["torch.nn:Conv1d is not in the paper"],
        ),
        ({"backbone.width": 32}, ["backbone.width=32 (paper: 28)"]),
        ({"data.train_trajectories": 10}, ["data.train_trajectories=10 (paper: 50)"]),
        ({"train.steps": 400, "train.lr": 3e-3}, ["train.steps=400", "train.lr=0.003 (paper: 0.001)"]),
        ({"hero.margin": 0.1, "hero.candidates": "lag,self"}, ["hero.margin=0.1", "hero.candidates=lag, self"]),
    ],
)
def test_other_runs_say_what_differs(changed: dict[str, Any], words: list[str]) -> None:
    found = differences(make_config(overrides={"task.name": "burgers", **changed}))
    assert len(found) == len(words), found
    assert all(any(word in text for text in found) for word in words)


def test_a_published_row_may_have_its_own_settings() -> None:
    config = make_config(overrides={"task.name": "decaying_turbulence", "hero.start": 6000})
    assert differences(config) == ["hero.start=6000 (paper: 4000)"]
    assert differences(config, own={"hero.start"}) == []
