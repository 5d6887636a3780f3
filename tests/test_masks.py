"""Points without a value: found in every format, left out of everything, and NaN again in what is handed out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import hero
from conftest import SHORT, Call, assert_refused
from foreign import pdebench_cfd
from hero.data.files.checks import tidy
from hero.data.formats import open_recording
from hero.data.windows import Context, Trajectories
from hero.deploy.card import ModelCard
from hero.deploy.export import export_run
from hero.errors import HeroError
from hero.evaluation.elsewhere import evaluate_on
from hero.evaluation.evaluate import evaluate
from hero.method.rollout import rollout
from hero.models import FNO
from hero.models.wrappers import Masked, Normalised, Residual
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from hero.strategies import STRATEGIES
from hero.training.loop import train
from hero.training.schedule import augment

POINTS = 16
OUTSIDE = np.zeros((2, POINTS), bool)
OUTSIDE[0, 3:6] = OUTSIDE[1, 4:9] = True
VALID = torch.from_numpy(~OUTSIDE)
SMALL: dict[str, Any] = {**SHORT, "strategy": "push_forward"}


def waves(count: int = 10, frames: int = 12, points: int = POINTS) -> np.ndarray:
    """Two channels (trajectory, time, channel, x) that travel: of order 1, and 300 ± 10."""
    rng = np.random.default_rng(0)
    x, t = np.arange(points) * 2 * np.pi / points, np.arange(frames)[:, None]
    phase = rng.uniform(0, 6, (count, 2, 1, 1))
    u, v = (np.sin(x - 0.3 * t + phase[:, c]) + 0.3 * np.cos(2 * x - 0.2 * t + phase[:, c]) for c in range(2))
    return np.stack([u, 300 + 10 * v], axis=2).astype(np.float32)


def masked(u: np.ndarray, outside: np.ndarray = OUTSIDE) -> np.ndarray:
    return np.where(outside, np.float32(np.nan), u)


def numpy_vrmse(made: np.ndarray, true: np.ndarray) -> float:
    """RMSE over standard deviation on valid points of states (trajectory, channel, x), mean over both."""
    found = []
    for a, b in zip(made.astype(float), true.astype(float), strict=True):
        for c in range(2):
            valid = ~OUTSIDE[c]
            found.append(np.sqrt(np.mean((a[c, valid] - b[c, valid]) ** 2) / b[c, valid].var()))
    return float(np.mean(found))


def operator(history: int = 2, bundle: int = 2, as_input: bool = True, seed: int = 0) -> Normalised:
    """Normalised, masked and residual, with a history, a bundle and one channel of conditioning."""
    torch.manual_seed(seed)
    backbone = FNO(2 * history + 1 + as_input, 2 * bundle, width=4, modes=(3,), depth=1)
    model = Normalised(
        Masked(Residual(backbone, 2, history), 2, (POINTS,), history, as_input), 2, history, conditioning=1
    )
    data = training_data()
    for part in model.modules():
        if isinstance(part, Normalised | Masked):
            part.fit(data)
    return model


def training_data() -> Trajectories:
    """States with the mean at masked points, a number for each trajectory, and the mask."""
    states = torch.from_numpy(waves())
    for c, size in enumerate((0.0, 300.0)):
        states[:, :, c, OUTSIDE[c]] = size
    return Trajectories(states, torch.linspace(0, 1, 10)[:, None], VALID)


def inputs(history: int, fill: float | None = None, seed: int = 3) -> Tensor:
    """(batch, history * 2 + 1, x), with `fill` at masked points."""
    u = training_data().states[:3, :history]
    if fill is not None:
        u = torch.where(VALID, u, fill)
    return Context(u, torch.rand(3, 1, generator=Generator().manual_seed(seed))).inputs()


@pytest.mark.parametrize("fill", [0.0, 1e8, math.nan, math.inf])
@pytest.mark.parametrize("as_input", [True, False])
@pytest.mark.parametrize(("history", "bundle"), [(1, 1), (2, 2), (3, 1)])
def test_masked_input_has_no_influence(history: int, bundle: int, as_input: bool, fill: float) -> None:
    model = operator(history, bundle, as_input)
    expected = model(inputs(history))
    x = inputs(history, fill).requires_grad_()
    out = model(x)
    assert torch.equal(out, expected)
    out.square().mean().backward()
    states = x.grad[:, : 2 * history].unflatten(1, (history, 2))
    assert not bool(states[..., ~VALID].any())
    assert bool((states[..., VALID] != 0).any(dim=-1).all())
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)
    assert any(g is not None and bool(g.any()) for g in gradients)


def test_the_operator_equals_its_naive_twin() -> None:
    """One sample, channel and point at a time; the share of channels with a value is the last input."""
    model, x = operator(), inputs(2, math.nan)
    masked_part = model.backbone
    residual = masked_part.backbone
    made = torch.zeros(3, 6, POINTS)
    for b in range(3):
        for place, c in enumerate((0, 1, 0, 1)):
            for i in range(POINTS):
                if not OUTSIDE[c, i]:
                    made[b, place, i] = (x[b, place, i] - model.mean[c]) / model.std[c]
        made[b, 4] = (x[b, 4] - model.mu_mean[0]) / model.mu_std[0]
        for i in range(POINTS):
            made[b, 5, i] = (2 - int(OUTSIDE[:, i].sum())) / 2
    change = residual.backbone(made)
    expected = torch.zeros(3, 4, POINTS)
    for b in range(3):
        for place, c in enumerate((0, 1, 0, 1)):
            for i in range(POINTS):
                value = 0.0 if OUTSIDE[c, i] else float(made[b, 2 + c, i] + change[b, place, i].detach())
                expected[b, place, i] = model.mean[c] + model.std[c] * value
    torch.testing.assert_close(model(x), expected, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a masked file."""
    root = tmp_path_factory.mktemp("masked")
    np.save(root / "sea.npy", masked(waves()))
    return root


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    """A short run on it, with a history and a bundle."""
    config = make_config(overrides=settings(folder, **{"train.history": 2, "train.bundle": 2}))
    found = train(config, folder / "runs", folder / "data")
    evaluate(found, folder / "data")
    return Run(found)


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {**SMALL, "data.path": str(folder / "sea.npy"), "data.layout": "btcx", "data.channels": "h,T", **more}


def test_a_run_knows_the_mask_of_its_data(run: Run, folder: Path) -> None:
    assert run.config.source.masked
    assert torch.equal(run.mask, VALID)
    stored = run.norm(folder / "data").mask
    assert torch.equal(stored, VALID)
    run.statistics_file.unlink()  # a run of an earlier version: made again from the training data
    again = run.norm(folder / "data")
    assert torch.equal(again.mask, VALID)
    assert run.statistics_file.is_file()
    for name in ("prediction", "truth"):
        states = getattr(run.rollout, name)
        assert np.array_equal(np.isnan(states), np.broadcast_to(OUTSIDE, states.shape))


@pytest.fixture(scope="module")
def exported(run: Run, folder: Path) -> dict[str, Path]:
    pytest.importorskip("onnxruntime")
    checks = export_run(run.path, folder / "data")
    return {name: check.path for name, check in checks.items()}


@pytest.mark.parametrize("source", ["run", "onnx", "torch"])
def test_predictions_have_nan_at_masked_points(
    source: str, run: Run, folder: Path, exported: Any, tmp_path: Path, call: Call
) -> None:
    name = run.path if source == "run" else exported[source]
    start = masked(waves(3, 12))[:, 4:]
    np.save(tmp_path / "start.npy", start)
    arguments = ("predict", name, "--input", tmp_path / "start.npy", "--data", folder / "data", "--steps", 6)
    code, out, err = call(*arguments, "--trust-code", "--out", tmp_path / "made.npy")
    assert (code, err) == (0, "")
    made = np.load(tmp_path / "made.npy")
    assert made.shape == (3, 6, 2, POINTS)
    assert np.array_equal(np.isnan(made), np.broadcast_to(OUTSIDE, made.shape))
    for step in (1, 6):
        assert f"{numpy_vrmse(made[:, step - 1], start[:, 1 + step]):.4g}"[:5] in out


def test_a_card_carries_mask_weights_and_quadrature(run: Run) -> None:
    card = ModelCard.of(run)
    norm = ModelCard.model_validate_json(card.model_dump_json()).measured()
    assert torch.equal(norm.mask, VALID)
    assert norm.by_channel
    assert (norm.importance, norm.weights) == ((), None)
    with pytest.raises(HeroError, match="does not fit its grid"):
        card.model_copy(update={"mask": card.mask[:2]}).measured()
    with pytest.raises(HeroError, match="does not fit its grid"):
        card.model_copy(update={"quadrature": ("AAAA",)}).measured()


def test_python_takes_nan_for_a_mask(tmp_path: Path) -> None:
    places: dict[str, Any] = {"runs": tmp_path / "runs", "data_dir": tmp_path / "data"}
    more = {key: value for key, value in SMALL.items() if key != "strategy"}
    found = hero.train(masked(waves()), strategy="push_forward", channels=["h", "T"], settings=more, **places)
    assert torch.equal(found.run.mask, VALID)
    made = hero.predict(found.path, waves(2, 1)[:, 0], 3)
    assert np.array_equal(np.isnan(made), np.broadcast_to(OUTSIDE, made.shape))


def test_python_evaluates_on_masked_arrays(run: Run) -> None:
    """A model that keeps the state is persistence, on the valid points."""
    u = masked(waves(3))
    found = hero.evaluate(lambda x: x, np.nan_to_num(u, nan=-9999.0))
    assert found.test["vrmse@1"] == pytest.approx(found.baselines["persistence"]["vrmse@1"])
    assert found.test["vrmse@1"] == pytest.approx(numpy_vrmse(u[:, 0], u[:, 1]), rel=1e-5)
    assert found.test["vrmse@11"] == pytest.approx(numpy_vrmse(u[:, 0], u[:, 11]), rel=1e-5)
    stray = u.copy()
    stray[2, 5, 1, 0] = np.nan
    with pytest.raises(HeroError, match="trajectory 2 is not finite in channel 1 at frame 5"):
        hero.evaluate(lambda x: x, stray)


def write_hdf5(path: Path, u: np.ndarray) -> Path:
    pdebench_cfd(path / "a.hdf5", np.concatenate([u, u[:, :, :1]], axis=2))
    return path / "a.hdf5"


@pytest.mark.parametrize("number", [-9999.0, 9.969209968386869e36, 0.0])
def test_a_number_for_missing_values_is_a_mask(number: float, tmp_path: Path) -> None:
    """Undeclared and far from all values: -9999, the default of netCDF; 0 for 300 ± 1, but not for 0 ± 1."""
    u = waves()
    u[:, :, 1] = 300 + (u[:, :, 1] - 300) / 10
    np.save(tmp_path / "a.npy", np.where(OUTSIDE, np.float32(number), u))
    np.save(tmp_path / "b.npy", np.where(OUTSIDE & [[number != 0], [True]], np.float32(np.nan), u))
    found, expected = (tidy(open_recording(tmp_path / name, "btcx")) for name in ("a.npy", "b.npy"))
    assert np.array_equal(found.mask, expected.mask)
    states = [one.trajectories[3].read(slice(0, 12), [1]) for one in (found, expected)]
    assert np.array_equal(*states)
    np.save(tmp_path / "i.npy", np.where(OUTSIDE, -9999, 10 * u).astype(np.int16))
    assert np.array_equal(tidy(open_recording(tmp_path / "i.npy", "btcx")).mask, VALID)
    u[5, 6, 1, 0] = number  # a mask that moves
    np.save(tmp_path / "c.npy", np.where(OUTSIDE, np.float32(number), u))
    late = tidy(open_recording(tmp_path / "c.npy", "btcx")).trajectories[5].read(slice(6, 7), [1])
    assert np.isnan(late[0, 0, 0])


def test_a_doubled_end_point_keeps_the_mask(tmp_path: Path) -> None:
    u = waves()
    doubled = np.concatenate([u, u[..., :1]], axis=-1)
    outside = np.concatenate([OUTSIDE, OUTSIDE[:, :1]], axis=-1)
    np.save(tmp_path / "a.npy", masked(doubled, outside))
    recording = tidy(open_recording(tmp_path / "a.npy", "btcx"))
    assert recording.axes[0].periodic
    np.testing.assert_array_equal(recording.mask, ~OUTSIDE)
    assert recording.trajectories[0].read(slice(0, 1), [0, 1]).shape == (1, 2, POINTS)


FIELDS = ~OUTSIDE[[0, 1, 0]]
"""The mask of density, pressure and Vx in the HDF5 file."""


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ({}, FIELDS),
        ({"data.crop": "2:14"}, FIELDS[:, 2:14]),
        ({"data.coarsen": 2}, FIELDS[:, ::2]),
        ({"data.fields": "pressure"}, FIELDS[1:2]),
        ({"data.fields": "pressure,density"}, FIELDS[1::-1]),
        ({"data.crop": "9:16"}, None),
    ],
)
def test_crops_and_fields_keep_the_mask_right(more: dict[str, Any], valid: np.ndarray | None, tmp_path: Path) -> None:
    path = write_hdf5(tmp_path, masked(waves()))
    overrides = {**SMALL, "data.path": str(path), **more}
    config = make_config(overrides=overrides)
    data = load_data(config, "train", tmp_path, "cpu")
    assert config.source.masked == (valid is not None)
    if valid is None:
        assert data.mask is None
        return
    np.testing.assert_array_equal(data.mask, valid)
    lazy = load_data(make_config(overrides={**overrides, "data.memory": 1e-9}), "train", tmp_path, "cpu")
    assert not lazy.is_in_memory
    assert torch.equal(lazy.mask, data.mask)
    for a, b in zip(lazy.statistics(), data.statistics(), strict=True):
        assert torch.equal(a, b)


def test_the_mask_can_be_kept_from_the_network(folder: Path) -> None:
    """`train.mask_input=false`: one input channel less, and another run."""
    config = make_config(overrides=settings(folder, **{"train.mask_input": False}))
    shown = make_config(overrides=settings(folder))
    assert config.run_id() != shown.run_id()
    sizes = [sum(p.numel() for p in one.build_operator().parameters()) for one in (config, shown)]
    assert sizes[1] - sizes[0] == config.backbone.width  # type: ignore[attr-defined]
    inner = [part for part in config.build_operator().modules() if isinstance(part, Masked)]
    assert [part.as_input for part in inner] == [False]


def test_fixed_fields_may_be_nan_where_no_channel_has_a_value(tmp_path: Path) -> None:
    """Their mean is read there; NaN elsewhere is refused, and can be left out."""
    xarray = pytest.importorskip("xarray")
    u, nowhere = masked(waves()), OUTSIDE.all(axis=0)
    height = np.where(nowhere, np.nan, np.arange(POINTS)).astype(np.float32)
    dims, places = ("member", "time", "x"), {"time": np.arange(12) * 0.5, "x": np.arange(POINTS) * 0.1}

    def written(name: str, field: np.ndarray) -> dict[str, Any]:
        variables = {"h": (dims, u[:, :, 0]), "T": (dims, u[:, :, 1]), "height": (("x",), field)}
        xarray.Dataset(variables, places).to_netcdf(tmp_path / name, engine="h5netcdf")
        return {**SMALL, "data.path": str(tmp_path / name)}

    config = make_config(overrides=written("good.nc", height))
    data = load_data(config, "train", tmp_path, "cpu")
    assert config.source.conditioning == ("height",)
    assert data.mu.shape == (len(data), 1, POINTS)
    np.testing.assert_allclose(data.mu[0, 0], np.where(nowhere, height[~nowhere].mean(), height))
    broken = written("bad.nc", np.where(np.arange(POINTS) == 3, np.nan, height).astype(np.float32))
    with pytest.raises(HeroError, match=r"the field height of trajectory \d in .* is not finite where"):
        load_data(make_config(overrides=broken), "train", tmp_path, "cpu")
    left_out = make_config(overrides={**broken, "data.condition": "none"})
    assert load_data(left_out, "train", tmp_path, "cpu").mu is None


def test_a_run_is_measured_where_it_predicts_and_the_data_have_values(run: Run, folder: Path, tmp_path: Path) -> None:
    other = OUTSIDE.copy()
    other[0, 3], other[1, 12] = False, True
    np.save(tmp_path / "other.npy", masked(waves(), other))
    found, errors = evaluate_on(run.path, folder / "data", {"data.path": str(tmp_path / "other.npy")})
    both = OUTSIDE | other
    step, true = run.stepper(run.operator("cpu")), masked(waves(), both)
    config = make_config(overrides=settings(folder, **{"data.path": str(tmp_path / "other.npy"), "train.history": 2}))
    start = load_data(config, "test", tmp_path, "cpu")
    with torch.no_grad():
        made = rollout(step, start.first(2), 2).numpy()
    rows = [row for row in true if np.array_equal(row[0][~both], start.states[0, 0].numpy()[~both])]
    expected = np.mean(
        [
            np.sqrt(np.mean((made[0, 0, c] - rows[0][2, c])[~both[c]] ** 2) / rows[0][2, c][~both[c]].var())
            for c in range(2)
        ]
    )
    assert float(errors["vrmse"][0, 0]) == pytest.approx(expected, rel=1e-4)
    assert set(found.baselines) == {"persistence", "mean"}


def test_states_without_values_that_a_run_needs_are_refused(tmp_path: Path, call: Call) -> None:
    """A file with a mask for a run without one would give the network numbers that nobody measured."""
    np.save(tmp_path / "sea.npy", waves())
    config = make_config(overrides=settings(tmp_path))
    found = train(config, tmp_path / "runs", tmp_path)
    path = write_hdf5(tmp_path, masked(waves()))
    with h5py.File(path, "a") as file:
        del file["Vx"]
        file["u"] = masked(waves())
        for name in ("density", "pressure"):
            del file[name]
    result = call("predict", found, "--input", path, "--data", tmp_path, "--steps", 2, "--out", tmp_path / "made.npy")
    assert_refused(result, "only NaN at points where run", "needs values")


def slopes_of(strategy: str, folder: Path, scale: float, offset: float, fill: float) -> list[Tensor]:
    """Losses of two updates and their gradients, with a channel in other units and other numbers at masked points."""
    u = waves().astype(np.float64)
    u[:, :, 1] = offset + scale * (u[:, :, 1] - 300)
    path = folder / f"{scale:g}.npy"
    np.save(path, masked(u.astype(np.float32)))
    more = {"strategy": strategy, "hero.start": 0, "hero.lambda_max": 0.5, "hero.warmup": 1}
    chosen = settings(folder, **{"data.path": str(path), "train.noise": 0.01, **more})
    read = {"strategy", "backbone", "data", "train", STRATEGIES[strategy].section}
    config = make_config(overrides={key: value for key, value in chosen.items() if key.split(".")[0] in read})
    made, model = config.make_strategy(), config.build_operator()
    data = load_data(config, "train", folder, "cpu")
    made.begin(model, data)
    found = []
    for step in (0, 3):  # the relative terms act at the last
        batch = augment(config.windows(data)(step), config.train, 0, made.norm)
        context = Context(torch.where(VALID, batch.context.states, fill))
        batch = replace(batch, context=context, truth=torch.where(VALID, batch.truth, fill), index=None)
        value = made.loss(model, batch).value
        found += [value.detach(), *torch.autograd.grad(value, list(model.parameters()))]
    return found


@pytest.mark.parametrize("strategy", sorted(STRATEGIES.keys() - {"diverted_chain"}))
def test_no_strategy_sees_units_or_masked_points(strategy: str, tmp_path: Path) -> None:
    """Relative terms, candidates and noise included; a solver is of a benchmark, which has no mask."""
    plain = slopes_of(strategy, tmp_path, 10.0, 300.0, 0.0)
    for units in ((1e4, 1e5, -55.0), (1e-22, 3e-21, 0.0)):
        for one, two in zip(plain, slopes_of(strategy, tmp_path, *units), strict=True):
            assert float(one.norm()) > 0
            assert float((one - two).norm()) < 2e-3 * float(one.norm())
