"""What a run costs, told before it is trained: counted numbers against formulas, measured ones against a real run."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from conftest import Call, options, tiny
from hero.errors import HeroError
from hero.method.cache import WindowTable
from hero.method.objective import Every
from hero.runs.config import RunConfig, make_config
from hero.study.cost.count import Description, count_at, describe, empty_windows, filling_updates, phases_of
from hero.study.cost.measure import measure


@pytest.mark.parametrize(
    ("task", "parameters"), [("burgers", 44801), ("decaying_turbulence", 102881), ("swift_hohenberg", 327793)]
)
def test_the_parameters_are_those_of_the_paper(task: str, parameters: int) -> None:
    numbers = describe(make_config(overrides={"task.name": task, "strategy": "one_step"}))
    assert numbers.parameters == sum(numbers.parts.values()) == parameters
    assert list(numbers.parts) == ["lifting", "blocks", "projection"]
    assert numbers.files["weights"] == numbers.memory["parameters"] == 4 * parameters
    assert numbers.memory["optimizer"] == 2 * numbers.memory["gradients"] == 8 * parameters


def test_the_flops_of_a_step_are_those_of_its_matrix_products() -> None:
    width, modes, points, depth = 4, 6, 32, 2
    products = [
        (width, 2 * width * modes, 1),  # the lifting folded into the spectral weights (in, out, inner)
        (width, 1, width),  # and into the bypass
        (width, points, 1),  # the folded bypass at every point
        (1, 2 * modes, points),  # the transform of the one input channel
        (modes, 2 * width, 2),  # one real block of 2 x 2 width per mode
        (width, points, 2 * modes),  # the inverse transform
        (width, 2 * modes, points),  # second block: transform
        (modes, 2 * width, 2 * width),  # mixing
        (width, points, 2 * modes),  # inverse
        (width, points, width),  # bypass
        (1, points, width),  # projection
    ]
    numbers = describe(tiny(strategy="one_step", backbone__depth=depth))
    assert numbers.step_flops == sum(2 * a * b * inner for a, b, inner in products)


def test_hero_counts_its_candidates_and_what_the_cache_saves() -> None:
    numbers = describe(tiny(train__steps=100, hero__start=40, hero__refresh=30))
    before, filling, filled = (phase.flops for phase in numbers.phases)
    rollout = filling - filled  # of one candidate, without gradient
    assert 0 < rollout == filled - before
    assert numbers.run_flops == sum(phase.updates * phase.flops for phase in numbers.phases)
    windows = numbers.windows
    assert numbers.memory["strategy state"] == numbers.memory["parameters"]
    spectrum = 5 * 17  # K x coefficients
    assert numbers.memory["strategy caches"] == 4 * windows * (5 + spectrum)


def test_activations_follow_the_batch_and_the_unroll() -> None:
    def kept(**changes: int) -> int:
        return describe(tiny(strategy="push_forward", **changes)).memory["activations"]

    small, large, largest = (kept(train__batch=batch) for batch in (4, 8, 16))
    assert largest - large == 2 * (large - small)
    two, four, eight = (kept(train__unroll=unroll) for unroll in (2, 4, 8))
    assert eight - four == 2 * (four - two)
    assert 1.8 < eight / four < 2.2


@pytest.mark.parametrize("strategy", ["refiner", "hero", "diverted_chain"])
def test_counting_without_numbers_gives_what_an_update_on_the_cpu_gives(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does scaling, which is for modules that need numbers: 7 windows are told from 2 and 3."""
    config = tiny(strategy=strategy, train__batch=7)
    model, phases = config.build_operator(), phases_of(config.untrained_strategy, empty_windows(config))
    assert count_at(config, copy.deepcopy(model).to("meta"), phases, 7) == count_at(config, model, phases, 7)
    expected = describe(config)
    monkeypatch.setattr("hero.study.cost.count.copy", None)
    assert describe(config) == expected


def misses(config: RunConfig) -> int:
    """The naive count: go through all updates and look into the cache."""
    windows, table, count = empty_windows(config), WindowTable(), 0

    def compute() -> torch.Tensor:
        nonlocal count
        count += 1
        return torch.zeros(len(index), 1)

    for step in range(config.method.start, config.train.steps):
        index = windows(step).index
        if Every(config.method.refresh)(step - config.method.start):
            table.clear()
        table.get(index, compute)
    return count


@pytest.mark.parametrize(("start", "refresh", "batch"), [(400, 200, 20), (0, 1000, 20), (999, 3, 20), (13, 60, 3)])
def test_the_share_that_fills_the_cache_is_what_a_count_gives(start: int, refresh: int, batch: int) -> None:
    values = {"hero.start": start, "hero.refresh": refresh, "train.batch": batch, "train.steps": 1000}
    config = make_config(overrides={**values, "data.train_trajectories": 10})
    found = filling_updates(empty_windows(config), start, 1000, refresh)
    assert found == pytest.approx(misses(config), rel=0.03, abs=2)


@pytest.mark.parametrize("strategy", ["push_forward", "hero"])
def test_a_measurement_covers_every_update(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    config = tiny(strategy=strategy)
    found = measure(config, tmp_path / "data", updates=1)
    assert sum(phase.updates for phase in found.phases) == config.train.steps
    assert all(phase.seconds is not None and phase.seconds > 0 for phase in found.phases)
    assert found.run_seconds == pytest.approx(sum(phase.updates * (phase.seconds or 0) for phase in found.phases))
    assert (found.measured.peak_memory or 0) > describe(config).memory["total"]
    assert torch.equal(torch.get_rng_state(), before)
    assert not list(tmp_path.iterdir())


def test_a_run_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeroError, match=r"needs .* of them activations.*lower train\.batch, train\.unroll or the bac"):
        measure(tiny(train__batch=10**6, data__train_trajectories=10**6), tmp_path, available=10**9)


def test_the_numbers_are_printed_and_written(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, arguments = tmp_path / "numbers.json", ("burgers", *options(), "--strategy", "push_forward")
    code, out, err = call("describe", *arguments, "--json", file)
    assert (code, err) == (0, "")
    found, counted = Description.read(file), describe(tiny(strategy="push_forward"))
    assert found == counted
    assert f"{found.parameters:,}" in out
    code, out, err = call("describe", *arguments, "--updates", 1, "--json", file)
    assert (code, err) == (0, "")
    measured = Description.read(file)
    assert measured.model_copy(update={"measured": None, "phases": counted.phases}) == counted
    assert f"{1e3 * (measured.phases[0].seconds or 0):,.1f} ms" in out
    assert list(tmp_path.iterdir()) == [file]
