"""Push-forward as the paper means it: L_roll = ℓ over a K-step rollout, back-propagated through all of it.

This is supervised unrolling; the gradient-cut trick that first bore the name is another thing.
"""

from __future__ import annotations

from torch import nn

from hero.strategies.base import Batch, Loss, Strategy


class PushForward(Strategy):
    """Absolute supervision of the model's own K-step rollout."""

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.absolute(tau, batch.truth), {})
