"""The control of HERO: the same schedule with α replaced by a constant, L = L_roll + λ_s α₀ D(τ_θ, τ_*).

What HERO gains over this arm is the effect of history; what this arm gains over push_forward is the effect of the
added distance term alone.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from hero.method.rollout import trajectory_distance
from hero.method.schedule import relative_weight
from hero.strategies.base import Batch, Loss, Strategy


class FixedWeight(Strategy):
    """Push-forward plus a scheduled constant share of D."""

    sections: ClassVar[tuple[str, ...]] = ("hero",)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings = self.config.hero
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        value = self.absolute(tau, batch.truth)
        assert settings.start is not None
        assert settings.warmup is not None
        weight = relative_weight(batch.step, settings.start, settings.warmup, settings.lambda_max)
        if weight == 0:
            return Loss(value, {})
        value = value + weight * settings.fixed_alpha * trajectory_distance(tau, batch.truth).mean()
        return Loss(value, {"lambda": weight})
