"""Bad input, broken files and broken machines: one sentence, exit code 2, earlier results untouched."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from conftest import TINY, Call, assert_refused, hero, options, tiny
from hero.data import TASKS, split_path
from hero.data.windows import Batch
from hero.files import UNSEALED, sealed, sealed_archive
from hero.runs.checkpoint import load_state, save_state
from hero.runs.folder import load_data
from hero.runs.log import read_lines
from hero.strategies import STRATEGIES, Loss
from hero.training.loop import resume, train
from test_train import assert_same_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    return train(tiny(), tmp_path_factory.mktemp("trained"), data_dir)


@pytest.fixture
def run(trained: Path, runs_dir: Path) -> Path:
    """A copy of a trained run, to be damaged."""
    return Path(shutil.copytree(trained, runs_dir / trained.name))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_folders_that_cannot_be_written(call: Call, tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        for places in (("--runs", folder, "--data", data_dir), ("--runs", tmp_path / "runs", "--data", folder)):
            assert_refused(call("train", "burgers", *options(), *places), str(folder))


@pytest.mark.parametrize(
    "arguments",
    [("runs", "--runs"), ("evaluate", "x", "--runs"), ("train", "--config"), ("data", "make", "kdv", "--data")],
)
def test_a_path_that_the_system_refuses(arguments: tuple[str, ...], call: Call) -> None:
    assert_refused(call(*arguments, "x" * 300), "File name too long")


@pytest.mark.parametrize("keep", [0, 2100])
def test_a_truncated_data_file_is_named(keep: int, call: Call, runs_dir: Path, data_dir: Path, tmp_path: Path) -> None:
    load_data(tiny(), "train", data_dir, "cpu")
    copy = Path(shutil.copytree(data_dir, tmp_path / "data"))
    path = split_path(tiny().source.task, tiny().split("train"), copy)
    os.truncate(path, keep)
    result = call("train", "burgers", *options(), "--runs", runs_dir, "--data", copy)
    assert_refused(result, str(path), "delete it")


class Dangerous:
    """Makes a file when it is unpickled by a loader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def damages(tmp_path: Path) -> dict[str, Callable[[Path], Any]]:
    """Ways in which last/state.pt can be wrong."""

    def without(key: str) -> Callable[[Path], None]:
        return lambda p: save_state(p, {k: v for k, v in load_state(p).items() if k != key})

    def changed(**values: Any) -> Callable[[Path], None]:
        return lambda p: save_state(p, {**load_state(p), **values})

    dangerous = Dangerous(tmp_path / "harm")
    return {
        "empty": lambda p: p.write_bytes(b""),
        "almost": lambda p: p.write_bytes(p.read_bytes()[:-1]),
        "noise": lambda p: p.write_bytes(np.random.default_rng(0).bytes(5000)),
        "list": lambda p: p.write_bytes(sealed_archive(saved([1, 2]))),
        "pickle": lambda p: p.write_bytes(pickle.dumps(dangerous)),
        "torch pickle": lambda p: p.write_bytes(sealed_archive(saved({"step": 1, "x": dangerous}))),
        "other shapes": changed(model={"x": torch.zeros(3)}),
        "a word for a step": changed(step="x"),
        "best of a word": changed(best={"step": "x", "val_gm100": 1.0, "weights": None}),
        **{f"no {key}": without(key) for key in ("step", "model", "optimiser", "strategy", "best", "seconds")},
    }


def saved(content: Any) -> BytesIO:
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer


@pytest.mark.parametrize("damage", damages(Path()))
def test_a_damaged_checkpoint_is_refused_and_runs_no_code(
    damage: str, call: Call, run: Path, data_dir: Path, tmp_path: Path
) -> None:
    state = run / "last" / "state.pt"
    damages(tmp_path)[damage](state)
    (run / "last" / "previous.pt").unlink()
    before = contents(run)
    result = call("train", "--resume", run.name, "--runs", run.parent, "--data", data_dir)
    assert_refused(result, str(state), f"delete the folder {run}")
    assert contents(run) == before
    assert not (tmp_path / "harm").exists()


WRONG = ["truncated", "pickle", "other model", "no metadata", "missing", "[]", "null", "word", '{"step": "x"}']


@pytest.mark.parametrize("damage", WRONG)
def test_wrong_weights_are_refused(damage: str, call: Call, run: Path, data_dir: Path, tmp_path: Path) -> None:
    path = run / "model.safetensors"
    if damage == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "pickle":
        path.write_bytes(pickle.dumps(Dangerous(tmp_path / "harm")))
    elif damage == "other model":
        other = train(tiny(backbone__width=3, train__steps=1), tmp_path / "other", data_dir)
        shutil.copy(other / "model.safetensors", path)
    elif damage == "missing":
        path.unlink()
    else:
        about = None if damage == "no metadata" else {"hero": damage, "more": UNSEALED}
        data = safetensors.torch.save(safetensors.torch.load_file(path), metadata=about)
        path.write_bytes(sealed(data) if about else data)
    before = contents(run)
    result = call("evaluate", run.name, "--runs", run.parent, "--data", data_dir)
    assert_refused(result, str(path))
    assert contents(run) == before
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_damaged_metrics_are_named_and_evaluating_mends_them(
    content: bytes, call: Call, run: Path, data_dir: Path
) -> None:
    folders = ("--runs", run.parent, "--data", data_dir)
    (run / "metrics.json").write_bytes(content)
    repeated = ("train", "burgers", "--strategy", "hero", *options(), *folders)
    assert_refused(call(*repeated), "metrics.json", f"hero evaluate {run.name}")
    code, out, err = call("runs", *folders)
    assert code == 0
    assert "unreadable" in out
    assert "metrics.json" in err
    if content == b"{":
        assert call("evaluate", run.name, *folders)[0] == 0
        assert call(*repeated)[0] == 0


def test_foreign_folders_do_not_hide_the_runs(call: Call, run: Path, tmp_path: Path) -> None:
    for name, text in (("foreign", "[package]\nname = 'x'\n"), ("broken", "= =")):
        (run.parent / name).mkdir()
        (run.parent / name / "config.toml").write_text(text)
    (run.parent / "notes.txt").write_text("hello")
    (run.parent / "empty").mkdir()
    code, out, err = call("runs", "--runs", run.parent)
    assert code == 0
    assert run.name in out
    assert err.count("hero: ") == 2
    assert "Traceback" not in err
    assert_refused(call("evaluate", "foreign", "--runs", run.parent), "package")


@pytest.fixture
def file_size_limit() -> Any:
    """A function that makes every larger file fail to be written, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_up_leaves_the_last_checkpoint_to_go_on_from(
    runs_dir: Path, data_dir: Path, tmp_path: Path, file_size_limit: Any, call: Call
) -> None:
    changes = {"hero__start": 12, "backbone__width": 8}
    whole = train(tiny(**changes), tmp_path / "whole", data_dir)
    # The lagged weights join the state at s_0 = 12: the checkpoints at 5 and 10 fit, the one at 15 does not.
    size = (whole / "last" / "state.pt").stat().st_size
    file_size_limit(size - 1000)
    result = call("train", "burgers", "--strategy", "hero", *options(**changes), "--runs", runs_dir, "--data", data_dir)
    file_size_limit(resource.RLIM_INFINITY)
    run = runs_dir / whole.name
    assert_refused(result, str(run / "last" / "state.pt"), "unchanged")
    assert load_state(run / "last" / "state.pt")["step"] == 10
    assert list(run.rglob("*.tmp")) == []
    resume(run, data_dir)
    assert_same_run(run, whole)


def test_no_room_for_a_line_of_the_log(
    runs_dir: Path, data_dir: Path, file_size_limit: Any, call: Call, tmp_path: Path
) -> None:
    whole = train(tiny(train__checkpoint_every=20), tmp_path / "whole", data_dir)
    file_size_limit(2500)
    arguments = options(train__checkpoint_every=20, train__validate_every=20)
    result = call("train", "burgers", "--strategy", "hero", *arguments, "--runs", runs_dir, "--data", data_dir)
    file_size_limit(resource.RLIM_INFINITY)
    assert_refused(result, "log.jsonl")
    run = runs_dir / tiny(train__checkpoint_every=20, train__validate_every=20).run_id()
    resume(run, data_dir)
    assert load_state(run / "last/state.pt")["model"].keys() == load_state(whole / "last/state.pt")["model"].keys()
    assert [r["step"] for r in read_lines(run / "log.jsonl") if "loss" in r] == list(range(1, 21))


@pytest.mark.parametrize("checkpoint_every", [1, 7])
def test_training_that_blows_up_says_so_and_keeps_a_finite_checkpoint(
    checkpoint_every: int, call: Call, runs_dir: Path, data_dir: Path
) -> None:
    changes = {"train__lr": 1e6, "train__clip": 0, "train__loss": "mse", "strategy": "push_forward"}
    # 400 steps: the log looks at the loss every other step only, checkpoints and validation must look for themselves.
    changes |= {"train__steps": 400, "train__validate_every": 3, "train__checkpoint_every": checkpoint_every}
    result = call("train", "burgers", *options(**changes), "--runs", runs_dir, "--data", data_dir)
    assert_refused(result, "non-finite", "train.lr", "train.clip")
    run = runs_dir / tiny(**changes).run_id()
    stored = [run / "last" / "state.pt"] if (run / "last" / "state.pt").exists() else []
    assert len(stored) == (checkpoint_every == 1) == ("checkpoint is kept" in result[2])
    for path in stored:
        assert all(bool(p.isfinite().all()) for p in load_state(path)["model"].values())


def test_compiling_without_a_compiler_goes_on_with_a_notice(runs_dir: Path, data_dir: Path, tmp_path: Path) -> None:
    env = {"CXX": "/nonexistent", "PATH": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    arguments = options(train__compile="true", train__steps=3, strategy="push_forward")
    code, out, err = hero("train", "burgers", *arguments, "--runs", runs_dir, "--data", data_dir, env=env)
    assert code == 0, err
    assert len([line for line in out.splitlines() if "continues without" in line]) == 1
    assert err == ""
    (run,) = runs_dir.iterdir()
    assert read_lines(run / "log.jsonl")[-2]["compiled"] is False


def interrupt_at(step: int, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send Ctrl-C to this process while update `step` is computed."""
    original = STRATEGIES[strategy].loss

    def loss(self: Any, model: torch.nn.Module, batch: Batch) -> Loss:
        if batch.step == step:
            signal.raise_signal(signal.SIGINT)
        return original(self, model, batch)

    monkeypatch.setattr(STRATEGIES[strategy], "loss", loss)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_and_resumes(
    task: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HERO; `test_crashes.py` kills and resumes every strategy."""
    changes: dict[str, Any] = {"task__name": task, "task__resolution": 8, "task__cutoff": 1}
    changes |= {"task__warmup": 2, "backbone__width": 2, "backbone__modes": 2, "backbone__depth": 1}
    changes |= {"data__train_trajectories": 2, "data__val_trajectories": 1, "train__batch": 3}
    changes |= {"train__steps": 6, "train__validate_every": 6, "train__checkpoint_every": 6}
    # One lagged copy before the stop and none after it: resuming must bring it back.
    changes |= {"hero__start": 2, "hero__refresh": 10}
    if task == "kolmogorov_flow":
        changes["task__forcing_mode"] = 1
    config = tiny(**changes)
    whole = train(config, tmp_path / "whole", data_dir)
    losses = [record["loss"] for record in read_lines(whole / "log.jsonl") if "loss" in record]
    assert len(losses) == 6
    assert np.isfinite(losses).all()
    with monkeypatch.context() as patch:
        interrupt_at(3, "hero", patch)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "parts", data_dir)
    stopped = tmp_path / "parts" / config.run_id()
    assert load_state(stopped / "last" / "state.pt")["step"] == 4
    assert_same_run(train(config, tmp_path / "parts", data_dir), whole)


MEMORY_MODELS = """
import torch
from torch import nn


class Confused(nn.Conv1d):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels, 1)

    def forward(self, u):
        if u.requires_grad or torch.is_grad_enabled():  # in training, not when its shapes are checked
            self.fail()
        return super().forward(u)

    def fail(self):
        raise RuntimeError("unsupported memory format option Preserve")


class Greedy(Confused):
    def fail(self):
        torch.empty(10**15)
"""


def test_only_a_failed_allocation_is_too_little_memory(
    call: Call, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory_models.py").write_text(MEMORY_MODELS)
    monkeypatch.chdir(tmp_path)
    own = [f"--set={key}={value}" for key, value in TINY.items() if not key.startswith("backbone")]
    with pytest.raises(RuntimeError, match="unsupported memory format"):
        call("train", "burgers", "--backbone", "memory_models:Confused", *own, "--data", data_dir)
    refused = call("train", "burgers", "--backbone", "memory_models:Greedy", *own, "--data", data_dir)
    assert_refused(refused, "the memory is too small for these settings")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_not_utf8(call: Call, tmp_path: Path, data_dir: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xff")
    run = train(tiny(train__steps=1), folder / "runs", data_dir)
    for command in (("evaluate", run), ("runs",), ("report", run, "--out", folder / "page.html")):
        where = ("--runs", run.parent, *(("--data", data_dir) if command[0] == "evaluate" else ()))
        assert call(*command, *where)[0] == 0, command
    np.save(folder / "u.npy", np.random.default_rng(0).normal(size=(6, 30, 1, 16)).astype(np.float32))
    told = call("train", folder / "u.npy", "--set", "data.layout=btcx", "--set", "train.steps=2", "--runs", tmp_path)
    assert_refused(told, "not UTF-8")


def test_closed_input_and_output_are_no_crash(run: Path) -> None:
    command = [sys.executable, "-m", "hero", "runs", "rm", run.name, "--runs", run.parent]
    ended = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh", *map(str, command)], stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")  # nobody agreed
    assert run.is_dir()
