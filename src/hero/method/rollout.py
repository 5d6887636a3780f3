"""Contexts, autoregressive rollouts, and the distances between states and trajectories that everything else uses.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hero.data.windows import Context
from hero.models.once import frozen_weights

EPS = 1e-12
"""ε of the paper. Small, because states may decay by many orders of magnitude (kdv) and their errors stay relative."""


Stepper = Callable[[Context], Tensor]
Unroll = Callable[[nn.Module, Context, int], Tensor]


def as_stepper(model: nn.Module) -> Stepper:
    """A backbone as G_θ: z_n ↦ û_{n+1}."""
    return lambda context: model(context.inputs())


def rollout(step: Stepper, context: Context, steps: int) -> Tensor:
    """τ = (û_{n+1}, .., û_{n+K}) with û_{n+k} = G(û_{n+k-H}, .., û_{n+k-1}; μ): (batch, steps, channel, *space).

    A stepper may make several steps per call; then its output has as many times the channels of a state.
    """
    if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        with frozen_weights():
            return _rollout_in_place(step, context, steps)
    channels, parts, count = context.states.shape[2], [], 0
    while count < steps:
        made = step(context).unflatten(1, (-1, channels))
        parts.append(made)
        count += made.shape[1]
        context = context.advance(made)
    return torch.cat(parts, dim=1)[:, :steps]


def _rollout_in_place(step: Stepper, context: Context, steps: int) -> Tensor:
    """Without gradient, states go at once where they stay: small ones kept between large ones would waste memory."""
    states = context.states
    tau = torch.empty(states.shape[0], steps, *states.shape[2:], dtype=states.dtype, device=states.device)
    count = 0
    while count < steps:
        made = step(context).unflatten(1, (-1, states.shape[2]))[:, : steps - count]
        tau[:, count : count + made.shape[1]] = made
        count += made.shape[1]
        context = context.advance(made)
    return tau


def unroll(model: nn.Module, context: Context, steps: int) -> Tensor:
    """Rollout(G_θ, z_n, K) of a backbone. Training may replace it by its compiled form, which does the same."""
    with nullcontext() if torch.compiler.is_compiling() else frozen_weights():
        return rollout(as_stepper(model), context, steps)


def compiled(function: Unroll, device: torch.device) -> Unroll:
    """`function` compiled for fixed shapes; on a CPU the calls between its kernels are compiled as well."""
    return torch.compile(function, dynamic=False, options={"cpp_wrapper": True} if device.type == "cpu" else None)


def recomputed_unroll(model: nn.Module, context: Context, steps: int) -> Tensor:
    """`unroll` that keeps only the states for the backward pass and computes each step again there."""
    if not torch.is_grad_enabled():
        return unroll(model, context, steps)
    return rollout(lambda z: checkpoint(model, z.inputs(), use_reentrant=False), context, steps)


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
