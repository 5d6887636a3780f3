"""Agreement with exponax 0.2, the field's library, in float64 on every task where it converges.

exponax is given its fourth-order scheme, our internal step, and the dealiasing fraction that keeps our modes (it keeps
|n| <= fraction·N/2 - 1). Then all but two tasks agree to rounding. It drops the imaginary part of its coefficients,
which leaves it first order on the dispersive KdV equations, so there it is extrapolated to zero step. Its
streamfunction gives a velocity with curl v = -ω, which is our flow mirrored along axis 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Later
from hero.data import get_task
from hero.data.tasks.solver import solve

jax, ex = Later("jax"), Later("exponax")


@pytest.fixture(autouse=True)
def in_float64() -> None:
    jax.config.update("jax_enable_x64", True)


def theirs(make: Callable[[float], Any], u0: np.ndarray, dt: float, steps: int, substeps: int) -> np.ndarray:
    stepper = make(dt / substeps)
    return np.asarray(jax.jit(ex.repeat(stepper, steps * substeps))(u0))


def ours(name: str, u0: np.ndarray, steps: int, **settings: object) -> np.ndarray:
    return solve(get_task(name, settings).stepper(), torch.from_numpy(u0)[None], steps)[0, -1].numpy()


def start(name: str) -> np.ndarray:
    return get_task(name).initial_states(1, seed=11)[0].numpy()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def mirrored(u: np.ndarray) -> np.ndarray:
    """u(-x₀, x₁) on the periodic grid."""
    return np.roll(u[:, ::-1], 1, axis=1)


TWO_THIRDS = {"order": 4, "dealiasing_fraction": 54 / 80}
TASKS: dict[str, tuple[Callable[[Any, float], Any], int, int]] = {
    "dispersion": (lambda of, dt: of.Dispersion(1, 1.0, 160, dt, dispersivity=2.5e-4), 20, 1),
    "anisotropic_diffusion": (
        lambda of, dt: of.Diffusion(2, 1.0, 64, dt, diffusivity=jax.numpy.array([[1e-3, 5e-4], [5e-4, 2e-3]])),
        *(20, 1),
    ),
    "unbalanced_advection": (
        lambda of, dt: of.Advection(3, 1.0, 32, dt, velocity=jax.numpy.array([0.01, -0.04, 0.005])),
        *(20, 1),
    ),
    "burgers": (
        lambda of, dt: of.Burgers(
            *(1, 1.0, 160, dt),
            diffusivity=3e-4,
            convection_scale=0.125,
            single_channel=True,
            conservative=True,
            **TWO_THIRDS,
        ),
        *(20, 8),
    ),
    "kuramoto_sivashinsky": (lambda of, dt: of.KuramotoSivashinsky(1, 60.0, 160, dt, **TWO_THIRDS), 50, 4),
    "swift_hohenberg": (lambda of, dt: of.reaction.SwiftHohenberg(3, 10 * math.pi, 32, dt, order=4), 5, 2),
    "decaying_turbulence": (
        lambda of, dt: of.NavierStokesVorticity(2, 1.0, 64, dt, diffusivity=1e-4, order=4, dealiasing_fraction=22 / 32),
        *(10, 2),
    ),
    "kolmogorov_flow": (
        lambda of, dt: of.KolmogorovFlowVorticity(
            2, 2 * math.pi, 64, dt, diffusivity=1e-2, drag=-0.1, order=4, dealiasing_fraction=22 / 32
        ),
        *(10, 8),
    ),
}
"""(stepper of one internal step, steps, internal steps of each) by task."""


@pytest.mark.parametrize("name", TASKS)
def test_tasks_agree_to_rounding(name: str) -> None:
    make, steps, substeps = TASKS[name]
    u0 = start(name)
    flip = mirrored if name in ("decaying_turbulence", "kolmogorov_flow") else lambda u: u
    expected = flip(theirs(partial(make, ex.stepper), flip(u0), get_task(name).dt, steps, substeps))
    assert distance(ours(name, u0, steps, substeps=substeps), expected) < 1e-11


@pytest.mark.parametrize("name", ["kdv", "kdv_difficulty"])
def test_dispersive_tasks_agree_in_the_limit_of_small_steps(name: str) -> None:
    task, steps, substeps = get_task(name), 2, 256
    if name == "kdv":
        b, a3, a4 = -2.0, -14.0, -9.0
    else:
        b, a3, a4 = -7.8539816, -0.021195699, -2.6754209e-4

    def make(dt: float) -> Any:
        linear = {"linear_coefficients": (0.0, 0.0, 0.0, a3, a4), "convection_scale": -b}
        own = {"single_channel": True, "conservative": True, **linear, **TWO_THIRDS}
        return ex.stepper.generic.GeneralConvectionStepper(1, 2 * math.pi, 160, dt, **own)

    u0 = start(name)
    coarse, middle, fine = (theirs(make, u0, task.dt, steps, substeps * m) for m in (1, 2, 4))
    truth = ours(name, u0, steps, substeps=512)
    d = [distance(x, truth) for x in (coarse, middle, fine)]
    extrapolated = (8 * fine - 6 * middle + coarse) / 3  # removes the errors of first and second order in the step
    assert d[0] / d[1] == pytest.approx(2, rel=0.3)
    assert distance(extrapolated, truth) < 1e-5
