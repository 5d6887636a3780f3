"""Diverted chain (`div` of APEBench): the solver corrects each step of the model's own rollout, where it happens to be.

A rollout is compared with the solver's step from the model's own states, not with data that it has left behind. No
error of earlier steps is held against a later one, and no future beyond the first state of a window is read.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from hero.config import Settings, setting
from hero.data.windows import Batch, Context
from hero.strategies.base import Compiler, Loss, Setup, Strategy, require_solver


class DivertedChainSettings(Settings):
    """Targets from the solver at the model's own states."""

    through_solver: bool = setting(True, "Back-propagate through the solver as well; false cuts the gradient there.")


class DivertedChain(Strategy[DivertedChainSettings]):
    """L = (1/K) Σ_k ℓ(û_k, S(û_{k-1})) with û_0 = u_n, û_k = G_θ(û_{k-1}) and S one step of the solver."""

    title: ClassVar[str] = "Diverted chain"
    suffix: ClassVar[str | None] = "-div"
    section: ClassVar[str] = "diverted_chain"
    Settings: ClassVar[type[Settings]] = DivertedChainSettings

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        require_solver(setup.source, "diverted_chain")
        self.solver = cache(setup.source.stepper)  # S, built once per device

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.absolute(tau, self.targets(batch.context, tau)), {})

    def targets(self, context: Context, tau: Tensor) -> Tensor:
        """(S(û_0), .., S(û_{K-1})): (batch, K, channel, *space), in one call because all û are there."""
        previous = torch.cat([context.states[:, -1:], tau[:, :-1]], dim=1)
        if not self.settings.through_solver:
            previous = previous.detach()
        return self.solver(tau.device)(previous.flatten(0, 1)).unflatten(0, previous.shape[:2])
