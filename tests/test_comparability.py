"""Metrics of APEBench and The Well equal ours to rounding, on plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hero.method import measures
from hero.method.norm import Norm


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ours(wanted: list[measures.Measure], prediction: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    found = measures.measured(wanted, torch.from_numpy(prediction), torch.from_numpy(truth))
    return {name: values.numpy() for name, values in found.items()}


def states(channels: int, *space: int) -> tuple[np.ndarray, np.ndarray]:
    """Prediction and truth, (trajectory, time, channel, *space)."""
    truth = noise(3, 12, channels, *space) + 1
    return truth + 0.1 * noise(12, 3, channels, *space).swapaxes(0, 1), truth


@pytest.mark.parametrize("shape", [(1, 32), (2, 6, 5)])
def test_apebench_scores_rollouts_as_we_do(shape: tuple[int, ...]) -> None:
    """exponax computes APEBench's metrics."""
    jax = pytest.importorskip("jax")
    exponax = pytest.importorskip("exponax")
    u_hat, u = states(*shape)
    found = ours([measures.nrmse, measures.apebench_nrmse, measures.correlation], u_hat, u)
    functions = {"apebench_nrmse": exponax.metrics.nRMSE, "correlation": exponax.metrics.correlation}
    with jax.enable_x64(True):
        theirs = {
            name: np.asarray(jax.vmap(jax.vmap(function))(u_hat.astype(float), u.astype(float)))
            for name, function in functions.items()
        }
    for name, values in theirs.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-14)
    mean = theirs["apebench_nrmse"].mean(axis=0)
    gmean = np.exp(np.log(mean).mean())
    assert measures.apebench_gmean(found["apebench_nrmse"], len(mean)) == pytest.approx(gmean, rel=1e-12)
    same = np.allclose(found["nrmse"], theirs["apebench_nrmse"], rtol=1e-9)
    assert same == (u.shape[2] == 1)  # of one channel our own definition is theirs


def test_the_well_scores_rollouts_as_we_do() -> None:
    pytest.importorskip("the_well.data")
    from the_well.benchmark.metrics import NRMSE, VRMSE
    from the_well.data.datasets import WellMetadata

    prediction, truth = states(1, 32)
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
