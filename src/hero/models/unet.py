"""A U-Net in 1D, 2D and 3D: residual convolutions on a pyramid of grids, joined across by skip connections.

Each axis wraps around where it is periodic and is padded with zeros where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad, silu

from hero.errors import HeroError

CONVOLUTIONS: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def pad_periodic(v: Tensor, before: list[int], after: list[int]) -> Tensor:
    """(batch, channel, *space) continued around its axes."""
    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return pad(v, sides, mode="circular") if any(sides) else v


class Convolution(nn.Module):
    """A 3^D convolution with bias that keeps the grid, or halves it with stride=2."""

    def __init__(self, in_channels: int, out_channels: int, periodic: tuple[bool, ...], stride: int = 1) -> None:
        super().__init__()
        zeros = tuple(0 if wraps else 1 for wraps in periodic)
        self.wrapped = [1 - zero for zero in zeros]
        self.convolution = CONVOLUTIONS[len(periodic)](in_channels, out_channels, 3, stride, zeros)

    def forward(self, v: Tensor) -> Tensor:
        result: Tensor = self.convolution(pad_periodic(v, self.wrapped, self.wrapped))
        return result


def group_norm(channels: int) -> nn.GroupNorm:
    """Up to eight groups of at least four channels."""
    return nn.GroupNorm(math.gcd(max(channels // 4, 1), 8) if channels % 4 == 0 else 1, channels)


class ResidualBlock(nn.Module):
    """v ← A v + C₂ SiLU(N₂ C₁ SiLU(N₁ v)), with N a GroupNorm, C a convolution, and A pointwise or the identity."""

    def __init__(self, in_channels: int, out_channels: int, periodic: tuple[bool, ...]) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = group_norm(in_channels), group_norm(out_channels)
        self.convolution_1 = Convolution(in_channels, out_channels, periodic)
        self.convolution_2 = Convolution(out_channels, out_channels, periodic)
        pointwise = CONVOLUTIONS[len(periodic)]
        self.skip = nn.Identity() if in_channels == out_channels else pointwise(in_channels, out_channels, 1)

    def forward(self, v: Tensor) -> Tensor:
        change = self.convolution_1(silu(self.norm_1(v)))
        change = self.convolution_2(silu(self.norm_2(change)))
        result: Tensor = self.skip(v) + change
        return result


def residual_blocks(depth: int, in_channels: int, out_channels: int, periodic: tuple[bool, ...]) -> nn.Sequential:
    sizes = [in_channels, *(out_channels,) * depth]
    return nn.Sequential(*(ResidualBlock(a, b, periodic) for a, b in pairwise(sizes)))


class UNet(nn.Module):
    """A convolution, `levels` grids down and up again with `depth` residual blocks on each, and a pointwise head.

    Maps (batch, in_channels, *space) to (batch, out_channels, *space) on grids of any size of at least 2^levels. Down
    is a convolution of stride 2, up is nearest interpolation and a convolution. A size that is not a multiple of
    2^levels is padded to one on both sides and the output is cropped; a periodic axis continues around, so that both
    ends see their true neighbours.

    The head neither normalises nor activates, because a GroupNorm in front of it would hide the amplitude of the state.
    It starts at a tenth of the usual size: with residual prediction the untrained operator is near the identity.
    """

    def __init__(
        self, in_channels: int, out_channels: int, periodic: tuple[bool, ...], width: int, levels: int, depth: int = 1
    ) -> None:
        super().__init__()
        self.periodic, self.levels = periodic, levels
        sizes = [width * 2**level for level in range(levels + 1)]
        self.stem = Convolution(in_channels, width, periodic)
        self.down_blocks = nn.ModuleList(residual_blocks(depth, c, c, periodic) for c in sizes[:-1])
        self.down = nn.ModuleList(Convolution(c, 2 * c, periodic, stride=2) for c in sizes[:-1])
        self.middle = residual_blocks(depth, sizes[-1], sizes[-1], periodic)
        self.up = nn.ModuleList(Convolution(2 * c, c, periodic) for c in sizes[:-1])
        self.up_blocks = nn.ModuleList(residual_blocks(depth, 2 * c, c, periodic) for c in sizes[:-1])
        self.head = CONVOLUTIONS[len(periodic)](width, out_channels, 1)
        with torch.no_grad():
            for parameter in self.head.parameters():
                parameter.mul_(0.1)

    def forward(self, u: Tensor) -> Tensor:
        space = tuple(u.shape[2:])
        check_levels(self.levels, space)
        missing = [-n % 2**self.levels for n in space]
        v = self.stem(self.extended(u, missing))
        skips = []
        for down_blocks, down in zip(self.down_blocks, self.down, strict=True):
            v = down_blocks(v)
            skips.append(v)
            v = down(v)
        v = self.middle(v)
        for up, up_blocks, skip in zip(reversed(self.up), reversed(self.up_blocks), reversed(skips), strict=True):
            v = up(interpolate(v, scale_factor=2.0, mode="nearest"))
            v = up_blocks(torch.cat([v, skip], dim=1))
        result: Tensor = self.head(v)
        parts = [slice(more // 2, more // 2 + n) for more, n in zip(missing, space, strict=True)]
        return result[(slice(None), slice(None), *parts)] if any(missing) else result

    def extended(self, u: Tensor, missing: list[int]) -> Tensor:
        """`u` with so many points more on each axis, half of them in front."""
        around = [more if wraps else 0 for more, wraps in zip(missing, self.periodic, strict=True)]
        u = pad_periodic(u, [more // 2 for more in around], [more - more // 2 for more in around])
        zeros = [more - wrapped for more, wrapped in zip(missing, around, strict=True)]
        sides = [side for more in reversed(zeros) for side in (more // 2, more - more // 2)]
        return pad(u, sides) if any(sides) else u


def check_levels(levels: int, space: tuple[int, ...]) -> None:
    """Refuse a grid that cannot be halved so often."""
    if levels > most_levels(space):  # 2^levels may be beyond all computing
        raise HeroError(
            f"backbone.levels={levels} halves an axis of {min(space)} points below one; use at most "
            f"{most_levels(space)}."
        )


def most_levels(space: tuple[int, ...]) -> int:
    """How often the shortest axis of a grid can be halved."""
    return min(space).bit_length() - 1
