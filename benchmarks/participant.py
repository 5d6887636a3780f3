"""One participant in its own process, started by `peers.py`: JSON lines in, JSON lines out.

The process of a JAX participant never loads torch, so libraries are imported where they are needed.

A participant turns a workload into a `Prepared` piece of work: APEBench's here, the torch ones in
`participants_torch.py`. All compute the same function with the same number of parameters (`tests/test_peers.py`), on
one batch that stays on the device.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hero.training.memory import peak_memory, release_memory, reset_peak, resident_memory

LR, WEIGHT_DECAY = 1e-6, 0.01
"""Small steps: the weights stay where they are however often an update is repeated."""


@dataclass(frozen=True)
class Workload:
    """`training`: one update through an unroll of `steps`. `inference`: one rollout of `steps`, all states kept."""

    kind: str
    dims: int
    points: int  # per axis
    width: int
    modes: int
    depth: int
    batch: int
    steps: int
    network: Any = "fno"  # or transolver, with `modes` slices, or unet, with `depth` grids below the first

    @property
    def space(self) -> tuple[int, ...]:
        return (self.points,) * self.dims


@dataclass(frozen=True)
class Prepared:
    """Work that can be repeated; `run` returns when the device has done it."""

    run: Callable[[], object]
    parameters: int  # real and imaginary parts count separately
    compiled: bool


def apebench_work(work: Workload, compiled: bool) -> Prepared:
    """APEBench's network (pdequinox) and loss (trainax) under jit, its buffers donated; the rollout is one scan."""
    import equinox as eqx
    import jax
    import numpy as np
    import optax
    import pdequinox
    import trainax

    def noise(*shape: int) -> Any:
        return jax.device_put(0.1 * np.random.default_rng(0).standard_normal(shape, np.float32))

    settings = {"hidden_channels": work.width, "num_modes": work.modes, "num_blocks": work.depth}
    shapes = eqx.filter_eval_shape(pdequinox.arch.ClassicFNO, work.dims, 1, 1, **settings, key=jax.random.key(0))
    weights, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    weights = jax.tree.map(lambda leaf: noise(*leaf.shape), weights)  # its own would be compiled draw by draw
    count = sum(leaf.size for leaf in jax.tree.leaves(weights))
    if work.kind == "inference":

        @jax.jit
        def roll(weights: Any, u: Any) -> Any:
            model = jax.vmap(eqx.combine(weights, static))
            return jax.lax.scan(lambda u, _: (model(u),) * 2, u, length=work.steps)[1]

        start = noise(work.batch, 1, *work.space)
        return Prepared(lambda: jax.block_until_ready(roll(weights, start)), count, True)

    window = noise(work.batch, work.steps + 1, 1, *work.space)
    supervised = trainax.configuration.Supervised(work.steps)
    optimiser = optax.adamw(LR, weight_decay=WEIGHT_DECAY)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Any, state: Any, window: Any) -> Any:
        gradient = jax.grad(lambda w: supervised(eqx.combine(w, static), window))(weights)
        change, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state

    held = [(weights, jax.jit(optimiser.init)(weights))]

    def run() -> None:
        held[0] = jax.block_until_ready(update(*held[0], window))

    return Prepared(run, count, True)


LIBRARIES = {
    **dict.fromkeys(("hero", "hero_matrices", "hero_fft", "authors"), ("benchmarks.participants_torch",)),
    "neuralop": ("neuralop.layers.fno_block", "benchmarks.participants_torch"),
    "apebench": ("optax", "pdequinox", "trainax"),
}
"""Modules that are imported before anything is measured, a peer's library first, so that its absence shows soon."""


class Session:
    """Requests of the driver: each public method is a request, its result the reply."""

    def __init__(self, name: str, threads: int) -> None:
        for module in LIBRARIES[name]:
            loaded = importlib.import_module(module)
        self.build = apebench_work if name == "apebench" else getattr(loaded, f"{name}_work")
        if name != "apebench":
            sys.modules["torch"].set_num_threads(threads)
        self.work: Prepared | None = None
        self.rehearsed: set[str] = set()
        self.before = 0

    def ready(self) -> dict[str, Any]:
        return {}

    def prepare(self, work: dict[str, Any], compiled: bool) -> dict[str, Any]:
        """Build, compile and run the work. Memory that the library needs for any work at all is not counted."""
        self.work = None
        workload = Workload(**work)
        if workload.kind not in self.rehearsed:
            rehearsal = Workload(workload.kind, 1, points=8, width=2, modes=2, depth=1, batch=1, steps=2)
            if workload.network != "fno":
                rehearsal = replace(workload, points=8, width=8, modes=2, depth=1, batch=1)
            self.build(rehearsal, compiled).run()
            self.rehearsed.add(workload.kind)
        release_memory()
        self.before = resident_memory() or 0
        begin = time.perf_counter()
        self.work = self.build(workload, compiled)
        self.work.run()
        seconds = time.perf_counter() - begin
        estimate = self.time(1 if seconds > 20 else 2)["seconds"][-1]
        counted = {"parameters": self.work.parameters, "compiled": self.work.compiled}
        return {**counted, "prepare_seconds": seconds, "estimate": estimate}

    def time(self, repetitions: int) -> dict[str, Any]:
        assert self.work is not None
        seconds = []
        for _ in range(repetitions):
            begin = time.perf_counter()
            self.work.run()
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds}

    def memory(self) -> dict[str, Any]:
        """Most memory while working, beyond what the library held before the work, and in all."""
        torch = sys.modules.get("torch")
        device = torch.device("cuda") if torch is not None and torch.cuda.is_available() else None
        release_memory()
        reset_peak(device)
        self.time(1)
        peak = peak_memory(device) or 0
        return {"peak_bytes": peak - (0 if device else self.before), "resident_bytes": peak}

    def machine(self) -> dict[str, Any]:
        from benchmarks.limits import measure_machine

        return measure_machine()

    def flops(self, work: dict[str, Any]) -> dict[str, Any]:
        from benchmarks.limits import count_flops

        return count_flops(Workload(**work))


def main(name: str, threads: int) -> None:
    """Answer requests until the driver closes our input."""
    if hasattr(os, "sched_setaffinity"):  # the one limit that holds for every thread pool alike
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not come between the replies
    session: Session | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            session = session or Session(name, threads)
            answer = getattr(session, request.pop("do"))(**request)
        except Exception as error:  # the driver shows it and continues with the others
            missing = session is None and isinstance(error, ImportError)
            text = next(iter(str(error).splitlines()), "")
            answer = {"error": f"{type(error).__name__}: {text}", "missing": missing}
        print(json.dumps(answer), file=replies, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
