"""The Fourier neural operator in the layout of APEBench (pdequinox): the paper's first backbone, in 1D, 2D and 3D."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from hero.models.once import inferring, once
from hero.models.rolling import Rolling
from hero.models.spectral import SpectralConv, autocasting, full_precision, fusing, prefers_fft


def pointwise(u: Tensor, weight: Tensor, plus: Tensor) -> Tensor:
    """A u(x) + plus(x) at every grid point: (batch, in, *space) -> (batch, out, *space); `plus` may be constant."""
    out_channels, in_channels = weight.shape
    if fusing() and (in_channels <= 4 or out_channels == 1):
        # Written without a matrix product, a thin map fuses with the activation next to it: one pass over memory.
        per_channel = (u.shape[0], -1, *(1,) * (u.dim() - 2))
        weight = weight.expand(u.shape[0], -1, -1)  # a gradient per sample, summed later, fuses as well
        if out_channels == 1:
            return plus + (u * weight[:, 0].reshape(per_channel)).sum(dim=1, keepdim=True)
        return sum((u[:, i : i + 1] * weight[:, :, i].reshape(per_channel) for i in range(in_channels)), plus)
    space, u, plus = u.shape[2:], u.flatten(2), plus.flatten(2)
    if autocasting(u):  # the sum stays in full precision
        return (plus + weight @ u).unflatten(2, space)
    return torch.baddbmm(plus, weight.expand(u.shape[0], -1, -1), u).unflatten(2, space)


def activation(v: Tensor) -> Tensor:
    """GELU(v) ≈ ½ v (1 + tanh y) = v σ(2y), y = √(2/π) (v + 0.044715 v³): what JAX, and so APEBench, means by GELU."""
    if fusing():  # an exponential costs half of a hyperbolic tangent, once it is fused
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
        return pointwise(u, self.weight, self.bias.reshape(1, -1, *(1,) * (u.dim() - 2)))


class FNOBlock(nn.Module):
    """v ← GELU(K v + W v + b): spectral convolution plus pointwise bypass; linear if not `activated`.

    With `spectral_bias` b is the sum of two vectors, as in neuralop, whose spectral convolution has its own.
    """

    def __init__(self, width: int, modes: tuple[int, ...], activated: bool = True, spectral_bias: bool = False) -> None:
        super().__init__()
        self.activated = activated
        self.spectral = SpectralConv(width, width, modes)
        self.bypass = Pointwise(width, width)
        self.spectral_bias = nn.Parameter(torch.zeros(width)) if spectral_bias else None

    @property
    def bias(self) -> Tensor:
        """b."""
        return self.bypass.bias if self.spectral_bias is None else self.bypass.bias + self.spectral_bias

    def forward(self, v: Tensor) -> Tensor:
        return self.activate(pointwise(v, self.bypass.weight, plus=self.spectral(v, self.bias)))

    def activate(self, v: Tensor) -> Tensor:
        return activation(v) if self.activated else v

    def lifted(self, u: Tensor, lifting: Pointwise) -> Tensor:
        """self(lifting(u)) without ever making the lifted field: lifting is linear, so it commutes with the transform.

        K(A u + a) = (K A) u + Re(W_0) a, so the few input channels are transformed instead of `width`, and lifting,
        spectral weight and bypass fold into one small tensor each. Exact up to rounding.
        """
        spectral, constant, weight = once((self, "lifted"), lambda: self.fold(lifting))
        return self.activate(pointwise(u, weight, plus=self.spectral(u, constant, spectral)))

    def fold(self, lifting: Pointwise) -> tuple[Tensor, Tensor, Tensor]:
        """Spectral weight, constant and bypass weight of `lifted`."""
        with full_precision(lifting.weight):
            spectral = torch.einsum("ci,rco...->rio...", lifting.weight, self.spectral.weight)
            mean = self.spectral.weight[0].flatten(2)[:, :, 0]  # Re W_0, (in, out)
            constant = mean.T @ lifting.bias + self.bypass.weight @ lifting.bias + self.bias
            return spectral, constant, self.bypass.weight @ lifting.weight


class ChannelMLP(nn.Module):
    """Two pointwise maps with an activation between them: a hidden lifting or projection."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = Pointwise(in_channels, hidden)
        self.second = Pointwise(hidden, out_channels)

    def forward(self, u: Tensor) -> Tensor:
        return self.second(activation(self.first(u)))


def channel_map(in_channels: int, hidden: int, out_channels: int) -> Pointwise | ChannelMLP:
    """Linear if there are no hidden channels."""
    return ChannelMLP(in_channels, hidden, out_channels) if hidden else Pointwise(in_channels, out_channels)


class FNO(nn.Module):
    """Lifting, `depth` blocks with an activation after each, projection; both maps are linear unless hidden channels
    are given.

    Maps (batch, in_channels, *space) to (batch, out_channels, *space) on any grid that carries `modes`. A Fourier
    transform joins both ends of an axis; on an axis that is not periodic `padding` puts zeros between them, a share of
    its points, which the output leaves out again. The modes are then waves in the longer box. With `coordinates` the
    position in [0, 1) along each axis is a further input channel. `final_activation` is APEBench's layout; Li's and
    neuralop's FNO have no activation after the last block.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int,
        modes: tuple[int, ...],
        depth: int,
        lifting: int = 0,
        projection: int = 0,
        coordinates: bool = False,
        final_activation: bool = True,
        spectral_bias: bool = False,
        padding: tuple[float, ...] = (),
    ) -> None:
        super().__init__()
        self.coordinates, self.padding = coordinates, padding or (0.0,) * len(modes)
        self.lifting = channel_map(in_channels + (len(modes) if coordinates else 0), lifting, width)
        last = depth - 1 if not final_activation else depth
        self.blocks = nn.ModuleList(FNOBlock(width, modes, i < last, spectral_bias) for i in range(depth))
        self.projection = channel_map(width, projection, out_channels)

    def forward(self, u: Tensor) -> Tensor:
        if self.coordinates:
            u = torch.cat([u, grid(tuple(u.shape[2:]), u).expand(u.shape[0], *(-1,) * (u.dim() - 1))], dim=1)
        if inferring() and (rolling := once((self, "rolling", u.shape), lambda: self.rolling(u))):
            return rolling(u)
        space = tuple(u.shape[2:])
        added = added_points(self.padding, space)
        first, *others = self.blocks
        assert isinstance(first, FNOBlock)  # for the type checker
        if any(added):
            # After the lifting, whose bias so ends at the wall as well: that shows the network where the wall is.
            v = first(pad(self.lifting(u), [side for more in reversed(added) for side in (0, more)]))
        else:
            v = first.lifted(u, self.lifting) if isinstance(self.lifting, Pointwise) else first(self.lifting(u))
        for block in others:
            v = block(v)
        if any(added):
            v = v[(slice(None), slice(None), *map(slice, space))]
        return self.projection(v)

    def rolling(self, u: Tensor) -> Rolling | None:
        """The form of this network for rollouts from inputs such as `u`, where there is one."""
        blocks = [block for block in self.blocks if isinstance(block, FNOBlock)]
        if not isinstance(self.lifting, Pointwise) or not isinstance(self.projection, Pointwise) or any(self.padding):
            return None
        modes, space = blocks[0].spectral.modes, tuple(u.shape[2:])
        if prefers_fft(modes, space):
            return None
        if u.device.type != "cpu" or u.dtype != self.lifting.weight.dtype or autocasting(u):
            return None
        return Rolling(self.lifting, blocks, self.projection, u)


def added_points(padding: tuple[float, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """Shares of the axes as whole numbers of points, rounded up (but for the rounding of the product itself)."""
    return tuple(math.ceil(share * n - 1e-9) for share, n in zip(padding, space, strict=True))


def grid(space: tuple[int, ...], like: Tensor) -> Tensor:
    """The coordinates x_i = i / N of a periodic grid: (1, D, *space)."""
    axes = [torch.arange(n, dtype=like.dtype, device=like.device) / n for n in space]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]
