"""Transolver and U-Net as their authors write them, beside which ours are measured.

`AuthorsTransolver` has the parameters of ours and the formulae of thuml/Transolver (Physics_Attention_Structured_Mesh),
all heads at once. `AuthorsUNet` has the layers of PDEArena (microsoft/pdearena, twod_unet.py) in our order:
pre-activated residual blocks, a strided convolution down and a transposed one up.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from hero.models.transolver import PhysicsAttention, Transolver
from hero.models.unet import group_norm


class AuthorsAttention(PhysicsAttention):
    """Slice, attend, deslice on (batch, heads, points, ..), with the parameters of ours."""

    def forward(self, v: Tensor, space: tuple[int, ...]) -> Tensor:
        heads, d = self.temperature.shape[1], self.to_q.in_features
        x, f = (part.unflatten(-1, (heads, d)).transpose(1, 2).contiguous() for part in self.project(v, space))
        tau = self.temperature.clamp(0.1, 5.0) if self.structured else self.temperature
        w = torch.softmax(self.in_project_slice(x) / tau, dim=-1)  # (batch, heads, points, slices)
        z = torch.einsum("bhnc,bhng->bhgc", f, w)
        z = z / (w.sum(2) + 1e-5)[..., None].repeat(1, 1, 1, d)
        q, k, values = self.to_q(z), self.to_k(z), self.to_v(z)
        attention = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * d**-0.5, dim=-1)
        out = torch.einsum("bhgc,bhng->bhnc", torch.matmul(attention, values), w)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def project(self, v: Tensor, space: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        if not self.structured:
            return super().project(v, space)
        v = v.reshape(len(v), *space, -1).movedim(-1, 1).contiguous()
        for layer in (self.in_project_x, self.in_project_fx):
            layer.padding = (1,) * len(space)  # type: ignore[assignment]
        x, f = self.in_project_x(v), self.in_project_fx(v)
        return x.movedim(1, -1).flatten(1, -2), f.movedim(1, -1).flatten(1, -2)


def authors_transolver(ours: Transolver) -> Transolver:
    """`ours`, changed in place to compute as its authors do; it must not be periodic, as theirs are not."""
    for block in ours.blocks:
        block.attention.__class__ = AuthorsAttention
    return ours


class AuthorsBlock(nn.Module):
    """PDEArena's ResidualBlock."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = group_norm(in_channels), group_norm(out_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        same = in_channels == out_channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(silu(self.norm1(x)))
        h = self.conv2(silu(self.norm2(h)))
        result: Tensor = h + self.shortcut(x)
        return result


class AuthorsUNet(nn.Module):
    """PDEArena's layers as a U-Net of `levels` grids; grids of a multiple of 2^levels, padded with zeros."""

    def __init__(self, in_channels: int, out_channels: int, width: int, levels: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(levels + 1)]
        self.image_proj = nn.Conv2d(in_channels, width, 3, padding=1)
        self.down_blocks = nn.ModuleList(AuthorsBlock(c, c) for c in sizes[:-1])
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairwise(sizes))
        self.middle = AuthorsBlock(sizes[-1], sizes[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 4, 2, 1) for a, b in pairwise(sizes))
        self.up_blocks = nn.ModuleList(AuthorsBlock(2 * c, c) for c in sizes[:-1])
        self.final = nn.Conv2d(width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.image_proj(x), []
        for block, down in zip(self.down_blocks, self.down, strict=True):
            x = block(x)
            skips.append(x)
            x = down(x)
        x = self.middle(x)
        for up, block, skip in zip(reversed(self.up), reversed(self.up_blocks), reversed(skips), strict=True):
            x = block(torch.cat([up(x), skip], dim=1))
        result: Tensor = self.final(x)
        return result
