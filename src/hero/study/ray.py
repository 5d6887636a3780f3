"""Runs on a Ray cluster: one task per run, which starts the same worker process as a local sweep.

Ray decides where and when, and tries again when a worker or a machine dies; the run then resumes from its checkpoint.
Results travel through the folders of runs and data, which every machine must see under the same path.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hero.console import on_signals
from hero.errors import HeroError, install_hint
from hero.runs.stored import StoredRun
from hero.study import worker
from hero.study.worker import LOG, Failure, Job, Workers

if TYPE_CHECKING:
    from hero.study.run import SweepProgress

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Where this variable is 0, Ray gives its node the address 127.0.0.1, and all its servers listen there alone."""
POLL_SECONDS = 0.2
SAVING_SECONDS = 60  # how long cancelled runs may take to save
LATE_SECONDS = 60  # a network file system may show the files of another machine late


class KilledError(Exception):
    """The process of a run was killed: worth another try, unlike a mistake in its settings."""


def run_on_cluster(jobs: Sequence[Job], workers: Workers, progress: SweepProgress) -> None:
    """Compute the jobs on the cluster that `workers` names; an interrupt cancels them after they have saved."""
    ray = import_ray(str(workers.cluster))
    # The handler after the connection: Ray would replace it by its own.
    stopping = on_signals(signal.default_int_handler, signal.SIGTERM)
    with connected(ray, str(workers.cluster)), stopping, contextlib.ExitStack() as files:
        cpus = share_of_machines(ray.nodes(), workers)
        tokens = []  # a file in each folder by which a machine recognises it
        for folder in {folder for job in jobs for folder in (job.run.parent, job.data_dir)}:
            folder.mkdir(parents=True, exist_ok=True)
            tokens.append(files.enter_context(tempfile.NamedTemporaryFile(prefix=".cluster-", dir=folder)).name)
        task = ray.remote(compute).options(
            num_cpus=cpus, num_gpus=workers.gpus, max_retries=workers.retries, retry_exceptions=[KilledError]
        )
        threads, gpus = threads_for(cpus / workers.processes), None if workers.gpus else ""
        logs = {job.run.name: log_stamp(job) for job in jobs}
        pending = {}
        for job in jobs:
            # The other machines have their own environment.
            variables = worker.variables_of(job.config, threads, gpus) | {"HERO_LOG": os.environ.get("HERO_LOG", "")}
            paths = str(job.run), str(job.data_dir)
            pending[task.remote(job.config.to_toml(), *paths, variables, workers.processes, tokens)] = job
        try:
            while pending:
                done, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                for job in pending.values():
                    if job.run.name in logs and log_stamp(job) != logs[job.run.name]:
                        del logs[job.run.name]
                        progress.started(job)
                for reference in done:
                    progress.ended(job := pending.pop(reference), result(ray, reference, job, workers.retries))
                progress.refresh()
        finally:
            for reference in pending:
                ray.cancel(reference, force=False)
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=SAVING_SECONDS)


def compute(
    toml: str, run: str, data_dir: str, variables: Mapping[str, str], processes: int, tokens: Sequence[str]
) -> Failure | None:
    """The Ray task: one run in a worker process. A kill is raised, for Ray to try again."""
    missing = [str(Path(token).parent) for token in tokens if not Path(token).is_file()]
    if missing:
        raise HeroError(
            f"{socket.gethostname()} of the cluster does not see the folder {' and '.join(missing)} of this machine; "
            "put `runs` and `data` on a file system that all machines share."
        )
    try:
        process = worker.start_worker(toml, Path(run), Path(data_dir), variables, processes)
    except (HeroError, OSError) as error:
        return Failure(str(error))
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)  # not one long wait, in which Ray could not cancel us
    finally:
        worker.stop([process])
    failure = worker.failure_of(Path(run), process.returncode)
    if failure is not None and failure.lost:
        raise KilledError(failure)
    return failure


def result(ray: Any, reference: Any, job: Job, retries: int) -> Failure | None:
    """How a task ended, as seen from here; HeroError if its machine cannot compute, for it would spoil further runs."""
    try:
        failure: Failure | None = ray.get(reference)
    except KilledError as error:
        failure = error.cause.args[0]  # type: ignore[attr-defined]  # Ray's wrapper of it
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HeroError):
            raise HeroError(str(error.cause)) from None
        reason = str(error.cause).strip().splitlines()[-1].rstrip(".")
        raise HeroError(
            f"a machine of the cluster cannot compute ({reason}); install the same hero and Ray there."
        ) from None
    except ray.exceptions.RayError:
        sentence = f"its worker on the cluster failed after {retries} retries; rerun the command to resume."
        failure = Failure(worker.with_log(sentence, job.run))
    if failure is None:
        deadline = time.monotonic() + LATE_SECONDS
        while not StoredRun(job.run).metrics_file.is_file() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    return failure


def threads_for(cpus: float) -> int:
    """As many threads as CPUs, or fewer if OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(int(cpus), int(limit)) if limit.isdecimal() else int(cpus))


def log_stamp(job: Job) -> tuple[int, int]:
    """Changes when a worker of the run starts or writes."""
    try:
        status = (job.run / LOG).stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


def import_ray(address: str = "local") -> Any:
    """Ray, which is an extra; a cluster of our own listens on this machine alone, and only to who knows its token."""
    if address == "local":
        os.environ.setdefault(LOOPBACK, "0")
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if address == "local" or named or (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray joins a cluster with a token by its address only then
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # messages of raylets; we report what happens to runs
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # `compute` sets the GPUs; this spares a warning
    try:
        import ray
    except ImportError:
        raise HeroError(f"`cluster` needs Ray, which is not installed; {install_hint('cluster')}.") from None
    if os.environ.get(LOOPBACK) == "0":
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # for a session that had imported Ray before
    return ray


@contextlib.contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """A connection to the cluster at `address`, without Ray's messages; one that is open already is used."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    opened = not ray.is_initialized()
    try:
        if address not in ("local", "auto"):
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray itself would try for minutes
        if opened:
            ray.init(address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
        raise HeroError(
            f"cannot use a Ray cluster at {address!r} ({reason}); start one with `ray start --head`, or use local."
        ) from None
    try:
        yield
    finally:
        if opened:
            ray.shutdown()


def share_of_machines(nodes: Sequence[Mapping[str, Any]], workers: Workers) -> float:
    """CPUs of each run; HeroError if no machine has room for one."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    offers = [(node["Resources"]["CPU"], node["Resources"].get("GPU", 0)) for node in alive]
    cpus: float = workers.cpus or max(1, min((cpus for cpus, _ in offers), default=1) // workers.count)
    if not any(offer[0] >= cpus and offer[1] >= workers.gpus for offer in offers):
        names = (node["NodeManagerHostname"] for node in alive)
        shown = ", ".join(f"{name}: {each[0]:g} and {each[1]:g}" for name, each in zip(names, offers, strict=True))
        raise HeroError(
            f"no machine of the cluster has {cpus:g} CPUs and {workers.gpus:g} GPUs for a run "
            f"({shown or 'there is none'}); lower `cpus` or `gpus`, or add a machine."
        )
    return cpus
