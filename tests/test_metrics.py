"""Metrics against naive loops, closed forms, those of APEBench and The Well, invariances, the rule for divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hero.errors import HeroError
from hero.method import measures, metrics
from hero.method.norm import Norm

SHAPES = [(3, 4, 1, 8), (2, 3, 2, 4, 5), (2, 2, 3, 3, 4, 2)]


def pair(shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(shape, generator=generator)
    return truth + 0.3 * torch.randn(shape, generator=generator), truth


def geometric(a: list[float], b: float, steps: int) -> torch.Tensor:
    """e(s, t) = a_s b^t for t = 1 .. steps."""
    return torch.tensor(a, dtype=torch.float64)[:, None] * b ** torch.arange(1, steps + 1, dtype=torch.float64)


def named(errors: torch.Tensor, correlations: torch.Tensor, apebench: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"nrmse": errors, "correlation": correlations, "apebench_nrmse": apebench}


@pytest.mark.parametrize("shape", SHAPES)
def test_fields_against_naive_loops(shape: tuple[int, ...]) -> None:
    prediction, truth = pair(shape)
    p, u = prediction.numpy().astype(np.float64), truth.numpy().astype(np.float64)
    for j in range(shape[0]):
        for t in range(shape[1]):
            expected = math.sqrt(((p[j, t] - u[j, t]) ** 2).sum()) / (math.sqrt((u[j, t] ** 2).sum()) + 1e-12)
            assert measures.nrmse(prediction, truth)[j, t].item() == pytest.approx(expected, rel=1e-12)
            summed, cosine = 0.0, 0.0
            for c in range(shape[2]):
                a, b = p[j, t, c].ravel(), u[j, t, c].ravel()
                summed += math.sqrt(((a - b) ** 2).sum()) / math.sqrt((b**2).sum())
                cosine += (a * b).sum() / math.sqrt((a**2).sum() * (b**2).sum()) / shape[2]
            assert measures.apebench_nrmse(prediction, truth)[j, t].item() == pytest.approx(summed, rel=1e-12)
            assert measures.correlation(prediction, truth)[j, t].item() == pytest.approx(cosine, rel=1e-12)


def test_summaries_against_naive_loops() -> None:
    rng = np.random.default_rng(1)
    errors = np.exp(rng.normal(-3, 1, (5, 200)))
    correlations = 1 - rng.uniform(0, 0.21, (5, 200))
    for j in range(5):
        log_sum = sum(math.log(errors[j, t] + 1e-12) for t in range(100))
        assert measures.gm(errors)[j].item() == pytest.approx(math.exp(log_sum / 100), rel=1e-12)
        stable = 0
        while stable < 100 and errors[j, stable] <= 0.1:
            stable += 1
        assert measures.stable_step(errors)[j].item() == stable
        correlated = 0
        while correlated < 200 and correlations[j, correlated] >= 0.8:
            correlated += 1
        assert measures.correlation_time(correlations)[j].item() == correlated
    assert measures.nrmse_at(errors, 10) == pytest.approx(sum(errors[j, 9] for j in range(5)) / 5, rel=1e-12)
    log_mean = sum(math.log(sum(errors[j, t] for j in range(5)) / 5) for t in range(100)) / 100
    assert measures.apebench_gmean(errors) == pytest.approx(math.exp(log_mean), rel=1e-12)


def test_the_metrics_next_to_the_papers_start_at_one() -> None:
    """The paper takes the maximum over T in [1, 100], so its least value is 1; a metric without the floor stays."""
    errors = torch.full((2, 200), 0.5, dtype=torch.float64)
    errors[1, :20] = 0.1
    summary = metrics.summarise(named(errors, 1 - errors, errors))
    assert summary["stable_step"] == summary["stability_horizon_200"] == (1 + 20) / 2
    assert summary["stable_step_from_0"] == (0 + 20) / 2
    never = metrics.summarise(named(errors[:1], 1 - errors[:1], errors[:1]))
    assert (never["stable_step"], never["stability_horizon_200"], never["stable_step_from_0"]) == (1, 1, 0)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12])
def test_the_unit_of_the_data_changes_no_error(scale: float) -> None:
    prediction, truth = (x.double() for x in pair((2, 3, 2, 6), 0))
    torch.testing.assert_close(measures.nrmse(scale * prediction, scale * truth), measures.nrmse(prediction, truth))
    assert measures.nrmse(torch.full((1, 2, 1, 4), 1e38), torch.ones(1, 2, 1, 4)).isfinite().all()  # in float64


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_divergence_lasts_to_the_end(bad: float) -> None:
    prediction, truth = pair((4, 200, 2, 8))
    prediction[1, 57, 1, 3] = bad
    errors = measures.nrmse(prediction, truth)
    correlations = measures.correlation(prediction, truth)
    apebench = measures.apebench_nrmse(prediction, truth)
    for values in (errors, apebench):
        assert values[1, :57].isfinite().all()
        assert (values[1, 57:] == math.inf).all()
        assert values[[0, 2, 3]].isfinite().all()
    assert (correlations[1, 57:] == 0).all()
    assert (correlations[1, :57] != 0).all()
    assert measures.diverged(errors) == 1
    summary = metrics.summarise(named(errors, correlations, apebench))
    assert not any(math.isnan(value) for value in summary.values())
    assert summary["gm100"] == summary["nrmse@100"] == summary["apebench_gmean_mean_nrmse"] == math.inf
    assert math.isfinite(summary["nrmse@50"])
    assert summary["diverged"] == 1


def test_fields_that_vanish() -> None:
    zero, one = torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1, 4)
    for prediction, truth, error, correlation in ((zero, zero, 0, 1), (one, zero, math.inf, 0), (zero, one, 1, 0)):
        assert measures.nrmse(prediction, truth).item() == pytest.approx(error)
        assert measures.apebench_nrmse(prediction, truth).item() == pytest.approx(error)
        assert measures.correlation(prediction, truth).item() == correlation


def test_a_truth_that_vanishes_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    measures.tell_undefined.cache_clear()
    truth = torch.ones(2, 3, 1, 4)
    truth[1, 2] = 0
    for _ in range(2):
        errors = measures.nrmse(torch.ones_like(truth), truth)
    assert errors.tolist() == [[0, 0, 0], [0, 0, math.inf]]
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("the truth of trajectory 1 is zero everywhere at step 3") == 1
    assert measures.diverged(errors) == 1
    assert measures.nrmse_at(errors, 2) == 0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_bad_input_is_a_user_error(bad: float) -> None:
    prediction, truth = pair((2, 3, 1, 8))
    with pytest.raises(HeroError, match="cannot be compared"):
        measures.nrmse(prediction[:, :2], truth)
    truth[1, 0, 0, 0] = bad
    with pytest.raises(HeroError, match="truth of trajectory 1 is not finite"):
        measures.nrmse(prediction, truth)
    with pytest.raises(HeroError, match="not \\(batch, time\\)"):
        measures.gm(torch.ones(100))


@pytest.mark.parametrize(("value", "scale"), [(0.0, 1.0), (2.0, 1.0), (-3.0, 0.5), (1e-30, 1.0)])
def test_single_steps_and_constant_fields_have_all_metrics(value: float, scale: float) -> None:
    truth = torch.full((3, 1, 2, 4), value)
    errors = {m.name: m(truth * scale, truth) for m in (measures.nrmse, measures.apebench_nrmse, measures.correlation)}
    found = metrics.summarise(errors, metrics.Scoring(1))
    assert not any(math.isnan(number) for number in found.values())
    assert found["gm1"] == pytest.approx(1 - scale, abs=1e-9)
    assert found["nrmse@1"] == pytest.approx(1 - scale, abs=1e-9)
    assert found["correlation_time"] == 1
    assert found["stable_step"] == 1
    assert found["diverged"] == 0


def test_median_trajectory_is_the_middle_one() -> None:
    errors = geometric([0.3, 0.1, 0.5, 0.2, 0.4], 1.0, 100)
    assert measures.median_trajectory(errors) == 0
    assert measures.median_trajectory(errors[:4]) == 0
    errors[2:] = math.inf
    assert measures.median_trajectory(errors) in (2, 3, 4)
    errors[0] = 0  # exact and diverged steps together
    assert measures.apebench_gmean(errors) == math.inf


def test_summary_names_what_the_table_defines() -> None:
    errors = geometric([0.01, 0.02], 1.01, 200)
    assert set(metrics.summarise(named(errors, 1 - errors, errors))) == set(metrics.METRICS)
    short = metrics.summarise({name: values[:, :150] for name, values in named(errors, 1 - errors, errors).items()})
    assert set(metrics.METRICS) - set(short) == {"nrmse@200", "stability_horizon_200"}
    assert all(metric.direction in ("lower", "higher") for metric in metrics.METRICS.values())


def test_beyond_the_rollout_is_a_user_error() -> None:
    at = (lambda e: measures.nrmse_at(e, 51), lambda e: measures.nrmse_at(e, 0))
    for ask in (*at, measures.gm, measures.stable_step, measures.apebench_gmean, measures.median_trajectory):
        with pytest.raises(HeroError, match="rollout of 50 steps"):
            ask(torch.ones(2, 50))


def ours(wanted: list[measures.Measure], prediction: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    found = measures.measured(wanted, torch.from_numpy(prediction), torch.from_numpy(truth))
    return {name: values.numpy() for name, values in found.items()}


@pytest.mark.parametrize("shape", [(1, 32), (2, 6, 5)])
def test_apebench_scores_rollouts_as_we_do(shape: tuple[int, ...]) -> None:
    """exponax computes APEBench's metrics."""
    jax = pytest.importorskip("jax")
    exponax = pytest.importorskip("exponax")
    u_hat, u = (x.numpy() for x in pair((3, 12, *shape)))
    found = ours([measures.nrmse, measures.apebench_nrmse, measures.correlation], u_hat, u)
    functions = {"apebench_nrmse": exponax.metrics.nRMSE, "correlation": exponax.metrics.correlation}
    with jax.enable_x64(True):
        pairs = u_hat.astype(float), u.astype(float)
        scores = {name: np.asarray(jax.vmap(jax.vmap(function))(*pairs)) for name, function in functions.items()}
    for name, values in scores.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-14)
    mean = scores["apebench_nrmse"].mean(axis=0)
    gmean = np.exp(np.log(mean).mean())
    assert measures.apebench_gmean(found["apebench_nrmse"], len(mean)) == pytest.approx(gmean, rel=1e-12)
    same = np.allclose(found["nrmse"], scores["apebench_nrmse"], rtol=1e-9)
    assert same == (u.shape[2] == 1)  # of one channel our own definition is theirs


def test_the_well_scores_rollouts_as_we_do() -> None:
    pytest.importorskip("the_well.data")
    from the_well.benchmark.metrics import NRMSE, VRMSE
    from the_well.data.datasets import WellMetadata

    prediction, truth = (x.numpy() for x in pair((3, 12, 1, 32)))
    last = [torch.from_numpy(np.moveaxis(u, 2, -1)).double() for u in (prediction, truth)]
    arguments = *last, WellMetadata("toy", 1, (32,), [], [], {}, {}, [], 1, [3], [12])
    found = ours([measures.nrmse, measures.vrmse, theirs], prediction, truth)
    np.testing.assert_allclose(found["nrmse"], NRMSE.eval(*arguments, eps=0.0)[..., 0], rtol=1e-11)
    # Their ε of 1e-7 next to the mean square is all that is different.
    share = 1e-7 / np.square(truth.astype(float)).mean(axis=(2, 3))
    np.testing.assert_allclose(found["nrmse"] / np.sqrt(1 + share), NRMSE()(*arguments)[..., 0], rtol=1e-11)
    np.testing.assert_allclose(found["theirs"], VRMSE()(*arguments)[..., 0], rtol=1e-11)
    # Of ours, the variance divides by N as everybody's mean does, and ε is relative to the channel.
    variance = np.square(truth - truth.mean(axis=(2, 3), keepdims=True, dtype=float)).mean(axis=(2, 3))
    ratio = np.sqrt((truth[0, 0].size / (truth[0, 0].size - 1) * variance + 1e-7) / (variance * (1 + 1e-7)))
    np.testing.assert_allclose(found["vrmse"], found["theirs"] * ratio, rtol=1e-9)
    assert np.abs(ratio - 1).max() < 0.02


@measures.measure(diverged=torch.inf)
def theirs(u_hat: torch.Tensor, u: torch.Tensor, norm: Norm) -> torch.Tensor:
    """√(⟨(û − u)²⟩ / (s² + 10⁻⁷)) with the sample variance s² of each channel, averaged over channels."""
    error = (u_hat - u).flatten(2).square().mean(2)
    return (error / (u.flatten(2).var(2) + 1e-7)).sqrt().mean(1)
