"""Wrappers around a backbone that make it the operator G_θ: normalisation, masks, residual prediction, precision.

Each is a module that takes and gives states in physical units, so that nothing outside needs to know of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hero.data.trajectories import Trajectories


class Normalised(nn.Module):
    """G(z) = mean + std · backbone((u - mean) / std; (μ - mean_μ) / std_μ), per physical channel."""

    mean: Tensor
    std: Tensor
    mu_mean: Tensor
    mu_std: Tensor

    def __init__(self, backbone: nn.Module, channels: int, history: int = 1, conditioning: int = 0) -> None:
        super().__init__()
        self.backbone, self.history, self.conditioning = backbone, history, conditioning
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
        self.std.copy_(std.clamp(min=1e-12))
        if data.is_conditioned:
            mean, std = data.mu_moments()
            self.mu_mean.copy_(mean)
            self.mu_std.copy_(std)

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *(1,) * (x.dim() - 2))
        mean, std = self.mean.reshape(shape), self.std.reshape(shape)
        states, mu = x.tensor_split([self.history * len(self.mean)], dim=1)
        states = (states - mean.repeat(self.history, *shape[1:])) / std.repeat(self.history, *shape[1:])
        if self.conditioning:
            mu = (mu - self.mu_mean.reshape(shape)) / self.mu_std.reshape(shape)
        out = self.backbone(torch.cat([states, mu], dim=1))
        return (mean + std * out.unflatten(1, (-1, len(self.mean)))).flatten(1, 2)


class Masked(nn.Module):
    """Masked points enter the backbone as 0, whatever they hold, and leave it as 0: the mean, inside of `Normalised`.

    With `as_input` the share of channels that have a value at a point is a further input of the backbone.
    """

    mask: Tensor

    def __init__(
        self, backbone: nn.Module, channels: int, space: tuple[int, ...], history: int = 1, as_input: bool = True
    ) -> None:
        super().__init__()
        self.backbone, self.history, self.as_input = backbone, history, as_input
        self.register_buffer("mask", torch.ones(channels, *space, dtype=torch.bool))

    def fit(self, data: Trajectories | Tensor) -> None:
        """Take the mask of the training data."""
        found = Trajectories.of(data).mask
        if found is not None:
            self.mask.copy_(found)

    def forward(self, x: Tensor) -> Tensor:
        states, others = x.tensor_split([self.history * len(self.mask)], dim=1)
        parts = [torch.where(self.mask.repeat(self.history, *(1,) * (x.dim() - 2)), states, 0.0), others]
        if self.as_input:
            # x.shape[0], because len(x) would fix the batch of an exported file
            parts.append(self.mask.to(x.dtype).mean(dim=0).expand(x.shape[0], 1, *x.shape[2:]))
        out = self.backbone(torch.cat(parts, dim=1)).unflatten(1, (-1, len(self.mask)))
        return torch.where(self.mask, out, 0.0).flatten(1, 2)


class Residual(nn.Module):
    """G(z) = u_n + backbone(z): the backbone predicts the change from the newest state."""

    def __init__(self, backbone: nn.Module, channels: int, history: int = 1) -> None:
        super().__init__()
        self.backbone, self.channels = backbone, channels
        self.newest = slice((history - 1) * channels, history * channels)

    def forward(self, x: Tensor) -> Tensor:
        change = self.backbone(x).unflatten(1, (-1, self.channels))  # one state, or several of a bundle
        return (x[:, None, self.newest] + change).flatten(1, 2)


class MixedPrecision(nn.Module):
    """The backbone under bfloat16 autocast; states stay in float32 between the steps. An export leaves it out."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.backbone(x).to(x.dtype)
