"""The task table, its overrides, the law of the initial states, and the store of trajectories."""

from __future__ import annotations

import json
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hero.data import TASKS, Split, data_summary, generate, get_task, load_split, split_path
from hero.data.tasks import store as store_module
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
