"""Commands of hero in forked copies of this process, which can be killed, and what a command leaves on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hero.cli import main
from hero.files import FAULT
from hero.runs.checkpoint import load_state

TIMES = {"seconds", "steps_per_second", "cost", "checksum"}
"""Fields that a clock decides, and the checksums of lines that hold them."""

NO_RESULTS = (".lock", "output.log", "table.*", "*.html", "*.png", "*.pdf", "previous.pt")
"""Files for people, and the checkpoint before the last, which is of another update where a signal stopped the run."""
"""Locks, printed output, and pages and tables, which are written from the records and show the cost."""


def start(arguments: Sequence[object], output: Path, fault: str | None = None) -> int:
    """Begin `hero ARGUMENTS` in a child that ends itself at the point `fault`; returns its process id.

    Forking spares the imports, if `warm_up` came before.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()  # Ctrl-C in our terminal is not for it
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), stream)
        os.environ.pop(FAULT, None)
        if fault:
            os.environ[FAULT] = fault
        code = main([str(argument) for argument in arguments])
        sys.stdout.flush()
    except BaseException as error:  # a traceback is a finding, and the child may not return into the caller's code
        os.write(2, "".join(traceback.format_exception(error)).encode())
    finally:
        sys.stderr.flush()
        os._exit(code)


def warm_up(arguments: Sequence[object]) -> None:
    """`hero ARGUMENTS` in this process: children share its imports, a dozen times the work of a tiny run."""
    torch.set_num_threads(1)  # threads do not survive a fork
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(argument) for argument in arguments]) == 0


def wait(child: int) -> int:
    """The exit code of a child, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(arguments: Sequence[object], output: Path, fault: str | None = None) -> int:
    """`hero ARGUMENTS` in a child, to its end."""
    return wait(start(arguments, output, fault))


def run_and_kill(arguments: Sequence[object], output: Path, seconds: float, draw: random.Random) -> int:
    """The same, with a SIGKILL after `seconds` to it or, where it has workers, to one of these processes."""
    child = start(arguments, output)

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice([child, *descendants(child)]), signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    code = wait(child)
    timer.cancel()
    timer.join()
    return code


def descendants(process: int) -> list[int]:
    """All processes below one, where the system has /proc."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, queue = [], [process]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def resources() -> tuple[float, int]:
    """Resident memory in MB and open handles of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))


def contents(folder: Path) -> dict[str, str]:
    """A hash of each result below a folder of runs, without what a clock decides."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or any(path.match(pattern) for pattern in NO_RESULTS):
            continue
        found[str(path.relative_to(folder))] = hashlib.sha256(repr(content(path)).encode()).hexdigest()
    return found


def content(path: Path) -> Any:
    """The content of a file of a run, as plain values."""
    if path.suffix == ".pt":
        return plain(load_state(path))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {
                name: (arrays[name].shape, arrays[name].tobytes()) for name in sorted(arrays.files) if name not in TIMES
            }
    if path.suffix == ".jsonl":
        return [plain(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        return plain(json.loads(path.read_text()))
    return path.read_bytes()


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.cpu().numpy().tobytes() if isinstance(value, torch.Tensor) else value


def timed(arguments: Sequence[object], output: Path) -> float:
    """Seconds that a command takes; AssertionError if it fails."""
    begin = time.perf_counter()
    code = run(arguments, output)
    assert code == 0, f"{arguments} ended with {code}:\n{output.read_text()[-2000:]}"
    return time.perf_counter() - begin
