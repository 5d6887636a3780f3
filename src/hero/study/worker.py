"""One run in a process of its own: how it is started, what it does, and what is known when it ends.

The process is `hero train --resume RUN` with its output in `RUN/output.log`. Its standard input is a pipe from its
parent: when the parent dies, by whatever cause, the pipe ends and so does the process, and the run is free again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hero.files import write_atomic

LOG = "output.log"


class Failure(NamedTuple):
    """Why a run has no result: one sentence, and the end of its output if that says more."""

    sentence: str
    output: list[str]


def variables_of(threads: int, gpus: str | None = None) -> dict[str, str]:
    """Threads of a worker, and the CUDA devices that it sees; None leaves those as they are."""
    variables = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return variables if gpus is None else {**variables, "CUDA_VISIBLE_DEVICES": gpus}


def start_worker(toml: str, run: Path, data_dir: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Train and evaluate the configuration `toml` in the folder `run`, in a new process with these variables set."""
    if not (run / "config.toml").is_file():
        write_atomic(run / "config.toml", toml.encode())
    importable = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # what we can import
    with (run / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hero.study.worker", run, data_dir],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **importable, **variables},
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


@contextlib.contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does; in other threads than the main one, where signals do not arrive, nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def failure_of(run: Path, code: int) -> Failure | None:
    """What the exit code of a worker and the end of its output say; None if all went well."""
    if code == 0:
        return None
    output = last_lines(run / LOG)
    if code > 0 and output and output[-1].startswith("hero: "):
        return Failure(with_log(output[-1].removeprefix("hero: "), run), [])
    if code > 0:
        return Failure(with_log(f"its process crashed with exit code {code}.", run), output[-12:])
    name = signal.Signals(-code).name
    cause = ", probably because the memory ran out; fewer workers need less" if name == "SIGKILL" else ""
    return Failure(with_log(f"its process was ended by {name}{cause}.", run), output[-12:])


def with_log(sentence: str, run: Path) -> str:
    """The sentence with the place of the log at its end."""
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


def end_with_parent() -> None:
    """Wait for the end of the pipe, then leave at once: the last checkpoint is whole, and nobody waits for us."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def main(run: str, data_dir: str) -> int:
    threading.Thread(target=end_with_parent, daemon=True).start()
    from hero.cli import main as command

    return command(["train", "--resume", run, "--data", data_dir])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
