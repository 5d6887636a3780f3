"""Rollouts that others can score: written in their forms, and their metrics of them equal ours to rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Call, assert_refused, tiny
from hero.data.formats import open_recording
from hero.evaluation.benchmark_outputs import create_for_benchmark, fields_of
from hero.evaluation.outputs import About
from hero.method import metrics as m
from hero.method.norm import Norm
from hero.runs.config import RunConfig
from hero.runs.folder import Run, load_data
from test_predict import at_once, untrained

STEPS = 12


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return tiny(train__history=2, data__test_steps=101, data__val_steps=101)


@pytest.fixture(scope="module")
def run(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(config, tmp_path_factory.mktemp("runs"))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ours(measures: list[m.Measure], prediction: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    found = m.measured(measures, torch.from_numpy(prediction), torch.from_numpy(truth))
    return {name: values.numpy() for name, values in found.items()}


def test_apebench_scores_the_file_as_we_do(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    """exponax computes APEBench's metrics; its file begins with the given states, which are not scored."""
    jax = pytest.importorskip("jax")
    exponax = pytest.importorskip("exponax")
    out = tmp_path / "rollout.npz"
    code, _, err = call("predict", run, "--data", data_dir, "--steps", STEPS, "--format", "apebench", "--out", out)
    assert (code, err) == (0, "")
    with np.load(out) as arrays:
        prediction, reference = arrays["prediction"], arrays["reference"]
    truth = load_data(Run(run).config, "test", data_dir, "cpu").states.numpy()
    np.testing.assert_array_equal(reference, truth[:, : STEPS + 2])
    np.testing.assert_array_equal(prediction[:, :2], truth[:, :2])
    np.testing.assert_array_equal(prediction[:, 2:], at_once(run, data_dir, STEPS))
    two = noise(3, 4, 2, 6, 5), noise(3, 4, 2, 6, 5) + 1  # and of two channels in two dimensions
    for u_hat, u in ((prediction[:, 2:], reference[:, 2:]), two):
        found = ours([m.nrmse, m.apebench_nrmse, m.correlation], u_hat, u)
        with jax.enable_x64(True):
            theirs = {
                name: np.asarray(jax.vmap(jax.vmap(function))(u_hat.astype(float), u.astype(float)))
                for name, function in {
                    "apebench_nrmse": exponax.metrics.nRMSE,
                    "correlation": exponax.metrics.correlation,
                }.items()
            }
        for name, values in theirs.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-14)
        mean = theirs["apebench_nrmse"].mean(axis=0)
        assert m.apebench_gmean(found["apebench_nrmse"], len(mean)) == pytest.approx(
            np.exp(np.log(mean).mean()), rel=1e-12
        )
        same = np.allclose(found["nrmse"], theirs["apebench_nrmse"], rtol=1e-9)
        assert same == (u.shape[2] == 1)  # of one channel our own definition is theirs


def test_the_well_scores_the_file_as_we_do(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    the_well = pytest.importorskip("the_well.data")
    from the_well.benchmark.metrics import NRMSE, VRMSE

    out = tmp_path / "rollout.h5"
    code, _, err = call("predict", run, "--data", data_dir, "--steps", STEPS, "--format", "the-well", "--out", out)
    assert (code, err) == (0, "")
    dataset = the_well.WellDataset(path=str(tmp_path), n_steps_input=2, n_steps_output=STEPS)
    read = np.stack([dataset[i]["output_fields"].numpy() for i in range(2)])
    np.testing.assert_array_equal(np.moveaxis(read, -1, 2), at_once(run, data_dir, STEPS))
    truth = load_data(Run(run).config, "test", data_dir, "cpu").states.numpy()[:, 2 : STEPS + 2]
    theirs_of = {
        "prediction": torch.from_numpy(read).double(),
        "truth": torch.from_numpy(np.moveaxis(truth, 2, -1)).double(),
    }
    arguments = theirs_of["prediction"], theirs_of["truth"], dataset.metadata
    found = ours([m.nrmse, m.vrmse, theirs], np.moveaxis(read, -1, 2), truth)
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


@m.measure(diverged=torch.inf)
def theirs(u_hat: torch.Tensor, u: torch.Tensor, norm: Norm) -> torch.Tensor:
    """√(⟨(û − u)²⟩ / (s² + 10⁻⁷)) with the sample variance s² of each channel, averaged over channels."""
    error = (u_hat - u).flatten(2).square().mean(2)
    return (error / (u.flatten(2).var(2) + 1e-7)).sqrt().mean(1)


def test_fields_of_the_well_are_scalars_vectors_and_tensors(tmp_path: Path) -> None:
    """As its own loader and ours read them, with grid, boundaries and the numbers of the conditioning."""
    names = ("density", "velocity_x", "velocity_y", *(f"stress_{a}{b}" for a in "xy" for b in "xy"))
    about = About("toy", names, ("x", "y"), (1.0, 2.0), (True, False), 0.25, 1, ("number",), np.array([[3.0], [4.0]]))
    u = noise(2, 6, 7, 5, 4)
    path = tmp_path / "u.hdf5"
    with create_for_benchmark("the-well", path, (2, 9, 7, 5, 4), about, u[:, :1], lambda count: None) as output:
        output.append(u[:, 1:3])
        output.append(u[:, 3:])
        output.cut(4)
    recording = open_recording(path)
    assert [channel.name for channel in recording.channels] == list(names)
    assert [axis.periodic for axis in recording.axes] == [True, False]
    assert [trajectory.scalars["number"] for trajectory in recording.trajectories] == [3.0, 4.0]
    assert recording.dt == pytest.approx(0.25)
    for trajectory, states in zip(recording.trajectories, u, strict=True):
        np.testing.assert_array_equal(trajectory.read(slice(None), range(7)), states[:5])
    the_well = pytest.importorskip("the_well.data")
    dataset = the_well.WellDataset(path=str(tmp_path), n_steps_input=1, n_steps_output=4)
    assert dataset.metadata.spatial_resolution == (5, 4)
    np.testing.assert_array_equal(np.moveaxis(dataset[1]["output_fields"].numpy(), -1, 1), u[1, 1:5])
    assert fields_of(("u", "v_x", "w_x", "w_y"), ("x", "y")) == [
        ("u", 0, slice(0, 1)), ("v_x", 0, slice(1, 2)), ("w", 1, slice(2, 4))
    ]  # fmt: skip


def test_a_format_that_does_not_fit_is_refused(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    for format, name, words in (("apebnch", "u.npz", ("apebench",)), ("the-well", "u.npz", (".h5", ".hdf5"))):
        out = tmp_path / name
        assert_refused(call("predict", run, "--data", data_dir, "--format", format, "--out", out), *words)
        assert not out.exists()
