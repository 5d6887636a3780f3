"""The protocol of `solution.py` with neuraloperator's layers, in the loop that its users would write."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.participant import Workload
from benchmarks.participants_torch import neuralop_model
from benchmarks.peers import PAPER
from benchmarks.protocol import BATCH, CLIP, UNROLL, WEIGHT_DECAY, learning_rate, scores, windows


def unrolled(model: nn.Module, u: Tensor, steps: int) -> Tensor:
    states = []
    for _ in range(steps):
        u = model(u)
        states.append(u)
    return torch.stack(states, dim=1)


def errors(states: Tensor, truth: Tensor) -> Tensor:
    """‖v - u‖ / ‖u‖, (batch, steps)."""
    return (states - truth).flatten(2).norm(dim=2) / (truth.flatten(2).norm(dim=2) + 1e-8)


@torch.inference_mode()
def evaluate(model: nn.Module, data: Tensor, steps: int) -> dict[str, float]:
    return scores(errors(unrolled(model, data[:, 0], steps), data[:, 1 : steps + 1]).numpy())


def main(path: str, updates: int, threads: int) -> None:
    """Train, keep the weights that validate best, and print the scores of the test data."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    train, val, test = (torch.from_numpy(np.load(path)[name]) for name in ("train", "val", "test"))
    model = neuralop_model(Workload("training", 1, **PAPER[1], batch=BATCH, steps=UNROLL))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=WEIGHT_DECAY)
    best, kept = float("inf"), dict[str, Tensor]()
    for step, (rows, starts) in enumerate(windows((train.shape[0], train.shape[1]), updates)):
        window = train[rows[:, None], starts[:, None] + np.arange(UNROLL + 1)]
        optimizer.param_groups[0]["lr"] = learning_rate(step, updates)
        optimizer.zero_grad()
        errors(unrolled(model, window[:, 0], UNROLL), window[:, 1:]).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (step + 1) % max(1, updates // 20) == 0:
            score = evaluate(model, val, 100)["gm100"]
            if score < best:
                best, kept = score, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(kept or model.state_dict())
    print(json.dumps(evaluate(model, test, 200)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
