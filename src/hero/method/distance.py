"""Distances between states and between trajectories, which the loss, the diagnostics and the metrics share.

Layout: a trajectory is (batch, time, channel, *space). `weights` are the quadrature weights ω in the shape of space;
None means a regular grid, ω_i = 1/N_x.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hero.method import EPS as EPS


def norm(u: Tensor, weights: Tensor | None = None) -> Tensor:
    """‖u‖_X = (Σ_i ω_i ‖u(x_i)‖²₂)^½ of each state of a trajectory: (batch, time)."""
    # vector_norm has gradient 0 at 0, where the square root of a sum would give NaN.
    if weights is None:
        return torch.linalg.vector_norm(u.flatten(2), dim=2) / math.prod(u.shape[3:]) ** 0.5
    return torch.linalg.vector_norm((u * root_weights(weights, u)).flatten(2), dim=2)


_roots = WeakIdKeyDictionary()


def root_weights(weights: Tensor, u: Tensor) -> Tensor:
    """√ω in the type and place of `u`; made once per weights, so that no update copies them to a device."""
    if torch.compiler.is_compiling():
        return weights.sqrt().to(u)
    kept: dict[tuple[torch.device, torch.dtype], Tensor] = _roots.setdefault(weights, {})
    key = (u.device, u.dtype)
    if key not in kept:
        kept[key] = weights.sqrt().to(u)
    return kept[key]


def energy(u: Tensor, weights: Tensor | None = None) -> Tensor:
    """𝓔(u) = ‖u‖²_X, a proxy of the energy: (batch, time)."""
    return norm(u, weights).square()


def state_distance(v: Tensor, w: Tensor, weights: Tensor | None = None) -> Tensor:
    """d_X(v, w) = ‖v - w‖_X / (‖w‖_X + ε), per trajectory and step: (batch, time)."""
    return norm(v - w, weights) / (norm(w, weights) + EPS)


def trajectory_distance(tau: Tensor, truth: Tensor, weights: Tensor | None = None) -> Tensor:
    """D(τ, τ_*) = (1/K) Σ_k d_X(v_k, u_{n+k}), per sample: (batch,)."""
    return state_distance(tau, truth, weights).mean(dim=1)
