"""A process that kills itself at each named point: the repeated command ends with the same bits as an unbroken one."""

from __future__ import annotations

import os

import pytest

from benchmarks.crashes import POINTS, Bench, die_at
from hero.strategies import STRATEGIES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

KINDS = (
    "half-write config.toml",
    "half-line log.jsonl:5",
    "before-validation-record:3",
    "before-rename model.safetensors",
    "before-rename state.pt:2",
    "before-rename metrics.json",
    "half-hdf5 *-train-*",
)
"""One point of each kind for each kind of file; `python -m benchmarks crashes` kills at all of them."""
REPEATED = "after-validation-record:2"
"""Updates of a strategy with a state of its own have to be repeated."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("crashes"))


@pytest.mark.parametrize("point", KINDS)
def test_a_kill_at_any_point_loses_nothing(point: str, bench: Bench) -> None:
    assert point in POINTS
    assert die_at(bench, "hero", point) == ""


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "hero"])
def test_every_strategy_continues_with_the_same_bits(strategy: str, bench: Bench) -> None:
    assert die_at(bench, strategy, REPEATED) == ""


def test_a_point_that_is_not_reached_and_another_result_are_told(bench: Bench) -> None:
    """The comparison itself: a run whose log differs is not taken for the same."""
    assert "not reached" in die_at(bench, "one_step", "before-rename nothing")
    runs = bench.folder / str(bench.count)
    (log,) = runs.glob("*/log.jsonl")
    log.write_text(log.read_text().replace('"grad_norm": ', '"grad_norm": 1', 1))
    (run,) = runs.iterdir()
    failure = bench.failure("train one_step", lambda _: ["runs", "--runs", runs], runs)
    assert failure == f"{run.name}/log.jsonl differ"
