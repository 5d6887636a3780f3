"""Transolver (Wu, Luo, Wang, Wang, Long, ICML 2024, arXiv 2402.02366): the paper's second backbone.

Attention among P points would cost P². Here every point is shared out over S slices, the S slice tokens attend to each
other, and each point takes its share back: the cost is P·S, and no tensor has P² elements.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention

from hero.errors import HeroError

CONVOLUTIONS: dict[int | None, type[nn.Conv2d] | type[nn.Conv3d]] = {2: nn.Conv2d, 3: nn.Conv3d}


def grid_coordinates(space: tuple[int, ...], periodic: bool, like: Tensor) -> Tensor:
    """x_i = i/N on a periodic axis of N points, i/(N-1) otherwise: (points, dims) in row-major order."""
    precise = torch.promote_types(like.dtype, torch.float32)  # half precision cannot count to N
    cells = [n if periodic else max(n - 1, 1) for n in space]
    axes = [torch.arange(n, dtype=precise, device=like.device) / m for n, m in zip(space, cells, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2).to(like.dtype)


class PhysicsAttention(nn.Module):
    """Physics-Attention; for each head, with x and f its d = C/H channels of the two projections of the input:

        w_ps = softmax_s((W x_p + b)_s / τ)
        z_s  = Σ_p w_ps f_p / (Σ_p w_ps + 1e-5)
        z'   = softmax(q kᵀ / √d) v,   q, k, v = W_q z, W_k z, W_v z
        o_p  = Σ_s w_ps z'_s

    W, b, W_q, W_k, W_v serve all heads, τ belongs to one. On 2D and 3D grids the projections are 3^D convolutions and τ
    is kept within [0.1, 5]; elsewhere they are pointwise and τ is used as it is.
    """

    def __init__(self, dims: int | None, width: int, heads: int, slices: int, periodic: bool) -> None:
        super().__init__()
        d = width // heads
        self.structured = dims in CONVOLUTIONS
        self.padding = "circular" if periodic else "constant"
        self.temperature = nn.Parameter(torch.full((1, heads, 1, 1), 0.5))
        if self.structured:
            self.in_project_x: nn.Module = CONVOLUTIONS[dims](width, width, 3)
            self.in_project_fx: nn.Module = CONVOLUTIONS[dims](width, width, 3)
        else:
            self.in_project_x = nn.Linear(width, width)
            self.in_project_fx = nn.Linear(width, width)
        self.in_project_slice = nn.Linear(d, slices)
        self.to_q = nn.Linear(d, d, bias=False)
        self.to_k = nn.Linear(d, d, bias=False)
        self.to_v = nn.Linear(d, d, bias=False)
        self.to_out = nn.Linear(width, width)

    def project(self, v: Tensor, space: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The two projections of (batch, points, C), of the same shape."""
        if not self.structured:
            return self.in_project_x(v), self.in_project_fx(v)
        v = pad(v.unflatten(1, space).movedim(-1, 1), (1, 1) * len(space), mode=self.padding)
        v = v.contiguous()  # on a CPU the gradient of a channels-last convolution costs more than these copies
        x, f = self.in_project_x(v), self.in_project_fx(v)
        return x.movedim(1, -1).flatten(1, -2), f.movedim(1, -1).flatten(1, -2)

    def forward(self, v: Tensor, space: tuple[int, ...]) -> Tensor:
        """(batch, points, C) -> (batch, points, C)."""
        tau = self.temperature.clamp(0.1, 5.0) if self.structured else self.temperature
        d = self.to_q.in_features
        x, f = self.project(v, space)
        heads = []
        # One head at a time takes as long as all at once, and without gradients only one head's w exists.
        for x_h, f_h, tau_h in zip(x.split(d, dim=-1), f.split(d, dim=-1), tau.flatten().unbind(), strict=True):
            # Dividing W and b by τ instead of the logits saves a pass over points x slices, and its memory.
            weight, bias = self.in_project_slice.weight / tau_h, self.in_project_slice.bias / tau_h
            w = linear(x_h, weight, bias).softmax(dim=-1)  # (batch, points, slices)
            z = (w.mT @ f_h) / (w.sum(dim=1).unsqueeze(-1) + 1e-5)  # (batch, slices, d)
            z = z.unsqueeze(1)  # the fast kernels want an axis of heads
            z = scaled_dot_product_attention(self.to_q(z), self.to_k(z), self.to_v(z)).squeeze(1)
            heads.append(w @ z)  # (batch, points, d)
        return self.to_out(torch.cat(heads, dim=-1))


class TransolverBlock(nn.Module):
    """v ← v + Attn(LN₁ v);  v ← v + MLP(LN₂ v)."""

    def __init__(self, dims: int | None, width: int, heads: int, slices: int, mlp_ratio: int, periodic: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attention = PhysicsAttention(dims, width, heads, slices, periodic)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = mlp(width, mlp_ratio * width, width)

    def forward(self, v: Tensor, space: tuple[int, ...]) -> Tensor:
        v = v + self.attention(self.ln_1(v), space)
        return v + self.mlp(self.ln_2(v))


def mlp(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """Linear, GELU with the error function, Linear."""
    return nn.Sequential(nn.Linear(in_channels, hidden), nn.GELU(), nn.Linear(hidden, out_channels))


class Transolver(nn.Module):
    """v = MLP([x, u]) + placeholder, `depth` blocks, linear head after a last LayerNorm.

    Maps (batch, in_channels, *space) to (batch, out_channels, *space). With `dims` given, space is a regular grid of
    any size and the coordinates x, one channel per axis over the unit box, are computed here. With dims=None space is
    (points,) and u holds the coordinates already, in any of its channels.

    Two differences from the authors' code. On a periodic grid convolutions wrap around and coordinates are i/N; theirs
    pad with zeros and include both ends, as periodic=False does here. And the placeholder is always added; their 2D and
    3D models leave it unused. Next to the bias of the MLP it adds no function, only a trained parameter.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int | None,
        width: int,
        depth: int,
        heads: int,
        slices: int,
        mlp_ratio: int = 1,
        periodic: bool = True,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise HeroError(
                f"backbone.width={width} does not split into backbone.heads={heads} equal parts; "
                "make backbone.width a multiple of backbone.heads."
            )
        self.dims, self.periodic = dims, periodic
        self.preprocess = mlp((dims or 0) + in_channels, 2 * width, width)
        self.blocks = nn.ModuleList(
            TransolverBlock(dims, width, heads, slices, mlp_ratio, periodic) for _ in range(depth)
        )
        self.ln_3 = nn.LayerNorm(width)
        self.head = nn.Linear(width, out_channels)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.placeholder = nn.Parameter(torch.rand(width) / width)
        self._coordinates: dict[tuple[object, ...], Tensor] = {}

    def coordinates(self, space: tuple[int, ...], like: Tensor) -> Tensor:
        """The coordinates of this grid in the dtype and on the device of `like`, computed once."""
        if torch.compiler.is_compiling():  # a traced graph makes its own; no symbolic tensor may stay behind
            return grid_coordinates(space, self.periodic, like)
        key = (space, like.dtype, like.device)
        if key not in self._coordinates:
            self._coordinates[key] = grid_coordinates(space, self.periodic, like)
        return self._coordinates[key]

    def forward(self, u: Tensor) -> Tensor:
        space = tuple(u.shape[2:])
        v = u.flatten(2).mT  # (batch, points, in_channels)
        if self.dims is not None:
            x = self.coordinates(space, u)
            v = torch.cat([x.expand(u.shape[0], -1, -1), v], dim=-1)
        v = self.preprocess(v) + self.placeholder  # (batch, points, C)
        for block in self.blocks:
            v = block(v, space)
        return self.head(self.ln_3(v)).mT.unflatten(2, space)
