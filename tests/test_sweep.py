"""Many runs in worker processes: the same bits as one after the other, whoever fails, is killed or is stopped."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

import hero.console as console_module
import hero.study.run as sweep_module
from conftest import fork_hero, options, tiny, wait_until
from hero.console import progress_bar
from hero.files import json_line
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.study.run import SweepProgress, gpus_of, read_state, sweep, threads_of_each
from hero.study.worker import Failure, Job, Workers, failure_of, last_lines
from test_resume import last_step
from test_train import assert_same_run

LONG = {"train__steps": 200, "train__validate_every": 100, "train__checkpoint_every": 20}

GOOD = tiny(seed=0)
KILLED = tiny(strategy="push_forward", **LONG)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """The runs one after the other in this process."""
    runs = tmp_path_factory.mktemp("expected")
    assert sweep([GOOD, KILLED], runs, data_dir, Workers(0)) == {}
    return runs


def workers_at(run: Path) -> list[int]:
    """The ids of the worker processes of a run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if b"hero.study.worker" in command and os.fsencode(run) in command:
            found.append(int(process.name))
    return found


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def assert_same_results(configs: Sequence[RunConfig], runs: Path, expected: Path) -> None:
    for config in configs:
        ours, theirs = runs / config.run_id(), expected / config.run_id()
        assert_same_run(ours, theirs)
        measured, known = Run(ours).metrics, Run(theirs).metrics
        assert (measured.test, measured.val) == (known.test, known.val)
        assert (ours / "errors.npz").is_file()


def test_workers_give_the_bits_of_one_process_and_failures_stay_alone(
    runs_dir: Path, data_dir: Path, expected: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends with its parent, another one is killed, and this process ends what they began."""
    run, blocked = runs_dir / KILLED.run_id(), tiny(seed=5)
    parent = fork_hero(*command(runs_dir, data_dir))
    wait_until(lambda: last_step(run) >= 30, parent)
    (worker,) = workers_at(run)
    parent.kill()
    parent.communicate()
    while not has_ended(worker):
        time.sleep(0.01)
    assert last_step(run) < KILLED.train.steps

    (runs_dir / blocked.run_id()).write_text("in the way")
    monkeypatch.setenv("HERO_FAULT", "after-line log.jsonl:40")  # of this process; the other run has fewer lines
    failed = sweep([KILLED, blocked, GOOD, GOOD], runs_dir, data_dir, Workers(2))
    monkeypatch.delenv("HERO_FAULT")
    assert failed.keys() == {config.run_id() for config in (KILLED, blocked)}
    out = capsys.readouterr().out
    assert out.count(f"started {GOOD.run_id()}") == 1
    for word in ("SIGKILL", "memory", f"log: {run / 'output.log'}"):
        assert word in failed[KILLED.run_id()]
    assert f"failed {KILLED.run_id()}: {failed[KILLED.run_id()]}" in out
    assert blocked.run_id() in failed[blocked.run_id()]
    assert "step 20/20" in (runs_dir / GOOD.run_id() / "output.log").read_text()
    assert f"resuming {run.name} after" in (run / "output.log").read_text()

    assert sweep([KILLED, GOOD], runs_dir, data_dir, Workers(0)) == {}
    out = capsys.readouterr().out
    assert "1 of 2 runs are there already" in out
    assert GOOD.run_id() not in out
    assert_same_results([GOOD, KILLED], runs_dir, expected)


def command(runs: Path, data: Path) -> list[object]:
    chosen = ["--strategies", "push_forward", "--seeds", 1, "--workers", 2, "--runs", runs, "--data", data]
    return ["compare", "burgers", "--preset", "paper", *options(**LONG), *chosen]


def test_ctrl_c_lets_the_workers_save(runs_dir: Path, data_dir: Path) -> None:
    rare = {**LONG, "train__checkpoint_every": 200}  # no checkpoint but the one that the signal causes
    run = runs_dir / tiny(strategy="push_forward", **rare).run_id()
    parent = fork_hero(*command(runs_dir, data_dir), *options(**rare))
    wait_until(lambda: last_step(run) >= 10, parent)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does, to the workers as well
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert err.splitlines() == ["hero: interrupted; progress is saved, run the same command to resume."]
    assert workers_at(run) == []
    assert (run / "last" / "state.pt").is_file()
    assert "failed" not in out


def test_threads_are_divided_and_never_more_than_the_user_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 12)
    assert [threads_of_each(count) for count in (1, 2, 5, 12, 40)] == [12, 6, 2, 1, 1]
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert [threads_of_each(count) for count in (1, 2, 5)] == [3, 3, 2]


def test_gpus_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpus_of(tiny(), slot) for slot in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-ab")
    assert [gpus_of(tiny(), slot, processes) for slot, processes in ((1, 1), (1, 2))] == ["GPU-ab", "5,GPU-ab"]
    assert gpus_of(tiny(train__device="cuda:1"), 0) is None
    assert gpus_of(tiny(), 0, 3) is None


def test_what_the_end_of_a_worker_means(tmp_path: Path) -> None:
    assert failure_of(tmp_path, 0) is None
    lines = [f"line {number} " + 100 * "x" for number in range(200)]
    (tmp_path / "output.log").write_text("\n".join([*lines, "RuntimeError: boom"]))
    crash, killed = failure_of(tmp_path, 1), failure_of(tmp_path, -11)
    assert "crashed with exit code 1" in crash.sentence
    assert crash.output[-2:] == [lines[-1], "RuntimeError: boom"]
    (tmp_path / "output.log").write_text("\n".join([*lines, "hero: it went wrong; do this."]))
    assert failure_of(tmp_path, 2) == (f"it went wrong; do this (log: {tmp_path / 'output.log'}).", (), False)
    assert "SIGSEGV" in killed.sentence
    assert last_lines(tmp_path / "output.log", size=300) == [*lines[-2:], "hero: it went wrong; do this."]
    assert last_lines(tmp_path / "none") == []


def test_the_view_shows_every_run_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160, markup=False, emoji=False)
    for module in (sweep_module, console_module):
        monkeypatch.setattr(module, "console", console)
    jobs = [Job(tiny(seed=seed), tmp_path / tiny(seed=seed).run_id(), tmp_path) for seed in range(3)]
    records = [{"step": 5, "val_gm100": 0.25}, {"step": 7, "loss": 0.125, "steps_per_second": 31.4}]
    jobs[0].run.mkdir()
    (jobs[0].run / "log.jsonl").write_text("".join(map(json_line, records)) + '{"step": 8, "lo')
    assert read_state(jobs[0].run, 20) == (7, "loss 0.125  val 0.25  31.4 steps/s")
    assert read_state(jobs[0].run, 7) == (7, "evaluating")
    assert read_state(jobs[1].run, 20) == (0, "starting")
    with progress_bar("runs", 60) as advance:
        progress = SweepProgress(7, 4, advance)
        for job in jobs:
            progress.started(job)
        progress.ended(jobs[2], Failure("it was [not] to be.", ["last words"]))
        progress.refresh()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in (f"{jobs[0].run.name}", "7/20  loss 0.125", "0/20  starting", "4 of 7 finished, 1 failed",
                     "it was [not] to be.", "last words"):  # fmt: skip
        assert expected in text
    assert progress.failed == {jobs[2].run.name: "it was [not] to be."}
