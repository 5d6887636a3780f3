"""The tests as other machines would run them: other instruction sets, one thread and two, a busy machine.

`ATEN_CPU_CAPABILITY`, `ONEDNN_MAX_CPU_ISA` and `MKL_CBWR` choose the kernels of older processors, which round
otherwise; what fails under one of them would fail on somebody's machine.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MACHINES: dict[str, dict[str, str]] = {
    "as it is": {},
    "ATEN_CPU_CAPABILITY=default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATEN_CPU_CAPABILITY=avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "ONEDNN_MAX_CPU_ISA=AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL_CBWR=COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "busy": {},
}
BUSY_PROCESSES = 6


def spin() -> None:
    """Keep a core busy."""
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """`count` processes that compute all the time."""
    processes = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def run_anywhere(machines: Sequence[str], arguments: Sequence[str]) -> bool:
    """Run pytest with `arguments` under each setting and print the counts; returns whether all passed."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile", "--tb=short", *arguments]
    all_passed = True
    for name in machines:
        begun = time.monotonic()
        with busy(BUSY_PROCESSES if name == "busy" else 0), tempfile.TemporaryDirectory() as cache:
            # torch's cache of compiled code does not know the setting: code for other kernels would not compile
            variables = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, **MACHINES[name]}
            done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode:
            all_passed = False
            print(done.stdout[-8000:])
        counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|error)", done.stdout))
        print(f"{name}: {counts or f'exit code {done.returncode}'}, {time.monotonic() - begun:.0f} s", flush=True)
    return all_passed
