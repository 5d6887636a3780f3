"""The command in a process of its own that starts at once: forked from a server that has torch and hero in memory.

A new interpreter needs seconds of CPU time to import them, and the tests that kill, stop and resume start many.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.children import descendants
from hero.cli import main

SERVER = multiprocessing.get_context("forkserver")
# torch._dynamo: what the first optimizer of a process imports.
SERVER.set_forkserver_preload(["hero.cli", "hero.api", "hero.report.page", "torch._dynamo"])


def run_command(arguments: Sequence[str], cwd: Path, env: dict[str, str], streams: Sequence[Path]) -> None:
    """In the new process: `hero ARGUMENTS` that writes stdout and stderr into files."""
    os.setsid()  # a signal to its group, as a terminal sends it, reaches nothing else
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.exit(main(arguments))


def in_fork(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in a process of its own, which may limit itself; None if it dies."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        process = SERVER.Process(target=keep_result, args=(function, arguments, result), daemon=True)
        process.start()
        process.join(300)
        process.kill()
        return pickle.loads(result.read_bytes()) if result.stat().st_size else None


def keep_result(function: Callable[..., Any], arguments: Sequence[Any], path: Path) -> None:
    """In the new process: the result goes into a file, which is open before the function gives up any right."""
    with path.open("wb") as file:
        file.write(pickle.dumps(function(*arguments)))


class Forked:
    """Such a process, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, arguments: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        for path in self._streams:
            path.touch()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        given = (arguments, cwd or Path.cwd(), environment, self._streams)
        self._process = SERVER.Process(target=run_command, args=given, daemon=True)
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("hero", timeout or 0)
        return self.returncode

    def printed(self) -> str:
        """What it has written to stdout so far."""
        return self._streams[0].read_text(encoding="utf-8")

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return stdout and stderr."""
        self.wait(timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._streams)
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


PLACES = Path("/proc/net/tcp")
"""Where Linux lists its sockets."""
LOOPBACK = "0100007F"
"""127.0.0.1 as the kernel lists it, also as the end of an address of IPv6."""


def parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("PPid")).split()[1])


def listening_places(process: int) -> list[str]:
    """The places, address:port, where a process and its descendants listen."""
    own = sockets_of(process)
    return [place for place, inode in listeners() if inode in own]


def listeners() -> Iterator[tuple[str, str]]:
    """The places where anything on this machine listens, with the inode of the socket."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            place, state, inode = (line.split()[number] for number in (1, 3, 9))
            if state == "0A":
                yield f"{place.rpartition(':')[0][-8:]}:{place.rpartition(':')[2]}", inode


def sockets_of(process: int) -> set[str]:
    """The inodes of all sockets of a process and its descendants."""
    found = set()
    for pid in (process, *descendants(process)):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    return found
