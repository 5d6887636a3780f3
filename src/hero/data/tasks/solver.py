"""Ground truth: a batched pseudo-spectral solver for u_t = L u + N(u) on a periodic box.

A stepper is a function u -> u_next on real states (batch, channel, *space). Without N the step is the exact
exponential; with N it is ETDRK4, a fourth-order Runge-Kutta method that treats L exactly. All arithmetic is in float64,
on any device, and can be differentiated, so that a model can also be trained against the solver.

exponax is the oracle of the tests, not the solver: it keeps only the real part of its integrator coefficients, which is
wrong for dispersive terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

SOLVER_NAME = "hero pseudo-spectral (exact exponential / ETDRK4)"
SOLVER_VERSION = 1  # part of every data hash: raise it when a change alters the numbers


@dataclass(frozen=True)
class Grid:
    """The periodic box [0, extent)^dims with `resolution` points per axis, and its Fourier modes in rfft layout."""

    dims: int
    resolution: int
    extent: float
    device: torch.device | str | None = None

    @property
    def axes(self) -> tuple[int, ...]:
        """The space axes of a state, counted from the end."""
        return tuple(range(-self.dims, 0))

    @property
    def space(self) -> tuple[int, ...]:
        return (self.resolution,) * self.dims

    @cached_property
    def coordinates(self) -> tuple[Tensor, ...]:
        """x_j per axis, each shaped to broadcast against a state."""
        x = torch.arange(self.resolution, dtype=torch.float64, device=self.device) * (self.extent / self.resolution)
        return tuple(self._along(x, axis) for axis in range(self.dims))

    @cached_property
    def modes(self) -> tuple[Tensor, ...]:
        """Integer mode numbers n_j per axis, broadcastable; the last axis holds only n >= 0."""
        full = torch.fft.fftfreq(self.resolution, 1 / self.resolution, dtype=torch.float64, device=self.device)
        half = torch.arange(self.resolution // 2 + 1, dtype=torch.float64, device=self.device)
        return tuple(self._along(half if axis == self.dims - 1 else full, axis) for axis in range(self.dims))

    @cached_property
    def wavenumbers(self) -> tuple[Tensor, ...]:
        """k_j = 2π n_j / extent."""
        return tuple(2 * math.pi / self.extent * n for n in self.modes)

    @cached_property
    def gradient(self) -> tuple[Tensor, ...]:
        """Symbols i k_j of ∂_j. The Nyquist mode has no sign, so its odd derivatives are zero."""
        pairs = zip(self.modes, self.wavenumbers, strict=True)
        return tuple(1j * torch.where(2 * n.abs() == self.resolution, 0.0, k) for n, k in pairs)

    @cached_property
    def laplacian(self) -> Tensor:
        """Symbol -|k|² of Δ, real, in the full spectral shape."""
        return -sum((k**2 for k in self.wavenumbers), torch.zeros((), dtype=torch.float64, device=self.device))

    def band(self, degree: int) -> Tensor:
        """Mask (complex 0/1) of the modes that a product of `degree` fields leaves free of aliasing."""
        kept = alias_free_mode(self.resolution, degree)
        mask = torch.ones((), dtype=torch.complex128, device=self.device)  # torch multiplies equal types faster
        for n in self.modes:
            mask = mask * (n.abs() <= kept)
        return mask

    def to_modes(self, u: Tensor) -> Tensor:
        return torch.fft.rfftn(u, dim=self.axes)

    def to_space(self, u_hat: Tensor) -> Tensor:
        return torch.fft.irfftn(u_hat, s=self.space, dim=self.axes)

    def _along(self, values: Tensor, axis: int) -> Tensor:
        return values.reshape([-1 if a == axis else 1 for a in range(self.dims)])


def alias_free_mode(resolution: int, degree: int) -> int:
    """The highest mode number K such that products of `degree` fields with all |n_j| <= K alias only outside that band.

    (degree + 1) K < resolution keeps 2/3 of the modes for a quadratic term (Orszag's rule) and 1/2 for a cubic one.
    """
    return (resolution - 1) // (degree + 1)


def _contour_mean(f: Callable[[Tensor], Tensor], z: Tensor, points: int = 32) -> Tensor:
    """f(z) for an entire f as its mean over the unit circle around z (Kassam & Trefethen 2005, section 2).

    Closed forms cancel badly near z = 0, not on the circle. The mean is complex, as dispersive symbols need.
    """
    angles = (torch.arange(points, dtype=torch.float64, device=z.device) + 0.5) * (2 * math.pi / points)
    total = torch.zeros_like(z)
    for offset in torch.polar(torch.ones_like(angles), angles):
        total = total + f(z + offset)
    return total / points


class SpectralStepper:
    """Advance u_t = L u + N(u) by `dt`, in `substeps` equal internal steps; `linear` is the symbol of L (rfft layout).

    `nonlinear` maps modes to modes; None selects the exact exponential, in which substeps make no difference.
    """

    def __init__(
        self,
        grid: Grid,
        linear: Tensor,
        nonlinear: Callable[[Tensor], Tensor] | None,
        dt: float,
        substeps: int = 1,
    ) -> None:
        self.grid = grid
        self.nonlinear = nonlinear
        self.substeps = 1 if nonlinear is None else substeps
        h = dt / self.substeps
        # Coefficients of Cox & Matthews 2002, eqs. 26-29, with z = h L.
        z = (h * linear).to(torch.complex128)
        self._exp, self._exp_half = torch.exp(z), torch.exp(z / 2)
        if nonlinear is not None:
            self._stage = h * _contour_mean(lambda z: (torch.exp(z / 2) - 1) / z, z)
            self._first = h * _contour_mean(lambda z: (-4 - z + torch.exp(z) * (4 - 3 * z + z**2)) / z**3, z)
            self._middle = h * _contour_mean(lambda z: 2 * (2 + z + torch.exp(z) * (z - 2)) / z**3, z)
            self._last = h * _contour_mean(lambda z: (-4 - 3 * z - z**2 + torch.exp(z) * (4 - z)) / z**3, z)

    def __call__(self, u: Tensor) -> Tensor:
        """One frame: (batch, channel, *space) -> the same shape and dtype."""
        expected = self.grid.space
        if tuple(u.shape[-self.grid.dims :]) != expected or u.dim() != self.grid.dims + 2:
            raise ValueError(f"expected a state of shape (batch, channel, {expected}), got {tuple(u.shape)}")
        u_hat = self.grid.to_modes(u.to(torch.float64))
        for _ in range(self.substeps):
            u_hat = self._exp * u_hat if self.nonlinear is None else self._etdrk4(u_hat, self.nonlinear)
        return self.grid.to_space(u_hat).to(u.dtype)

    def _etdrk4(self, u: Tensor, nonlinear: Callable[[Tensor], Tensor]) -> Tensor:
        half = self._exp_half * u
        n_u = nonlinear(u)
        a = half + self._stage * n_u
        n_a = nonlinear(a)
        b = half + self._stage * n_a
        n_b = nonlinear(b)
        c = self._exp_half * a + self._stage * (2 * n_b - n_u)
        n_c = nonlinear(c)
        return self._exp * u + self._first * n_u + self._middle * (n_a + n_b) + self._last * n_c


def frames(stepper: Callable[[Tensor], Tensor], u0: Tensor, steps: int, warmup: int = 0) -> Iterator[Tensor]:
    """Yield every state: `warmup` of them to be thrown away, then `steps` + 1 snapshots; float64."""
    u = u0.to(torch.float64)
    yield u
    for _ in range(warmup + steps):
        u = stepper(u)
        yield u


def solve(stepper: Callable[[Tensor], Tensor], u0: Tensor, steps: int, warmup: int = 0) -> Tensor:
    """Trajectory (batch, steps+1, channel, *space), float64, that starts `warmup` frames after u0."""
    return torch.stack([u for i, u in enumerate(frames(stepper, u0, steps, warmup)) if i >= warmup], dim=1)
