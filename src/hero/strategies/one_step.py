"""One-step supervision (teacher forcing): L = ℓ(G_θ(z_n), u_{n+1}) on the first transition of each window."""

from __future__ import annotations

from torch import nn

from hero.strategies.base import Batch, Loss, Strategy


class OneStep(Strategy):
    """The baseline without any rollout. It draws the same windows as the others so that seeds pair."""

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        prediction = self.unroll(model, batch.context, 1)
        return Loss(self.absolute(prediction, batch.truth[:, :1]), {})
