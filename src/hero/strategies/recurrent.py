"""Recurrent training (RNO, Ye, Zhang and Wang 2025): the operator lives on its own predictions for a whole window.

Beside push_forward this is a matter of length: windows of up to a whole trajectory, from its first state if wanted, at
a memory that does not grow with the activations, because they are computed again in the backward pass.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from hero.strategies.base import Batch, Loss, Strategy


class Recurrent(Strategy):
    """L = (1/N) Σ_{n=1..N} ℓ(û_n, u_n) with û_0 = u_0 and û_n = G_θ(û_{n-1}), back-propagated through all N steps."""

    sections: ClassVar[tuple[str, ...]] = ("recurrent",)
    recompute: ClassVar[bool] = True

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.absolute(tau, batch.truth), {})
