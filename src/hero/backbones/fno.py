"""The Fourier neural operator in the layout of APEBench (pdequinox): the paper's first backbone, in 1D, 2D and 3D."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from hero.backbones.spectral import SpectralConv


def pointwise(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """v(x) = A u(x) + a at every grid point: (batch, in, *space) -> (batch, out, *space)."""
    return (weight @ u.flatten(2) + bias[:, None]).unflatten(2, u.shape[2:])


class Pointwise(nn.Module):
    """A linear map of the channels, the same at every grid point, with bias: a 1x1 convolution on any dimension."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        bound = in_channels**-0.5
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound))

    def forward(self, u: Tensor) -> Tensor:
        return pointwise(u, self.weight, self.bias)


class FNOBlock(nn.Module):
    """v ← GELU(K v + W v + b): spectral convolution plus pointwise bypass."""

    def __init__(self, width: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, modes)
        self.bypass = Pointwise(width, width)

    def forward(self, v: Tensor) -> Tensor:
        # The tanh form is what JAX, and so APEBench, means by GELU.
        return gelu(self.spectral(v) + self.bypass(v), approximate="tanh")

    def lifted(self, u: Tensor, lifting: Pointwise) -> Tensor:
        """self(lifting(u)) without ever making the lifted field: lifting is linear, so it commutes with the transform.

        K(A u + a) = (K A) u + Re(W_0) a, so the few input channels are transformed instead of `width`, and lifting,
        spectral weight and bypass fold into one small tensor each. Exact up to rounding.
        """
        spectral = torch.einsum("ci,rco...->rio...", lifting.weight, self.spectral.weight)
        mean = self.spectral.weight[0].flatten(2)[:, :, 0]  # Re W_0, (in, out)
        constant = mean.T @ lifting.bias + self.bypass.weight @ lifting.bias + self.bypass.bias
        bypass = pointwise(u, self.bypass.weight @ lifting.weight, constant)
        return gelu(self.spectral(u, spectral) + bypass, approximate="tanh")


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
        first, *others = self.blocks
        assert isinstance(first, FNOBlock)  # for the type checker
        v = first.lifted(u, self.lifting)
        for block in others:
            v = block(v)
        return self.projection(v)
