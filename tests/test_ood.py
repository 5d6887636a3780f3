"""Runs under a shift: the same states on every grid, a true truth there, and numbers that belong to the checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import tiny
from fakes import untrained
from hero.data import Split, get_task, load_split
from hero.data.tasks.solver import SpectralStepper, solve
from hero.errors import HeroError
from hero.evaluation.elsewhere import changed_task, resample
from hero.evaluation.evaluate import evaluate
from hero.paper import studies as ood
from hero.paper.studies import SHIFTS, Shift, shifted
from hero.runs.checkpoint import read_weights, save_weights
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.training.loop import train
from test_backbones import SMALL

FINER = Shift("finer", "48 points", {"resolution": 48})
WEAKER = Shift("weaker", "viscosity 1e-3", {"viscosity": 1e-3})
NO_SHIFT = Shift("none", "no shift", {})


WITH_HISTORY: dict[str, Any] = {"strategy": "push_forward", "train__history": 2, "train__normalise": True}
WITH_HISTORY |= {"data__val_steps": 101, "data__test_steps": 101}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """A run of the tiny configuration, trained and evaluated once."""
    runs = tmp_path_factory.mktemp("runs")
    run = train(tiny(**WITH_HISTORY), runs, data_dir)
    evaluate(run, data_dir)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be changed at will."""
    return Path(shutil.copytree(trained, tmp_path / trained.name))


def test_no_shift_gives_the_stored_metrics_bit_for_bit(run: Path, data_dir: Path) -> None:
    stored = Run(run).stored_metrics
    result = shifted(run, data_dir, NO_SHIFT)
    assert result.metrics == stored.test
    assert (result.task, result.strategy, result.seed) == ("burgers", "push_forward", 0)
    with np.load(run / "errors.npz") as own, np.load(run / "evaluations" / "test.npz") as found:
        assert np.array_equal(own["nrmse"], found["nrmse"])


def test_a_result_is_kept_until_the_checkpoint_or_the_shift_changes(run: Path, data_dir: Path) -> None:
    first = shifted(run, data_dir, WEAKER)
    files = [run / "evaluations" / f"task.viscosity_0.001.{suffix}" for suffix in ("json", "npz")]
    times = [path.stat().st_mtime_ns for path in files]
    assert shifted(run, data_dir, WEAKER) == first
    assert [path.stat().st_mtime_ns for path in files] == times
    assert shifted(run, data_dir, replace(WEAKER, settings={"viscosity": 2e-3})).metrics != first.metrics
    for content in (b"{", b'{"identity": 3}'):  # damaged
        files[0].write_bytes(content)
        assert shifted(run, data_dir, WEAKER) == first
    weights, _ = read_weights(run / "model.safetensors")
    changed = {name: 0.9 * tensor for name, tensor in weights.items()}
    save_weights(run / "model.safetensors", changed, {"step": 1, "val_gm100": "1"})
    second = shifted(run, data_dir, WEAKER)
    assert second.metrics != first.metrics
    assert json.loads(files[0].read_text())["metrics"] == second.metrics


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("resolution", [18, 36])
def test_resampling_a_trigonometric_polynomial_is_exact(dims: int, resolution: int) -> None:
    """cos and sin of modes up to 5, written out on both grids."""

    def field(points: int) -> Tensor:
        x = torch.arange(points, dtype=torch.float64) * (2 * torch.pi / points)
        axes = torch.meshgrid(*(x,) * dims, indexing="ij")
        return sum(
            ((i + 1) * torch.cos(5 * x - i) + torch.sin(axes[0] + (4 - i) * x) for i, x in enumerate(axes)), x[0]
        )

    coarse, fine = field(12)[None, None], field(resolution)[None, None]
    torch.testing.assert_close(resample(coarse, resolution, dims), fine, rtol=0, atol=1e-12)
    torch.testing.assert_close(resample(fine, 12, dims), coarse, rtol=0, atol=1e-12)


def test_trajectories_on_every_grid_begin_at_the_same_function(data_dir: Path) -> None:
    """A warm-up of 40 steps on the other grid would end elsewhere: the task's own states differ by 10 % and more."""
    config = tiny(task__name="kolmogorov_flow", task__resolution=16, task__warmup=40, task__substeps=2)
    settings = {"resolution": 24, "substeps": 3}
    own = load_split(config.source.task, config.split("test"), data_dir)[:, 0, ..., ::2, ::2]  # the common points
    found = load_split(changed_task(config, settings, data_dir), config.split("test"), data_dir)[:, 0, ..., ::3, ::3]
    torch.testing.assert_close(found, own, rtol=0, atol=2e-6 * float(own.abs().max()))
    naive = load_split(config.source.task.with_settings(settings), Split("test", 2, 0, 773), data_dir)[:, 0]
    assert float((naive[..., ::3, ::3] - own).norm() / own.norm()) > 0.1


class SolverStep(nn.Module):
    """The solver of Burgers' equation as a backbone, on whatever grid it is called."""

    def __init__(self, viscosity: float = 3e-4, substeps: int = 1) -> None:
        super().__init__()
        self.settings = {"viscosity": viscosity, "substeps": substeps}
        self.unused = nn.Parameter(torch.zeros(1))
        self.steppers: dict[int, SpectralStepper] = {}

    def forward(self, u: Tensor) -> Tensor:
        points = u.shape[-1]
        if points not in self.steppers:
            self.steppers[points] = get_task("burgers", {**self.settings, "resolution": points}).stepper()
        return self.steppers[points](u)


class Bound(nn.Linear):
    """A map between the 32 points of the training grid."""

    def __init__(self) -> None:
        super().__init__(32, 32)


def foreign(cls: str, **kwargs: Any) -> RunConfig:
    own: dict[str, Any] = {"backbone.name": f"test_ood:{cls}", "backbone.width": None, "backbone.modes": None}
    own |= {f"backbone.kwargs.{key}": value for key, value in kwargs.items()}
    return tiny(strategy="one_step", **own)


@pytest.mark.parametrize(
    ("settings", "knows"),
    [
        ({"viscosity": 1e-3}, {"viscosity": 1e-3}),
        ({"resolution": 48, "substeps": 2}, {"substeps": 2}),
        ({"resolution": 24}, {}),
    ],
)
def test_the_true_step_of_the_shifted_task_scores_zero(
    settings: dict[str, Any], knows: dict[str, Any], tmp_path: Path, data_dir: Path
) -> None:
    run = untrained(foreign("SolverStep", **knows), tmp_path)
    assert shifted(run, data_dir, Shift("shift", "shift", settings)).metrics["nrmse@100"] < 1e-5
    other = Shift("other", "other", {"viscosity": 2e-3})
    assert shifted(run, data_dir, other).metrics["nrmse@100"] > 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "refiner"},
        {**WITH_HISTORY, "train__bundle": 3, "train__unroll": 3, "backbone__coordinates": True},
        {"strategy": "one_step", "backbone__modes": None, "backbone__name": "transolver", **SMALL["transolver"]},
    ],
    ids=["refiner", "bundle", "transolver"],
)
def test_models_work_on_a_finer_grid(changes: dict[str, Any], tmp_path: Path, data_dir: Path) -> None:
    config = tiny(**changes)
    run = untrained(config, tmp_path)
    result = shifted(run, data_dir, FINER)
    assert 0 < result.metrics["nrmse@1"] < float("inf")
    with np.load(run / "evaluations" / "task.resolution_48.npz") as arrays:
        assert arrays["nrmse"].shape == (2, 100)


def test_a_model_that_holds_its_grid_says_so(tmp_path: Path, data_dir: Path) -> None:
    run = untrained(foreign("Bound"), tmp_path)
    assert shifted(run, data_dir, WEAKER).metrics["nrmse@1"] > 0
    with pytest.raises(HeroError, match=r"test_ood:Bound, trained on 32 points, .* on 48 .*'task.resolution_48' out"):
        shifted(run, data_dir, FINER)
    assert not (run / "evaluations" / "task.resolution_48.json").exists()


@pytest.mark.parametrize("name", SHIFTS)
def test_halving_the_internal_step_leaves_the_shifted_truth_alone(name: str) -> None:
    """On one trajectory, warmed up shortly, and its first steps; all of it is in docs/reference/shifts.md."""
    own = get_task(ood.PAPER_TASK)
    task = own.with_settings(SHIFTS[name].settings)
    start = own if task.resolution != own.resolution else task
    u = solve(start.stepper(), start.initial_states(1, 773), 0, warmup=100)[:, 0]
    u = resample(u, task.resolution, 2)
    ours, finer = (
        solve(task.with_settings({"substeps": n}).stepper(), u, 12) for n in (task.substeps, 2 * task.substeps)
    )
    change = (ours - finer).flatten(2).norm(dim=2) / finer.flatten(2).norm(dim=2)
    assert 0 < float(change.max()) < 1e-4
