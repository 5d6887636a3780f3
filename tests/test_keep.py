"""Invariants: found in data that keep them and in no others, and kept by the operator to rounding."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import tiny
from hero.data import TASKS
from hero.data.invariants import Survey, keep_words, parse_keep, survey
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.rollout import rollout, unroll
from hero.models.wrappers import Kept
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from hero.runs.structure import find_structure, sample_data, with_structure
from hero.training.loop import train

X = np.arange(64) / 64


def waves(trajectories: int = 6, states: int = 30, seed: int = 0) -> np.ndarray:
    """Travelling sums of waves about a mean of 0.3: (trajectory, states, channel, x); mean and norm are kept."""
    rng = np.random.default_rng(seed)
    amplitude, phase = rng.normal(size=(trajectories, 4)), rng.uniform(0, 6, size=(trajectories, 4))
    k, t = np.arange(1, 5), 0.03 * np.arange(states)
    angle = 2 * np.pi * k[:, None] * (X - t[:, None, None]) + phase[:, None, :, None]  # (trajectory, state, k, x)
    return np.asarray(0.3 + (amplitude[:, None, :, None] * np.cos(angle)).sum(2, keepdims=True))


def surveyed(u: np.ndarray, weights: np.ndarray | None = None, dtype: type = np.float32) -> Survey:
    return survey(u.astype(dtype), "abc"[: u.shape[2]], weights)


def words(u: np.ndarray, weights: np.ndarray | None = None, dtype: type = np.float32) -> tuple[str, ...]:
    """What an operator should keep of the channels a, b, .."""
    return keep_words(surveyed(u, weights, dtype).invariants)


DECAY = np.exp(-0.05 * np.arange(30))[None, :, None, None]


def test_what_travelling_waves_keep() -> None:
    u = waves()
    assert words(u) == ("mean:a", "norm:a")
    assert words(0.3 + DECAY * (u - 0.3)) == ("mean:a", "norm_cap:a")
    assert words(0.3 + (u - 0.3) / DECAY) == ("mean:a",)
    assert words(u + np.linspace(0, 1, 30)[None, :, None, None]) == ("norm:a",)


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1e-2])
def test_what_holds_only_nearly_is_not_kept(size: float) -> None:
    drift = size * np.sin(np.arange(30))[None, :, None, None]
    found = {one.kind: one for one in surveyed(waves() * (1 + drift) + drift).invariants}
    assert not found["mean"].kept
    assert not found["norm"].kept
    assert found["mean"].violation == pytest.approx(size, rel=3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_tolerance_follows_the_precision_of_the_data(dtype: type) -> None:
    assert words(waves(), dtype=dtype) == ("mean:a", "norm:a")


def test_means_are_over_valid_points_with_their_weights() -> None:
    u = waves()
    mask = np.ones((1, 64))
    mask[0, 20:30] = 0
    masked = u.copy()
    masked[..., 20:30] = np.random.default_rng(2).normal(size=masked[..., 20:30].shape)
    stretch = 1 + 0.5 * np.cos(2 * np.pi * X)  # cell widths of an uneven axis
    still = np.where(mask > 0, masked - (masked * mask).sum(-1, keepdims=True) / mask.sum(), masked)
    assert "mean:a" in words(still, mask)
    assert "mean:a" not in words(still)
    uneven = u / stretch  # the mean with the widths is that of u
    assert "mean:a" in words(uneven, stretch[None])
    assert "mean:a" not in words(uneven)


def test_bounds_are_zero_or_values_that_many_points_have() -> None:
    rng = np.random.default_rng(4)
    fraction = np.clip(waves() + 0.5 * rng.normal(size=(6, 30, 1, 1)), 0, 1)
    assert {"low:a=0", "high:a=1"} <= set(words(fraction))
    density = 2 + 0.1 * waves()  # far from zero: positive, and no bound
    assert not [word for word in words(density) if word.startswith(("low", "high"))]
    positive = np.abs(waves() + rng.normal(size=(6, 30, 1, 1)))
    assert "low:a=0" in words(positive)


def test_species_that_turn_into_each_other_keep_their_sum() -> None:
    share = np.linspace(0, 0.4, 30)[None, :, None, None]
    a = waves()
    both = np.concatenate([a - share, waves(seed=1) + share], axis=2)
    assert "total:a+b" in words(both)
    assert "mean:a" not in words(both)


def test_where_states_change_much_per_step_only_the_cap_is_kept() -> None:
    gone = np.exp(-0.5 * np.arange(30))[None, :, None, None]
    found = surveyed((waves() - 0.3) * gone)
    assert found.step_change > 0.07
    assert found.kept == ("norm_cap:a",)


KEPT = {
    "dispersion": {"mean:u", "norm:u"},
    "burgers": {"mean:u", "norm_cap:u"},
    "kdv": {"mean:u", "norm_cap:u"},
    "kuramoto_sivashinsky": {"mean:u"},
    "anisotropic_diffusion": {"mean:u", "norm_cap:u"},
    "kolmogorov_flow": {"mean:u"},
    "decaying_turbulence": {"mean:u", "norm_cap:u"},
    "swift_hohenberg": set(),
    "unbalanced_advection": {"mean:u", "norm:u"},
    "kdv_difficulty": {"mean:u", "norm_cap:u"},
}


@pytest.mark.parametrize("task", [name for name in TASKS if name in KEPT])
def test_every_benchmark_keeps_what_its_equation_says(task: str, tmp_path: Path) -> None:
    settings = {"task.name": task, "data.train_trajectories": 2, "data.train_steps": 30}
    if TASKS[task].dims > 1:
        settings["task.resolution"] = 32 if TASKS[task].dims == 2 else 24
    if TASKS[task].warmup:
        settings["task.warmup"] = 100
    config = make_config(overrides=settings)
    assert set(keep_words(find_structure(config, sample_data(config, tmp_path)).invariants)) == KEPT[task]


NAMES = ("a", "b")
RULES = ["mean", "norm", "norm_cap", "limit=0.2", "mean,norm", "mean,norm_cap", "low=-0.1,high=0.3", "low=-0.1,mean",
         "mean,low=-0.2,high=0.2", "total", "total,low=-0.1,high=0.5"]  # fmt: skip


def numpy_twin(v: np.ndarray, u: np.ndarray, keep: str, omega: np.ndarray) -> np.ndarray:
    """The projection of one state (channel, x), in loops: `omega` (channel, x) sums to 1 in each channel."""
    v = v.copy()
    rules = {part.partition("=")[0]: part.partition("=")[2] for part in keep.split(",")}
    low, high = float(rules.get("low", "-inf") or 0), float(rules.get("high", "inf") or 0)
    for c in range(len(v)):
        v[c] = np.minimum(np.maximum(v[c], low), high)
        norms = [math.sqrt(float((omega[c] * (x - (omega[c] * x).sum()) ** 2).sum())) for x in (v[c], u[c])]
        middle = (omega[c] * v[c]).sum()
        if "norm" in rules:
            v[c] = middle + (v[c] - middle) * norms[1] / norms[0]
        if "norm_cap" in rules and norms[0] > norms[1]:
            v[c] = middle + (v[c] - middle) * norms[1] / norms[0]
        if "limit" in rules and norms[0] > float(rules["limit"]):
            v[c] = middle + (v[c] - middle) * float(rules["limit"]) / norms[0]
    groups = [[0, 1]] if "total" in rules else [[0], [1]] if "mean" in rules else []
    for group in groups:
        w = omega[group] / len(group)
        missing = float((w * u[group]).sum() - (w * v[group]).sum())
        room = high - v[group] if missing > 0 else v[group] - low
        if np.isinf(room).any():
            v[group] = v[group] + missing
        else:
            v[group] = v[group] + room * missing / (w * room).sum()
    return v


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("keep", RULES)
def test_the_projection_is_its_twin(keep: str, weighted: bool) -> None:
    torch.manual_seed(1)
    weights = torch.rand(2, 12).double() if weighted else None
    if weights is not None:
        weights[0, 3:5] = 0  # masked
    rough = nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.Tanh(), nn.Conv1d(6, 4, 3, padding=1))
    operator = Kept(rough, parse_keep(keep.split(","), NAMES), 2, history=2, weights=weights).double()
    x = 0.5 * torch.randn(3, 4, 12, dtype=torch.float64)
    if "low" in keep:
        x = x.clamp(-0.1, 0.2)  # a state that is within the bounds
    with torch.no_grad():
        out, raw = operator(x), operator.backbone(x)
    omega = np.full((2, 12), 1 / 12) if operator.omega is None else operator.omega.numpy()
    for sample in range(3):
        for step in range(2):
            rows = slice(2 * step, 2 * step + 2)
            expected = numpy_twin(raw[sample, rows].numpy(), x[sample, 2:].numpy(), keep, omega)
            np.testing.assert_allclose(out[sample, rows].numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("keep", [rule for rule in RULES if "low" not in rule])
def test_the_gradient_is_that_of_the_projection(keep: str) -> None:
    operator = Kept(nn.Identity(), parse_keep(keep.split(","), NAMES), 2).double()
    torch.manual_seed(2)
    u = torch.randn(2, 2, 7, dtype=torch.float64)
    v = torch.randn(2, 2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: operator.project(v, u), (v,))


@pytest.mark.parametrize("keep", ["mean", "mean,norm", "mean,norm_cap", "limit=1", "low=0,mean"])
def test_a_dead_output_and_a_constant_state_have_finite_gradients(keep: str) -> None:
    operator = Kept(nn.Identity(), parse_keep(keep.split(","), ("a",)), 1)
    for u in (torch.zeros(1, 1, 8), torch.randn(1, 1, 8)):
        for v in (torch.zeros(1, 1, 8), 1e-25 * torch.randn(1, 1, 8), torch.randn(1, 1, 8)):
            v = v.clone().requires_grad_()
            out = operator.project(v, u)
            out.square().sum().backward()
            assert bool(out.isfinite().all())
            assert bool(v.grad.isfinite().all())


@pytest.mark.parametrize("change", [{}, {"train__history": 2, "train__bundle": 2, "train__unroll": 4},
                                    {"backbone__residual": True, "train__normalise": True}])  # fmt: skip
def test_a_thousand_steps_keep_mean_and_norm(change: dict[str, object]) -> None:
    config = tiny(backbone__keep="mean,norm", **change)
    operator, history = config.build_operator(), config.train.history
    start = torch.randn(2, history, 1, *config.source.space)
    with torch.no_grad():
        tau = unroll(operator, Context(start), 1000).double()
    u = start[:, -1:].double()
    for quantity in (lambda x: x.mean(dim=-1), lambda x: x.std(dim=-1)):
        torch.testing.assert_close(quantity(tau), quantity(u).expand(-1, 1000, -1), rtol=1e-3, atol=1e-4)


def test_the_invariants_of_the_data_are_found_stored_and_kept(tmp_path: Path) -> None:
    config = tiny(task__name="dispersion", backbone__keep="auto", backbone__residual="auto")
    assert not config.backbone.is_found
    run = Run(train(config, tmp_path / "runs", tmp_path / "data"))
    assert run.config.backbone.kept == ("mean:u", "norm:u")
    assert run.config.backbone.predicts_change
    assert run.config.run_id() == config.run_id() == run.name
    test = load_data(run.config, "test", tmp_path / "data", "cpu")
    with torch.no_grad():
        tau = rollout(run.stepper(run.operator("cpu")), test.first(1), 100).double()
    size = tau.std(dim=-1) / test.states[:, :1].double().std(dim=-1)
    torch.testing.assert_close(size, torch.ones_like(size), rtol=1e-4, atol=0)


def test_a_limit_comes_from_the_largest_state(tmp_path: Path) -> None:
    config = tiny(task__name="kdv", backbone__keep="auto,limit")
    data = load_data(config, "train", tmp_path, "cpu")
    (word,) = [word for word in with_structure(config, data).backbone.kept if word.startswith(("limit", "norm"))]
    assert word == "norm_cap:u"  # which is the tighter one
    burgers = tiny(backbone__keep="limit")
    data = load_data(burgers, "train", tmp_path, "cpu")
    (word,) = with_structure(burgers, data).backbone.kept
    largest = float(data.states.double().std(dim=-1, correction=0).max())
    assert float(word.partition("=")[2]) == pytest.approx(1.2 * largest, rel=1e-4)
    assert survey(data.states.numpy(), ("u",)).limits(("norm:u",)) == ()


def test_what_is_asked_for_is_checked() -> None:
    for word in ("means", "mean:v", "low", "mean=3", "norm,norm_cap", "mean,total", "norm,low=0"):
        with pytest.raises(HeroError):
            tiny(backbone__keep=word)
