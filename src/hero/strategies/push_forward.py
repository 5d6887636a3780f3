"""Push-forward: absolute supervision of the model's own rollout, in the variants that share the name.

The paper's is `full`, L_roll = ℓ over a K-step rollout, back-propagated through all of it: supervised unrolling. The
trick that first bore the name (Brandstetter et al. 2022) is `original`: a random number of steps without gradient, then
one with it.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from hero.seeding import seed_of
from hero.strategies.base import Batch, Loss, Strategy


class PushForward(Strategy):
    """ℓ(τ_θ, τ_*) with τ_θ a K-step rollout; the variant says where gradients flow and what is supervised."""

    sections: ClassVar[tuple[str, ...]] = ("push_forward",)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings, steps = self.config.push_forward, batch.truth.shape[1]
        if settings.variant == "original":
            return Loss(self.original(model, batch), {})
        every = {"cut": 1, "truncated": settings.cut_every}.get(settings.variant, steps)
        tau = self.cut_rollout(model, batch, every)
        kept = slice(-1, None) if settings.variant == "last" else slice(None)
        return Loss(self.absolute(tau[:, kept], batch.truth[:, kept]), {})

    def cut_rollout(self, model: nn.Module, batch: Batch, every: int) -> Tensor:
        """The rollout with the gradient stopped after every `every` steps."""
        context, steps, parts = batch.context, batch.truth.shape[1], []
        if every >= steps:
            return self.unroll(model, context, steps)
        for first in range(0, steps, every):
            parts.append(self.unroll(model, context, min(every, steps - first)))
            context = context.advance(parts[-1].detach())
        return torch.cat(parts, dim=1)

    def original(self, model: nn.Module, batch: Batch) -> Tensor:
        """ℓ(G_θ(sg û_{n+r}), u_{n+r+1}) with r even over 0 .. K-1, the same for the whole batch."""
        bundle = self.config.train.bundle
        r = seed_of(self.config.seed, "push", batch.step) % (batch.truth.shape[1] // bundle) * bundle
        context = batch.context
        if r > 0:
            with torch.no_grad():
                context = context.advance(self.unroll(model, context, r))
        return self.absolute(self.unroll(model, context, bundle), batch.truth[:, r : r + bundle])

    @property
    def varies(self) -> bool:
        return super().varies or self.config.push_forward.variant == "original"
