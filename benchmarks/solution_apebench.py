"""The protocol of `solution.py` with APEBench's network (pdequinox) and optax, each update one call of jit."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

import numpy as np

from benchmarks.protocol import CLIP, PAPER_1D, UNROLL, WEIGHT_DECAY, learning_rates, scores, windows


def main(path: str, updates: int, threads: int) -> None:
    """Train, keep the weights that validate best, and print the scores of the test data."""
    if hasattr(os, "sched_setaffinity"):  # the one limit that holds for its threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax
    import pdequinox

    train, val, test = (jnp.asarray(np.load(path)[name]) for name in ("train", "val", "test"))
    names = {"hidden_channels": PAPER_1D["width"], "num_modes": PAPER_1D["modes"], "num_blocks": PAPER_1D["depth"]}
    model = pdequinox.arch.ClassicFNO(1, 1, 1, **names, key=jax.random.key(0))
    weights, static = eqx.partition(model, eqx.is_array)
    rates = jnp.asarray(learning_rates(updates))
    optimizer = optax.chain(
        optax.clip_by_global_norm(CLIP), optax.adamw(lambda step: rates[step], weight_decay=WEIGHT_DECAY)
    )

    def unrolled(weights: Any, u: Any, steps: int) -> Any:
        step = jax.vmap(eqx.combine(weights, static))
        return jax.lax.scan(lambda u, _: (step(u),) * 2, u, length=steps)[1].swapaxes(0, 1)

    def errors(states: Any, truth: Any) -> Any:
        size = partial(jnp.linalg.norm, axis=2)
        flat = (*states.shape[:2], -1)
        return size((states - truth).reshape(flat)) / (size(truth.reshape(flat)) + 1e-8)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Any, state: Any, train: Any, rows: Any, starts: Any) -> Any:
        window = train[rows[:, None], starts[:, None] + jnp.arange(UNROLL + 1)]
        gradient = jax.grad(lambda w: errors(unrolled(w, window[:, 0], UNROLL), window[:, 1:]).mean())(weights)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state

    @partial(jax.jit, static_argnums=2)
    def rollout_errors(weights: Any, data: Any, steps: int) -> Any:
        return errors(unrolled(weights, data[:, 0], steps), data[:, 1 : steps + 1])

    state, best, kept = jax.jit(optimizer.init)(weights), float("inf"), None
    for step, (rows, starts) in enumerate(windows(train.shape[:2], updates)):
        weights, state = update(weights, state, train, rows, starts)
        if (step + 1) % max(1, updates // 20) == 0:
            score = scores(np.asarray(rollout_errors(weights, val, 100)))["gm100"]
            if score < best:
                best, kept = score, jax.tree.map(jnp.copy, weights)
    print(json.dumps(scores(np.asarray(rollout_errors(weights if kept is None else kept, test, 200)))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
