"""Training that blows up stops with advice, and the last good state stays."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conftest import tiny
from hero.config.given import give
from hero.errors import HeroError
from hero.runs.checkpoint import load_state
from hero.training.journal import Journal
from hero.training.loop import Due, train


def test_a_run_that_diverges_keeps_its_last_good_state(tmp_path: Path, data_dir: Path) -> None:
    calls = []

    def loss(tau: Tensor, truth: Tensor) -> Tensor:
        calls.append(1)
        return (tau - truth).square().mean() * (math.inf if len(calls) > 8 else 1)

    config = tiny(strategy="push_forward", train__loss=give(loss), train__steps=12, train__checkpoint_every=3)
    with pytest.raises(HeroError, match=r"before update 9.*train\.lr"):
        train(config, tmp_path, data_dir)
    state = load_state(tmp_path / config.run_id() / "last/state.pt")
    assert state["step"] == 6
    assert all(bool(p.isfinite().all()) for p in state["model"].values())


def test_norms_are_read_rarely_where_reading_waits_for_the_device(tmp_path: Path) -> None:
    config = tiny(train__steps=20_000)
    journal = Journal(tmp_path, config, torch.device("cpu"))
    looks = {
        kind: [done for done in range(1, 201) if Due.after(done, config.train, journal, torch.device(kind), False).look]
        for kind in ("cpu", "cuda")
    }
    assert looks["cpu"] == list(range(1, 201))
    assert looks["cuda"] == [50, 100, 150, 200]
