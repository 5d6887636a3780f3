"""Contexts, autoregressive rollouts, and the distances between states and trajectories that everything else uses.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

EPS = 1e-12
"""ε of the paper. Small, because states may decay by many orders of magnitude (kdv) and their errors stay relative."""


@dataclass(frozen=True)
class Context:
    """z_n = (u_{n-H+1}, .., u_n; μ): the H most recent states and the conditioning μ, which is never perturbed."""

    states: Tensor  # (batch, H, channel, *space)
    mu: Tensor | None = None  # scalars (batch, p) or fields (batch, p, *space)

    def inputs(self) -> Tensor:
        """What a backbone sees: (batch, H*channel + p, *space)."""
        x = self.states.flatten(1, 2)
        if self.mu is None:
            return x
        mu = self.mu
        if mu.dim() == 2:
            mu = mu[(..., *(None,) * (x.dim() - 2))].expand(*mu.shape, *x.shape[2:])
        return torch.cat([x, mu], dim=1)

    def advance(self, u: Tensor) -> Context:
        """The context one step later, with u as its newest state."""
        return replace(self, states=torch.cat([self.states[:, 1:], u[:, None]], dim=1))


Stepper = Callable[[Context], Tensor]
Unroll = Callable[[nn.Module, Context, int], Tensor]


def as_stepper(model: nn.Module) -> Stepper:
    """A backbone as G_θ: z_n ↦ û_{n+1}."""
    return lambda context: model(context.inputs())


def rollout(step: Stepper, context: Context, steps: int) -> Tensor:
    """τ = (û_{n+1}, .., û_{n+K}) with û_{n+k} = G(û_{n+k-H}, .., û_{n+k-1}; μ): (batch, steps, channel, *space)."""
    states = []
    for _ in range(steps):
        u = step(context)
        states.append(u)
        context = context.advance(u)
    return torch.stack(states, dim=1)


def unroll(model: nn.Module, context: Context, steps: int) -> Tensor:
    """Rollout(G_θ, z_n, K) of a backbone. Training may replace it by its compiled form, which does the same."""
    return rollout(as_stepper(model), context, steps)


def norm(u: Tensor, weights: Tensor | None = None) -> Tensor:
    """‖u‖_X = (Σ_i ω_i ‖u(x_i)‖²₂)^½ of a trajectory (batch, time, channel, *space): (batch, time).

    `weights` are the quadrature weights ω, in the shape of space; None means a regular grid, ω_i = 1/N_x.
    """
    # vector_norm has gradient 0 at 0, where the square root of a sum would give NaN.
    if weights is None:
        return torch.linalg.vector_norm(u.flatten(2), dim=2) / u[0, 0, 0].numel() ** 0.5
    return torch.linalg.vector_norm((u * weights.sqrt().to(u.dtype)).flatten(2), dim=2)


def energy(u: Tensor, weights: Tensor | None = None) -> Tensor:
    """𝓔(u) = ‖u‖²_X, a proxy of the energy: (batch, time)."""
    return norm(u, weights).square()


def state_distance(v: Tensor, w: Tensor, weights: Tensor | None = None) -> Tensor:
    """d_X(v, w) = ‖v - w‖_X / (‖w‖_X + ε), per trajectory and step: (batch, time)."""
    return norm(v - w, weights) / (norm(w, weights) + EPS)


def trajectory_distance(tau: Tensor, truth: Tensor, weights: Tensor | None = None) -> Tensor:
    """D(τ, τ_*) = (1/K) Σ_k d_X(v_k, u_{n+k}), per sample: (batch,)."""
    return state_distance(tau, truth, weights).mean(dim=1)
