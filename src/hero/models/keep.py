"""An operator that keeps invariants of its input: `backbone.keep`, found by `data/invariants.py`.

The output v of the operator is projected, each step of a bundle, with u the newest state of its input and ⟨·⟩ the mean
over valid points with their quadrature:

    bounds      v ← min(max(v, low), high), whose gradient is that of v
    norm        v ← ⟨v⟩ + (v - ⟨v⟩) ‖u - ⟨u⟩‖ / ‖v - ⟨v⟩‖;  norm_cap: where that factor is below 1;
                limit: likewise with a number in the place of ‖u - ⟨u⟩‖
    mean        v ← v + ⟨u⟩ - ⟨v⟩; with bounds the difference goes where there is room, so that none is left
    total       the same for the mean of several channels together

The deployed operator keeps them as the trained one did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hero.data.invariants import Rule

SMALLEST = 1e-18
"""Room that can be shared: its square is a number in float32."""
COLLAPSED = 1e-6
"""Norm of an output, relative to the wanted one, below which it is not brought back to it."""


class Kept(nn.Module):
    """G'(z) = P(G(z), u_n) for an operator G that maps (batch, H*channels + p, *space) to states of physical units."""

    omega: Tensor | None

    def __init__(
        self,
        backbone: nn.Module,
        rules: Sequence[Rule],
        channels: int,
        history: int = 1,
        weights: Tensor | None = None,
    ) -> None:
        """`weights` (channel or 1, *space) weigh the points of the mean; None: all equal, on any grid."""
        super().__init__()
        self.backbone, self.rules, self.channels = backbone, tuple(rules), channels
        self.newest = slice((history - 1) * channels, history * channels)
        self.register_buffer("omega", None if weights is None else normalised(weights))

    def fit_weights(self, weights: Tensor | None) -> None:
        """Take the weights of the points, (channel or 1, *space), from the norm of the training data."""
        if self.omega is not None and weights is not None:
            self.omega.copy_(normalised(weights.expand(self.omega.shape)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.backbone(x)
        return self.project(out, x)

    def project(self, out: Tensor, x: Tensor) -> Tensor:
        """The states `out` (batch, steps*channels, *space) that the operator made of the input `x`, projected."""
        v, u = out.unflatten(1, (-1, self.channels)), x[:, None, self.newest]
        columns = list(v.unbind(2))
        old = u.unbind(2)
        for c in range(self.channels):
            columns[c] = self.of_channel(columns[c], old[c], c)
        for rule in self.rules:
            if rule.kind == "total":
                made = with_mean(
                    torch.stack([columns[c] for c in rule.channels], dim=2),
                    torch.stack([old[c] for c in rule.channels], dim=2),
                    None if self.omega is None else self.omega[list(rule.channels)] / len(rule.channels),
                    *self.limits(rule.channels[0]),
                )
                for place, c in enumerate(rule.channels):
                    columns[c] = made[:, :, place]
        return torch.stack(columns, dim=2).flatten(1, 2)

    def of_channel(self, v: Tensor, u: Tensor, c: int) -> Tensor:
        """One channel: v (batch, steps, *space), u (batch, 1, *space)."""
        kinds = {rule.kind for rule in self.rules if rule.channels == (c,) and rule.kind != "total"}
        low, high = self.limits(c)
        if kinds & {"low", "high"}:
            v = clipped(v, low, high)
        omega = None if self.omega is None else self.omega[c]
        if kinds & {"norm", "norm_cap", "limit"}:
            v_mean = mean(v, omega)
            wanted = self.wanted_norm(u, c, omega)
            v = v_mean + (v - v_mean) * factor(wanted, norm(v - v_mean, omega), "norm" not in kinds)
        return with_mean(v, u, omega, low, high) if "mean" in kinds else v

    def wanted_norm(self, u: Tensor, c: int, omega: Tensor | None) -> Tensor:
        """The norm about the mean that an output should have, or not exceed: (batch, 1, 1..)."""
        limits = [rule.value for rule in self.rules if rule.kind == "limit" and c in rule.channels]
        found = norm(u - mean(u, omega), omega)
        return torch.full_like(found, limits[0]) if limits else found

    def limits(self, c: int) -> tuple[float, float]:
        """The bounds of a channel."""
        low = [rule.value for rule in self.rules if rule.kind == "low" and c in rule.channels]
        high = [rule.value for rule in self.rules if rule.kind == "high" and c in rule.channels]
        return (*low, -math.inf)[0], (*high, math.inf)[0]

    def extra_repr(self) -> str:
        return ", ".join(f"{rule.kind}:{','.join(map(str, rule.channels))}" for rule in self.rules)


def normalised(weights: Tensor) -> Tensor:
    """Weights (channel, *space) with sum 1 in each channel."""
    total = weights.double().sum(dim=tuple(range(1, weights.dim())), keepdim=True)
    return (weights.double() / total).float()


def space_axes(v: Tensor) -> tuple[int, ...]:
    """All axes but the first two."""
    return tuple(range(2, v.dim()))


def mean(v: Tensor, omega: Tensor | None) -> Tensor:
    """⟨v⟩ over all axes but the first two, which are kept."""
    if omega is not None:
        return (v * omega).sum(dim=space_axes(v), keepdim=True)
    return v.mean(dim=space_axes(v), keepdim=True)


def norm(v: Tensor, omega: Tensor | None) -> Tensor:
    """⟨v²⟩^½ likewise."""
    if omega is not None:
        return torch.linalg.vector_norm(v * omega.sqrt(), dim=space_axes(v), keepdim=True)
    return torch.linalg.vector_norm(v, dim=space_axes(v), keepdim=True) / math.prod(v.shape[2:]) ** 0.5


def factor(wanted: Tensor, found: Tensor, is_cap: bool) -> Tensor:
    """wanted / found, at most 1 for a cap; at most 1 / COLLAPSED, so that an output that has died has a gradient."""
    least = wanted if is_cap else COLLAPSED * wanted
    return wanted / torch.where(wanted > 0, torch.maximum(found, least), 1.0)


def clipped(v: Tensor, low: float, high: float) -> Tensor:
    """v within its bounds; beyond them the gradient is the gradient of v, so that a value can find its way back."""
    inside = v.clamp(low, high)
    return inside if not torch.is_grad_enabled() else v + (inside - v).detach()


def with_mean(v: Tensor, u: Tensor, omega: Tensor | None, low: float, high: float) -> Tensor:
    """v with the mean of u. The difference goes to each point by its room below a finite bound, else evenly."""
    missing = mean(u, omega) - mean(v, omega)
    more = missing if math.isinf(high) else shared(missing.clamp(min=0), high - v, omega)
    less = missing if math.isinf(low) else shared(missing.clamp(max=0), v - low, omega)
    if math.isinf(low) and math.isinf(high):
        return v + missing
    return v + torch.where(missing > 0, more, less)


def shared(missing: Tensor, room: Tensor, omega: Tensor | None) -> Tensor:
    """`missing` by the share that each point has in the room; no more than there is."""
    room = room.clamp(min=0)
    total = torch.maximum(mean(room, omega), missing.abs())
    return room * missing / torch.where(total > SMALLEST, total, 1.0)
