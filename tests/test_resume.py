"""Runs that are killed, stopped or repeated, as real processes: the same bits as if nothing had happened.

`test_crashes.py` kills at every named point, in children that are cheap to start.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest
from torch import Tensor

from conftest import Call, fork_hero, hero, options, tiny, wait_until
from hero.data import get_task
from hero.data.tasks import store
from hero.evaluation.evaluate import evaluate
from hero.runs.config import RunConfig
from hero.runs.records import read_lines
from hero.training.loop import resume, train
from test_train import assert_same_run

# Long enough to be caught in the middle; s_0 = 30 and refreshes at 30, 50, 70, ... lie on both sides of a kill.
STEPS = 200
LONG = {"train__steps": STEPS, "train__validate_every": 50, "hero__start": 30, "hero__refresh": 20, "hero__warmup": 40}


def long_run(strategy: str, checkpoint_every: int) -> tuple[RunConfig, list[str]]:
    changes = {**LONG, "strategy": strategy, "train__checkpoint_every": checkpoint_every}
    return tiny(**changes), ["burgers", *options(**changes)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> dict[str, Path]:
    """The same runs in one go. How often a checkpoint is written must not matter, so it is rare here."""
    runs = tmp_path_factory.mktemp("whole")
    return {name: train(long_run(name, STEPS)[0], runs, data_dir) for name in ("hero", "push_forward")}


def last_step(run: Path) -> int:
    return max((record["step"] for record in read_lines(run / "log.jsonl")), default=0)


def assert_log_is_whole(run: Path) -> None:
    text = (run / "log.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    updates = [record["step"] for record in records if "loss" in record]
    assert updates == list(range(1, STEPS + 1))
    assert [record["step"] for record in records if "val_gm100" in record] == list(range(50, STEPS + 1, 50))


def test_kill_9_and_resume_gives_the_same_bits(runs_dir: Path, data_dir: Path, uninterrupted: dict[str, Path]) -> None:
    config, arguments = long_run("hero", 10)
    run = runs_dir / config.run_id()
    command = ["train", *arguments, "--runs", runs_dir, "--data", data_dir]
    for step in (20, 85):  # before s_0, then after a refresh: the lagged weights are in the checkpoint
        process = fork_hero(*command)
        wait_until(lambda step=step: last_step(run) >= step and (run / "last/state.pt").is_file(), process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert step <= last_step(run) < STEPS
        assert not (run / "metrics.json").exists()
        command = ["train", "--resume", run.name, "--runs", runs_dir, "--data", data_dir]
    resume(run, data_dir)
    assert_same_run(run, uninterrupted["hero"])
    assert_log_is_whole(run)
    assert [path.name for path in run.rglob("*.tmp")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_says_so_and_the_same_command_goes_on(
    number: signal.Signals, runs_dir: Path, data_dir: Path, uninterrupted: dict[str, Path]
) -> None:
    config, arguments = long_run("hero", STEPS)  # no checkpoint but the one that the signal causes
    run = runs_dir / config.run_id()
    command = ["train", *arguments, "--runs", runs_dir, "--data", data_dir]
    process = fork_hero(*command)
    wait_until(lambda: last_step(run) >= 60, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "saved" in err
    assert (run / "last" / "state.pt").is_file()
    if number == signal.SIGINT:
        code, out, err = hero(*command)
        assert (code, err) == (0, "")
        assert f"resuming {run.name} after update" in out
        assert (run / "metrics.json").is_file()
    else:
        resume(run, data_dir)
    assert_same_run(run, uninterrupted["hero"])


def state_of_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_resuming_a_finished_run_changes_nothing(runs_dir: Path, data_dir: Path) -> None:
    run = train(tiny(), runs_dir, data_dir)
    evaluate(run, data_dir)
    before = state_of_files(run)
    assert train(tiny(), runs_dir, data_dir) == run
    assert resume(run, data_dir) == run
    assert state_of_files(run) == before


def test_weights_that_were_deleted_come_back_from_the_checkpoint(runs_dir: Path, data_dir: Path) -> None:
    run = train(tiny(), runs_dir, data_dir)
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    resume(run, data_dir)
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_renamed_folder_goes_on_where_it_is(runs_dir: Path, data_dir: Path, uninterrupted: dict[str, Path]) -> None:
    config, arguments = long_run("push_forward", 20)
    process = fork_hero("train", *arguments, "--runs", runs_dir, "--data", data_dir)
    wait_until(lambda: last_step(runs_dir / config.run_id()) >= 100, process)
    process.kill()
    process.communicate()
    renamed = (runs_dir / config.run_id()).rename(runs_dir / "mine")
    assert resume(renamed, data_dir) == renamed
    assert [path.name for path in runs_dir.iterdir()] == ["mine"]
    assert_same_run(renamed, uninterrupted["push_forward"])


def test_a_kill_while_data_is_made_leaves_no_broken_file(tmp_path: Path, call: Call) -> None:
    # Enough work to be caught at it: many substeps.
    arguments = options(task__substeps=3000, data__train_trajectories=50)
    command = ["data", "make", "burgers", "--data", tmp_path, *arguments]
    process = fork_hero(*command)
    wait_until(lambda: any(tmp_path.glob("*.lock")), process)
    process.kill()
    process.communicate()
    assert list(tmp_path.glob("*.h5")) == []
    small = options(data__train_trajectories=2)
    result = call("data", "make", "burgers", "--data", tmp_path, *small)
    assert result[0] == 0, result
    for path in tmp_path.glob("*.h5"):
        with h5py.File(path) as file:
            assert file["u"].shape[0] in (2, 4)


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


def test_ctrl_c_while_work_is_handed_out_stops_the_threads_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool waits for all the work it was given, which is to be nothing then."""
    solved, given = itertools.count(), itertools.count()
    submit, frames = store.ThreadPoolExecutor.submit, store.frames

    def interrupted(pool: Any, *arguments: Any) -> Any:
        job = submit(pool, *arguments)
        if next(given) == 2:
            raise KeyboardInterrupt
        return job

    def counted(*arguments: Any) -> Iterator[Tensor]:
        return (state for state in frames(*arguments) if next(solved) >= 0)

    monkeypatch.setattr(store.ThreadPoolExecutor, "submit", interrupted)
    monkeypatch.setattr(store, "frames", counted)
    monkeypatch.setattr(store, "CHUNK_POINTS", 1)  # a job for each trajectory
    with pytest.raises(KeyboardInterrupt):
        store.generate(get_task("burgers", {"resolution": 16}), store.Split("train", 8, 1000, 0))
    assert next(solved) < 3 * 1000


def test_two_processes_on_one_run_the_second_is_refused_and_the_first_unharmed(
    runs_dir: Path, data_dir: Path, uninterrupted: dict[str, Path]
) -> None:
    config, arguments = long_run("push_forward", 20)
    run = runs_dir / config.run_id()
    command = ["train", *arguments, "--runs", runs_dir, "--data", data_dir]
    first = fork_hero(*command)
    wait_until(lambda: last_step(run) >= 10, first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it cannot finish before the second has tried
    try:
        code, _, err = hero(*command)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert code == 2
    assert "in use by another process" in err
    assert "Traceback" not in err
    assert first.wait(timeout=120) == 0
    assert_same_run(run, uninterrupted["push_forward"])
    assert_log_is_whole(run)
