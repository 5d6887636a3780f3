"""Runs on a Ray cluster: one task per run, which starts the same worker process as a local sweep.

Ray decides where and when, and tries again when a worker or a machine dies; the run then resumes from its checkpoint.
Results travel through the folders of runs and data, which every machine must see under the same path.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hero.config.registry import import_variable
from hero.errors import HeroError, install_hint
from hero.files import write_atomic
from hero.runs.stored import StoredRun
from hero.study.watch import SweepProgress
from hero.study.worker import (
    LOG,
    Failure,
    Job,
    Workers,
    failure_of,
    start_worker,
    stop,
    stop_on_sigterm,
    variables_of,
    with_log,
)

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Where this variable is 0, Ray gives its node the address 127.0.0.1, and all its servers listen there alone."""
POLL_SECONDS = 0.2
SAVING_SECONDS = 60
"""How long cancelled runs may take to save."""
LATE_SECONDS = 60
"""A network file system may show the files of another machine late."""


class KilledError(Exception):
    """The process of a run was killed: worth another try, unlike a mistake in its settings."""


def run_on_cluster(jobs: Sequence[Job], workers: Workers, progress: SweepProgress) -> None:
    """Compute the jobs on the cluster that `workers` names; an interrupt cancels them after they have saved."""
    ray = import_ray(str(workers.cluster))
    folders = {folder for job in jobs for folder in (job.run.parent, job.data_dir)}
    # After the connection: Ray would replace the handler by its own.
    with connected(ray, str(workers.cluster)), stop_on_sigterm(), tokens_in(folders) as tokens:
        cpus, nodes = share_of_machines(ray.nodes(), workers)
        check_store(ray, nodes, tokens)
        task = ray.remote(compute).options(
            num_cpus=cpus, num_gpus=workers.gpus, max_retries=workers.retries, retry_exceptions=[KilledError]
        )
        variables = variables_of(threads_for(cpus / workers.processes), gpus=None if workers.gpus else "")
        names = [name for job in jobs for name in job.config.code_names()]
        # The other machines have their own environment.
        variables["HERO_LOG"] = os.environ.get("HERO_LOG", "")
        variables["HERO_IMPORT"] = import_variable(names, os.environ.get("HERO_IMPORT", ""))
        logs = {job.run.name: log_stamp(job) for job in jobs}
        pending = {
            task.remote(
                job.config.to_toml(), str(job.run), str(job.data_dir), variables, tokens, workers.processes
            ): job
            for job in jobs
        }
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
            cancel(ray, list(pending))


def compute(
    toml: str, run: str, data_dir: str, variables: Mapping[str, str], tokens: Sequence[str], processes: int = 1
) -> Failure | None:
    """The Ray task: one run in a worker process. A kill is raised, for Ray to try again."""
    if missing := missing_folders(tokens):
        return Failure(not_shared(socket.gethostname(), missing), [])
    try:
        process = start_worker(toml, Path(run), Path(data_dir), variables, processes)
    except (HeroError, OSError) as error:
        return Failure(str(error), [])
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)  # not one long wait, in which Ray could not cancel us
    finally:
        stop([process])
    failure = failure_of(Path(run), process.returncode)
    if failure is not None and failure.lost:
        raise KilledError(failure)
    return failure


def result(ray: Any, reference: Any, job: Job, retries: int) -> Failure | None:
    """How a task ended, as seen from here."""
    try:
        failure: Failure | None = ray.get(reference)
    except KilledError as error:
        failure = error.cause.args[0]  # type: ignore[attr-defined]  # Ray's wrapper of it
    except ray.exceptions.RayTaskError as error:
        failure = Failure(with_log(f"its task on the cluster crashed ({error.cause!r}).", job.run), [])
    except ray.exceptions.RayError:
        sentence = f"its worker on the cluster failed after {retries} retries; rerun the command to resume."
        failure = Failure(with_log(sentence, job.run), [])
    if failure is None:
        deadline = time.monotonic() + LATE_SECONDS
        while not StoredRun(job.run).metrics_file.is_file() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    return failure


def threads_for(cpus: float) -> int:
    """As many threads as CPUs, or fewer if OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(int(cpus), int(limit)) if limit.isdecimal() else int(cpus))


def cancel(ray: Any, references: Sequence[Any]) -> None:
    """Interrupt the tasks and wait until they have saved."""
    for reference in references:
        ray.cancel(reference, force=False)
    if references:
        ray.wait(list(references), num_returns=len(references), timeout=SAVING_SECONDS)


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
    if address == "local" or has_token():  # Ray joins a cluster with a token by its address only if told so
        os.environ.setdefault("RAY_AUTH_MODE", "token")
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


def has_token() -> bool:
    """Whether the token of clusters of this user is known here, at one of the places where Ray looks for it."""
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (Path.home() / ".ray" / "auth_token").is_file()


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


def share_of_machines(nodes: Sequence[Mapping[str, Any]], workers: Workers) -> tuple[float, list[Mapping[str, Any]]]:
    """CPUs of each run, and the machines that have room for one; HeroError if there is none."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    least = min((node["Resources"]["CPU"] for node in alive), default=1)
    cpus = workers.cpus or max(1, least // workers.count)
    fitting = [
        node for node in alive if node["Resources"]["CPU"] >= cpus and node["Resources"].get("GPU", 0) >= workers.gpus
    ]
    if not fitting:
        offers = ", ".join(
            f"{node['NodeManagerHostname']}: {node['Resources']['CPU']:g} and {node['Resources'].get('GPU', 0):g}"
            for node in alive
        )
        raise HeroError(
            f"no machine of the cluster has {cpus:g} CPUs and {workers.gpus:g} GPUs for a run "
            f"({offers or 'there is none'}); lower `cpus` or `gpus`, or add a machine."
        )
    return cpus, fitting


@contextlib.contextmanager
def tokens_in(folders: set[Path]) -> Iterator[list[str]]:
    """A file in each folder by which a machine recognises it; they go away again."""
    paths = [folder / f".cluster-{uuid.uuid4().hex}" for folder in sorted(folders)]
    try:
        yield [str(write_atomic(path, b"")) for path in paths]
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def check_store(ray: Any, nodes: Sequence[Mapping[str, Any]], tokens: Sequence[str]) -> None:
    """HeroError if a machine does not see our folders, or has no hero."""
    look, on_node = ray.remote(missing_folders), ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    answers = {
        node["NodeManagerHostname"]: look.options(
            num_cpus=0, scheduling_strategy=on_node(node["NodeID"], soft=False)
        ).remote(list(tokens))
        for node in nodes
    }
    for machine, answer in answers.items():
        try:
            missing = ray.get(answer)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1].rstrip(".")
            raise HeroError(
                f"{machine} of the cluster cannot compute ({reason}); install the same hero and Ray there."
            ) from None
        if missing:
            raise HeroError(not_shared(machine, missing))


def missing_folders(tokens: Sequence[str]) -> list[str]:
    """The folders whose token cannot be seen from here."""
    return [str(Path(token).parent) for token in tokens if not Path(token).is_file()]


def not_shared(machine: str, folders: Sequence[str]) -> str:
    return (
        f"{machine} of the cluster does not see the folder {' and '.join(folders)} of this machine; "
        "put `runs` and `data` on a file system that all machines share."
    )
