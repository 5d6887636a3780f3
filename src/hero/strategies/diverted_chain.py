"""Diverted chain (`div` of APEBench): the solver corrects each step of the model's own rollout, where it happens to be.

A rollout is compared with what the solver makes of the model's states, not with data that it has left behind. No error
of earlier steps is held against a later one, and no future beyond the first state of a window is read.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from hero.method.rollout import Context
from hero.strategies.base import Batch, Loss, Strategy

if TYPE_CHECKING:
    from hero.runs.config import RunConfig


class DivertedChain(Strategy):
    """L = (1/K) Σ_k ℓ(û_k, S(û_{k-1})) with û_0 = u_n, û_k = G_θ(û_{k-1}) and S one step of the solver."""

    sections: ClassVar[tuple[str, ...]] = ("diverted_chain",)

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.solver = cache(config.make_task().stepper)  # S, made once per device

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        begin = time.perf_counter()
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        rolled_out = time.perf_counter()
        targets = self.targets(batch.context, tau)
        end = time.perf_counter()
        # An accelerator works on its own, and to wait for it would cost more than the number is worth.
        on_cpu = tau.device.type == "cpu"
        return Loss(self.absolute(tau, targets), {"solver_share": (end - rolled_out) / (end - begin)} if on_cpu else {})

    def targets(self, context: Context, tau: Tensor) -> Tensor:
        """(S(û_0), .., S(û_{K-1})): (batch, K, channel, *space), in one call because all û are there."""
        previous = torch.cat([context.states[:, -1:], tau[:, :-1]], dim=1)
        if not self.config.diverted_chain.through_solver:
            previous = previous.detach()
        return self.solver(tau.device)(previous.flatten(0, 1)).unflatten(0, previous.shape[:2])
