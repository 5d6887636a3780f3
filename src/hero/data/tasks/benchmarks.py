"""The benchmark tasks: one row each, with the symbol of L and the nonlinearity N of u_t = L u + N(u).

Every nonlinearity is a Galerkin truncation: its inputs and its output are restricted to the modes that the product
leaves free of aliasing. The substeps are about the fewest that make the trajectory independent of them;
docs/reference/tasks.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add

import torch
from torch import Tensor

from hero.data.tasks.solver import Grid
from hero.data.tasks.task import Nonlinearity, Task

TERMS: dict[str, Callable[[Grid], Tensor | float]] = {
    "viscosity": lambda grid: grid.laplacian,
    "diffusion": lambda grid: grid.laplacian,
    "dispersion": lambda grid: grid.gradient[0] ** 3,
    "hyperdiffusion": lambda grid: grid.laplacian**2,
    "drag": lambda grid: -1.0,
}
"""Symbols of the derivatives that the coefficients of these names multiply."""


def named_terms(task: Task, grid: Grid) -> Tensor:
    """The sum of the linear terms whose coefficients have a name in `TERMS`."""
    terms = [value * TERMS[name](grid) for name, value in task.parameters.items() if name in TERMS]
    return reduce(add, terms)


def convection(grid: Grid, coefficient: float) -> Nonlinearity:
    """b·½(u²)_x, the conservative form of b·u u_x."""
    band = grid.band(2)
    outer = 0.5 * coefficient * grid.gradient[0] * band
    return lambda u: outer * grid.to_modes(grid.to_space(band * u) ** 2)


def burgers_convection(task: Task, grid: Grid) -> Nonlinearity:
    return convection(grid, task.parameters["convection"])


def difficulty_scale(task: Task, order: int) -> float:
    """Physical coefficient per unit of difficulty of the j-th derivative: L^j / (N^j 2^(j-1) dt), in one dimension."""
    return (task.extent / task.resolution) ** order / (2 ** (order - 1) * task.dt)


def kdv_difficulty_symbol(task: Task, grid: Grid) -> Tensor:
    p = task.parameters
    third = p["dispersion_difficulty"] * difficulty_scale(task, 3) * grid.gradient[0] ** 3
    return third + p["hyperdiffusion_difficulty"] * difficulty_scale(task, 4) * grid.laplacian**2


def kdv_difficulty_convection(task: Task, grid: Grid) -> Nonlinearity:
    return convection(grid, task.parameters["convection_difficulty"] * difficulty_scale(task, 1))


def ks_gradient_norm(task: Task, grid: Grid) -> Nonlinearity:
    """b·½((u_x)² - (1 - kept_mean)·mean of (u_x)²); the mean makes the mean of u drift and changes nothing else."""
    band = grid.band(2)
    inner = grid.gradient[0] * band
    outer = 0.5 * task.parameters["gradient_norm"] * band
    outer[0] *= task.parameters["kept_mean"]
    return lambda u: outer * grid.to_modes(grid.to_space(inner * u) ** 2)


def anisotropic_symbol(task: Task, grid: Grid) -> Tensor:
    """Σ_ij D_ij (i k_i)(i k_j); the diagonal keeps the Nyquist mode, whose second derivative is well defined."""
    symbol = torch.zeros((), dtype=torch.complex128, device=grid.device)
    for i, row in enumerate(task.parameters["diffusivity"]):
        for j, d in enumerate(row):
            symbol = symbol + d * (-(grid.wavenumbers[i] ** 2) if i == j else grid.gradient[i] * grid.gradient[j])
    return symbol


def vorticity_transport(grid: Grid, forcing: Tensor) -> Nonlinearity:
    """-(v·∇)ω + f with curl v = ω, i.e. v = (-∂₁ψ, ∂₀ψ) and Δψ = ω; `forcing` is f in modes.

    As div v = 0, (v·∇)ω = curl div(v vᵀ) = (∂₀₀ - ∂₁₁)(v₀v₁) + ∂₀₁(v₁² - v₀²): two fields to space and two back, where
    the advective form needs four and one.
    """
    band, (d0, d1) = grid.band(2), grid.gradient
    inverse = torch.where(grid.laplacian == 0, 0.0, 1 / grid.laplacian) * band
    velocity = torch.stack([-d1 * inverse, d0 * inverse])  # (2, *modes)
    flux = torch.stack([(d1**2 - d0**2) * band, d0 * d1 * band])

    def n(omega: Tensor) -> Tensor:  # (batch, 1, *modes)
        v = grid.to_space(velocity * omega)  # (batch, 2, *space)
        v0, v1 = v[:, :1], v[:, 1:]
        products = torch.cat([v0 * v1, (v0 - v1) * (v0 + v1)], dim=1)
        return (flux * grid.to_modes(products)).sum(1, keepdim=True) + forcing

    return n


def kolmogorov_transport(task: Task, grid: Grid) -> Nonlinearity:
    """The body force s·sin(κx₁) along axis 0, κ = 2π mode/extent, has the curl f = -s κ cos(κx₁)."""
    kappa = 2 * math.pi * task.parameters["forcing_mode"] / task.extent
    f = -task.parameters["forcing_scale"] * kappa * torch.cos(kappa * grid.coordinates[1])
    return vorticity_transport(grid, grid.to_modes(f.expand(grid.space)))


def decaying_transport(task: Task, grid: Grid) -> Nonlinearity:
    return vorticity_transport(grid, torch.zeros((), dtype=torch.complex128, device=grid.device))


def swift_hohenberg_symbol(task: Task, grid: Grid) -> Tensor:
    p = task.parameters
    return p["reactivity"] - (p["critical_wavenumber"] ** 2 + grid.laplacian) ** 2


def swift_hohenberg_reaction(task: Task, grid: Grid) -> Nonlinearity:
    """p(u) = a u² + b u³."""
    band = grid.band(3)
    quadratic, cubic = task.parameters["quadratic"], task.parameters["cubic"]

    def n(u: Tensor) -> Tensor:
        v = grid.to_space(band * u)
        return band * grid.to_modes(v * v * (quadratic + cubic * v))

    return n


def advection_symbol(task: Task, grid: Grid) -> Tensor:
    """-c·∇."""
    symbol = torch.zeros((), dtype=torch.complex128, device=grid.device)
    for c, derivative in zip(task.parameters["velocity"], grid.gradient, strict=True):
        symbol = symbol - c * derivative
    return symbol


ROWS = (
    Task(
        name="dispersion",
        title="Dispersion",
        equation="u_t = dispersion·u_xxx",
        dims=1,
        parameters={"dispersion": 2.5e-4},
        linear=named_terms,
        dt=0.001,
    ),
    Task(
        name="burgers",
        title="Burgers",
        equation="u_t = viscosity·u_xx + convection·½(u²)_x",
        dims=1,
        parameters={"viscosity": 3e-4, "convection": -0.125},
        linear=named_terms,
        nonlinear=burgers_convection,
        degree=2,
        substeps=3,
    ),
    Task(
        name="kdv",
        title="Korteweg–de Vries",
        equation="u_t = convection·½(u²)_x + dispersion·u_xxx + hyperdiffusion·u_xxxx",
        dims=1,
        parameters={"convection": -2.0, "dispersion": -14.0, "hyperdiffusion": -9.0},
        linear=named_terms,
        nonlinear=burgers_convection,
        degree=2,
        extent=2 * math.pi,
        dt=0.01,
        substeps=32,
    ),
    Task(
        name="kuramoto_sivashinsky",
        title="Kuramoto–Sivashinsky",
        equation="u_t = diffusion·u_xx + hyperdiffusion·u_xxxx + gradient_norm·½((u_x)² - (1 - kept_mean)·mean)",
        dims=1,
        parameters={"diffusion": -1.0, "hyperdiffusion": -1.0, "gradient_norm": -1.0, "kept_mean": 0.0},
        linear=named_terms,
        nonlinear=ks_gradient_norm,
        degree=2,
        extent=60.0,
        warmup=500,
    ),
    Task(
        name="anisotropic_diffusion",
        title="Anisotropic diffusion",
        equation="u_t = ∇·(diffusivity ∇u)",
        dims=2,
        parameters={"diffusivity": ((1e-3, 5e-4), (5e-4, 2e-3))},
        linear=anisotropic_symbol,
        resolution=64,
    ),
    Task(
        name="kolmogorov_flow",
        title="Kolmogorov flow",
        equation="ω_t = -(v·∇)ω + viscosity·Δω - drag·ω - forcing_scale·κ cos(κx₁), κ = 2π forcing_mode/extent",
        dims=2,
        parameters={"viscosity": 1e-2, "drag": 0.1, "forcing_mode": 4, "forcing_scale": 1.0},
        linear=named_terms,
        nonlinear=kolmogorov_transport,
        degree=2,
        extent=2 * math.pi,
        resolution=64,
        substeps=5,
        warmup=500,
    ),
    Task(
        name="decaying_turbulence",
        title="Decaying turbulence",
        equation="ω_t = -(v·∇)ω + viscosity·Δω",
        dims=2,
        parameters={"viscosity": 1e-4},
        linear=named_terms,
        nonlinear=decaying_transport,
        degree=2,
        resolution=64,
    ),
    Task(
        name="swift_hohenberg",
        title="Swift–Hohenberg",
        equation="u_t = reactivity·u - (critical_wavenumber² + Δ)²u + quadratic·u² + cubic·u³",
        dims=3,
        parameters={"reactivity": 0.7, "critical_wavenumber": 1.0, "quadratic": 1.0, "cubic": -1.0},
        linear=swift_hohenberg_symbol,
        nonlinear=swift_hohenberg_reaction,
        degree=3,
        extent=10 * math.pi,
        resolution=32,
    ),
    Task(
        name="unbalanced_advection",
        title="Unbalanced advection",
        equation="u_t = -velocity·∇u",
        dims=3,
        parameters={"velocity": (0.01, -0.04, 0.005)},
        linear=advection_symbol,
        resolution=32,
    ),
    Task(
        name="kdv_difficulty",
        title="Korteweg–de Vries, coefficients read as difficulties",
        equation="u_t = δ₁(L/N)/dt·½(u²)_x + γ₃(L/N)³/(4dt)·u_xxx + γ₄(L/N)⁴/(8dt)·u_xxxx",
        dims=1,
        parameters={"convection_difficulty": -2.0, "dispersion_difficulty": -14.0, "hyperdiffusion_difficulty": -9.0},
        linear=kdv_difficulty_symbol,
        nonlinear=kdv_difficulty_convection,
        degree=2,
        extent=2 * math.pi,
        dt=0.01,
        substeps=6,
    ),
)
"""The nine benchmarks in the paper's order, then the second reading of KdV; a row says what differs from `Task`."""
BY_NAME = {row.name: row for row in ROWS}
