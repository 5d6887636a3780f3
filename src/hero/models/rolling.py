"""An FNO's step in rollouts on a CPU: few calls, prepared once per rollout, without gradient; the numbers of the
general form up to rounding.

- A field lies as (*space, batch, channel), so both transforms are matrix products from the left and pointwise maps are
  products from the right; none of them copies.
- A real field has X[-k] = conj X[k], so the first of several axes keeps k = 0 .. m instead of twice as many. Its
  negative wavenumbers return on the second axis, as a sign s: products of the first axis have half the size.
- GELU(v) = v σ(2y): torch has a fast exponential in the logistic function, and none in the hyperbolic tangent.
- What follows from weights and shape is computed once per rollout, fields and spectra lie in memory that is kept, and a
  step is a list of calls without further Python: on a small grid the time is that of starting some ten calls, and on a
  large one fresh memory would come from the system each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hero.models.spectral import dft_matrices

if TYPE_CHECKING:
    from hero.models.fno import FNOBlock, Pointwise

LINEAR, CUBIC = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
UNIT = CUBIC ** (1 / 3)
"""A field before an activation is scaled by it: then 2y = v³ + LINEAR / UNIT v."""

NARROW = 8
"""Columns up to which many products of one small matrix take longer than one large product with two copies."""

Matrices = list[tuple[Tensor, int]]
"""For each axis a matrix, and for how many wavenumbers of other axes it is applied."""


class Rolling:
    """An FNO of linear lifting, blocks and linear projection with their present weights, for inputs such as `u`."""

    def __init__(self, lifting: Pointwise, blocks: Sequence[FNOBlock], projection: Pointwise, u: Tensor) -> None:
        self.batch, channels, *space = u.shape
        self.points, axes, unit = math.prod(space), len(space), 1.0
        self.calls: list[Callable[[], object]] = []
        self.kept: dict[tuple[str, int], Tensor] = {}
        self.matrices = left_matrices(blocks[0].spectral.modes, tuple(space), u.dtype)
        self.shape, self.channels_second = (*space, self.batch, -1), (axes, axes + 1, *range(axes))
        self.slope = u.new_tensor(LINEAR / UNIT)
        z = u.new_empty(self.points * self.batch, channels)
        self.input = z.view(self.shape).permute(self.channels_second)
        for i, block in enumerate(blocks):
            own = block.spectral.weight, block.bias, block.bypass.weight
            spectral, bias, bypass = own if i else block.fold(lifting)
            scale = UNIT if block.activated else 1.0
            z = self.block(z, spectral * (scale / unit), bias * scale, bypass.T * (scale / unit))
            z, unit = (self.activation(z), scale) if block.activated else (z, scale)
        self.project = partial(
            torch.addmm, projection.bias.expand(len(z), -1).contiguous(), z, projection.weight.T / unit
        )

    def __call__(self, u: Tensor) -> Tensor:
        """(batch, channel, *space) -> (batch, channel, *space)."""
        self.input.copy_(u)
        for call in self.calls:
            call()
        return self.project().view(self.shape).permute(self.channels_second)

    def room(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Memory for a result; results of one name and size share it."""
        key = name, math.prod(shape)
        return self.kept.setdefault(key, self.slope.new_empty(key[1])).view(shape)

    def prepare(self, name: str, shape: tuple[int, ...], call: Callable[..., Tensor], *given: Tensor) -> Tensor:
        """The result of a call that every step makes."""
        out = self.room(name, shape)
        self.calls.append(partial(call, *given, out=out))
        return out

    def copied(self, name: str, z: Tensor) -> Tensor:
        """`z` in the order of its axes."""
        out = self.room(name, tuple(z.shape))
        self.calls.append(partial(out.copy_, z))
        return out

    def block(self, u: Tensor, spectral: Tensor, constant: Tensor, bypass: Tensor) -> Tensor:
        """K(u) + W u + constant; W is (in, out) here."""
        forward, inverse = self.matrices
        modes, z, batch = mode_matrices(spectral), u, self.batch
        for axis, (matrix, times) in enumerate(forward):
            z = self.left(f"forward {axis}", matrix, times, z)
        count, rows, out = modes.shape
        if batch > 1:
            z = z.view(count, 2, 2, batch, -1).transpose(2, 3)  # (modes, row, batch, 2, in)
            z = self.copied("rows", z)
        z = z.view(count, 2 * batch, rows)
        mean = constant.new_zeros(count, 2 * batch, out)
        mean[0, :batch] = constant * self.points  # a constant has only a mean mode, and that is real
        if batch == 1 and rows == 2:  # products of two numbers would each cost more than they compute
            for part, weight in zip(z.split(1, 2), modes.split(1, 1), strict=True):
                mean = self.prepare("mixed", tuple(mean.shape), torch.addcmul, mean, part, weight)
            z = mean
        else:
            z = self.prepare("mixed", tuple(mean.shape), torch.baddbmm, mean, z, modes)
        *others, (matrix, _) = inverse
        for axis, (between, times) in enumerate(others):
            z = self.left(f"inverse {axis}", between, times, z)
        # The bypass first, because a product that adds takes no longer than one that writes.
        v = self.prepare("field", (len(u), out), torch.mul if u.shape[1] == 1 else torch.mm, u, bypass)
        self.calls.append(partial(v.view(len(matrix), -1).addmm_, matrix, z.view(matrix.shape[1], -1)))
        return v

    def left(self, name: str, matrix: Tensor, times: int, z: Tensor) -> Tensor:
        """matrix @ z for each of the wavenumbers of other axes."""
        rows, n = matrix.shape
        z = z.view(times, n, -1)
        if times == 1:
            return self.prepare(name, (rows, z.shape[2]), torch.mm, matrix, z[0])
        if (count := z.shape[2]) > NARROW:
            return self.prepare(name, (times, rows, count), torch.bmm, matrix.expand(times, -1, -1), z)
        z = z.transpose(1, 2) if count == 1 else self.copied(f"{name} turned", z.transpose(1, 2))
        found = self.prepare(f"{name} rows", (times * count, rows), torch.mm, z.view(-1, n), matrix.T)
        found = found.view(times, count, rows).transpose(1, 2)
        return found if count == 1 else self.copied(name, found)

    def activation(self, v: Tensor) -> Tensor:
        """UNIT GELU(v / UNIT) = v σ(v³ + LINEAR / UNIT v)."""
        y = self.prepare("activation", tuple(v.shape), torch.addcmul, self.slope, v, v)
        self.calls += [partial(y.mul_, v), y.sigmoid_, partial(y.mul_, v)]
        return y


def mode_matrices(weight: Tensor) -> Tensor:
    """(2, in, out, *kept) -> a real matrix (2 in, out) for each mode, in the order of `left_matrices`."""
    if weight.dim() > 4:
        plus, minus = weight.chunk(2, dim=3)
        zero = torch.zeros_like(plus[:, :, :, :1])
        weight = torch.stack([torch.cat([plus, zero], 3), torch.cat([zero, minus.flip(3)], 3)], 4)
    real, imaginary = weight.flatten(3).movedim(-1, 1)  # (modes, in, out)
    return torch.cat([real, -imaginary], dim=1)


@lru_cache(8)
def left_matrices(modes: tuple[int, ...], space: tuple[int, ...], dtype: torch.dtype) -> tuple[Matrices, Matrices]:
    """The matrices of `dft_matrices` with which a field (*space, ..) is multiplied from the left, axis by axis.

    Those of the way back come in their order. Rows and columns have the wavenumber first, then real and imaginary part.
    Modes are ordered as (k_1, s, k_2, ..): k_1 = 0 .. m of the first of several axes stands for the wavenumber s k_1,
    of which s k_1 = m and -0 are not kept and have the weight zero. The transform of the last axis gives the rows
    (X, -iX): with the weights [Re W; -Im W] on its columns they become the real and the imaginary part of X W.
    """
    forward, inverse, kept, last = Matrices(), Matrices(), 1, len(space) - 1
    for axis, (there, back) in enumerate(zip(*dft_matrices(modes, space), strict=True)):
        n, m = space[axis], modes[axis]
        f = there[:n].unflatten(1, (2, -1)).movedim(0, -1)  # of a real field: (2, kept, n)
        b = back[:, :n].unflatten(0, (2, -1))  # to a real field: (2, kept, n)
        if axis == 0:
            if last:  # k = m is the conjugate of -m, which comes after m - 1
                f, b = (torch.cat([x[:, :m], conjugate(x[:, m : m + 1])], 1) for x in (f, b))
            f, b = f[:, :, None], b[None]
        else:
            # to and from a complex field: (2, kept, 2 of the input, n), (2 of the output, 2, kept, n)
            f, b = torch.stack([f, times_i(f)], dim=2), torch.stack([b, times_i(b)])
            if axis == 1:  # of s = -1 the first axis gives and takes the conjugate
                f = torch.cat([f, torch.stack([f[:, :, 0], -f[:, :, 1]], 2)], 1)
                b = torch.cat([b, conjugate(b)], 2)
        f = torch.stack([f, -times_i(f)]) if axis == last else f[None]  # (2 rows, 2, kept, ..)
        forward.append((f.movedim(2, 0).flatten(0, 2).flatten(1).to(dtype), kept))
        inverse.insert(0, (b.permute(0, 3, 2, 1).flatten(0, 1).flatten(1).to(dtype), kept))
        kept *= f.shape[2]
    return forward, inverse


def conjugate(x: Tensor) -> Tensor:
    """(real, imaginary) -> (real, -imaginary)."""
    return torch.stack([x[0], -x[1]])


def times_i(x: Tensor) -> Tensor:
    """(real, imaginary) -> (-imaginary, real)."""
    return torch.stack([-x[1], x[0]])
