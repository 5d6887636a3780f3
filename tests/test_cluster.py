"""Runs on a real Ray cluster whose workers are killed; a run does there what it does in a worker of a sweep."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import fork_hero, options, tiny, wait_until
from forked import LOOPBACK, listening_places, parent_of
from hero.errors import HeroError
from hero.runs.stored import StoredRun
from hero.study.ray import compute, connected, import_ray, result, share_of_machines, threads_for
from hero.study.run import sweep
from hero.study.worker import Job, Workers
from test_resume import last_step
from test_sweep import KILLED, LONG, workers_at

# One worker of the test run has the cluster: several on a small machine starve each other.
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster on this machine, started as `--cluster local` does; other processes join it by its address."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # else its workers starve on a busy machine
    ray = import_ray()
    with connected(ray, "local"):
        yield ray.get_runtime_context().gcs_address


def command(address: str, runs: Path, data: Path, **changes: Any) -> list[object]:
    where = ["--cluster", address, "--cpus", 0.5, "--runs", runs, "--data", data]
    chosen = ("compare", "burgers", "--preset", "paper", "--strategies", "push_forward", "--seeds", 1)
    return [*chosen, *options(**{**LONG, **changes}), *where]


@needs_ray
def test_a_run_whose_ray_worker_is_killed_goes_on(address: str, runs_dir: Path, data_dir: Path) -> None:
    run = runs_dir / KILLED.run_id()
    driver = fork_hero(*command(address, runs_dir, data_dir))
    wait_until(lambda: last_step(run) >= 30 and (run / "last" / "state.pt").is_file(), driver)
    (worker,) = workers_at(run)
    ray_worker = parent_of(worker)
    assert b"ray::" in Path(f"/proc/{ray_worker}/cmdline").read_bytes()
    os.kill(ray_worker, signal.SIGKILL)
    out, err = driver.communicate(timeout=400)
    assert (driver.returncode, err) == (0, "")
    _, started, finished, *_ = out.splitlines()  # the preset; nothing of Ray before or between them
    assert started == f"started {run.name}"
    assert finished.startswith(f"finished {run.name} in ")
    assert f"resuming {run.name} after update" in (run / "output.log").read_text()
    assert StoredRun(run).status == "finished"
    assert [path for folder in (runs_dir, data_dir) for path in folder.glob(".cluster-*")] == []


@needs_ray
def test_failures_are_told_and_kills_are_retried_only_so_often(address: str, runs_dir: Path, data_dir: Path) -> None:
    blocked = tiny(seed=5)
    runs_dir.mkdir()
    (runs_dir / blocked.run_id()).write_text("in the way")

    def kill() -> None:
        while not (found := workers_at(runs_dir / KILLED.run_id())):
            time.sleep(0.005)
        os.kill(found[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    failed = sweep([blocked, KILLED], runs_dir, data_dir, Workers(cluster="auto", cpus=0.5, retries=0))
    killer.join()
    assert blocked.run_id() in failed[blocked.run_id()]
    assert "SIGKILL" in failed[KILLED.run_id()]
    assert f"log: {runs_dir / KILLED.run_id() / 'output.log'}" in failed[KILLED.run_id()]


@needs_ray
def test_a_machine_must_have_the_folders_and_the_room(address: str, runs_dir: Path, data_dir: Path) -> None:
    ray, job = import_ray(), Job(tiny(), runs_dir / tiny().run_id(), data_dir)
    token = runs_dir / "unseen" / "token"
    task = ray.remote(compute).options(num_cpus=0).remote("", str(job.run), str(data_dir), {}, 1, [str(token)])
    with pytest.raises(HeroError, match=rf"does not see the folder {token.parent} of this machine"):
        result(ray, task, job, 0)
    with pytest.raises(HeroError, match=r"cannot compute \(.*\); install the same hero and Ray there"):
        result(ray, ray.remote(lambda: 1 // 0).options(num_cpus=0).remote(), job, 0)
    with pytest.raises(HeroError, match="no machine of the cluster has 1000 CPUs"):
        sweep([tiny()], runs_dir, data_dir, Workers(cluster="auto", cpus=1000))
    assert not runs_dir.exists()


@needs_ray
@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="this system does not list its sockets")
def test_a_local_cluster_listens_on_this_machine_alone_and_wants_its_token(address: str) -> None:
    assert address.startswith("127.0.0.1:")
    listening = listening_places(os.getpid())
    assert len(listening) >= 3  # the store of the cluster, the raylet, a worker
    assert {place.rpartition(":")[0] for place in listening} == {LOOPBACK}
    stranger = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    code = f"import ray; ray._raylet.GcsClient(address={address!r}).get_all_node_info(timeout=20)"
    asked = subprocess.run([sys.executable, "-c", code], env=stranger, capture_output=True, text=True)
    assert asked.returncode == 1
    assert "token" in asked.stderr


def node(name: str, cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"NodeManagerHostname": name, "Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus} if cpus else {}}


def test_runs_share_the_smallest_machine_unless_told() -> None:
    nodes = [node("head", 0), node("small", 8), node("gpu", 32, 2), node("gone", 1, alive=False)]
    assert share_of_machines(nodes, Workers(3, cluster="auto")) == 2
    assert share_of_machines(nodes, Workers(cluster="auto", cpus=16)) == 16
    assert share_of_machines(nodes, Workers(cluster="auto", cpus=0.5, gpus=0.25)) == 0.5
    with pytest.raises(HeroError, match=r"4 GPUs for a run \(small: 8 and 0, gpu: 32 and 2\); lower"):
        share_of_machines(nodes, Workers(cluster="auto", gpus=4))
    with pytest.raises(HeroError, match="there is none"):
        share_of_machines(nodes[:1], Workers(cluster="auto"))


def test_threads_follow_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [threads_for(cpus) for cpus in (0.5, 1, 4.0)] == [1, 1, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [threads_for(cpus) for cpus in (0.5, 1, 4.0)] == [1, 1, 2]


def test_without_ray_the_remedy_is_named(runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(HeroError, match=r"pip install 'hero-operators\[cluster\]'"):
        sweep([tiny()], runs_dir, data_dir, Workers(cluster="local"))
    assert not runs_dir.exists()


@needs_ray
def test_a_cluster_that_does_not_answer_is_named(runs_dir: Path, data_dir: Path) -> None:
    with pytest.raises(HeroError, match=r"cannot use a Ray cluster at '127.0.0.1:1' \(.*refused\)"):
        sweep([tiny()], runs_dir, data_dir, Workers(cluster="127.0.0.1:1"))
    assert not runs_dir.exists()
