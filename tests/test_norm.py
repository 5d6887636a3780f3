"""The one norm against naive float64 loops: losses, HERO and metrics with scales, offsets, a mask and uneven cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from fakes import fake_metrics, value_and_gradient
from hero.data.trajectories import Trajectories
from hero.errors import HeroError
from hero.method import measures, metrics
from hero.method.distance import EPS
from hero.method.domain import Box, quadrature_weights
from hero.method.losses import LOSSES, AbsoluteLoss
from hero.method.norm import Norm
from hero.method.objective import Hero, HeroState
from hero.method.rollout_errors import baseline_errors, with_skill
from hero.models import FNO
from hero.runs.records import Baseline, Metrics
from hero.strategies.settings import importance_of

SPACE = (4, 3)
POINTS = list(itertools.product(*map(range, SPACE)))
UNEVEN = [0.0, 0.1, 0.4, 1.0]
MASK = torch.ones(2, *SPACE, dtype=torch.bool)
for missing in [(0, 0, 1), (0, 2, 2), (1, 0, 1), (1, 3, 0), (1, 1, 1)]:
    MASK[missing] = False
IMPORTANCE = (1.0, 0.25)


def fields(seed: int, trajectories: int = 2, steps: int = 3, space: tuple[int, ...] = SPACE) -> Tensor:
    """Two channels: of order 1, and 1e5 ± 1e3."""
    generator = Generator().manual_seed(seed)
    u = torch.randn(trajectories, steps, 2, *space, generator=generator, dtype=torch.float64)
    u[:, :, 1] = 1e5 + 1e3 * u[:, :, 1]
    return u


def near(truth: Tensor) -> Tensor:
    """A rollout some tenths of a standard deviation away."""
    noise = torch.randn(truth.shape, generator=Generator().manual_seed(9), dtype=torch.float64)
    noise[:, :, 1] *= 1e3
    return truth + 0.3 * noise


def fitted(mask: bool = True, uneven: bool = True, importance: tuple[float, ...] = IMPORTANCE) -> Norm:
    """A norm that knows its training data; every part of it matters."""
    weights = quadrature_weights([UNEVEN, range(SPACE[1])], (False, False)) if uneven else None
    norm = Norm(weights, by_channel=True, importance=importance)
    norm.fit(Trajectories(fields(1, 5, 4), None, MASK if mask else None))
    return norm


def geometry_of(norm: Norm) -> Box:
    return Box(SPACE, periodic=(False, False), weights=norm.weights, norm=norm)


def loss_of(name: str, norm: Norm) -> AbsoluteLoss:
    values = {"reach": "all"} if name == "balanced" else {}
    kind = LOSSES[name]
    return kind.of(kind.Settings(**values), geometry_of(norm), lambda function: function)


def omega(norm: Norm, x: tuple[int, ...]) -> float:
    """The share of a point in the domain."""
    return 1 / len(POINTS) if norm.weights is None else float(norm.weights[x])


def valid(norm: Norm, c: int) -> list[tuple[int, ...]]:
    """The points where a channel has values."""
    return [x for x in POINTS if norm.mask is None or bool(norm.mask[(c, *x)])]


def share(norm: Norm, c: int, x: tuple[int, ...]) -> float:
    """The weight of a point among the valid ones."""
    return omega(norm, x) / sum(omega(norm, y) for y in valid(norm, c))


def importance(norm: Norm, c: int) -> float:
    return norm.importance[c] if norm.importance else 1.0


def naive_scaled(u: Tensor, norm: Norm) -> Tensor:
    """(u - m) / σ at valid points, so that a mean over all points is a mean over valid ones; one number at a time."""
    found = torch.zeros_like(u)
    for b, t, c in itertools.product(range(len(u)), range(u.shape[1]), range(2)):
        total = sum(omega(norm, y) for y in valid(norm, c))
        for x in valid(norm, c):
            value = (u[(b, t, c, *x)] - norm.mean[c]) / norm.std[c]
            found[(b, t, c, *x)] = value * math.sqrt(importance(norm, c) / total)
    return found


def naive_square(u: Tensor, norm: Norm) -> Tensor:
    """Σ_x ω(x) Σ_c ũ_c(x)² of measured states: (batch, time)."""
    weights = torch.tensor([omega(norm, x) for x in POINTS], dtype=torch.float64).reshape(SPACE)
    return (u.square() * weights).sum(dim=(2, 3, 4))


def naive_relative(tau: Tensor, truth: Tensor, norm: Norm) -> Tensor:
    v, u = naive_scaled(tau, norm), naive_scaled(truth, norm)
    return (naive_square(v - u, norm).sqrt() / (naive_square(u, norm).sqrt() + EPS)).mean()


def naive_mse(tau: Tensor, truth: Tensor, norm: Norm) -> Tensor:
    return naive_square(naive_scaled(tau, norm) - naive_scaled(truth, norm), norm).mean() / 2


def of_measured(name: str) -> Callable[[Tensor, Tensor, Norm], Tensor]:
    """A loss of shells, which test_losses.py knows, of states that were measured one number at a time."""
    return lambda tau, truth, norm: loss_of(name, Norm(norm.weights))(*(naive_scaled(u, norm) for u in (tau, truth)))


TWINS: dict[str, Callable[[Tensor, Tensor, Norm], Tensor]] = {"relative": naive_relative, "mse": naive_mse}
TWINS |= {name: of_measured(name) for name in ("h1", "balanced")}
NORMS: dict[str, dict[str, Any]] = {
    "all": {},
    "one channel": {"importance": (0.0, 1.0)},
    "without mask": {"mask": False},
    "even": {"uneven": False},
    "equal channels": {"importance": ()},
    "scales alone": {"mask": False, "uneven": False, "importance": ()},
}


def physical(gradient: Tensor) -> Tensor:
    """A gradient by numbers in units of each channel's size, so that one tolerance fits both."""
    return gradient * torch.tensor([1.0, 1e3], dtype=torch.float64).reshape(2, 1, 1)


@pytest.mark.parametrize("parts", NORMS)
def test_statistics_are_those_of_the_valid_points(parts: str) -> None:
    norm, data = fitted(**NORMS[parts]), fields(1, 5, 4).numpy()
    for c in range(2):
        values = np.stack([data[(slice(None), slice(None), c, *x)] for x in valid(norm, c)])
        np.testing.assert_allclose(norm.mean[c], values.mean(), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(norm.std[c], values.std(ddof=1), rtol=1e-6)
        for x in valid(norm, c):
            mean = data[(slice(None), slice(None), c, *x)].mean()
            np.testing.assert_allclose(norm.mean_state[(c, *x)], mean, rtol=1e-6)


@pytest.mark.parametrize("parts", NORMS)
@pytest.mark.parametrize("name", TWINS)
def test_a_loss_equals_its_naive_twin(name: str, parts: str) -> None:
    norm, truth = fitted(**NORMS[parts]), fields(2)
    tau, loss, twin = near(truth), loss_of(name, norm), TWINS[name]
    value, gradient = value_and_gradient(lambda v: loss(v, truth), tau)
    expected, slope = value_and_gradient(lambda v: twin(v, truth, norm), tau)
    assert 0.01 < float(value) < 2
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(physical(gradient), physical(slope), rtol=1e-8, atol=1e-12)
    counts = torch.tensor([importance(norm, c) > 0 for c in range(2)])
    assert bool(((slope != 0).flatten(3).any(dim=3) == counts).all())


def test_the_papers_norm_returns_the_very_tensor() -> None:
    u = fields(2)
    for norm in (Norm(), Norm(fitted().weights)):
        assert norm.scaled(u) is u
        norm.fit(Trajectories(fields(1, 5, 4)))
        assert norm.scaled(u) is u
        assert norm.hidden(u) is u
        assert norm.without_masked(u) is u
    assert fitted(mask=False, uneven=False, importance=()).scaled(u) is not u


def test_words_give_channels_their_weights() -> None:
    names = ("density", "p:x", "v")
    assert importance_of((), names) == ()
    assert importance_of(("density:0.5",), names) == (0.5, 1.0, 1.0)
    assert importance_of(("p:x:0", "v:2"), names) == (1.0, 0.0, 2.0)
    assert importance_of(("v:1",), names) == ()
    for word in ("pressure:1", "density", "density:-1", "density:much", "density:inf", "density:nan"):
        with pytest.raises(HeroError, match=rf"train.channel_weights={word}.* channels are density, p:x, v\."):
            importance_of((word,), names)
    with pytest.raises(HeroError, match="leaves every channel out"):
        importance_of(("density:0", "p:x:0", "v:0"), names)


@pytest.mark.parametrize(("importance", "same"), [((0.0, 1.0), True), ((), False)])
def test_hero_ranks_by_the_channels_that_count(importance: tuple[float, ...], same: bool) -> None:
    truth, other = fields(2, 4, 4), fields(2, 4, 4)
    other[:, 1:, 0] += 1
    hero = Hero(0, domain=Box(SPACE, norm=fitted(uneven=False, importance=importance)).domain(scale=0.05))
    model, lagged = (FNO(2, 2, width=4, modes=(2, 2), depth=1).double() for _ in range(2))
    found = []
    for u in (truth, other):
        generator = Generator().manual_seed(3)
        found.append(hero(model, u[:, 0], u[:, 1:], HeroState(5, lagged), generator=generator)[2].reference.E)
    assert torch.equal(*found) is same


def predictions() -> tuple[Tensor, Tensor, Norm]:
    """Three rollouts over five steps with their truth, masked, and the norm of other data."""
    truth = fields(3, 3, 6)
    return near(truth), truth, fitted()


def numpy_vrmse(made: np.ndarray, true: np.ndarray, norm: Norm) -> np.ndarray:
    """RMSE over the standard deviation of the truth, (trajectory, step, channel), on valid points."""
    found = np.zeros(made.shape[:3])
    for j, t, c in np.ndindex(*made.shape[:3]):
        omega = np.array([share(norm, c, x) for x in valid(norm, c)])
        a = np.array([made[(j, t, c, *x)] for x in valid(norm, c)])
        b = np.array([true[(j, t, c, *x)] for x in valid(norm, c)])
        variance = (omega * (b - (omega * b).sum()) ** 2).sum()
        found[j, t, c] = np.sqrt((omega * (a - b) ** 2).sum() / (variance + 1e-7 * float(norm.std[c]) ** 2))
    return found


@pytest.mark.parametrize("parts", NORMS)
def test_vrmse_equals_ten_lines_of_numpy(parts: str) -> None:
    made, true, _ = predictions()
    norm = fitted(**NORMS[parts])
    expected = numpy_vrmse(made.numpy(), true.numpy(), norm)
    np.testing.assert_allclose(measures.channel_vrmse(made, true, norm), expected, rtol=1e-12)
    weights = np.array(norm.importance or (1.0, 1.0))
    np.testing.assert_allclose(measures.vrmse(made, true, norm), expected @ weights / weights.sum(), rtol=1e-12)
    if norm.mask is not None:
        hidden = [torch.where(MASK, u, math.nan) for u in (made, true)]
        assert torch.equal(measures.vrmse(*hidden, norm), measures.vrmse(made, true, norm))
    found = metrics.by_channel({"channel_vrmse": torch.from_numpy(expected)}, ("v", "p"), metrics.Scoring(5, "vrmse"))
    assert list(found) == ["v", "p"]
    for c, numbers in enumerate(found.values()):
        np.testing.assert_allclose(numbers["vrmse@1"], expected[:, 0, c].mean(), rtol=1e-12)
        np.testing.assert_allclose(numbers["vrmse@5"], expected[:, 4, c].mean(), rtol=1e-12)
        logs = np.log(expected[:, :5, c] + EPS).mean(axis=1)
        np.testing.assert_allclose(numbers["vrmse_gm5"], np.exp(logs).mean(), rtol=1e-12)


def test_baselines_equal_numpy() -> None:
    _, true, norm = predictions()
    for history in (1, 2):
        steps = 6 - history
        found = baseline_errors(Trajectories(true, None, MASK), steps, history, norm)
        assert list(found) == ["persistence", "mean"]
        first = np.repeat(true[:, history - 1 : history].numpy(), steps, axis=1)
        state = np.broadcast_to(norm.mean_state.double().numpy(), first.shape)
        for name, made in (("persistence", first), ("mean", state)):
            expected = numpy_vrmse(made, true[:, history:].numpy(), norm)
            np.testing.assert_allclose(found[name]["channel_vrmse"], expected, rtol=1e-12)
            np.testing.assert_allclose(found[name]["vrmse"], expected @ np.array([0.8, 0.2]), rtol=1e-12)
    other_grid = baseline_errors(true[..., :2], 5, 1, Norm(by_channel=True, mean_state=norm.mean_state))
    assert list(other_grid) == ["persistence"]


def test_skilful_steps_equal_a_loop() -> None:
    """Steps before the error first reaches the better of both baselines."""
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 1.0, (40, 6))
    idle = {name: rng.uniform(0.5, 1.5, (40, 6)) for name in ("persistence", "mean")}
    errors[0], idle["mean"][1], errors[2, 1] = 0.0, 0.0, idle["mean"][2, 1]
    tensors = {name: {"vrmse": torch.from_numpy(values)} for name, values in idle.items()}
    found = with_skill({"vrmse": torch.from_numpy(errors)}, tensors)
    counts = []
    for j in range(40):
        count = 0
        while count < 5 and errors[j, count] < min(idle["persistence"][j, count], idle["mean"][j, count]):
            count += 1
        counts.append(count)
    skilful = metrics.summarise(found, metrics.Scoring(5, "vrmse"))["skilful_step"]
    assert skilful == pytest.approx(np.mean(counts), rel=1e-12)
    assert counts[0] == 5
    assert counts[1] == 0
    assert 0 < np.mean(counts) < 5


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_a_rollout_that_diverges_in_one_channel(bad: float) -> None:
    """From its first bad step on every measure has its worst value, also where that channel has no weight."""
    made, true, _ = predictions()
    made[1, 2, 0, 1, 0] = bad
    for norm in (fitted(), fitted(importance=(0.0, 1.0))):
        errors = measures.measured(metrics.measures_of(metrics.Scoring(6, "vrmse")), made, true, norm)
        for name, worst_value in (("vrmse", math.inf), ("nrmse", math.inf), ("anomaly_correlation", 0.0)):
            assert (errors[name] == worst_value).nonzero().tolist() == [[1, t] for t in range(2, 6)]
        idle = baseline_errors(torch.cat([true[:, :1], true], dim=1), 6, 1, norm)
        summary = metrics.summarise(with_skill(errors, idle), metrics.Scoring(6, "vrmse"))
        assert summary["diverged"] == 1
        assert summary["vrmse@1"] < math.inf == summary["vrmse@6"] == summary["vrmse_gm6"]
        assert 0 <= summary["skilful_step"] <= 6


def test_a_channel_that_stands_still_is_predicted_exactly_or_not() -> None:
    """A constant channel has no standard deviation: exact is 0, anything else is large, and nothing is NaN."""
    true = fields(3, 2, 4)
    true[:, :, 1] = 1e5
    for norm in (Norm(by_channel=True), fitted()):
        exact = measures.channel_vrmse(true, true, norm)
        assert torch.equal(exact, torch.zeros_like(exact))
        off = measures.channel_vrmse(true + 1e3, true, norm)
        assert bool((off[..., 1] > 10).all())
        assert not bool(off.isnan().any())
        assert not bool(measures.vrmse(true + 1e3, true, norm).isnan().any())


def metrics_of(own: dict[str, float], idle: dict[str, dict[str, float]], **channels: Any) -> Metrics:
    baselines = {name: Baseline(test=numbers, channels=channels.get(name, {})) for name, numbers in idle.items()}
    facts = {"channels": channels.get("run", {}), "baselines": baselines}
    return fake_metrics("r", {"vrmse_gm9": 1.0}, test={"diverged": 0, **own}, task="file", **facts)


def test_shortfalls_name_baseline_step_and_channel() -> None:
    numbers = {"vrmse@1": 0.1, "vrmse@9": 0.5}
    idle = {"persistence": {"vrmse@1": 0.2, "vrmse@9": 0.4}, "mean": {"vrmse@1": 0.05, "vrmse@9": 0.9}}
    assert metrics_of(numbers, idle).shortfalls == []  # persistence counts at step 1, the mean at the last step
    worse = metrics_of(numbers, {"persistence": {"vrmse@1": 0.1}, "mean": {"vrmse@9": 0.4}}).shortfalls
    assert [(one.baseline, one.step, one.channel) for one in worse] == [("persistence", 1, ""), ("mean", 9, "")]
    channels = {
        "run": {"v": {"vrmse@1": 0.3}, "p": {"vrmse@1": 0.01}},
        "persistence": {"v": {"vrmse@1": 0.2}, "p": {"vrmse@1": 0.2}},
    }
    (one,) = metrics_of(numbers, {"persistence": {"vrmse@1": 0.2}}, **channels).shortfalls
    assert (one.channel, one.error, one.baseline_error) == ("v", 0.3, 0.2)
