"""Bands of wavenumbers |k| = 0, 1, 2, 3, 4-7, 8-15, ..: the doctor of a run and the anatomy of its error share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hero.method.domain.transform import FOURIER, Transform, axis_scales

Limits = tuple[tuple[int, int | None], ...]  # least and largest |k| of each; None: all beyond the operator's own


def band_label(low: int, high: int | None, beyond: str = "beyond the operator's modes") -> str:
    return beyond if high is None else f"{low}" if low == high else f"{low}-{high}"


class OneBand:
    """Everything in one band, for points without wavenumbers."""

    limits: Limits = ((0, None),)

    def energies(self, u: Tensor) -> Tensor:
        return u.flatten(1).square().sum(dim=1, keepdim=True)


@dataclass(frozen=True, eq=False)
class GridBands:
    """The coefficients of a grid, each in one band."""

    limits: Limits
    masks: Tensor  # (bands, *coefficients of the transform), bool
    space: tuple[int, ...]
    transform: Transform = field(default=FOURIER)

    def project(self, u: Tensor, mask: Tensor) -> Tensor:
        """B u of states (rows, channel, *space), with a mask for each row."""
        return self.transform.inverse(self.transform.forward(u[None]) * mask[None, :, None], u[None])[0]

    def energies(self, u: Tensor) -> Tensor:
        """‖B_b u‖² of states (rows, channel, *space), norms over channels and space: (rows, bands)."""
        coefficients = self.transform.forward(u[None])
        waves = math.prod(u[None].shape[axis] for axis in self.transform.wave_axes(u[None]))
        power = coefficients.abs().square().sum(dim=2, keepdim=True) / (waves * waves / math.prod(self.space))
        power = self.transform.counted_twice(power, u[None])[0, :, 0]
        return power.flatten(1) @ self.masks.flatten(1).T.to(power.dtype)


Bands = GridBands | OneBand


def split_modes(
    space: Sequence[int],
    kept: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    transform: Transform = FOURIER,
    extents: Sequence[float] | None = None,
) -> GridBands:
    """|k| = 0, 1, 2, 3, 4-7, 8-15, .., of the modes that an FNO with `kept` modes per axis reaches, and all others.

    |k| is rounded. Without `kept` every mode is reached. Along axes with ends, a wave is two cosines.
    """
    modes = transform.wavenumbers(space, device)
    scaled = [k * scale for k, scale in zip(modes, axis_scales(extents, len(space)), strict=True)]
    radius = torch.stack(scaled).square().sum(dim=0).sqrt().round()
    reached = torch.ones_like(radius, dtype=torch.bool)
    if kept is not None:
        reached = reached_modes(modes, tuple(space), kept, transform.periodic or (True,) * len(space))
    top = int(radius[reached].max())
    first = [k for k in (0, 1, 2, 3, *(2**i for i in range(2, 30))) if k <= top]
    limits: list[tuple[int, int | None]] = [
        (low, min(after - 1, top)) for low, after in zip(first, [*first[1:], top + 1], strict=True)
    ]
    masks = [reached & (low <= radius) & (radius <= high) for low, high in limits if high is not None]
    if not bool(reached.all()):
        limits.append((int(radius[~reached].min()), None))
        masks.append(~reached)
    return GridBands(tuple(limits), torch.stack(masks), tuple(space), transform)


def reached_modes(
    modes: Sequence[Tensor], space: tuple[int, ...], kept: Sequence[int], periodic: Sequence[bool]
) -> Tensor:
    """The coefficients that `kept` modes per axis hold.

    Periodic axes before the last keep -m .. m-1, the last 0 .. m-1. Where its mode is its own conjugate, k and -k along
    the others are one real wave.
    """
    inside = torch.ones_like(modes[0], dtype=torch.bool)
    waves = [axis for axis, wraps in enumerate(periodic) if wraps]
    for axis in set(range(len(space))) - set(waves[:-1]):
        inside = inside & (modes[axis] < kept[axis])
    if len(waves) < 2:
        return inside
    last, there = waves[-1], inside
    mirrored = inside & ((modes[last] == 0) | (2 * modes[last] == space[last]))
    for axis in waves[:-1]:
        k, m = modes[axis], kept[axis]
        conjugate = torch.where(2 * k == -space[axis], k, -k)  # the Nyquist mode has no sign
        there = there & (-m <= k) & (k < m)
        mirrored = mirrored & (-m <= conjugate) & (conjugate < m)
    return there | mirrored
