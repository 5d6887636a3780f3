"""The theory as numbers: gradients against naive loops, identities to rounding, bounds by hand; kept checkpoints."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from conftest import Call, assert_refused, options, tiny
from hero.data.windows import Context
from hero.evaluation.evaluate import evaluate
from hero.method.distance import trajectory_distance
from hero.method.objective import Hero, HeroState
from hero.method.rollout import unroll
from hero.models import FNO
from hero.paper import theory
from hero.paper.landscape import Landscape
from hero.paper.probe import Tasks, draw_tasks, finite_step, gradient, long_gradient, measure
from hero.paper.theory import FirstOrder, Measured
from hero.report.page.page import write_run_page
from hero.runs.checkpoint import load_kept, load_state, save_weights
from hero.runs.folder import Run, load_data
from hero.training.loop import train
from test_train import assert_same_run

GRIDS = {1: (16,), 2: (8, 8)}
LAMBDA = 0.3


def model(dims: int = 1, seed: int = 0, channels: int = 1) -> FNO:
    torch.manual_seed(seed)
    return FNO(channels, channels, 3, (3,) * dims, 2).double()


def tasks(dims: int = 1, count: int = 10, horizon: int = 7, channels: int = 1) -> Tasks:
    generator = Generator().manual_seed(1)
    window = torch.randn(count, horizon + 1, channels, *GRIDS[dims], generator=generator, dtype=torch.float64)
    return Tasks(window[:, :1], window[:, 1:], torch.arange(count) // 2)


def naive_gradient(net: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])


def measured(dims: int = 1, batch: int = 4) -> tuple[Measured, Tensor]:
    net, data = model(dims), tasks(dims)
    _, slope = long_gradient(net, data, 4)
    generator = Generator().manual_seed(2)
    return measure(net, model(dims, seed=9), Hero(), data, slope, LAMBDA, generator, steps=3, batch=batch), slope


def test_the_risk_of_a_task_is_the_distance_of_its_rollout() -> None:
    net, data = model(2, channels=2), tasks(2, count=5, horizon=4, channels=2)
    for i in range(5):
        loss = trajectory_distance(unroll(net, Context(data.states[i : i + 1]), 4), data.truth[i : i + 1])[0]
        found = gradient(net, data.risk(net, slice(i, i + 1))[0])
        torch.testing.assert_close(found, naive_gradient(net, loss), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("batch", [10, 3, 1])
def test_the_long_gradient_equals_plain_back_propagation(batch: int) -> None:
    net, data = model(), tasks()
    loss = trajectory_distance(unroll(net, Context(data.states), 7), data.truth).mean()
    expected = naive_gradient(net, loss)
    risk, slope = long_gradient(net, data, batch)
    assert risk == pytest.approx(loss.item(), rel=1e-13)
    torch.testing.assert_close(slope, expected, rtol=1e-10, atol=1e-14)


def test_the_measured_direction_is_the_gradient_of_the_hero_loss() -> None:
    """d^H = -∇ mean_i (ℓ_tr + λ ℓ_rel), with ℓ_rel as training computes it."""
    net, lagged, data = model(), model(seed=9), tasks()
    context, truth = Context(data.states), data.truth[:, :3]
    hero = Hero(start=0, refresh=lambda since: False, weight=lambda since: LAMBDA)
    generator = Generator().manual_seed(2)
    loss, _, comparison = hero(net, context, truth, HeroState(lagged=lagged), generator=generator)
    found, _ = measured(batch=10)
    torch.testing.assert_close(found.alpha, comparison.alpha)
    torch.testing.assert_close(found.d_hero, -naive_gradient(net, loss), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dims", [1, 2])
def test_the_measured_identities_hold_to_rounding(dims: int) -> None:
    found, slope = measured(dims)
    row = FirstOrder.of(found, slope, LAMBDA, torch.arange(10) // 2)
    assert row.decomposition.residual < 1e-10
    assert row.along_standard == pytest.approx(-row.a_mean, rel=1e-10)
    assert row.alpha_std > 0


numbers = st.lists(st.tuples(st.floats(0.001, 0.999), st.floats(-1e3, 1e3)), min_size=1, max_size=30)


@given(numbers, st.floats(0, 2))
def test_the_decomposition_is_an_identity(pairs: list[tuple[float, float]], lam: float) -> None:
    alpha, a = torch.tensor(pairs, dtype=torch.float64).T
    hero, standard = -float(((1 + lam * alpha) * a).mean()), -float(a.mean())
    assert theory.decomposition(hero, standard, alpha, a, lam).residual < 1e-10
    assert theory.decomposition(hero + 1e4, standard, alpha, a, lam).residual > 0.1


@pytest.mark.parametrize(
    ("along", "cov", "preserved", "corrected"),
    [
        (-1.0, 0.5, True, None),
        (-1.0, 0.0, True, None),
        (-1.0, -0.1, False, None),
        (0.1, 5.0, False, True),  # λ Cov = 0.5 > (1 + λ ᾱ) B = 0.105
        (1.0, 5.0, False, False),
    ],
)
def test_the_corollaries_on_constructed_cases(
    along: float, cov: float, preserved: bool, corrected: bool | None
) -> None:
    point = FirstOrder.model_construct(along_standard=along, covariance=cov, alpha_mean=0.5, weight=0.1)
    assert (point.preserves, point.corrects) == (preserved, corrected)
    truth = (1 + 0.1 * 0.5) * along - 0.1 * cov  # ⟨∇J_L, d^H⟩, by the proposition
    if preserved or corrected:
        assert truth < 0
    assert truth == pytest.approx(1.05 * (along - abs(along) * point.effect))  # the share of the normalised form


def test_the_finite_step_bound_holds_on_a_quadratic() -> None:
    """J(θ) = ½ θᵀ A θ with d^H = -w A θ: L = max A; where J > ε, ⟨∇J, d^H⟩ = -w ‖Aθ‖² ≤ -2 w ε min A."""
    diagonal, w, epsilon = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64), 1.3, 0.05
    theta = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def risk(x: Tensor) -> float:
        return float(0.5 * (diagonal * x * x).sum())

    gamma = 2 * w * epsilon * 1.0
    largest = w * float(torch.linalg.vector_norm(diagonal * theta))  # ‖A θ‖ shrinks from here on
    eta = theory.largest_rate(gamma, 9.0, largest)
    bound = theory.entry_bound(risk(theta), epsilon, eta, gamma)
    steps = 0
    while risk(theta) > epsilon:
        theta, steps = theta - eta * w * diagonal * theta, steps + 1
        assert steps <= bound
    assert 0 < steps <= bound
    assert theory.entry_bound(epsilon / 2, epsilon, eta, gamma) == 0
    assert math.isnan(theory.largest_rate(-1.0, 1.0, 1.0))  # no descent
    assert math.isnan(theory.entry_bound(1.0, 0.5, math.nan, -1.0))


def test_smoothness_is_at_least_the_curvature_along_the_direction() -> None:
    """L̂ against ‖H d‖ / ‖d‖ from a product with the exact Hessian."""
    net, data = model(), tasks()
    risk, slope = long_gradient(net, data, 10)
    direction = -slope
    found = finite_step(net, data, risk, slope, direction, 10)
    loss = trajectory_distance(unroll(net, Context(data.states), 7), data.truth).mean()
    first = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    second = naive_gradient(net, torch.cat([g.flatten() for g in first]) @ direction)
    exact = float(second.norm() / direction.norm())
    assert found.smoothness >= 0.99 * exact
    assert found.gamma == pytest.approx(float(slope @ slope))
    assert found.rate == pytest.approx(found.gamma / (found.smoothness * found.direction_norm**2))
    assert found.entry_bound == math.ceil(2 * 0.1 * risk / (found.rate * found.gamma))
    assert found.measured_decrease >= found.promised_decrease > 0


def test_correlation_and_its_interval() -> None:
    x = torch.randn(200, generator=Generator().manual_seed(0), dtype=torch.float64)
    y = torch.randn(200, generator=Generator().manual_seed(1), dtype=torch.float64)
    groups = torch.arange(200) // 4
    assert theory.correlation(x, y) == pytest.approx(float(torch.corrcoef(torch.stack([x, y]))[0, 1]))
    low, high = theory.correlation_interval(x, y, groups)
    assert low < theory.correlation(x, y) < high
    assert low < 0 < high
    assert theory.correlation_interval(x, 2 * x, groups) == pytest.approx((1, 1))
    assert math.isnan(theory.correlation_interval(x, y, torch.zeros(200, dtype=torch.int64))[0])
    assert math.isnan(theory.correlation(torch.ones(5), torch.arange(5.0)))


def test_tasks_are_distinct_windows_from_the_starts_of_training() -> None:
    data = torch.arange(3 * 30, dtype=torch.float32).reshape(3, 30, 1, 1)
    drawn = draw_tasks(data, history=2, last_start=4, horizon=10, count=100, seed=0)
    assert len(drawn.states) == 15  # three trajectories, five starts
    first = drawn.states[:, 0, 0, 0]
    assert sorted(first.tolist()) == sorted(30.0 * i + s for i in range(3) for s in range(5))
    assert torch.equal(drawn.truth[:, 0, 0, 0], first + 2)
    assert drawn.truth.shape == (15, 10, 1, 1)
    assert torch.equal(drawn.trajectory, (first // 30).long())


def test_probe_on_the_command_line(call: Call, runs_dir: Path, data_dir: Path) -> None:
    folders = ("--runs", runs_dir, "--data", data_dir)
    code, _, err = call("train", "burgers", "--strategy", "hero", *folders, *options(train__keep_every=5))
    assert code == 0, err
    code, out, err = call("probe", "burgers", *folders, "--horizon", 12, "--windows", 9)
    assert code == 0, err
    (run,) = runs_dir.iterdir()
    content = json.loads((run / "probe.json").read_text())
    assert [row["step"] for row in content["checkpoints"]] == [10, 15, 20]  # hero.start is 8
    for row in content["checkpoints"]:
        assert len(row["per_window"]["alpha"]) == row["windows"] == 9
        assert row["decomposition"]["residual"] < 1e-10
        assert row["conclusion"] in " ".join(out.split())  # which may be wrapped
    assert "Corr(α, a)" in out
    assert (run / "figures" / "probe.png").stat().st_size > 10_000
    code, _, err = call("evaluate", run.name, *folders)
    assert code == 0, err
    assert "The theory, measured" in (run / "report.html").read_text()

    assert_refused(call("probe", run.name, *folders, "--step", 7), "step 7", "keep_every")
    assert_refused(call("probe", run.name, *folders, "--step", 5), "step 5", "hero.start")
    assert_refused(call("probe", run.name, *folders, "--horizon", 3), "horizon=3")
    assert_refused(call("probe", run.name, *folders, "--windows", 1), "windows=1")


def test_probe_takes_the_last_state_and_refuses_a_strategy_without_history(
    call: Call, runs_dir: Path, data_dir: Path
) -> None:
    folders = ("--runs", runs_dir, "--data", data_dir)
    changes = {"train__history": 2, "train__normalise": True, "data__val_steps": 101, "data__test_steps": 101}
    run = train(tiny(train__steps=10, **changes), runs_dir, data_dir)
    code, out, err = call("probe", run.name, *folders, "--horizon", 6, "--windows", 5)
    assert code == 0, err
    assert "step 10" in out
    run = train(tiny(strategy="push_forward", train__steps=5), runs_dir, data_dir)
    assert_refused(call("probe", run.name, *folders), "push_forward", "lagged")


def test_keeping_checkpoints_changes_no_bit_and_keeps_what_it_says(
    runs_dir: Path, data_dir: Path, finished: Path
) -> None:
    config = tiny(train__keep_every=4)
    run = train(config, runs_dir, data_dir)
    assert not (finished / "checkpoints").exists()
    assert_same_run(run, finished)
    assert Run(run).kept_steps == [4, 8, 12, 16, 20]
    model = config.build_operator()
    assert load_kept(Run(run).kept_file(8), model) == {}  # hero.start is 8: the first copy is made after this
    at_start = {name: value.clone() for name, value in model.state_dict().items()}
    lagged = load_kept(Run(run).kept_file(16), model)  # refreshed at 8 and 12
    assert lagged.keys() == at_start.keys()
    assert not all(torch.equal(lagged[name], at_start[name]) for name in lagged)
    state, lagged = load_state(run / "last" / "state.pt"), load_kept(Run(run).kept_file(20), model)
    assert all(torch.equal(value, state["model"][name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, state["strategy"]["lagged"][name]) for name, value in lagged.items())


def test_error_ratio() -> None:
    errors, final = ((0.1, 1.0, math.inf, 0.2, math.inf),), (0.1, 0.1, 0.5, math.inf, math.inf)
    (row,) = Landscape(run="x", final_step=30, steps=(10,), errors=errors, final_errors=final).log10_ratio
    assert row[:2] == pytest.approx([0, 1])
    assert (row[2], row[3]) == (math.inf, -math.inf)
    assert math.isnan(row[4])


def test_landscape_on_the_command_line(call: Call, runs_dir: Path, data_dir: Path) -> None:
    config = tiny(train__keep_every=5)
    run = train(config, runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    code, out, err = call("landscape", run.name, *folders)
    assert code == 0, err
    assert "times" in out
    content = json.loads((run / "landscape.json").read_text())
    assert content["steps"] == [5, 10, 15, 20]
    assert content["final_step"] in content["steps"]
    ratio = np.array(content["log10_ratio"])
    assert ratio.shape == (4, 100)
    assert (ratio[content["steps"].index(content["final_step"])] == 0).all()
    # The naive twin of one row.
    test = load_data(config, "test", data_dir, "cpu").states
    model = config.build_operator()
    load_kept(Run(run).kept_file(10), model)
    with torch.no_grad():
        tau = unroll(model, Context(test[:, :1]), 100).double()
    expected = (tau - test[:, 1:]).flatten(2).norm(dim=2) / test[:, 1:].double().flatten(2).norm(dim=2)
    assert content["errors"][1] == pytest.approx(expected.mean(dim=0).tolist(), rel=1e-5)

    assert (run / "figures" / "landscape.png").stat().st_size > 5_000
    evaluate(run, data_dir)
    write_run_page(run)
    assert "Checkpoint landscape" in (run / "report.html").read_text()


def test_a_run_without_kept_checkpoints_or_with_foreign_ones_is_refused(
    call: Call, runs_dir: Path, data_dir: Path
) -> None:
    run = train(tiny(train__steps=5), runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    assert_refused(call("landscape", run.name, *folders), "kept no checkpoints", "train.keep_every")
    save_weights(Run(run).kept_file(3), {"other": torch.zeros(2)}, {"step": 3})
    assert_refused(call("landscape", run.name, *folders), "another model")
    Run(run).kept_file(3).write_bytes(b"junk")
    assert_refused(call("landscape", run.name, *folders), "damaged")
