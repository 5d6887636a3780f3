"""The table of costs: counted numbers are exact, measured ones make sense, and nothing is measured twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import tiny
from hero.models import FNO, count_parameters
from hero.paper import cost as module
from hero.paper.cost import Costs, FreeRollout, measure_costs
from hero.strategies import STRATEGIES

NO_DATA = Path("no data")
CONFIGS = {name: tiny(strategy=name) for name in ("push_forward", "hero", "refiner")}
FIGURES = ("parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measurement, in a file."""
    path = tmp_path_factory.mktemp("costs") / "costs.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "peak_of", lambda free: 10**6)
        measure_costs(list(CONFIGS.values()), NO_DATA, rounds=1, path=path)
    return path


def test_every_figure_is_there_and_measured_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Costs.read(kept)
    assert measure_costs(list(CONFIGS.values()), NO_DATA, rounds=1, path=kept) == found
    monkeypatch.setattr(module, "peak_of", None)  # of a further run all would be measured
    with pytest.raises(TypeError):
        measure_costs([*CONFIGS.values(), tiny(strategy="one_step")], NO_DATA, rounds=1, path=kept)
    assert list(found.costs) == [config.run_id() for config in CONFIGS.values()]
    for config in CONFIGS.values():
        cost = found.costs[config.run_id()]
        assert all(0 < getattr(cost, figure) < float("inf") for figure in FIGURES), cost
        assert cost.parameters == count_parameters(config.build_operator())
        assert not cost.compiled
    for words in ("on cpu with 1 thread,", "uncompiled", "batch 5", "200 steps"):
        assert words in found.note


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_a_refiner_calls_the_network_more_than_once_a_step(strategy: str) -> None:
    config, calls = tiny(strategy=strategy, train__history=3, data__val_steps=102, data__test_steps=102), []
    free = FreeRollout(config, torch.device("cpu"))
    assert free.context.states.shape == (5, 3, 1, 32)
    for part in free.model.modules():
        if isinstance(part, FNO):
            part.register_forward_hook(lambda part, given, made: calls.append(len(made)))
    free(7)
    each = config.to_dict()["refiner"]["steps"] + 1 if strategy == "refiner" else 1
    assert calls == [config.train.batch] * 7 * each


def test_the_memory_of_a_rollout_is_that_of_its_states() -> None:
    """200 steps of 100 fields of 256 numbers of 4 bytes are 20.5 MB; the network adds little."""
    config = tiny(strategy="one_step", task__resolution=256, train__batch=100)
    states = 200 * 100 * 256 * 4
    assert states < module.peak_of(FreeRollout(config, torch.device("cpu"))) < 1.5 * states
