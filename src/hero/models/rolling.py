"""An FNO's step in rollouts on a CPU: fewer and larger calls, without gradient, the same numbers up to rounding.

A field lies as (*space, batch, channel), so both transforms are matrix products from the left and pointwise maps are
products from the right; none of them copies. What follows from the weights and the shape alone is prepared once per
rollout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hero.models.spectral import dft_matrices

if TYPE_CHECKING:
    from hero.models.fno import FNOBlock, Pointwise

LINEAR, CUBIC = math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715
UNIT = CUBIC ** (1 / 3)
"""A field before an activation is scaled by it: then the argument of the tangent is y = v³ + LINEAR / UNIT v."""


MOST_MODES = 16
"""On several axes the products are twice the arithmetic of `FNO.forward`, so calls that are large anyway lose."""

Matrices = list[tuple[Tensor, tuple[int, ...]]]


class Rolling:
    """An FNO of linear lifting, blocks and linear projection with their present weights, for inputs such as `u`."""

    def __init__(self, lifting: Pointwise, blocks: Sequence[FNOBlock], projection: Pointwise, u: Tensor) -> None:
        self.batch, space, unit = len(u), tuple(u.shape[2:]), 1.0
        self.blocks: list[Block] = []
        for block in blocks:
            parts = (block.spectral.weight, block.bias, block.bypass.weight) if self.blocks else block.fold(lifting)
            self.blocks.append(Block(*parts, block.activated, unit, self.batch, math.prod(space)))
            unit = 2 * UNIT if block.activated else 1.0
        self.forward, self.inverse = left_matrices(blocks[0].spectral.modes, space, u)
        self.weight, self.bias = projection.weight.T / unit, projection.bias
        self.slope = u.new_tensor(LINEAR / UNIT)
        # Kept, because fresh memory of this size would come from the system at every step.
        self.field, self.room = u.new_empty(2, math.prod(space) * self.batch, len(blocks[0].bypass.weight))
        axes = len(space)
        self.shape, self.last = (*space, self.batch, -1), (axes, axes + 1, *range(axes))
        self.first = (*range(2, axes + 2), 0, 1)

    def __call__(self, u: Tensor) -> Tensor:
        """(batch, channel, *space) -> (batch, channel, *space)."""
        u = u.permute(self.first).contiguous().view(-1, u.shape[1])  # (*space batch, channel)
        for block in self.blocks:
            v = self.spectral(u, block).addmm_(u, block.bypass)
            u = self.activation(v) if block.activated else v
        return torch.addmm(self.bias, u, self.weight).view(self.shape).permute(self.last)

    def spectral(self, u: Tensor, block: Block) -> Tensor:
        """K(u) + constant, one axis of space after the other: there from the first, back from the last."""
        z, modes = u, len(block.modes)
        for matrix, shape in self.forward:
            z = matrix @ z.view(shape)
        if self.batch > 1:
            z = z.view(modes, 2, 2, self.batch, -1).transpose(2, 3).reshape(modes, 2 * self.batch, -1)
        z = torch.baddbmm(block.constant, z.view(modes, 2 * self.batch, -1), block.modes)  # (modes, 2 batch, out)
        *others, (last, shape) = self.inverse
        for matrix, taken in others:
            z = matrix @ z.view(taken)
        torch.mm(last, z.view(shape), out=self.field.view(len(last), -1))
        return self.field

    def activation(self, v: Tensor) -> Tensor:
        """2 UNIT GELU(v / UNIT) = v (1 + tanh y)."""
        y = torch.addcmul(self.slope, v, v, out=self.room).mul_(v).tanh_()
        return torch.addcmul(v, v, y, out=y)


class Block:
    """A block's weights: a real matrix (2 in, out) for each mode, a constant in the spectrum, the bypass (in, out).

    Its input is `unit` times the field.
    """

    def __init__(
        self, spectral: Tensor, constant: Tensor, bypass: Tensor, activated: bool, unit: float, batch: int, points: int
    ) -> None:
        self.activated, scale = activated, UNIT if activated else 1.0
        real, imaginary = spectral.flatten(3).movedim(-1, 1)  # (modes, in, out)
        self.modes = torch.cat([real, -imaginary], dim=1) * (scale / unit)
        self.bypass = bypass.T * (scale / unit)
        self.constant = constant.new_zeros(len(real), 2 * batch, len(constant))
        self.constant[0, :batch] = constant * (scale * points)  # it has only a mean mode, and that is real


def left_matrices(modes: tuple[int, ...], space: tuple[int, ...], like: Tensor) -> tuple[Matrices, Matrices]:
    """The matrices of `dft_matrices` with which a field (*space, ..) is multiplied from the left, axis by axis.

    Each has the shape in which it takes the field.

    A matrix is repeated for all wavenumbers of the axes before its own; those of the way back come in their order.
    Rows and columns have the wavenumber first, then real and imaginary part. The transform of the last axis gives the
    rows (X, -iX): with the weights [Re W; -Im W] on its columns they become the real and the imaginary part of X W.
    """
    forward, inverse, kept, last = Matrices(), Matrices(), 1, len(space) - 1
    for axis, (there, back) in enumerate(zip(*dft_matrices(modes, space), strict=True)):
        n = space[axis]
        f = there[:n].unflatten(1, (2, -1)).movedim(0, -1)  # of a real field: (2, kept, n)
        b = back[:, :n].unflatten(0, (2, -1))  # to a real field: (2, kept, n)
        f = f[:, :, None] if axis == 0 else torch.stack([f, times_i(f)], dim=2)  # (2, kept, 2 of the input, n)
        b = b[None] if axis == 0 else torch.stack([b, times_i(b)])  # (2 of the output, 2, kept, n)
        f = torch.stack([f, -times_i(f)]) if axis == last else f[None]  # (2 rows, 2, kept, ..)
        f = f.movedim(2, 0).flatten(0, 2).flatten(1).to(like)
        b = b.permute(0, 3, 2, 1).flatten(0, 1).flatten(1).to(like)
        before = (kept,) if axis else ()
        forward.append((f.expand(*before, -1, -1), (*before, f.shape[1], -1)))
        inverse.insert(0, (b.expand(*before, -1, -1), (*before, b.shape[1], -1)))
        kept *= b.shape[1] // 2
    return forward, inverse


def times_i(x: Tensor) -> Tensor:
    """(real, imaginary) -> (-imaginary, real)."""
    return torch.stack([-x[1], x[0]])
