"""One run in its own process: how it is started and how its end is reported.

The process is `python -m hero train --resume RUN` with its output in `RUN/output.log`. Its standard input is a pipe
from its parent: when the parent dies, for whatever reason, the pipe ends and so does the process.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hero.config.registry import import_variable
from hero.errors import OUT_OF_MEMORY, HeroError, check_number, is_out_of_memory
from hero.files import append, write_atomic
from hero.parallel import LOST
from hero.runs.config import RunConfig
from hero.runs.stored import StoredRun

LOG = "output.log"


@dataclass(frozen=True)
class Workers:
    """Where runs are computed: `count` local processes, 0 for this one; or the Ray cluster at an address.

    On a cluster each run gets `cpus` and `gpus`, which may be fractions, and is tried again `retries` times if its
    worker dies; without `cpus`, `count` runs share the smallest machine. Each run is trained by `processes` processes.
    """

    count: int = 1
    cluster: str | None = None
    cpus: float | None = None
    gpus: float = 0.0
    retries: int = 3
    processes: int = 1

    def __post_init__(self) -> None:
        several = self.cluster is not None or self.processes > 1
        check_number("`workers`", self.count, low=1 if several else 0, whole=True)
        check_number("`cpus`", 1 if self.cpus is None else self.cpus, above=0)
        check_number("`processes`", self.processes, low=1, whole=True)
        check_number("`retries`", self.retries, low=0, whole=True)
        if self.cluster not in (None, "local", "auto") and not self.cluster.rpartition(":")[2].isdecimal():
            raise HeroError(f"`cluster`={self.cluster!r} is not an address; use host:port, auto or local.")
        if self.cluster is None and (self.cpus is not None or self.gpus):
            raise HeroError("`cpus` and `gpus` are for a cluster; set `cluster` as well, or only `workers`.")
        if not (0 <= self.gpus <= 1 or (self.gpus > 1 and self.gpus % 1 == 0)):
            raise HeroError(f"`gpus`={self.gpus:g} is not possible; use a fraction up to 1, or a whole number.")


@dataclass(frozen=True)
class Job:
    """A run to be computed."""

    config: RunConfig
    run: Path
    data_dir: Path


class Failure(NamedTuple):
    """Why a run has no result: one sentence, and the end of its output if that says more."""

    sentence: str
    output: Sequence[str] = ()
    lost: bool = False  # whether a process of the run vanished: worth another try, unlike a mistake in its settings


def variables_of(config: RunConfig, threads: int, gpus: str | None) -> dict[str, str]:
    """The variables of a worker: threads, code that it may import, CUDA devices; None leaves those as they are."""
    own_code = config.strategy, config.backbone.name, config.train.optimizer  # that may be of the user
    names = import_variable(own_code, os.environ.get("HERO_IMPORT", ""))
    variables = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "HERO_IMPORT": names}
    return variables if gpus is None else {**variables, "CUDA_VISIBLE_DEVICES": gpus}


def start_worker(
    toml: str, run: Path, data_dir: Path, variables: Mapping[str, str], processes: int = 1
) -> subprocess.Popen[bytes]:
    """Train and evaluate the configuration `toml` in the folder `run`, in a new process with these variables set."""
    path = StoredRun(run).config_file
    if not path.is_file() or path.read_bytes() != toml.encode():  # an equal id: it keeps other checkpoints
        write_atomic(path, toml.encode())
    importable = {
        "PYTHONSAFEPATH": "1",  # -P, also for processes of torchrun
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # what we can import
    }
    with (run / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hero.study.worker", run, data_dir, str(processes)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables, **importable},
        )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask them to save and end, and wait for it; a second interrupt does not wait."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.kill()


def failure_of(run: Path, code: int) -> Failure | None:
    """The failure that the exit code of a worker and the end of its output report; None if there is none."""
    if code == 0:
        return None
    output = last_lines(run / LOG)
    said = [line.removeprefix("hero: ") for line in output if line.startswith("hero: ")]
    if code > 0 and said and output[-1].startswith(("hero: ", "=====")):  # torchrun adds a report, which ends so
        return Failure(with_log(said[-1], run), lost=said[-1] == LOST)
    if code > 0:
        return Failure(with_log(f"its process crashed with exit code {code}.", run), output[-12:])
    name = signal.Signals(-code).name
    cause = ", probably because the memory ran out; fewer workers need less" if name == "SIGKILL" else ""
    return Failure(with_log(f"its process was ended by {name}{cause}.", run), output[-12:], lost=True)


def crash_of(run: Path, error: Exception) -> str:
    """Why a run that raised `error` in this process has no result; a traceback goes to the log of the run."""
    if isinstance(error, HeroError) or is_out_of_memory(error):
        return str(error) if isinstance(error, HeroError) else OUT_OF_MEMORY
    run.mkdir(parents=True, exist_ok=True)
    append(run / LOG, "".join(traceback.format_exception(error)))
    return with_log(f"it crashed ({type(error).__name__}: {error}).", run)


def with_log(sentence: str, run: Path) -> str:
    return f"{sentence.rstrip('.')} (log: {run / LOG})."


def last_lines(path: Path, size: int = 8192) -> list[str]:
    """The whole lines in the last `size` bytes of a file; none if there is no file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[1:] if end > size else lines


def main(run: str, data_dir: str, processes: str = "1") -> None:
    """The worker process, or the one that starts several of them by torchrun."""

    def end_with_parent() -> None:
        """Wait for the end of the pipe, then leave at once: the last checkpoint is whole, and nobody waits for us."""
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if processes == "1":
        sys.argv = ["hero", "train", "--resume", run, "--data", data_dir]
        runpy.run_module("hero", run_name="__main__")
    else:
        launch(processes, "-m", "hero.study.worker", run, data_dir)


def launch(processes: str, *command: str) -> None:
    """A script or module, run by torchrun in processes that meet at files and talk over the loopback interface.

    By itself torchrun opens a port on all interfaces, to which anybody may connect.
    """
    from torch.distributed.run import main as torchrun

    loopback = "lo0" if sys.platform == "darwin" else "lo"
    with tempfile.TemporaryDirectory(prefix="hero-") as folder:
        os.environ |= {
            "HERO_STORE": f"{folder}/store",
            "GLOO_SOCKET_IFNAME": loopback,
            "NCCL_SOCKET_IFNAME": loopback,
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        meeting = ["--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file", "--rdzv-endpoint", f"{folder}/meeting"]
        torchrun(["--nproc-per-node", processes, *meeting, *command])


if __name__ == "__main__":
    main(*sys.argv[1:])
