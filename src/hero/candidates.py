"""Stage 2 of HERO: the candidate rollouts, detached, in the fixed priority lag ≻ perturbed ≻ self."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from hero.perturbations import perturb
from hero.rollout import Context, Unroll, unroll

CANDIDATES = ("lag", "perturbed", "self")


@torch.no_grad()
def candidate_rollouts(
    model: nn.Module,
    lagged: nn.Module,
    context: Context,
    current: Tensor,
    scale: float,
    generator: Generator,
    unroll: Unroll = unroll,
) -> list[Tensor]:
    """C = {τ_lag, τ_pert, τ_self} in the order of CANDIDATES, each (batch, K, channel, *space).

    τ_lag = Rollout(G_θ̄, z_n, K);  τ_pert = sg[Rollout(G_θ, P_ζ(z_n), K)];  τ_self = sg(τ_θ).
    """
    steps = current.shape[1]
    return [
        unroll(lagged, context, steps),
        unroll(model, perturb(context, scale, generator), steps),
        current.detach(),
    ]
