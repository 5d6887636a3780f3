"""The table of costs: counted numbers are exact, measured ones make sense, and nothing is measured twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conftest import tiny
from hero.errors import HeroError
from hero.files import write_json
from hero.models import FNO, count_parameters
from hero.paper.cost import (
    Costs,
    FreeRollout,
    conditions,
    earlier_costs,
    for_measuring,
    measure_costs,
    peak_of_process,
    timed,
)
from hero.strategies import STRATEGIES

NO_DATA = Path("no data")


CONFIG = tiny(strategy="hero")
FIGURES = ("parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measurement, in a file."""
    path = tmp_path_factory.mktemp("costs") / "costs.json"
    measure_costs([CONFIG], NO_DATA, rounds=1, path=path)
    return path


def test_every_figure_is_there_and_measured_once(kept: Path) -> None:
    found, before = Costs.read(kept), kept.stat().st_mtime_ns
    assert measure_costs([CONFIG], NO_DATA, rounds=1, path=kept) == found
    assert kept.stat().st_mtime_ns == before
    assert list(found.costs) == [CONFIG.run_id()]
    cost = found.costs[CONFIG.run_id()]
    assert all(0 < getattr(cost, figure) < float("inf") for figure in FIGURES), cost
    assert not cost.compiled
    for words in ("on cpu with 1 thread,", "uncompiled", "batch 5", "200 steps"):
        assert words in found.note


def test_all_strategies_are_timed_with_their_own_parameters() -> None:
    turns: list[str] = []
    chosen = {name: for_measuring(tiny(strategy=name)) for name in ("push_forward", "recurrent", "hero", "refiner")}
    found = timed(chosen, NO_DATA, rounds=2, steps=3, advance=lambda note: turns.append(note))
    for name, config in chosen.items():
        assert found[name]["parameters"] == count_parameters(config.build_operator())
        assert 0 < found[name]["inference_ms_per_step"] < float("inf")
        assert 0 < found[name]["train_steps_per_s"] < float("inf")
    rounds = [f"{name}: {work}" for work in ("training", "rollout") for _ in range(2) for name in chosen]
    assert turns == [f"{name}: preparing" for name in chosen] + rounds


def test_a_measurement_under_other_conditions_does_not_count(kept: Path, tmp_path: Path) -> None:
    runs = [CONFIG.run_id()]
    note = conditions([for_measuring(CONFIG)], 1, 200)
    assert earlier_costs(kept, note, runs) is not None
    assert earlier_costs(kept, note.replace("1 thread", "2 threads"), runs) is None
    assert earlier_costs(kept, note, [*runs, tiny(strategy="one_step").run_id()]) is None
    older = Costs.read(kept).model_copy(update={"versions": {"torch": "1.0"}}).write(tmp_path / "older.json")
    assert earlier_costs(older, note, runs) is None
    stored = json.loads(kept.read_text())
    del stored["costs"][CONFIG.run_id()]["peak_memory_mb"]
    damaged = tmp_path / "costs.json"
    for content in ({**stored, "costs": 3}, stored):
        write_json(damaged, content)
        assert earlier_costs(damaged, note, runs) is None
    for text in ("", "{", "[]"):
        damaged.write_text(text)
        assert earlier_costs(damaged, note, runs) is None
    assert earlier_costs(tmp_path / "missing.json", note, runs) is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_a_refiner_calls_the_network_more_than_once_a_step(strategy: str) -> None:
    config, calls = tiny(strategy=strategy, train__history=3, data__val_steps=102, data__test_steps=102), []
    free = FreeRollout(config, torch.device("cpu"))
    assert free.context.states.shape == (5, 3, 1, 32)
    for module in free.model.modules():
        if isinstance(module, FNO):
            module.register_forward_hook(lambda module, given, made: calls.append(len(made)))
    free(7)
    each = config.to_dict()["refiner"]["steps"] + 1 if strategy == "refiner" else 1
    assert calls == [config.train.batch] * 7 * each


def test_the_memory_of_a_rollout_is_that_of_its_states() -> None:
    """200 steps of 100 fields of 256 numbers of 4 bytes are 20.5 MB; the network adds little."""
    config = for_measuring(tiny(strategy="one_step", task__resolution=256, train__batch=100))
    states = 200 * 100 * 256 * 4
    assert states < peak_of_process(config, 200) < 1.5 * states


class OnlyHere(nn.Module):
    """A backbone that another process cannot import."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Conv1d(1, 1, 1)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.map(u)
        return out


def test_a_process_that_fails_says_why() -> None:
    own: dict[str, Any] = {"backbone.name": "test_cost:OnlyHere", "backbone.width": None, "backbone.modes": None}
    with pytest.raises(HeroError, match=r"memory of burgers-OnlyHere\S* cannot be measured.*test_cost:OnlyHere"):
        measure_costs([tiny(strategy="one_step", **own)], NO_DATA)


def test_what_cannot_be_measured_is_refused() -> None:
    for wrong in ({"rounds": 0}, {"steps": 0}):
        with pytest.raises(HeroError, match="at least 1"):
            measure_costs([CONFIG], NO_DATA, **wrong)  # type: ignore[arg-type]
