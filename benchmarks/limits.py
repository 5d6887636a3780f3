"""How fast the machine could do the work: its matrix-product rate, its memory bandwidth, and what the work needs.

The first two functions run in a child process with the threads of the participants, the others in the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.participant import Workload
from benchmarks.participants_torch import hero_work, synchronise
from hero.runs.folder import choose_device

FLOAT = 4
"""Bytes."""


def measure_machine() -> dict[str, Any]:
    """Best of several: a float32 matrix product, and the triad z = x + 2 y on arrays beyond any cache."""
    device = choose_device("auto")
    n, elements = 2048, 2**26
    a, b = torch.randn(2, n, n, device=device)
    x, y, z = torch.ones(3, elements, device=device)
    gemm = best_seconds(lambda: torch.mm(a, b))
    triad = best_seconds(lambda: torch.add(x, y, alpha=2.0, out=z))
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "gemm_gflops": 2 * n**3 / gemm / 1e9,
        "bandwidth_gbs": 3 * FLOAT * elements / triad / 1e9,  # two reads and a write
    }


def best_seconds(call: Callable[[], object], repetitions: int = 5) -> float:
    """Least time of `call`, after one to warm up."""
    seconds = []
    for _ in range(repetitions + 1):
        begin = time.perf_counter()
        call()
        synchronise()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def count_flops(work: Workload) -> dict[str, Any]:
    """Arithmetic in the matrix products of our algorithm, run eagerly; every other operation counts as free."""
    from torch.utils.flop_counter import FlopCounterMode

    repeated = work.steps if work.kind == "inference" else 1  # the steps of a rollout are alike, so one is counted
    prepared = hero_work(replace(work, steps=work.steps // repeated), compiled=False)
    prepared.run()  # fills the caches of the model
    with FlopCounterMode(display=False) as counter:
        prepared.run()
    return {"flops": repeated * counter.get_total_flops(), "parameters": prepared.parameters}


def least_bytes(work: Workload, parameters: int) -> int:
    """Memory traffic without which the work cannot be done, if a field does not fit into the cache.

    F = 4 bytes · batch · width · points is one hidden field; there is one per block and call of the network.
    Training    steps · depth · 5 F + 8 · 4 P: each field is written, read by the next layer and read again by its
                derivative, its gradient is written and read; AdamW reads and writes parameters, gradients and two
                moments.
    Inference   steps · (depth · 2 F + S) + 4 P: each field is written and read, each state S = F / width is written,
                the parameters are read once.
    """
    state = FLOAT * work.batch * work.points**work.dims
    field = work.width * state
    if work.kind == "training":
        return work.steps * work.depth * 5 * field + 8 * FLOAT * parameters
    return work.steps * (work.depth * 2 * field + state) + FLOAT * parameters


def limit_of(work: Workload, flops: int, parameters: int, machine: dict[str, Any]) -> dict[str, Any]:
    """limit = max(flops / GEMM rate, bytes / bandwidth), and which of the two it is."""
    arithmetic = flops / (1e9 * machine["gemm_gflops"])
    traffic = least_bytes(work, parameters) / (1e9 * machine["bandwidth_gbs"])
    return {
        "flops": flops,
        "bytes": least_bytes(work, parameters),
        "limit_seconds": max(arithmetic, traffic),
        "bound_by": "GEMM" if arithmetic > traffic else "memory",
    }
