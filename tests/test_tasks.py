"""Tasks: the table, initial states, the store; is the truth true? Exact solutions, fourth order, self-convergence."""

from __future__ import annotations

import json
import math
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from hero.data import TASKS, Split, Task, data_summary, generate, get_task, load_split, split_path
from hero.data.tasks import store as store_module
from hero.data.tasks.solver import Grid, SpectralStepper, solve
from hero.errors import HeroError

SMALL = Split("train", 3, 4, seed=0)


def test_the_table_has_the_papers_tasks_in_its_order() -> None:
    one = "dispersion burgers kdv kuramoto_sivashinsky anisotropic_diffusion kolmogorov_flow"
    assert " ".join(TASKS) == f"{one} decaying_turbulence swift_hohenberg unbalanced_advection kdv_difficulty"
    assert {(t.dims, t.resolution) for t in TASKS.values()} == {(1, 160), (2, 64), (3, 32)}
    assert {name for name, t in TASKS.items() if t.warmup == 500} == {"kuramoto_sivashinsky", "kolmogorov_flow"}


@pytest.mark.parametrize("name", TASKS)
def test_settings_name_every_coefficient_and_rebuild_the_task(name: str) -> None:
    task = get_task(name)
    settings = json.loads(json.dumps(task.settings()))
    assert get_task(name, settings) == task
    assert all(parameter in task.equation or name == "kdv_difficulty" for parameter in task.parameters)
    assert pickle.loads(pickle.dumps(task)) == task


@pytest.mark.parametrize("name", TASKS)
def test_every_coefficient_changes_the_solution(name: str) -> None:
    task = get_task(name, {"resolution": 32})
    u = task.initial_states(1, seed=0)
    before = task.stepper()(u)
    for parameter, value in get_task(name).parameters.items():
        changed = (np.asarray(value) * 2).tolist() or 1.0
        other = get_task(name, {"resolution": 32, parameter: changed})
        assert not torch.allclose(other.stepper()(u), before, rtol=1e-9, atol=1e-12), parameter


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("burgers", {"viscosity": float("nan")}, "task.viscosity is nan; give a finite number"),
        ("burgers", {"substeps": 0}, "task.substeps is 0; give an integer of at least 1"),
        ("burgers", {"substeps": 1.5}, "task.substeps is 1.5; give an integer"),
        ("burgers", {"dt": 0}, "task.dt is 0.0; give a number above zero"),
        ("burgers", {"viscosity": [1e-2, 1e-3]}, "smaller number first"),
        ("burgers", {"viscosity": [1e-3]}, "a range as [LOW, HIGH]"),
        ("burgers", {"dt": [0.1, 0.2]}, "give a number"),
        ("burgers", {"resolution": [32, 64]}, "give an integer"),
        ("burgers", {"resolution": 161}, "task.resolution is 161; give an even number of at least 16"),
        ("swift_hohenberg", {"resolution": 20}, "at least 22"),
        ("unbalanced_advection", {"velocity": [1.0, 2.0]}, "task.velocity is [1.0, 2.0]; give a list of 3 values"),
        ("anisotropic_diffusion", {"diffusivity": [1.0, 2.0]}, "task.diffusivity[0] is 1.0; give a list of 2"),
        ("kolmogorov_flow", {"forcing_mode": 40}, "task.forcing_mode is 40; give an integer from 0 to 21"),
    ],
)
def test_a_wrong_setting_is_told_in_one_sentence(name: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(HeroError) as caught:
        get_task(name, overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["burgers", "kolmogorov_flow", "swift_hohenberg"])
def test_initial_states_have_zero_mean_unit_maximum_and_a_band_limit(name: str) -> None:
    task = get_task(name)
    u = task.initial_states(3, seed=9)
    axes = tuple(range(-task.dims, 0))
    assert u.dtype == torch.float64
    assert u.mean(axes).abs().max() < 1e-15
    assert torch.equal(u.abs().amax(axes), torch.ones(3, 1, dtype=torch.float64))
    spectrum = torch.fft.fftn(u, dim=axes).abs()
    modes = torch.fft.fftfreq(task.resolution, 1 / task.resolution).abs()
    grids = torch.meshgrid(*[modes] * task.dims, indexing="ij")
    outside = torch.stack(grids).amax(0) > 5
    assert spectrum[:, :, outside].max() < 1e-10
    corner = (5,) * task.dims
    assert spectrum[(slice(None), 0, *corner)].min() > 1e-3  # the band is a cube: corners are drawn too


def test_a_state_depends_on_its_seed_and_index_alone() -> None:
    task = get_task("burgers")
    many = task.initial_states(5, seed=1)
    assert torch.equal(many[:2], task.initial_states(2, seed=1))
    assert not torch.allclose(many, task.initial_states(5, seed=2))
    assert not torch.allclose(many[0], many[1])


@pytest.mark.parametrize("name", ["burgers", "decaying_turbulence", "unbalanced_advection"])
def test_a_seed_names_the_same_field_at_every_resolution(name: str) -> None:
    task = get_task(name)
    fine = get_task(name, {"resolution": 2 * task.resolution}).initial_states(1, seed=4)
    sampled = fine[(..., *(slice(None, None, 2),) * task.dims)]
    torch.testing.assert_close(sampled / sampled.abs().max(), task.initial_states(1, seed=4), rtol=0, atol=1e-12)


def test_amplitudes_are_uniform_and_phases_are_too() -> None:
    """Ratios of coefficients do not depend on the scaling: one uniform is below another half of the time."""
    c = torch.fft.rfft(get_task("burgers").initial_states(2000, seed=0)[:, 0])[:, 1:6]
    assert ((c[:, 0].abs() < c[:, 1].abs()).double().mean() - 0.5).abs() < 0.05
    # For uniforms P(x < y/2) = 1/4; Gaussian amplitudes would give 1/5.
    assert ((2 * c[:, 0].abs() < c[:, 1].abs()).double().mean() - 0.25).abs() < 0.03
    assert (c / c.abs()).mean(0).abs().max() < 0.08


def test_a_split_is_made_once_and_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("burgers", {"resolution": 32})
    made = load_split(task, SMALL, tmp_path / "new" / "folder")
    assert made.shape == (3, 5, 1, 32)
    assert made.dtype == torch.float32
    monkeypatch.setattr(store_module, "generate", lambda *_: pytest.fail("generated again"))
    assert torch.equal(load_split(task, SMALL, tmp_path / "new" / "folder"), made)
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [split_path(task, SMALL, tmp_path).name]


def test_a_task_of_two_channels_is_solved_stored_and_read(tmp_path: Path) -> None:
    single = get_task("burgers", {"resolution": 32})
    task = replace(single, channels=2)
    assert task.source().channel_names == ("u0", "u1")
    solved, read = (load_split(task, SMALL, tmp_path) for _ in range(2))
    assert solved.shape == (3, 5, 2, 32)
    assert torch.equal(read, solved)
    assert not torch.equal(solved[:, :, 0], solved[:, :, 1])
    assert torch.equal(load_split(single, SMALL, tmp_path)[:, :, 0], solved[:, :, 0])


def test_stored_numbers_are_the_solution_rounded_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("kuramoto_sivashinsky", {"warmup": 7})
    whole = generate(task, SMALL)
    monkeypatch.setattr(store_module, "CHUNK_POINTS", 160)
    torch.testing.assert_close(generate(task, SMALL), whole, rtol=1e-6, atol=1e-7)
    u = task.initial_states(3, seed=0)
    for _ in range(9):
        u = task.stepper()(u)
    torch.testing.assert_close(whole[:, 2], u.float(), rtol=1e-6, atol=1e-7)


def test_the_hash_covers_settings_split_and_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("burgers")
    paths = {
        split_path(task, SMALL, tmp_path),
        split_path(get_task("burgers", {"viscosity": 4e-4}), SMALL, tmp_path),
        split_path(get_task("burgers", {"substeps": 5}), SMALL, tmp_path),
        split_path(task, Split("train", 3, 4, seed=1), tmp_path),
        split_path(task, Split("train", 3, 5, seed=0), tmp_path),
    }
    assert len(paths) == 5
    assert split_path(get_task("burgers", {"viscosity": 3e-4}), SMALL, tmp_path) in paths
    monkeypatch.setattr(store_module, "SOLVER_VERSION", -1)
    assert split_path(task, SMALL, tmp_path) not in paths


def test_the_file_tells_where_it_comes_from(tmp_path: Path) -> None:
    task = get_task("anisotropic_diffusion", {"resolution": 16})
    load_split(task, SMALL, tmp_path)
    summary = data_summary(split_path(task, SMALL, tmp_path))
    assert summary["settings"] == task.settings()
    assert (summary["task"], summary["split"], summary["seed"]) == ("anisotropic_diffusion", "train", 0)
    assert summary["shape"] == [3, 5, 1, 16, 16]
    assert summary["torch_version"] == str(torch.__version__)
    assert {"equation", "solver", "solver_version", "hero_version", "numpy_version", "created"} <= set(summary)
    json.dumps(summary)


@pytest.mark.parametrize("name", ["other", "u"])
def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    task = get_task("burgers", {"resolution": 64})
    load_split(task, SMALL, tmp_path)
    path = split_path(task, SMALL, tmp_path)
    with h5py.File(path, "w") as file:
        file[name] = np.zeros(3, np.float32)
    before = path.read_bytes()
    with pytest.raises(HeroError, match=r"(?s)burgers-train-.*delete it and repeat"):
        load_split(task, SMALL, tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("warmup", [0, 500])
def test_a_solution_that_leaves_the_finite_range_is_not_stored(tmp_path: Path, warmup: int) -> None:
    task = get_task("burgers", {"convection": -500.0, "substeps": 1, "warmup": warmup})
    expected = r"'burgers'.*at warm-up step \d+ of 500; raise task.substeps" if warmup else r"at step \d+; raise"
    with pytest.raises(HeroError, match=expected):
        load_split(task, Split("train", 2, 50, seed=0), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_that_want_the_same_file_at_once_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, calls, real = get_task("burgers"), [], store_module.generate
    monkeypatch.setattr(store_module, "generate", lambda *args: calls.append(1) or real(*args))
    results: list[torch.Tensor] = []
    split = Split("train", 20, 50, seed=0)
    threads = [threading.Thread(target=lambda: results.append(load_split(task, split, tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(results) == 3
    assert all(torch.equal(r, results[0]) for r in results)
    assert [p.suffix for p in tmp_path.iterdir()] == [".h5"]


LINEAR = [name for name, task in TASKS.items() if task.nonlinear is None]
NONLINEAR = [name for name in TASKS if name not in LINEAR]


def relative(a: Tensor, b: Tensor) -> Tensor:
    """Relative L2 distance per snapshot of (batch, time, channel, *space), worst over the batch."""
    return ((a - b).flatten(2).norm(dim=2) / b.flatten(2).norm(dim=2)).amax(0)


def started(task: Task, count: int, seed: int = 773) -> Tensor:
    return solve(task.stepper(), task.initial_states(count, seed), 0, warmup=task.warmup)[:, 0]


def rate(name: str, n: tuple[int, ...]) -> complex:
    """The exponent s of the exact solution exp(i k·x + s t), written out by hand for each linear task."""
    k = [2 * math.pi * m for m in n]
    if name == "dispersion":
        return 2.5e-4 * (-1j * k[0] ** 3)
    if name == "anisotropic_diffusion":
        return -(1e-3 * k[0] ** 2 + 2 * 5e-4 * k[0] * k[1] + 2e-3 * k[1] ** 2)
    return -1j * (0.01 * k[0] - 0.04 * k[1] + 0.005 * k[2])


@pytest.mark.parametrize("name", LINEAR)
def test_linear_tasks_follow_their_exact_solution_for_200_steps(name: str) -> None:
    task = get_task(name)
    waves = [((3, -2, 1)[-task.dims :], 0.7), ((1, 4, 5)[-task.dims :], -0.4)]
    x = task.grid().coordinates

    def exact(t: float) -> Tensor:
        total = torch.zeros(task.grid().space, dtype=torch.complex128)
        for n, amplitude in waves:
            phase = sum(2 * math.pi * m * xi for m, xi in zip(n, x, strict=True))
            total = total + amplitude * torch.exp(1j * phase + rate(name, n) * t)
        return total.real[None, None]

    trajectory = solve(task.stepper(), exact(0.0), 200)
    for step in (1, 10, 200):
        torch.testing.assert_close(trajectory[:, step], exact(step * task.dt), rtol=0, atol=1e-10)


def test_a_taylor_green_vortex_decays_without_changing_shape() -> None:
    """ω = sin(k x₀) sin(k x₁) is an exact Navier-Stokes solution: v·∇ω vanishes and ω decays as exp(-2νk²t)."""
    task = get_task("decaying_turbulence", {"viscosity": 1e-3})
    k, (x0, x1) = 2 * math.pi * 2, task.grid().coordinates
    u0 = (torch.sin(k * x0) * torch.sin(k * x1))[None, None]
    end = solve(task.stepper(), u0, 50)[:, -1]
    torch.testing.assert_close(end, u0 * math.exp(-2e-3 * k**2 * 5.0), rtol=0, atol=1e-12)


def test_a_moving_vorticity_wave_is_carried_by_the_velocity_whose_curl_it_is() -> None:
    """A strong shear ω = cos(x₁) has v₀ = -sin(x₁); a weak ripple on it must first move with +v₀, not against it."""
    task = get_task("kolmogorov_flow", {"forcing_scale": 0.0, "drag": 0.0, "viscosity": 0.0, "dt": 1e-3})
    x0, x1 = task.grid().coordinates
    shear, ripple = torch.cos(x1) + 0 * x0, 1e-6 * torch.cos(8 * x0) * torch.exp(-4 * (x1 - 1.5) ** 2)
    velocity = -torch.sin(x1)
    task_step = task.stepper()
    moved = (task_step((shear + ripple)[None, None]) - task_step(shear[None, None]))[0, 0] - ripple
    expected = 1e-3 * 1e-6 * 8 * velocity * torch.sin(8 * x0) * torch.exp(-4 * (x1 - 1.5) ** 2)
    assert float((moved * expected).sum() / (moved.norm() * expected.norm())) > 0.95


def test_kdv_difficulties_become_the_published_coefficients() -> None:
    """u_t = -7.853982·½(u²)_x - 0.02119570 u_xxx - 2.675421e-4 u_xxxx on [0, 2π) at 160 points, dt 0.01."""
    ours = get_task("kdv_difficulty")
    written = get_task(
        "kdv", {"convection": -7.853982, "dispersion": -0.02119570, "hyperdiffusion": -2.675421e-4, "substeps": 6}
    )
    u0 = ours.initial_states(2, seed=1)
    assert relative(solve(ours.stepper(), u0, 20), solve(written.stepper(), u0, 20)).max() < 1e-5


@pytest.mark.parametrize("name", NONLINEAR)
def test_nonlinear_tasks_converge_to_fourth_order(name: str) -> None:
    """Richardson: the change from h to h/2 is 16 times the change from h/2 to h/4."""
    coarse = {"kdv": 64, "kdv_difficulty": 8, "kuramoto_sivashinsky": 8}.get(name, 2)  # stiff: asymptotic later
    u0 = get_task(name).initial_states(1, seed=0)
    a, b, c = (solve(get_task(name, {"substeps": coarse * m}).stepper(), u0, 2)[:, -1] for m in (1, 2, 4))
    order = math.log2(float((a - b).norm() / (b - c).norm()))
    assert 3.6 < order < 4.4, order


@pytest.mark.parametrize("name", NONLINEAR)
def test_halving_the_internal_step_leaves_the_trajectory_alone(name: str) -> None:
    task = get_task(name)
    u0 = started(task, 2 if task.dims == 1 else 1)
    finer = get_task(name, {"substeps": 2 * task.substeps})
    change = relative(solve(task.stepper(), u0, 200), solve(finer.stepper(), u0, 200))
    if name in ("kuramoto_sivashinsky", "kolmogorov_flow"):  # chaotic: small differences grow
        assert change[:51].max() < 1e-4
        assert change[200] < 1e-2
    else:
        assert change.max() < 1e-4


PRINTED_KS = {"gradient_norm": -2.0, "kept_mean": 1.0}
"""-1.0 (u_x)², as the paper prints it: without the factor ½ and with its mean."""


def test_kuramoto_sivashinsky_as_printed() -> None:
    """u_t = -u_xx - u_xxxx - (u_x)² in numpy, by the classical Runge-Kutta method with a hundred steps per snapshot."""
    task = get_task("kuramoto_sivashinsky", {**PRINTED_KS, "resolution": 96, "substeps": 16})
    u0 = task.initial_states(1, seed=2)
    k = 2 * np.pi / 60 * np.fft.rfftfreq(96, 1 / 96)

    def derivative(u: np.ndarray, order: int) -> np.ndarray:
        return np.fft.irfft((1j * k) ** order * np.fft.rfft(u), 96)

    def printed(u: np.ndarray) -> np.ndarray:
        return -derivative(u, 2) - derivative(u, 4) - 1.0 * derivative(u, 1) ** 2

    u, h = u0[0, 0].numpy(), 0.1 / 100
    for _ in range(1000):
        a = printed(u)
        b = printed(u + h / 2 * a)
        c = printed(u + h / 2 * b)
        u = u + h / 6 * (a + 2 * b + 2 * c + printed(u + h * c))
    ours = solve(task.stepper(), u0, 10)[0, -1, 0].numpy()
    assert u.mean() < u0.mean().item() - 0.01  # the mean that the default removes
    np.testing.assert_allclose(ours, u, rtol=0, atol=1e-7 * np.abs(u).max())


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


@pytest.mark.parametrize("name", [*sorted({*NONLINEAR} - {"kdv_difficulty"}), "dispersion", "unbalanced_advection"])
def test_a_state_is_stepped_alike_alone_and_in_a_batch(name: str) -> None:
    task = get_task(name, {"resolution": 16, "cutoff": 3})
    u = task.initial_states(3, seed=5)
    together = task.stepper()(u)
    alone = torch.cat([task.stepper()(u[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [*sorted({*NONLINEAR} - {"kdv_difficulty"}), "anisotropic_diffusion"])
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
