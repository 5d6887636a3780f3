"""Runs that are stopped, killed at named points or repeated, as real processes: the bits of an unbroken run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from benchmarks.crashes import POINTS, Bench, die_at
from conftest import assert_refused, fork_hero, hero, options, tiny, wait_until
from hero.runs.log import read_lines
from hero.strategies import STRATEGIES
from hero.training.loop import resume, train
from test_train import assert_same_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Long enough to be caught in the middle; refreshes lie on both sides of it. No checkpoint but the one of a signal.
STEPS = 150
LONG = {"train__steps": STEPS, "train__validate_every": 50, "train__checkpoint_every": STEPS}
LONG |= {"hero__start": 30, "hero__refresh": 20, "hero__warmup": 40}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """The same run in one go."""
    return train(tiny(**LONG), tmp_path_factory.mktemp("whole"), data_dir)


@pytest.fixture
def command(runs_dir: Path, data_dir: Path) -> list[object]:
    return ["train", "burgers", "--strategy", "hero", *options(**LONG), "--runs", runs_dir, "--data", data_dir]


def last_step(run: Path) -> int:
    return max((record["step"] for record in read_lines(run / "log.jsonl")), default=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_says_so_and_the_same_command_goes_on(
    number: signal.Signals, command: list[object], runs_dir: Path, data_dir: Path, uninterrupted: Path
) -> None:
    run = runs_dir / uninterrupted.name
    process = fork_hero(*command)
    wait_until(lambda: last_step(run) >= 60, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "saved" in err
    if number == signal.SIGINT:
        code, out, err = hero(*command)
        assert (code, err) == (0, "")
        assert f"resuming {run.name} after update" in out
        assert (run / "metrics.json").is_file()
    else:  # a folder of another name goes on where it is
        run = run.rename(runs_dir / "mine")
        assert resume(run, data_dir) == run
        assert [path.name for path in runs_dir.iterdir()] == ["mine"]
    assert_same_run(run, uninterrupted)


def state_of_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_resuming_a_finished_run_changes_nothing(finished: Path, data_dir: Path) -> None:
    before = state_of_files(finished)
    assert train(tiny(), finished.parent, data_dir) == finished
    assert resume(finished, data_dir) == finished
    assert state_of_files(finished) == before


def test_ctrl_c_while_data_is_made_ends_at_once_with_a_sentence(tmp_path: Path) -> None:
    process = fork_hero("train", "burgers", *options(task__substeps=3000), "--data", tmp_path, "--runs", tmp_path)
    wait_until(lambda: any(tmp_path.glob("*.lock")), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.count("\n") == 1
    assert list(tmp_path.glob("*.h5")) == []
    assert list(tmp_path.glob("*.tmp")) == []


def test_two_processes_on_one_run_the_second_is_refused_and_the_first_unharmed(
    command: list[object], runs_dir: Path, uninterrupted: Path
) -> None:
    run = runs_dir / uninterrupted.name
    first = fork_hero(*command)
    wait_until(lambda: last_step(run) >= 10, first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it cannot finish before the second has tried
    try:
        refused = hero(*command)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert_refused(refused, "in use by another process")
    assert first.wait(timeout=120) == 0
    assert_same_run(run, uninterrupted)
    records = read_lines(run / "log.jsonl")
    assert [record["step"] for record in records if "loss" in record] == list(range(1, STEPS + 1))
    assert [record["step"] for record in records if "val_gm100" in record] == list(range(50, STEPS + 1, 50))


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
