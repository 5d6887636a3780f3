"""One-step supervision (teacher forcing): L = ℓ(G_θ(z_n), u_{n+1}) on the first transition of each window."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from hero.config import Settings
from hero.data.windows import Batch
from hero.strategies.base import Loss, Strategy


class OneStep(Strategy[Settings]):
    """The baseline without any rollout. It draws the same windows as the others so that seeds pair."""

    title: ClassVar[str] = "One-step"
    suffix: ClassVar[str | None] = ""
    unrolls: ClassVar[bool] = False

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(self.rolled_loss(model, batch.context, batch.truth[:, :1]), {})
