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

_casts = WeakIdKeyDictionary()


def norm(u: Tensor, weights: Tensor | None = None) -> Tensor:
    """‖u‖_X = (Σ_i ω_i ‖u(x_i)‖²₂)^½ of each state of a trajectory: (batch, time)."""
    # vector_norm has gradient 0 at 0, where the square root of a sum would give NaN.
    if weights is None:
        return torch.linalg.vector_norm(u.flatten(2), dim=2) / math.prod(u.shape[3:]) ** 0.5
    return torch.linalg.vector_norm((u * cast(weights, u, root=True)).flatten(2), dim=2)


def state_distance(v: Tensor, w: Tensor, weights: Tensor | None = None) -> Tensor:
    """d_X(v, w) = ‖v - w‖_X / (‖w‖_X + ε), per trajectory and step: (batch, time)."""
    return norm(v - w, weights) / (norm(w, weights) + EPS)


def trajectory_distance(tau: Tensor, truth: Tensor, weights: Tensor | None = None) -> Tensor:
    """D(τ, τ_*) = (1/K) Σ_k d_X(v_k, u_{n+k}), per sample: (batch,)."""
    return state_distance(tau, truth, weights).mean(dim=1)


def cast(table: Tensor, u: Tensor, root: bool = False) -> Tensor:
    """`table`, or √table, on the device of `u` and, unless it is an index, in its type.

    Converted once for as long as `table` lives, so that no update copies it to a device.
    """
    target = (u.device, u.dtype if table.is_floating_point() else table.dtype)
    if torch.compiler.is_compiling():
        return (table.sqrt() if root else table).to(*target)
    if not root and (table.device, table.dtype) == target:
        return table
    kept: dict[tuple[object, ...], Tensor] = _casts.setdefault(table, {})
    if (*target, root) not in kept:
        kept[*target, root] = (table.sqrt() if root else table).to(*target)
    return kept[*target, root]
