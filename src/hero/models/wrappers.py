"""Wrappers around a backbone that make it the operator G_θ: normalisation, masks, residual prediction, precision, and
the invariants of its input that it keeps.

Each is a module that takes and gives states in physical units, so that nothing outside needs to know of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hero.data.invariants import Rule
from hero.data.trajectories import Trajectories, channel_scale

SMALLEST = 1e-18  # room that can be shared: its square is a number in float32
COLLAPSED = 1e-6  # norm of an output, relative to the wanted one, below which it is not brought back to it


class Wrapper(nn.Module):
    """A module around `backbone`; its input begins with H states, of which `newest` takes the channels of the last."""

    def __init__(self, backbone: nn.Module, channels: int = 1, history: int = 1) -> None:
        super().__init__()
        self.backbone, self.channels, self.history = backbone, channels, history
        self.newest = slice((history - 1) * channels, history * channels)


class Normalised(Wrapper):
    """G(z) = mean + std · backbone((u - mean) / std; (μ - mean_μ) / std_μ), per physical channel."""

    mean: Tensor
    std: Tensor
    mu_mean: Tensor
    mu_std: Tensor

    def __init__(self, backbone: nn.Module, channels: int, history: int = 1, conditioning: int = 0) -> None:
        super().__init__(backbone, channels, history)
        self.conditioning = conditioning
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))
        if conditioning:
            self.register_buffer("mu_mean", torch.zeros(conditioning))
            self.register_buffer("mu_std", torch.ones(conditioning))

    def fit(self, data: Trajectories | Tensor) -> None:
        """Take mean and standard deviation from the training data."""
        data = Trajectories.of(data)
        mean, std = data.statistics()[:2]
        self.mean.copy_(mean)
        self.std.copy_(channel_scale(mean, std))
        if self.conditioning:
            mean, std = data.mu_moments()
            self.mu_mean.copy_(mean)
            self.mu_std.copy_(std)

    def normalise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The states and the conditioning of an input, each scaled."""
        states, mu = x.tensor_split([self.newest.stop], dim=1)
        mean, std = (per_channel(values.repeat(self.history), x) for values in (self.mean, self.std))
        if self.conditioning:
            mu = (mu - per_channel(self.mu_mean, x)) / per_channel(self.mu_std, x)
        return (states - mean) / std, mu

    def forward(self, x: Tensor) -> Tensor:
        out = self.backbone(torch.cat(self.normalise(x), dim=1)).unflatten(1, (-1, self.channels))
        return (per_channel(self.mean, x) + per_channel(self.std, x) * out).flatten(1, 2)


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """`values` (channels,) to be multiplied with states on the grid of `x` (batch, .., *space)."""
    return values.reshape(-1, *(1,) * (x.dim() - 2))


class Masked(Wrapper):
    """Masked points enter the backbone as 0, whatever they hold, and leave it as 0: the mean, inside of `Normalised`.

    With `as_input` the share of channels that have a value at a point is a further input of the backbone.
    """

    mask: Tensor

    def __init__(
        self, backbone: nn.Module, channels: int, space: tuple[int, ...], history: int = 1, as_input: bool = True
    ) -> None:
        super().__init__(backbone, channels, history)
        self.as_input = as_input
        self.register_buffer("mask", torch.ones(channels, *space, dtype=torch.bool))

    def fit(self, data: Trajectories | Tensor) -> None:
        """Take the mask of the training data."""
        found = Trajectories.of(data).mask
        if found is not None:
            self.mask.copy_(found)

    def forward(self, x: Tensor) -> Tensor:
        states, others = x.tensor_split([self.newest.stop], dim=1)
        parts = [torch.where(self.mask.repeat(self.history, *(1,) * (x.dim() - 2)), states, 0.0), others]
        if self.as_input:
            # x.shape[0], because len(x) would fix the batch of an exported file
            parts.append(self.mask.to(x.dtype).mean(dim=0).expand(x.shape[0], 1, *x.shape[2:]))
        out = self.backbone(torch.cat(parts, dim=1)).unflatten(1, (-1, len(self.mask)))
        return torch.where(self.mask, out, 0.0).flatten(1, 2)


class Residual(Wrapper):
    """G(z) = u_n + backbone(z): the backbone predicts the change from the newest state."""

    def forward(self, x: Tensor) -> Tensor:
        change = self.backbone(x).unflatten(1, (-1, self.channels))  # one state, or several of a bundle
        return (x[:, None, self.newest] + change).flatten(1, 2)


class MixedPrecision(Wrapper):
    """The backbone under bfloat16 autocast; states stay in float32 between the steps. An export leaves it out."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.backbone(x).to(x.dtype)


class Kept(Wrapper):
    """G'(z) = P(G(z), u_n): an operator that keeps invariants of its input, `backbone.keep`.

    Its output v is projected, each step of a bundle, with u the newest state of its input and ⟨·⟩ the mean over valid
    points with their quadrature; `data/invariants.py` finds the rules:

        bounds      v ← min(max(v, low), high), whose gradient is that of v
        norm        v ← ⟨v⟩ + (v - ⟨v⟩) ‖u - ⟨u⟩‖ / ‖v - ⟨v⟩‖;  norm_cap: where that factor is below 1;
                    limit: likewise with a number in the place of ‖u - ⟨u⟩‖
        mean        v ← v + ⟨u⟩ - ⟨v⟩; with bounds the difference goes where there is room, so that none is left
        total       the same for the mean of several channels together
    """

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
        super().__init__(backbone, channels, history)
        self.totals = [list(rule.channels) for rule in rules if rule.kind == "total"]
        single = [rule for rule in reversed(rules) if rule.kind != "total"]  # the first of two that contradict counts
        self.of = [{rule.kind: rule.value for rule in single if rule.channels == (c,)} for c in range(channels)]
        self.register_buffer("omega", None if weights is None else normalised(weights))

    def fit_weights(self, weights: Tensor | None) -> None:
        """Take the weights of the points, (channel or 1, *space), from the norm of the training data."""
        if self.omega is not None and weights is not None:
            self.omega.copy_(normalised(weights.expand(self.omega.shape)))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.backbone(x), x)

    def project(self, out: Tensor, x: Tensor) -> Tensor:
        """The states `out` (batch, steps*channels, *space) that the operator made of the input `x`, projected."""
        v, u = out.unflatten(1, (-1, self.channels)), x[:, None, self.newest]
        made, old = list(v.unbind(2)), u.unbind(2)
        for c in range(self.channels):
            made[c] = self.of_channel(made[c], old[c], c)
        for chosen in self.totals:
            omega = None if self.omega is None else self.omega[chosen] / len(chosen)
            together, before = (torch.stack([states[c] for c in chosen], dim=2) for states in (made, old))
            together = with_mean(together, before, omega, *self.bounds(chosen[0]))
            for place, c in enumerate(chosen):
                made[c] = together[:, :, place]
        return torch.stack(made, dim=2).flatten(1, 2)

    def of_channel(self, v: Tensor, u: Tensor, c: int) -> Tensor:
        """One channel: v (batch, steps, *space), u (batch, 1, *space)."""
        rules, omega, (low, high) = self.of[c], None if self.omega is None else self.omega[c], self.bounds(c)
        if rules.keys() & {"low", "high"}:
            inside = v.clamp(low, high)  # with the gradient of v, so that a value beyond can find its way back
            v = v + (inside - v).detach() if torch.is_grad_enabled() else inside
        if rules.keys() & {"norm", "norm_cap", "limit"}:
            wanted, centre = norm(u - mean(u, omega), omega), mean(v, omega)
            wanted = torch.full_like(wanted, rules["limit"]) if "limit" in rules else wanted
            least = COLLAPSED * wanted if "norm" in rules else wanted  # an output that has died keeps a gradient
            size = torch.maximum(norm(v - centre, omega), least)
            v = centre + (v - centre) * (wanted / torch.where(wanted > 0, size, 1.0))
        return with_mean(v, u, omega, low, high) if "mean" in rules else v

    def bounds(self, c: int) -> tuple[float, float]:
        """The least and the largest value of a channel."""
        return self.of[c].get("low", -math.inf), self.of[c].get("high", math.inf)


def normalised(weights: Tensor) -> Tensor:
    """Weights (channel, *space) with sum 1 in each channel."""
    total = weights.double().sum(dim=tuple(range(1, weights.dim())), keepdim=True)
    return (weights.double() / total).float()


def mean(v: Tensor, omega: Tensor | None) -> Tensor:
    """⟨v⟩ over all axes but the first two, which are kept."""
    axes = tuple(range(2, v.dim()))
    return v.mean(dim=axes, keepdim=True) if omega is None else (v * omega).sum(dim=axes, keepdim=True)


def norm(v: Tensor, omega: Tensor | None) -> Tensor:
    """⟨v²⟩^½ likewise."""
    axes, points = tuple(range(2, v.dim())), math.prod(v.shape[2:])
    if omega is None:
        return torch.linalg.vector_norm(v, dim=axes, keepdim=True) / points**0.5
    return torch.linalg.vector_norm(v * omega.sqrt(), dim=axes, keepdim=True)


def with_mean(v: Tensor, u: Tensor, omega: Tensor | None, low: float, high: float) -> Tensor:
    """v with the mean of u. The difference goes to each point by its room below a finite bound, else evenly."""
    missing = mean(u, omega) - mean(v, omega)
    if math.isinf(low) and math.isinf(high):
        return v + missing
    more = missing if math.isinf(high) else shared(missing.clamp(min=0), high - v, omega)
    less = missing if math.isinf(low) else shared(missing.clamp(max=0), v - low, omega)
    return v + torch.where(missing > 0, more, less)


def shared(missing: Tensor, room: Tensor, omega: Tensor | None) -> Tensor:
    """`missing` by the share that each point has in the room; no more than there is."""
    room = room.clamp(min=0)
    total = torch.maximum(mean(room, omega), missing.abs())
    return room * missing / torch.where(total > SMALLEST, total, 1.0)
