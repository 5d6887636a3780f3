"""The solver alone: coefficients, order, gradients, and that a stepper is a function of each state by itself."""

from __future__ import annotations

import math

import pytest
import torch

from hero.data import get_task
from hero.data.tasks.solver import Grid, SpectralStepper

NONLINEAR = ["burgers", "kdv", "kuramoto_sivashinsky", "kolmogorov_flow", "decaying_turbulence", "swift_hohenberg"]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_symbols_differentiate_a_plane_wave(dims: int) -> None:
    grid = Grid(dims, 16, 3.0)
    n = (2, -3, 1)[:dims] if dims > 1 else (2,)
    phase = sum(2 * math.pi * m / 3.0 * x for m, x in zip(n, grid.coordinates, strict=True))
    u = torch.sin(phase)
    for axis, derivative in enumerate(grid.gradient):
        expected = 2 * math.pi * n[axis] / 3.0 * torch.cos(phase)
        torch.testing.assert_close(grid.to_space(derivative * grid.to_modes(u)), expected, rtol=0, atol=1e-12)
    laplacian = -((2 * math.pi / 3.0) ** 2) * sum(m**2 for m in n) * u
    torch.testing.assert_close(grid.to_space(grid.laplacian * grid.to_modes(u)), laplacian, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("degree", "kept"), [(2, 5), (3, 3)])
def test_products_of_banded_fields_equal_the_product_on_a_fine_grid(degree: int, kept: int) -> None:
    coarse, fine = Grid(1, 16, 1.0), Grid(1, 64, 1.0)
    assert int(coarse.band(degree).real.sum()) == kept + 1
    u = sum(math.sqrt(n) * torch.cos(2 * math.pi * n * fine.coordinates[0] + n) for n in range(1, kept + 1))
    truth = fine.to_modes(u**degree)[: kept + 1] / 64
    ours = coarse.to_modes(u[::4] ** degree)[: kept + 1] / 16
    torch.testing.assert_close(ours, truth, rtol=0, atol=1e-12)


def test_etdrk4_solves_a_scalar_complex_equation_to_fourth_order() -> None:
    """û' = λû + û² per mode has the solution λc/(exp(-λt) - c) with c = û₀/(λ + û₀)."""
    rate = torch.tensor([-1 + 3j, -0.5 - 8j, 0.2 + 1j], dtype=torch.complex128)
    u0 = torch.tensor([0.5 + 0.1j, -0.3j, 0.4 + 0j], dtype=torch.complex128)
    c = u0 / (rate + u0)
    exact = rate * c / (torch.exp(-rate) - c)
    errors = []
    for steps in (16, 32):
        stepper = SpectralStepper(Grid(1, 4, 1.0), rate, lambda u: u**2, 1.0, steps)
        u = u0
        for _ in range(steps):
            u = stepper._etdrk4(u, stepper.nonlinear)
        errors.append((u - exact).abs())
    order = torch.log2(errors[0] / errors[1])
    assert ((order > 3.7) & (order < 4.4)).all(), order


@pytest.mark.parametrize("name", [*NONLINEAR, "dispersion", "unbalanced_advection"])
def test_a_state_is_stepped_alike_alone_and_in_a_batch(name: str) -> None:
    task = get_task(name, {"resolution": 16, "cutoff": 3})
    u = task.initial_states(3, seed=5)
    together = task.stepper()(u)
    alone = torch.cat([task.stepper()(u[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [*NONLINEAR, "anisotropic_diffusion"])
def test_gradient_equals_the_finite_difference(name: str) -> None:
    task = get_task(name, {"resolution": 16, "cutoff": 3, "substeps": 2})
    stepper, u = task.stepper(), task.initial_states(1, seed=3)
    direction, weight = task.initial_states(2, seed=4)[:, None]
    u.requires_grad_()
    (gradient,) = torch.autograd.grad((stepper(stepper(u)) * weight).sum(), u)
    with torch.no_grad():
        eps = 1e-5
        ahead, back = (stepper(stepper(u + s * eps * direction)) for s in (1, -1))
        difference = ((ahead - back) * weight).sum() / (2 * eps)
    torch.testing.assert_close((gradient * direction).sum(), difference, rtol=1e-7, atol=1e-10)


def test_float32_states_come_back_as_float32_computed_in_float64() -> None:
    task = get_task("burgers")
    u = task.initial_states(2, seed=0).float()
    out = task.stepper()(u)
    assert out.dtype == torch.float32
    assert torch.equal(out, task.stepper()(u.double()).float())


def test_a_state_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected .*160.* got \(1, 160\)"):
        get_task("burgers").stepper()(torch.zeros(1, 160))
