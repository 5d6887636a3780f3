"""Truncated Fourier transforms as small dense matrices.

A Fourier neural operator keeps few modes, so transform, slice, scatter and inverse transform collapse into two matrix
products per axis, in real arithmetic. That is faster than an FFT at most sizes, compiles, and exports; where nearly all
modes of a large grid are kept, `prefers_fft` counts that it is not, and the same spectrum comes from an FFT.

A spectrum travels as real tensors whose last two axes are (2, modes): real part, then imaginary part. The last axis of
the field is transformed as real data and keeps k = 0 .. m-1; every other axis keeps k = 0 .. m-1 and k = -m .. -1.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from hero.errors import HeroError
from hero.models.once import once

Matrices = tuple[list[Tensor], list[Tensor]]

GEMM_OVER_FFT = 7
"""Arithmetic of a matrix product in the time of one operation of an FFT with its slices and zeros, measured on CPUs."""

WIDE = 32
"""Channels from which on the weights of a mode are so many that copying them costs more than copying the spectrum."""


def autocasting(u: Tensor) -> bool:
    """Whether matrix products of `u` would be done in sixteen bits."""
    kind = u.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def full_precision(u: Tensor) -> AbstractContextManager[object]:
    """Autocast off: transforms and folded weights would lose too much in sixteen bits."""
    return torch.autocast(u.device.type, enabled=False) if autocasting(u) else nullcontext()


FOR_COMPILER = ContextVar("for_compiler", default=False)
"""Whether an exported program is compiled afterwards."""


def fusing() -> bool:
    """Whether a compiler fuses code without matrix products; other exporters and eager code gain nothing."""
    return torch.compiler.is_compiling() and (not torch.compiler.is_exporting() or FOR_COMPILER.get())


def frequencies(modes: int, last: bool) -> Tensor:
    """The kept wavenumbers of one axis, float64: 0..m-1 on the last axis, 0..m-1 then -m..-1 on the others."""
    positive = torch.arange(modes, dtype=torch.float64)
    return positive if last else torch.cat([positive, positive - modes])


def most_modes(space: tuple[int, ...]) -> tuple[int, ...]:
    """How many modes each axis of a grid can carry."""
    return tuple(max(1, n // 2) if axis < len(space) - 1 else n // 2 + 1 for axis, n in enumerate(space))


def check_modes(modes: tuple[int, ...], space: tuple[int, ...]) -> None:
    """Refuse a grid on which the kept modes would alias."""
    for axis, (m, n, largest) in enumerate(zip(modes, space, most_modes(space), strict=True)):
        if m > largest:
            raise HeroError(
                f"backbone.modes={m} does not fit {n} grid points on axis {axis}; use at most {largest} modes there."
            )


def dft_matrices(modes: tuple[int, ...], space: tuple[int, ...]) -> Matrices:
    """Forward and inverse matrices for each axis in the order of `space`, float64.

    Last axis, real data:   X[k] = Σ_x u[x] e^{-iφ}   and   u[x] = Σ_k c_k (Re X cos φ - Im X sin φ) / N,
    with φ = 2π k x / N and c_k = 1 for k = 0 and the Nyquist mode, 2 otherwise (the conjugate half).
    Other axes, complex:    X[k] = Σ_x Z[x] e^{-iφ}   and   Z[x] = Σ_k X[k] e^{iφ} / N.
    """
    check_modes(modes, space)
    forward, inverse = [], []
    for axis, (m, n) in enumerate(zip(modes, space, strict=True)):
        last = axis == len(space) - 1
        k = frequencies(m, last)
        phase = 2 * math.pi / n * torch.outer(torch.arange(n, dtype=torch.float64), k)  # (n, kept)
        cos, sin = torch.cos(phase), torch.sin(phase)
        if last:
            count = torch.where((k == 0) | (2 * k == n), 1.0, 2.0)
            forward.append(torch.cat([cos, -sin], dim=1))  # (n, 2m)
            inverse.append(torch.cat([count * cos, -count * sin], dim=1).T / n)  # (2m, n)
        else:
            # (a + ib)(cos - i sin), real and imaginary halves stacked on both sides
            forward.append(torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)]))  # (2n, 4m)
            cos, sin = cos.T, sin.T
            inverse.append(torch.cat([torch.cat([cos, sin], dim=1), torch.cat([-sin, cos], dim=1)]) / n)  # (4m, 2n)
    return forward, inverse


def truncated_transform(u: Tensor, forward: list[Tensor]) -> Tensor:
    """Field (batch, channel, *space) -> spectrum (batch, channel, kept_D, .., kept_2, 2, kept_1), axes reversed.

    Each axis is brought to the end and contracted there in one large matrix product.
    """
    z = u @ forward[-1]
    z = z.unflatten(-1, (2, -1))  # (b, c, n_1 .. n_{D-1}, 2, m_D)
    for done, matrix in enumerate(reversed(forward[:-1])):
        z = z.movedim(-1, 2 + done).movedim(-2, -1)  # the next axis to contract comes last: (b, c, m_D, .., 2, n)
        z = (z.flatten(-2) @ matrix).unflatten(-1, (2, -1))
    return z


def truncated_inverse(z: Tensor, inverse: list[Tensor]) -> Tensor:
    """Spectrum as `truncated_transform` gives it -> field (batch, channel, *space)."""
    for done, matrix in enumerate(inverse[:-1]):
        z = (z.flatten(-2) @ matrix).unflatten(-1, (2, -1))
        z = z.movedim(-1, -2).movedim(len(inverse) - done, -1)
    return z.flatten(-2) @ inverse[-1]


def matrix_flops(modes: tuple[int, ...], space: tuple[int, ...]) -> float:
    """Arithmetic of `truncated_transform` for one field: two for each element of a matrix and row that meets it."""
    flops, rows = 0.0, math.prod(space)
    for axis in reversed(range(len(space))):
        n, real = space[axis], axis == len(space) - 1
        rows //= n
        flops += 2 * rows * (n * 2 * modes[axis] if real else 2 * n * 4 * modes[axis])
        rows *= modes[axis] if real else 2 * modes[axis]
    return flops


def prefers_fft(modes: tuple[int, ...], space: tuple[int, ...]) -> bool:
    """Whether the transform by matrices takes longer than an FFT of real data, 5/2 N log₂ N; counted, never timed."""
    points = math.prod(space)
    return matrix_flops(modes, space) > GEMM_OVER_FFT * 2.5 * points * math.log2(max(points, 2))


def fast_transform(u: Tensor, modes: tuple[int, ...]) -> Tensor:
    """`truncated_transform` by an FFT, which makes all modes, of which the kept ones are taken."""
    space = u.shape[2:]
    z = torch.fft.rfftn(u, dim=tuple(range(2, u.dim())))[..., : modes[-1]]
    for axis, (m, n) in enumerate(zip(modes[:-1], space[:-1], strict=True), start=2):
        if 2 * m < n:
            z = torch.cat([z.narrow(axis, 0, m), z.narrow(axis, n - m, m)], dim=axis)
    z = torch.view_as_real(z)  # (b, c, kept_1, .., kept_D, 2)
    return z.permute(0, 1, *reversed(range(3, 2 + len(space))), -1, 2)


def fast_inverse(z: Tensor, modes: tuple[int, ...], space: tuple[int, ...]) -> Tensor:
    """`truncated_inverse` by an FFT, with zeros for the modes that are not kept.

    Of the modes k = 0 and Nyquist of the last axis an FFT of real data reads the part that a real field can have, and
    the matrices take the real part of the field; both are the same.
    """
    dims = len(space)
    z = z.permute(0, 1, -1, *reversed(range(2, 1 + dims)), -2)
    c = torch.view_as_complex(z.contiguous())
    for axis, (m, n) in enumerate(zip(modes[:-1], space[:-1], strict=True), start=2):
        if 2 * m < n:
            gap = c.new_zeros(*c.shape[:axis], n - 2 * m, *c.shape[axis + 1 :])
            c = torch.cat([c.narrow(axis, 0, m), gap, c.narrow(axis, m, m)], dim=axis)
    return torch.fft.irfftn(c, s=space, dim=tuple(range(2, 2 + dims)))


class SpectralConv(nn.Module):
    """K(u)^(k) = W_k û(k) on the kept modes, zero elsewhere; one complex matrix W_k (in x out) per kept mode.

    `weight` is (2, in, out, *kept) with kept = 2m on all axes but the last, m on the last, ordered as `frequencies`.
    """

    def __init__(self, in_channels: int, out_channels: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes = modes
        kept = (*(2 * m for m in modes[:-1]), modes[-1])
        scale = 1 / (in_channels * out_channels)
        self.weight = nn.Parameter(scale * torch.randn(2, in_channels, out_channels, *kept))
        self._matrices: dict[tuple[object, ...], tuple[list[Tensor], list[Tensor], Tensor]] = {}

    def matrices(self, space: tuple[int, ...], like: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Forward and inverse matrices and the spectrum of 1 on this grid, in the dtype and place of `like`, kept."""
        key = (space, like.dtype, like.device)
        if key not in self._matrices:
            forward, inverse = dft_matrices(self.modes, space)
            mean = truncated_transform(torch.ones(1, 1, *space, dtype=torch.float64), forward)[0, 0].round()
            self._matrices[key] = ([m.to(like) for m in forward], [m.to(like) for m in inverse], mean.to(like))
        return self._matrices[key]

    def forward(self, u: Tensor, bias: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """K(u) + bias: (batch, in, *space) -> (batch, out, *space); `weight` replaces the layer's own.

        A constant has only a mean mode, so the bias is added in the truncated spectrum, where it is almost free.
        """
        u = u.to(self.weight.dtype)  # under autocast it may come in sixteen bits
        space = tuple(u.shape[2:])
        forward, inverse, mean = self.matrices(space, u)
        fast = prefers_fft(self.modes, space) and not torch.compiler.is_exporting()
        with full_precision(u):
            z = fast_transform(u, self.modes) if fast else truncated_transform(u, forward)
            z = mix_modes(z, self.weight if weight is None else weight)
            if bias is not None:
                z = z + once(("bias", bias, space), lambda: bias.reshape(-1, *(1,) * mean.dim()) * mean)
            return fast_inverse(z, self.modes, space) if fast else truncated_inverse(z, inverse)


def mix_modes(z: Tensor, weight: Tensor) -> Tensor:
    """X[k] W_k for every kept mode: spectrum (batch, in, .., 2, kept) -> (batch, out, .., 2, kept)."""
    axes = tuple(reversed(range(3, weight.dim())))  # the axis order of the spectrum
    if fusing() and weight.shape[1] <= 2:
        # As sums of products a thin mixing fuses with what surrounds it; a product per mode would be tiny.
        real, imaginary = weight.permute(0, 1, 2, *axes).unsqueeze(-2)  # (in, out, .., 1, kept)
        rotated = torch.cat([-z[..., 1:, :], z[..., :1, :]], dim=-2)  # iX, so that X W = X Re W + iX Im W
        terms = [z[:, i, None] * real[i] + rotated[:, i, None] * imaginary[i] for i in range(weight.shape[1])]
        return sum(terms[1:], terms[0])
    if min(weight.shape[1:3]) >= WIDE:
        return mix_wide(z, weight)

    def blocks() -> Tensor:
        """W as real blocks [[Re, Im], [-Im, Re]]: one real matrix product per mode, (modes, 2 in, 2 out)."""
        real, imaginary = weight.permute(0, *axes, 1, 2).flatten(1, -3)  # (modes, in, out)
        return torch.cat([torch.cat([real, imaginary], -1), torch.cat([-imaginary, real], -1)], -2)

    kept = (*z.shape[2:-2], z.shape[-1])
    z = z.movedim((0, -2, 1), (-3, -2, -1)).flatten(-2).flatten(0, -3)  # (modes, batch, 2 in)
    z = torch.bmm(z, once(("blocks", weight), blocks))
    z = z.unflatten(-1, (2, -1)).unflatten(0, kept)  # (*kept, batch, 2, out)
    return z.movedim((-3, -2, -1), (0, -2, 1))


def mix_wide(z: Tensor, weight: Tensor) -> Tensor:
    """`mix_modes` without blocks: with the rows Z = [Re X; Im X], P = Z Re W and Q = Z Im W give all four products.

    Weights are read where they are many: half as much of them is written as in blocks, transposed in one sweep.
    """
    batch, (i, o), kept = len(z), weight.shape[1:3], weight.shape[3:]
    # In the order of the weights, so that only the spectrum, which is smaller, has its axes reversed.
    order = (*reversed((*range(2, z.dim() - 2), z.dim() - 1)), z.dim() - 2, 0, 1)  # (*kept, 2, batch, in)
    modes_first = once(("modes first", weight), lambda: transposed(weight).unflatten(1, (2, i, o)))
    z = z.permute(order).reshape(-1, 1, 2 * batch, i) @ modes_first  # (modes, 2, 2 batch, out)
    p, q = z.unbind(1)
    z = torch.stack([p[:, :batch] - q[:, batch:], q[:, :batch] + p[:, batch:]], dim=1)
    return z.unflatten(0, kept).permute(sorted(range(len(order)), key=order.__getitem__))


class Transposed(torch.autograd.Function):
    """(2, in, out, *kept) -> (modes, 2 in out), its gradient back: as matrices, which torch transposes in blocks."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return weight.reshape(-1, math.prod(weight.shape[3:])).T.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.T.contiguous().reshape(ctx.shape)


def transposed(weight: Tensor) -> Tensor:
    """The weights with modes first; a compiler writes its own gradient."""
    result: Tensor = Transposed.forward(weight) if torch.compiler.is_compiling() else Transposed.apply(weight)
    return result
