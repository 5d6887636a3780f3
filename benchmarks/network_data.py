"""Files of several kinds, on which the size of the default network was measured, made here for anybody to repeat.

Every kind is a dictionary of train, val and test, (trajectory, time, channel, *space), and the settings that its file
does not say itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

Rhs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """How the trajectories of one kind are made, and what their file does not say."""

    make: Callable[[int, int], Tensor]
    """(trajectories, seed) -> (trajectory, time, channel, *space)."""
    train: int
    settings: dict[str, Any] = field(default_factory=dict)


def runge_kutta(rhs: Rhs, u: Tensor, dt: float) -> Tensor:
    """One step of the classical method of fourth order."""
    a = rhs(u)
    b = rhs(u + dt / 2 * a)
    c = rhs(u + dt / 2 * b)
    d = rhs(u + dt * c)
    return u + dt / 6 * (a + 2 * b + 2 * c + d)


def frames(step: Callable[[Tensor], Tensor], u: Tensor, count: int, substeps: int, warmup: int = 0) -> Tensor:
    """`count` states along axis 1, `substeps` steps apart, after `warmup` steps."""
    for _ in range(warmup):
        u = step(u)
    found = [u]
    for _ in range(count - 1):
        for _ in range(substeps):
            u = step(u)
        found.append(u)
    return torch.stack(found, dim=1)


def random_fields(shape: tuple[int, ...], space: tuple[int, ...], low: float, high: float, seed: int) -> Tensor:
    """Periodic fields of standard deviation 1 with waves between `low` and `high`: (*shape, *space), float64."""
    axes = tuple(range(-len(space), 0))
    noise = torch.randn(*shape, *space, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    waves = wavenumbers(space)
    kept = ((waves.square().sum(0) >= low**2) & (waves.square().sum(0) <= high**2)).double()
    found = torch.fft.irfftn(kept * torch.fft.rfftn(noise, dim=axes), s=space, dim=axes)
    return found / found.std(dim=axes, keepdim=True)


def wavenumbers(space: tuple[int, ...]) -> Tensor:
    """Waves per box along each axis of a real transform: (axis, *modes)."""
    axes = [torch.fft.fftfreq(n, 1 / n, dtype=torch.float64) for n in space[:-1]]
    axes.append(torch.fft.rfftfreq(space[-1], 1 / space[-1], dtype=torch.float64))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def waves(count: int, seed: int) -> Tensor:
    """Shallow water in 1D: velocity of order 1 and pressure 1e5 ± 1e3.

    h_t = -(h v)_x + ν h_xx and v_t = -v v_x - h_x + ν v_xx.
    """
    n, viscosity = 128, 4e-3
    k = wavenumbers((n,))[0]
    band = (k <= n / 3).double()

    def to_space(z: Tensor) -> Tensor:
        return torch.fft.irfft(z * band, n=n)

    def rhs(z: Tensor) -> Tensor:
        h, v, v_x, h_x = (to_space(part) for part in (z[:, 0], z[:, 1], 1j * k * z[:, 1], 1j * k * z[:, 0]))
        change = torch.stack([1j * k * torch.fft.rfft(h * v), torch.fft.rfft(v * v_x + h_x)], dim=1)
        return -change * band - viscosity * k**2 * z

    start = random_fields((count, 2), (n,), 1, 5, seed) * 0.1
    start[:, 0] += 1
    z = frames(lambda z: runge_kutta(rhs, z, 0.01), torch.fft.rfft(start), 61, 8)
    h, v = to_space(z[:, :, 0]), to_space(z[:, :, 1])
    return torch.stack([10 * v, 1e5 + 1e4 * (h - 1)], dim=2)


def oscillations(count: int, seed: int) -> Tensor:
    """The complex Ginzburg–Landau equation in 1D, chaotic: both parts of A on 160 points.

    A_t = A + (1 + i b) A_xx - (1 + i c) |A|² A.
    """
    n, extent, b, c = 160, 64.0, 1.5, -1.2
    k = torch.fft.fftfreq(n, extent / n, dtype=torch.float64) * 2 * math.pi
    half = torch.exp(0.01 * (1 - (1 + 1j * b) * k**2))  # half a step of the linear part, exactly

    def step(a: Tensor) -> Tensor:
        a = torch.fft.ifft(half * torch.fft.fft(a))
        size = a.abs().square()
        a = a * torch.exp(-(1 + 1j * c) * torch.log1p(2 * 0.02 * size) / 2)  # |A|² follows s' = -2 s²
        return torch.fft.ifft(half * torch.fft.fft(a))

    start = torch.complex(*random_fields((2, count), (n,), 1, 12, seed))
    a = frames(step, 0.3 * start, 61, 15, warmup=1500)
    return torch.stack([a.real, a.imag], dim=2)


def turbulence(count: int, seed: int, n: int = 64) -> Tensor:
    """Forced flow in 2D with a tracer: vorticity, both velocities and the tracer, resolved down to the grid.

    ω_t = -v·∇ω + ν Δω + f and s_t = -v·∇s + ν Δs - v₀, with curl v = ω and f a wave along axis 1.
    """
    viscosity = 8e-3 * (64 / n) ** 2
    kx, ky = wavenumbers((n, n))
    square = kx**2 + ky**2
    inverse = torch.where(square == 0, 0.0, -1 / square.clamp(min=1))
    band = ((kx.abs() <= n / 3) & (ky <= n / 3)).double()
    y = torch.arange(n, dtype=torch.float64) * 2 * math.pi / n
    forcing = torch.fft.rfft2((4 * torch.cos(4 * y)).expand(n, n))

    def to_space(z: Tensor) -> Tensor:
        return torch.fft.irfft2(z * band, s=(n, n))

    def velocity(omega: Tensor) -> tuple[Tensor, Tensor]:
        return to_space(-1j * ky * inverse * omega), to_space(1j * kx * inverse * omega)

    def rhs(z: Tensor) -> Tensor:
        v = velocity(z[:, 0])
        carried = [v[0] * to_space(1j * kx * part) + v[1] * to_space(1j * ky * part) for part in z.unbind(1)]
        change = torch.stack([-torch.fft.rfft2(carried[0]) + forcing, -torch.fft.rfft2(carried[1] + v[0])], dim=1)
        return change * band - viscosity * square * z - 0.05 * z

    start = torch.fft.rfft2(random_fields((count, 2), (n, n), 2, 6, seed) * torch.tensor([4.0, 1.0])[:, None, None])
    z = frames(lambda z: runge_kutta(rhs, z, 0.4 / n), start, 41, n // 4, warmup=10 * n)
    parts = [to_space(z[:, :, 0]), *velocity(z[:, :, 0]), to_space(z[:, :, 1])]
    return torch.stack(parts, dim=2)


def walls(count: int, seed: int) -> Tensor:
    """Gray–Scott with zero flux through the walls: two channels on 48 x 64 points."""
    space = (48, 64)
    feed, kill = 0.030, 0.057

    def step(w: Tensor) -> Tensor:
        u, v = w[:, 0], w[:, 1]
        around = pad(w, (1, 1, 1, 1), mode="replicate")
        laplacian = (
            around[..., 2:, 1:-1] + around[..., :-2, 1:-1] + around[..., 1:-1, 2:] + around[..., 1:-1, :-2] - 4 * w
        )
        reaction = u * v * v
        change = torch.stack([-reaction + feed * (1 - u), reaction - (feed + kill) * v], dim=1)
        return w + change + torch.tensor([0.16, 0.08])[:, None, None] * laplacian

    spots = torch.sigmoid(8 * (random_fields((count,), space, 1, 6, seed) - 1))
    start = torch.stack([1 - 0.5 * spots, 0.25 * spots], dim=1)
    return frames(step, start, 41, 30, warmup=300)


def land(count: int, seed: int) -> Tensor:
    """Hourly temperature in K on 20 x 48 points of latitude and longitude, only on land: carried, mixed, heated by day.

    T_t = -v·∇T + κ ΔT + (T_rest - T) / τ + sun(position, hour); NaN on the sea.
    """
    rows, columns = 20, 48
    latitude = torch.linspace(-60, 60, rows, dtype=torch.float64).deg2rad()[:, None]
    longitude = (torch.arange(columns, dtype=torch.float64) * 2 * math.pi / columns)[None]
    ground = random_fields((2,), (40, columns), 1, 6, 7)[:, :rows]
    stream = random_fields((), (40, columns), 1, 3, 8)[:rows]
    zonal = 0.5 * torch.cos(latitude) + 0.3 * torch.gradient(stream, dim=0)[0]
    meridional = -0.3 * torch.gradient(stream, dim=1)[0]
    at_rest = 285 + 25 * torch.cos(latitude) - 8 * ground[0] ** 2
    by_day = 12 + 4 * ground[1]

    def shifted(t: Tensor, by: int, axis: int) -> Tensor:
        if axis == 2:
            return t.roll(by, 2)
        around = pad(t[:, None], (0, 0, 1, 1), mode="replicate")[:, 0]
        return around[:, 1 - by : 1 - by + rows]

    def rhs(t: Tensor, hour: Tensor) -> Tensor:
        north, south, east, west = shifted(t, -1, 1), shifted(t, 1, 1), shifted(t, -1, 2), shifted(t, 1, 2)
        carried = zonal * (east - west) / 2 + meridional * (north - south) / 2
        mixed = 0.15 * (north + south + east + west - 4 * t)
        sun = (torch.cos(latitude) * torch.cos(2 * math.pi * hour / 24 + longitude)).clamp(min=0)
        return -carried + mixed + (at_rest - t) / 48 + by_day * (sun - sun.mean(dim=2, keepdim=True)) / 6

    begin = 24 * torch.rand(count, 1, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    t = at_rest + 6 * random_fields((count,), (40, columns), 1, 6, seed + 1)[:, :rows]
    found, substeps = [], 4
    for hour in range(6 + 73):
        if hour >= 6:
            found.append(t)
        for part in range(substeps):
            t = t + rhs(t, begin + hour + part / substeps) / substeps
    states = torch.stack(found, dim=1)[:, :, None]
    sea = random_fields((), (40, columns), 1, 4, 9)[:rows] < 0.15
    return states.masked_fill(sea, math.nan)


def volume(count: int, seed: int) -> Tensor:
    """FitzHugh–Nagumo in 3D, periodic: two channels on 20 x 20 x 20 points."""
    space = (20, 20, 20)

    def step(w: Tensor) -> Tensor:
        u, v = w[:, 0], w[:, 1]
        laplacian = sum(w.roll(by, axis) for by in (-1, 1) for axis in (2, 3, 4)) - 6 * w
        change = torch.stack([u - u**3 - v, 0.25 * (u - 0.5 * v)], dim=1)
        return w + 0.05 * (change + torch.tensor([0.5, 0.1])[:, None, None, None] * laplacian)

    start = random_fields((count, 2), space, 1, 4, seed) * 0.7
    return frames(step, start, 31, 10, warmup=100)


LIGHTER = {"train.batch": 8, "train.unroll": 3}
"""Updates cost a quarter of the default ones, so that a run ends within minutes on one core."""
WAVES = {"data.channels": "velocity,pressure", "data.periodic": True, **LIGHTER}
FLOW = {"data.channels": "vorticity,v0,v1,tracer", "data.periodic": True, **LIGHTER}
KINDS = {
    "waves": Kind(waves, 40, WAVES),
    "oscillations": Kind(oscillations, 30, {"data.channels": "re,im", "data.periodic": True, **LIGHTER}),
    "few waves": Kind(waves, 5, WAVES),
    "turbulence": Kind(turbulence, 24, FLOW),
    "few turbulence": Kind(turbulence, 3, FLOW),
    "fine turbulence": Kind(lambda count, seed: turbulence(count, seed, 128), 12, FLOW),
    "walls": Kind(walls, 24, {"data.channels": "u,v", "data.periodic": False, **LIGHTER}),
    "land": Kind(land, 8, {"data.channels": "temperature", "data.periodic": [False, True], **LIGHTER}),
    "volume": Kind(volume, 12, {"data.channels": "u,v", "data.periodic": True, **LIGHTER}),
}
SCORED = {"val": 6, "test": 4}
"""Trajectories of the other splits."""


def file_settings(name: str, folder: Path) -> dict[str, Any]:
    """The settings of one kind of data, which are made and stored in `folder` unless they are there."""
    kind = KINDS[name]
    path = folder / f"{name.replace(' ', '_')}.npz"
    if not path.is_file():
        sizes = {"train": kind.train} | SCORED
        splits = {split: kind.make(count, 100 * number) for number, (split, count) in enumerate(sizes.items())}
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {split: states.numpy().astype(np.float32) for split, states in splits.items()}
        np.savez(path, **arrays)
    dims = np.load(path)["val"].ndim - 3
    return {"data.path": str(path), "data.layout": "btcxyz"[: 3 + dims], **kind.settings}
