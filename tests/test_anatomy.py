"""Which modes make the error: exact cases, a naive twin in float64, the sentences, and the command on trained runs."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import Call, assert_refused, tiny
from hero.analysis import anatomy as module
from hero.analysis.anatomy import Anatomy, Carried, driven_errors, one_step_shares, shares
from hero.data import Task, get_task
from hero.data.tasks.solver import solve
from hero.data.trajectories import Context, Trajectories
from hero.evaluation.evaluate import evaluate
from hero.evaluation.measure import Subject
from hero.method.domain.bands import GridBands, split_modes
from hero.method.rollout import Stepper
from hero.models.spectral import dft_matrices, truncated_inverse, truncated_transform
from hero.report.page.page import write_run_page
from hero.runs.records import Metrics
from hero.training.loop import train

SPACES = [(7,), (8,), (5, 6), (8, 8), (4, 5, 6)]
STEPS = 6


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def project_all(bands: GridBands, u: Tensor) -> list[Tensor]:
    return [bands.project(u, mask.expand(len(u), *mask.shape)) for mask in bands.masks]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kept", [None, 2, 3])
def test_bands_are_orthogonal_projections_that_sum_to_the_identity(space: tuple[int, ...], kept: int | None) -> None:
    bands = split_modes(space, None if kept is None else [min(kept, n // 2) for n in space])
    assert len(bands.limits) == len(bands.masks)
    u = random(3, 2, *space)
    parts = project_all(bands, u)
    torch.testing.assert_close(sum(parts), u)
    for i, part in enumerate(parts):
        again = project_all(bands, part)
        torch.testing.assert_close(again[i], part)
        assert all(float(other.abs().max()) < 1e-12 for j, other in enumerate(again) if j != i)
    norms = torch.stack([part.flatten(1).square().sum(dim=1) for part in parts], dim=1)
    torch.testing.assert_close(bands.energies(u), norms)


@pytest.mark.parametrize(("space", "kept"), [((9,), (3,)), ((8,), (5,)), ((6, 8), (3, 2)), ((7, 6, 8), (2, 3, 2))])
def test_the_last_band_is_what_the_truncated_transform_of_an_fno_drops(
    space: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    bands = split_modes(space, kept)
    forward, inverse = dft_matrices(kept, space)
    seen = truncated_inverse(truncated_transform(random(2, 1, *space), forward), inverse)
    if bands.limits[-1][1] is not None:
        assert space == (8,)  # five modes are all that eight points have
        return
    beyond = project_all(bands, random(2, 1, *space, seed=1))[-1]
    assert float(project_all(bands, seen)[-1].abs().max()) < 1e-12
    assert float(truncated_transform(beyond, forward).abs().max()) < 1e-12


def small_task(name: str = "burgers") -> Task:
    return get_task(name, {"resolution": 32, "substeps": 1})


def truth_of(task: Task, count: int = 2, steps: int = STEPS) -> Tensor:
    return solve(task.stepper(), task.initial_states(count, seed=3), steps)


def subject(step: Stepper, data: Tensor, history: int = 1) -> Subject:
    return Subject(step, Trajectories(data), history)


@pytest.mark.parametrize("bundle", [1, 2])
def test_an_operator_with_a_defect_in_one_band_has_its_error_in_that_row(bundle: int) -> None:
    task = small_task()
    solver, data, bands = task.stepper(), truth_of(task), split_modes((32,), (8,))
    x = torch.arange(32, dtype=torch.float64) * (2 * math.pi / 32)
    defect = 0.01 * torch.cos(5 * x + 0.3)

    def step(context: Context) -> Tensor:
        made = [context.states[:, -1]]
        for _ in range(bundle):
            made.append(solver(made[-1]) + defect)
        return torch.cat(made[1:], dim=1)

    everything = torch.ones_like(bands.masks[:1])
    errors = driven_errors(subject(step, data), STEPS, bands, torch.cat([bands.masks, everything]), solver)
    *rows, own = errors
    guilty = bands.limits.index((4, 7))
    torch.testing.assert_close(rows[guilty], own)
    assert float(own.min()) > 1e-3
    assert all(float(row.max()) < 1e-12 for i, row in enumerate(rows) if i != guilty)
    if bundle == 1:  # the first state of a call has this defect alone, the second what the equation made of it as well
        assert one_step_shares(subject(step, data), STEPS, bands, True)[guilty] == pytest.approx(1)


def network(channels: int, history: int, bundle: int, dims: int) -> Stepper:
    """A fixed nonlinear map of all inputs that mixes modes."""
    mix = 0.4 * random(bundle * channels, history * channels, seed=5)

    def step(context: Context) -> Tensor:
        z = context.inputs()
        z = z + 0.3 * z.roll(1, dims=-1) * z.roll(2, dims=2)
        return torch.tanh(torch.einsum("oi,bi...->bo...", mix, z)) + 0.05

    return step


def naive_bands(space: tuple[int, ...], limits: Any) -> list[np.ndarray]:
    """Masks in the layout of the full transform, mode by mode; every mode is reached."""
    masks = [np.zeros(space) for _ in limits]
    for place in itertools.product(*map(range, space)):
        k = [i if 2 * i < n else i - n for i, n in zip(place, space, strict=True)]
        radius = round(math.sqrt(sum(j * j for j in k)))
        (band,) = [i for i, (low, high) in enumerate(limits) if low <= radius <= high]
        masks[band][place] = 1
    return masks


def naive_projection(e: Tensor, mask: np.ndarray) -> Tensor:
    return torch.stack([torch.from_numpy(np.fft.ifftn(mask * np.fft.fftn(channel.numpy())).real) for channel in e])


@pytest.mark.parametrize(("dims", "history", "bundle"), [(1, 1, 1), (2, 2, 2), (2, 1, 3)])
@pytest.mark.parametrize("with_solver", [True, False])
def test_naive_twin(dims: int, history: int, bundle: int, with_solver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_VALUES", 700)  # several batches, cut across bands
    steps, space, channels = 5, (12, 9)[:dims], 2
    data = random(3, history + steps, channels, *space, seed=7)
    step = network(channels, history, bundle, dims)

    def solver(u: Tensor) -> Tensor:
        return 0.9 * u.roll(1, dims=-1) + 0.1 * u**2

    bands = split_modes(space)
    found = driven_errors(subject(step, data, history), steps, bands, bands.masks, solver if with_solver else None)
    for b, mask in enumerate(naive_bands(space, bands.limits)):
        for j, u in enumerate(data):
            w = list(u[:history])
            while len(w) < history + steps:
                made = step(Context(torch.stack(w[-history:])[None]))[0].reshape(bundle, channels, *space)
                previous = w[-1]
                for g in made:
                    if with_solver:
                        w.append(solver(w[-1]) + naive_projection(g - solver(previous), mask))
                    elif len(w) < history + steps:
                        w.append(u[len(w)] + naive_projection(g - u[len(w)], mask))
                    previous = g
            last = history + steps - 1
            error = float((w[last] - u[last]).norm() / u[last].norm())
            assert float(found[b, j]) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("bundle", [1, 2])
def test_naive_shares_of_the_one_step_error(relative: bool, bundle: int) -> None:
    steps, space, channels, history = 4, (6, 7), 2, 2
    data = random(3, history + steps, channels, *space, seed=8) * torch.arange(1, 4).reshape(3, 1, 1, 1, 1)
    step, bands = network(channels, history, bundle, 2), split_modes(space)
    energy = [0.0] * len(bands.limits)
    for b, mask in enumerate(naive_bands(space, bands.limits)):
        for u in data:
            for n in range(steps):
                made = step(Context(u[None, n : n + history]))[0].reshape(bundle, channels, *space)
                for g, target in zip(made, u[n + history :], strict=False):
                    scale = float(target.norm()) ** 2 if relative else 1.0
                    energy[b] += float(naive_projection(g - target, mask).norm()) ** 2 / scale
    found = one_step_shares(subject(step, data, history), steps, bands, relative)
    assert found == pytest.approx([value / sum(energy) for value in energy])


def test_a_rollout_that_leaves_the_finite_range_is_infinite_and_the_others_are_not() -> None:
    data, bands = random(2, 1 + STEPS, 1, 8).abs() + 1, split_modes((8,))

    def step(context: Context) -> Tensor:
        """The mean explodes; everything else is copied."""
        u = context.states[:, -1]
        return u + 1e100 * u.mean(dim=-1, keepdim=True) ** 3

    errors = driven_errors(subject(step, data), STEPS, bands, bands.masks, lambda u: u)
    assert bool(errors[0].isinf().all())
    assert bool(errors[1:].isfinite().all())
    assert shares([math.inf, 1.0, math.inf]) == [0.5, 0, 0.5]
    assert all(map(math.isnan, shares([0.0, 0.0])))
    assert Carried(errors=(1e300, 1e300, 0.0)).shares == [0.5, 0.5, 0]
    assert Carried(errors=(math.inf, 1e300)).shares == [1, 0]


def record(one_step: list[float], errors: list[float], own: float, **more: Any) -> Anatomy:
    limits = ((0, 0), (1, 1), (2, 3), (4, None))
    given = {"data": Carried(errors=tuple(errors)), "solver": None, "solver_alone": None, "loss": "relative"}
    given |= {"optimizer": "adamw"} | more
    return Anatomy(run="r", split="val", trajectories=2, steps=100, limits=limits,
                   one_step=tuple(one_step), own=own, **given)  # fmt: skip


def test_the_advice_follows_from_the_numbers() -> None:
    small_scales = [0.08, 0, 0, 0.92], [0.01, 0.3, 0.2, 0.02], 0.35
    for words, found in {
        "|k| = 1, 2-3 make 100 % of it: train with train.loss=balanced under train.optimizer=soap.": record(
            *small_scales
        ),
        "already weighs": record([0.1, 0.5, 0.4, 0], [0.1, 0.5, 0.4, 0.1], 0.7),
        "raise backbone.modes": record([0, 0, 0, 1], [0.1, 0.1, 0.1, 0.9], 0.9),
        "the interplay": record([0.5, 0.5, 0, 0], [0.01, 0.01, 0, 0], math.inf),
        "nothing to compare": record([math.nan] * 4, [0, 0, 0, 0], 0),
    }.items():
        assert words in found.advice


def test_the_command_on_a_trained_run(runs_dir: Path, data_dir: Path, call: Call) -> None:
    long = {"data__val_steps": 101, "data__test_steps": 101}
    config = tiny(strategy="push_forward", train__history=2, train__bundle=2, train__unroll=4, **long)
    run = train(config, runs_dir, data_dir)
    evaluate(run, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    code, out, err = call("anatomy", run.name, "--steps", 20, *folders)
    assert code == 0, err
    assert "Solver:" in out
    found = Anatomy.read(run / "anatomy.json")
    assert found.limits == ((0, 0), (1, 1), (2, 2), (3, 3), (4, 5), (6, None))
    assert sum(found.one_step) == pytest.approx(1)
    assert found.solver_alone < 1e-4
    assert found.advice in out
    assert (run / "figures" / "anatomy.png").is_file()

    code, out, err = call("anatomy", run.name, "--without-solver", *folders)
    assert code == 0, err
    assert "Solver" not in out
    found = Anatomy.read(run / "anatomy.json")
    assert (found.split, found.trajectories, found.steps, found.solver) == ("val", 2, 100, None)
    assert found.own == Metrics.read(run / "metrics.json").val["nrmse@100"]
    assert "Anatomy of the error" in write_run_page(run).read_text(encoding="utf-8")
    for wrong in ("--steps=101", "--split=tset", "--trajectories=0"):
        assert_refused(call("anatomy", run.name, wrong, *folders), wrong.rpartition("=")[2])
