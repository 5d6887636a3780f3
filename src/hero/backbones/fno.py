"""The Fourier neural operator in the layout of APEBench (pdequinox): the paper's first backbone, in 1D, 2D and 3D."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from hero.backbones.spectral import SpectralConv


class Pointwise(nn.Module):
    """A linear map of the channels, the same at every grid point, with bias: a 1x1 convolution on any dimension."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        bound = in_channels**-0.5
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound))

    def forward(self, u: Tensor) -> Tensor:
        flat = self.weight @ u.flatten(2) + self.bias[:, None]  # (b, out, points)
        return flat.unflatten(2, u.shape[2:])


class FNOBlock(nn.Module):
    """v ← GELU(K v + W v + b): spectral convolution plus pointwise bypass."""

    def __init__(self, width: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, modes)
        self.bypass = Pointwise(width, width)

    def forward(self, v: Tensor) -> Tensor:
        # The tanh form is what JAX, and so APEBench, means by GELU.
        return gelu(self.spectral(v) + self.bypass(v), approximate="tanh")


class FNO(nn.Module):
    """Linear lifting, `depth` blocks with an activation after each (the last too), linear projection.

    Maps (batch, in_channels, *space) to (batch, out_channels, *space) on any periodic grid that carries `modes`.
    """

    def __init__(self, in_channels: int, out_channels: int, width: int, modes: tuple[int, ...], depth: int) -> None:
        super().__init__()
        self.lifting = Pointwise(in_channels, width)
        self.blocks = nn.ModuleList(FNOBlock(width, modes) for _ in range(depth))
        self.projection = Pointwise(width, out_channels)

    def forward(self, u: Tensor) -> Tensor:
        v = self.lifting(u)
        for block in self.blocks:
            v = block(v)
        out: Tensor = self.projection(v)
        return out
