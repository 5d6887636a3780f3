"""Runs that were killed, edited or damaged: no number is shown that was not measured on what is there now."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
import torch

from conftest import Call, assert_refused, fork_hero, hero, options, tiny, wait_until
from hero.data import Split, generate, get_task, load_split, split_path
from hero.evaluation.evaluate import evaluate
from hero.files import json_line, write_json
from hero.runs.checkpoint import read_weights, save_weights
from hero.runs.folder import Run
from hero.training.journal import Progress
from hero.training.loop import train


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    run = train(tiny(), tmp_path_factory.mktemp("measured"), data_dir)
    evaluate(run, data_dir)
    return run


@pytest.fixture
def run(measured: Path, runs_dir: Path) -> Path:
    """A copy of an evaluated run, to be damaged."""
    return Path(shutil.copytree(measured, runs_dir / measured.name))


class Killed(BaseException):
    """The end of a process between two lines."""


def die_after_the_last_update(progress: Progress) -> None:
    """The last update is in the log; its validation and its checkpoint are not written any more."""
    if progress.step == 20 and progress.score is None:
        raise Killed


def change_weights(run: Path) -> None:
    weights, about = read_weights(run / "model.safetensors")
    save_weights(run / "model.safetensors", {name: 2 * tensor for name, tensor in weights.items()}, about)


def listed(call: Call, run: Path) -> str:
    """The line of the run in `hero runs`."""
    return next(line for line in call("runs", "--runs", run.parent)[1].splitlines() if run.name in line)


def test_a_run_killed_after_its_last_update_is_measured_again_when_it_has_ended(
    call: Call, runs_dir: Path, data_dir: Path, measured: Path
) -> None:
    with pytest.raises(Killed):
        train(tiny(), runs_dir, data_dir, callbacks=[die_after_the_last_update])
    run, folders = runs_dir / measured.name, ("--runs", runs_dir, "--data", data_dir)
    assert call("evaluate", run.name, *folders)[0] == 0
    early = Run(run).stored_metrics
    assert early is not None
    assert early.training.steps == 15
    assert "at step 20 of 20" in listed(call, run)
    assert_refused(call("report", run.name, *folders), "measured at step 15 of 20", "--resume")
    assert call("train", "--resume", run.name, *folders)[0] == 0
    final, straight = Run(run).metrics, Run(measured).metrics
    assert final is not None
    assert straight is not None
    assert (final.best_step, final.weights, final.test) == (straight.best_step, straight.weights, straight.test)
    assert final.weights != early.weights  # otherwise this test shows nothing
    assert "finished" in listed(call, run)


def test_metrics_of_other_weights_are_not_those_of_the_run(call: Call, run: Path, data_dir: Path) -> None:
    before = Run(run).metrics
    assert before is not None
    change_weights(run)
    assert "not evaluated" in listed(call, run)
    folders = ("--runs", run.parent, "--data", data_dir)
    assert_refused(call("report", run.name, *folders), "other weights", "--resume")
    assert call("train", "burgers", "--strategy", "hero", *options(), *folders)[0] == 0
    after = Run(run).metrics
    assert after is not None
    assert after.test != before.test


def test_results_are_kept_without_the_weights(run: Path) -> None:
    (run / "model.safetensors").unlink()
    assert Run(run).status == "finished"


UPDATE = {"step": 3, "loss": 1.0, "grad_norm": 1.0, "lr": 1.0, "steps_per_second": 1.0, "seconds": 1.0}
SEALED = [{"step": "two"}, {"step": 3, "spectra": 3}, UPDATE, {"step": 3, "val_diverged": 0}]
SEALED += [{**UPDATE, "compiled": False, "device": "cpu", "alpha": "word"}]
FOREIGN = [b"3", b"{", b"\xff\x00", b"[" * 100_000, *(json_line(record).strip().encode() for record in SEALED)]


@pytest.mark.parametrize("line", FOREIGN, ids=lambda line: line[:20].decode(errors="replace"))
def test_a_damaged_line_of_a_log_is_skipped_and_named(line: bytes, call: Call, run: Path, data_dir: Path) -> None:
    path = run / "log.jsonl"
    whole, lines = Run(run).log, path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:5], line, *lines[5:], b""]))
    found = Run(run).log
    assert (found.training, found.validation) == (whole.training, whole.validation)
    (run / "metrics.json").unlink()
    code, out, err = call("runs", "--runs", run.parent)
    assert code == 0
    assert "not evaluated" in out
    assert err.count("hero: ") == len(err.splitlines()) == 1
    assert f"{path} is damaged in line 6" in err
    train(tiny(), run.parent, data_dir)


def test_a_last_line_that_a_kill_cut_short_is_no_damage(call: Call, run: Path) -> None:
    (run / "metrics.json").unlink()
    with (run / "log.jsonl").open("ab") as file:
        file.write(b'{"step": 21, "lo')
    assert call("runs", "--runs", run.parent)[2] == ""


def test_a_damaged_log_is_continued(runs_dir: Path, data_dir: Path, measured: Path) -> None:
    with pytest.raises(Killed):
        train(tiny(), runs_dir, data_dir, callbacks=[die_after_the_last_update])
    path = runs_dir / measured.name / "log.jsonl"
    path.write_bytes(b"[]\n" + path.read_bytes())
    run = Run(train(tiny(), runs_dir, data_dir))
    assert [record.step for record in run.log.training] == list(range(1, 21))
    assert run.log.notice is None


def test_a_log_that_ends_before_its_checkpoint_is_made_again(
    call: Call, run: Path, data_dir: Path, measured: Path
) -> None:
    path = run / "log.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:12]))
    code, out, _ = call("train", "--resume", run.name, "--runs", run.parent, "--data", data_dir)
    assert (code, f"{path} ends before the checkpoint" in out) == (0, True)
    assert [record.step for record in Run(run).log.training] == list(range(1, 21))
    assert (run / "model.safetensors").read_bytes() == (measured / "model.safetensors").read_bytes()


def test_a_standing_clock_ends_no_training(
    runs_dir: Path, data_dir: Path, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 1.0)
    run = train(tiny(), runs_dir, data_dir)
    assert (run / "model.safetensors").read_bytes() == (measured / "model.safetensors").read_bytes()


@pytest.mark.parametrize("content", [b"\xff\x00", b"strategy = 3\n", b"# run x\n"])
def test_a_damaged_configuration_is_named_with_its_run(content: bytes, call: Call, run: Path) -> None:
    (run / "config.toml").write_bytes(content)
    assert_refused(
        call("evaluate", run.name, "--runs", run.parent), f"{run / 'config.toml'} is damaged", f"run {run.name}"
    )


def test_one_damaged_run_hides_no_other(call: Call, run: Path, measured: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(measured, run.parent / "other"))
    stored = json.loads((run / "metrics.json").read_text())
    stored["test"]["gm100"] = "word"
    write_json(run / "metrics.json", stored)
    third = Path(shutil.copytree(measured, run.parent / "third"))
    (third / "metrics.json").unlink()
    (third / "log.jsonl").write_text("foreign\nlines\n")
    code, _, err = call("runs", "--runs", run.parent)
    assert code == 0
    assert "finished" in listed(call, other)
    assert "unreadable" in listed(call, run)
    assert "unreadable" in listed(call, third)
    first, second = sorted(err.splitlines())
    assert str(run / "metrics.json") in first
    assert f"{third / 'log.jsonl'} is damaged in line 1 and 1 more" in second
    code, out, _ = call("report", "--runs", run.parent, "--out", tmp_path / "page.html")
    assert code == 0
    assert str(run / "metrics.json") in out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 100 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "hero", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk takes a privilege")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_while_data_are_stored_is_one_sentence(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(28_000))
    settings = options(data__train_trajectories=20, data__train_steps=50)
    ended = hero("data", "make", "burgers", "--data", small_disk, *settings)
    assert_refused(ended, str(small_disk), "No space left on device")
    assert [path.name for path in small_disk.iterdir() if path.suffix != ".h5"] == ["other"]


def test_stored_data_are_what_was_solved(tmp_path: Path) -> None:
    for name, more in (("burgers", {}), ("kolmogorov_flow", {"forcing_mode": 1})):
        task, split = get_task(name, {"resolution": 8, "cutoff": 1, **more}), Split("train", 3, 4, seed=0)
        assert torch.equal(load_split(task, split, tmp_path), generate(task, split))  # solved and stored
        assert torch.equal(load_split(task, split, tmp_path), generate(task, split))  # read
        with h5py.File(split_path(task, split, tmp_path)) as file:
            assert file["u"].chunks is None
            assert file.attrs["task"] == name


def test_temporary_data_files_of_killed_processes_are_removed_and_of_living_ones_kept(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".kdv-train-0a.h5.11.tmp", tmp_path / ".kdv-train-0b.h5.12.tmp"
    for path in (dead, alive):
        path.write_bytes(b"half")
    with (tmp_path / "kdv-train-0b.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        load_split(get_task("burgers", {"resolution": 16}), Split("train", 1, 1, seed=0), tmp_path)
        assert [path.name for path in tmp_path.glob(".*")] == [alive.name]
    assert [path.name for path in tmp_path.glob("*.lock")] == ["kdv-train-0b.lock"]


def test_a_process_that_waits_for_data_says_for_which(tmp_path: Path) -> None:
    config = tiny()
    path = split_path(config.source.task, config.split("train"), tmp_path)
    with path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = fork_hero("data", "make", "burgers", "--data", tmp_path, *options())
        wait_until(lambda: "waiting" in process.printed(), process)
    out, _ = process.communicate(timeout=60)
    assert f"waiting for {path}" in out
    assert process.returncode == 0
    assert path.is_file()
    assert list(tmp_path.glob("*.lock")) == []
