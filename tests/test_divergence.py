"""Training that blows up: noticed, taken back by `train.on_divergence`, and resumed with the same bits after a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from benchmarks.children import contents, run
from conftest import Call, assert_refused, options, tiny
from hero.runs.checkpoint import load_state
from hero.runs.folder import Run
from hero.training.divergence import FACTOR, LIMIT, NormCheck, has_blown_up
from hero.training.loop import train
from hero.training.schedule import learning_rate
from test_train import same

# Blows up at the start and after the first checkpoint, then in the same place again, and holds at 1/64 of the rate.
WILD = {
    "strategy": "push_forward",
    "train__loss": "mse",
    "train__lr": 10,
    "train__steps": 12,
    "train__validate_every": 4,
    "train__checkpoint_every": 3,
    "train__on_divergence": "back_off",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """A run that backs off to the start and to a checkpoint, and ends."""
    return train(tiny(**WILD), tmp_path_factory.mktemp("wild"), data_dir)


def test_a_run_that_diverges_ends_at_a_lower_learning_rate(whole: Path) -> None:
    log = Run(whole).log
    places = [record.back_to for record in log.back_offs]
    assert {0, 3} <= set(places)
    assert places[places.index(3) + 1] == 0  # the checkpoint led to divergence again
    assert [record.lr_factor for record in log.back_offs] == [FACTOR**n for n in range(1, len(places) + 1)]
    assert [record.step for record in log.training] == list(range(1, 13))
    assert not any(has_blown_up(record.loss, log.training[0].loss) for record in log.training)
    factor = log.back_offs[-1].lr_factor
    warmup = Run(whole).config.train.warmup
    expected = [learning_rate(step, 10 * factor, warmup, 12) for step in range(12)]
    assert [record.lr for record in log.training] == expected
    assert all(bool(p.isfinite().all()) for p in load_state(whole / "last/state.pt")["model"].values())


def test_the_page_and_the_screen_tell_of_it(whole: Path, call: Call, data_dir: Path) -> None:
    code, out, _ = call("evaluate", whole, "--data", data_dir)
    assert code == 0
    page = whole / "report.html"
    assert "diverged before update" in page.read_text()
    assert "0.015625 of its learning rate" in page.read_text()
    code, out, _ = call("report", whole, "--out", whole.parent / "page.html")
    assert code == 0
    assert out.count("diverged before update") == len(Run(whole).log.back_offs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "point",
    [
        "before-rename state.pt:6",  # while it is taken back to the checkpoint
        "after-rename state.pt:6",
        "after-rename state.pt:7",  # and from there to the start
        "before-rename log.jsonl:3",
        "half-line log.jsonl:20",
    ],
)
def test_a_kill_around_a_back_off_changes_no_bit(point: str, whole: Path, tmp_path: Path, data_dir: Path) -> None:
    command = ["train", "burgers", *options(**WILD), "--data", data_dir, "--runs", tmp_path / "runs"]
    assert run(command, tmp_path / "out.txt", point) == -signal.SIGKILL
    resumed = train(tiny(**WILD), tmp_path / "runs", data_dir)
    names = ("log.jsonl", "model.safetensors", "last/state.pt", "config.toml")
    expected, found = contents(whole), contents(resumed)
    assert {name: found[name] for name in names} == {name: expected[name] for name in names}


def test_what_no_learning_rate_helps_stops_with_a_sentence(call: Call, runs_dir: Path, data_dir: Path) -> None:
    wild = options(**WILD | {"train__lr": 1e9, "train__steps": 3, "train__validate_every": 3})
    result = call("train", "burgers", *wild, "--runs", runs_dir, "--data", data_dir)
    assert_refused(result, "diverged again", f"{FACTOR**LIMIT:g} of train.lr", "lower train.lr")
    assert result[1].count("back-off") == LIMIT


def test_the_setting_changes_no_bit_where_nothing_diverges(runs_dir: Path, data_dir: Path) -> None:
    plain, careful = tiny(), tiny(train__on_divergence="back_off")
    assert plain.run_id() != careful.run_id()
    states = [load_state(train(config, runs_dir, data_dir) / "last/state.pt") for config in (plain, careful)]
    assert same(*states)


def test_the_default_leaves_ids_as_they_were() -> None:
    assert tiny(train__on_divergence="stop").run_id() == tiny().run_id()


def test_norms_are_read_rarely_where_reading_waits_for_the_device() -> None:
    """A device in the place of an accelerator: the norm of update 2 is looked at with update 3."""
    check = NormCheck(torch.device("meta"), log_every=3)
    norms = [1.0, float("nan"), 1.0, 1.0, 1.0, 1.0]
    assert [check.are_finite(done, torch.tensor(norm)) for done, norm in enumerate(norms, start=1)] == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]
    assert NormCheck(torch.device("meta"), log_every=5000).every == 50
    assert NormCheck(torch.device("cpu"), log_every=5000).every == 1
