"""The Fourier neural operator in the layout of APEBench (pdequinox): the paper's first backbone, in 1D, 2D and 3D."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from hero.backbones.spectral import SpectralConv


def pointwise(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """v(x) = A u(x) + a at every grid point: (batch, in, *space) -> (batch, out, *space)."""
    out_channels, in_channels = weight.shape
    if torch.compiler.is_compiling() and (in_channels <= 4 or out_channels == 1):
        # Written without a matrix product, a thin map fuses with the activation beside it: one pass over memory.
        per_channel = (1, -1, *(1,) * (u.dim() - 2))
        if out_channels == 1:
            return (u * weight[0].reshape(per_channel)).sum(dim=1, keepdim=True) + bias.reshape(per_channel)
        columns = [u[:, i : i + 1] * weight[:, i].reshape(per_channel) for i in range(in_channels)]
        return sum(columns, bias.reshape(per_channel))
    return (weight @ u.flatten(2) + bias[:, None]).unflatten(2, u.shape[2:])


def activation(v: Tensor) -> Tensor:
    """GELU(v) ≈ ½ v (1 + tanh y) = v σ(2y), y = √(2/π) (v + 0.044715 v³): what JAX, and so APEBench, means by GELU."""
    if torch.compiler.is_compiling():  # an exponential costs half of a hyperbolic tangent, once it is fused
        return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v))
    return gelu(v, approximate="tanh")


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
        return activation(self.spectral(v) + self.bypass(v))

    def lifted(self, u: Tensor, lifting: Pointwise) -> Tensor:
        """self(lifting(u)) without ever making the lifted field: lifting is linear, so it commutes with the transform.

        K(A u + a) = (K A) u + Re(W_0) a, so the few input channels are transformed instead of `width`, and lifting,
        spectral weight and bypass fold into one small tensor each. Exact up to rounding.
        """
        spectral = torch.einsum("ci,rco...->rio...", lifting.weight, self.spectral.weight)
        mean = self.spectral.weight[0].flatten(2)[:, :, 0]  # Re W_0, (in, out)
        constant = mean.T @ lifting.bias + self.bypass.weight @ lifting.bias + self.bypass.bias
        bypass = pointwise(u, self.bypass.weight @ lifting.weight, constant)
        return activation(self.spectral(u, spectral) + bypass)


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
