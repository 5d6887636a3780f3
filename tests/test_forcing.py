"""Conditioning: forcing of each time, and coefficients of each trajectory; seen, never predicted or perturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

import hero
from conftest import Call, assert_refused, tiny
from hero.data import Split, generate, get_task, load_trajectories, split_path
from hero.data.tasks.solver import solve
from hero.data.tasks.task import Range
from hero.data.windows import Batches, Context, Trajectories
from hero.deploy.export import export_run
from hero.deploy.exported import load_stepper
from hero.deploy.predict import predict
from hero.errors import HeroError
from hero.evaluation.elsewhere import changed_task
from hero.evaluation.evaluate import evaluate
from hero.method.domain import Domain
from hero.method.rollout import recomputed_unroll, rollout, unroll
from hero.models import BACKBONES
from hero.models.wrappers import Normalised
from hero.ranks import Ranks
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from hero.strategies import STRATEGIES
from hero.study.cost.count import describe
from hero.training.loop import train
from hero.training.schedule import noisy
from test_backbones import SMALL

STATES, POINTS = 14, 8
PLAIN: dict[str, Any] = {"train.batch": 4, "train.compile": "false", "train.lr": 1e-9, "train.normalise": False}


def small(inputs: int) -> nn.Module:
    """A network that is no projection of its input."""
    return nn.Sequential(nn.Conv1d(inputs, 4, 3, padding=1), nn.Tanh(), nn.Conv1d(4, 2, 1))


@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("way", [unroll, recomputed_unroll])
def test_a_rollout_is_the_loop_with_concatenation(field: bool, way: Any) -> None:
    torch.manual_seed(0)
    history, steps, space = 2, 5, (POINTS,)
    model = small(history * 2 + 1 + 3).double()
    states, mu = torch.randn(3, history, 2, *space).double(), torch.randn(3, 1).double()
    forcing = torch.randn(3, steps + 1, 3, *(space if field else ())).double()
    made = way(model, Context(states, mu, forcing), steps)
    made.square().sum().backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]

    model.zero_grad()
    past, expected = list(states.unbind(1)), []
    for n in range(steps):
        now = forcing[:, n] if field else forcing[:, n, :, None].expand(3, 3, *space)
        x = torch.cat([*past[-history:], mu[:, :, None].expand(3, 1, *space), now], dim=1)
        past.append(model(x))
        expected.append(past[-1])
    torch.stack(expected, 1).square().sum().backward()
    torch.testing.assert_close(made, torch.stack(expected, 1), rtol=0, atol=1e-10)
    for ours, p in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=0, atol=1e-10)


def test_neither_noise_nor_perturbation_touches_it() -> None:
    torch.manual_seed(0)
    context = Context(torch.randn(3, 1, 2, POINTS), None, torch.randn(3, 4, 1))
    for moved in (
        noisy(context, 0.1, Generator().manual_seed(0), Domain().norm),
        Domain().perturbation(context, Generator().manual_seed(0)),
    ):
        assert moved.forcing is context.forcing
        assert not torch.equal(moved.states, context.states)


seen: list[float] = []
"""How far the forcing was from the time of the newest state, at each call of `Clock`."""


class Clock(nn.Module):
    """The exact operator of states that are their own time, which compares them with their forcing."""

    def __init__(self, step: float = 1.0, place: int = -1, newest: int = 0) -> None:
        super().__init__()
        self.step, self.place, self.newest = step, place, newest
        self.drift = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        state = x[:, self.newest : self.newest + 1]
        if float((state - state.round()).detach().abs().max()) < 1e-2:  # a time, not the noise of a check of networks
            seen.append(float((state - x[:, self.place].unsqueeze(1)).detach().abs().max()))
        return state + self.step + self.drift


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    seen.clear()
    yield
    seen.clear()


def clocks(count: int = 6) -> np.ndarray:
    """(trajectory, time): 100 i + t."""
    return (100.0 * np.arange(count)[:, None] + np.arange(STATES)).astype(np.float32)


def fields(times: np.ndarray) -> np.ndarray:
    return np.repeat(times[:, :, None, None], POINTS, axis=3)


def folders(root: Path) -> dict[str, Path]:
    return {"runs": root / "runs", "data_dir": root / "data"}


SOLVERLESS = [name for name in STRATEGIES if name != "diverted_chain"]


@pytest.mark.parametrize("strategy", SOLVERLESS)
def test_every_strategy_sees_the_forcing_of_the_time_of_its_newest_state(strategy: str, tmp_path: Path) -> None:
    """In training, in all candidates, in validation and test; the refiner's network makes no states."""
    own = {"hero": {"hero.start": 1, "hero.refresh": 2}, "fixed_weight": {"hero.start": 1}}.get(strategy, {})
    place = -3 if strategy == "refiner" else -1  # guess and index of the call follow
    kept = {"refiner.steps": 1} if strategy == "refiner" else {}
    net = Clock(place=place, newest=1)
    result = hero.train(
        fields(clocks()), net, strategy, steps=4, forcing=clocks()[:, :, None],
        settings=PLAIN | {"train.unroll": 3, "train.history": 2, "train.recompute": False, **own, **kept},
        **folders(tmp_path),
    )  # fmt: skip
    assert len(seen) > {"one_step": 4, "refiner": 3}.get(strategy, 12)
    if strategy == "refiner":
        assert max(seen[:4]) == 0
        return
    assert max(seen) < 1e-3
    assert max(result.errors.max(), 0) < 1e-4


def write_clocks(path: Path, masked: bool = False) -> Path:
    """A file whose states are their own time, with the time as a number and as a field, under their own names."""
    u = fields(clocks()) + 0.25 * np.arange(POINTS)  # not equal at both ends, as on a periodic axis
    field = u[:, :, 0] + 0.25 * np.arange(POINTS)
    if masked:
        u = np.where(np.arange(POINTS) == 3, np.nan, u)
    if path.suffix == ".npz":
        np.savez(path, u=u, hour=clocks(), source=field)
        return path
    xarray = pytest.importorskip("xarray")
    dims = ("member", "time", "x")
    data = {"u": (dims, u[:, :, 0]), "hour": (dims[:2], clocks()), "source": (dims, field)}
    xarray.Dataset(data, {"time": np.arange(STATES) * 0.5, "x": np.arange(POINTS)}).to_netcdf(path)
    return path


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [".npz", ".nc"])
def test_forcing_is_cut_along_with_the_states(kind: str, masked: bool, tmp_path: Path) -> None:
    """Strides, crops, splits in time, rollouts of long trajectories, masks; in memory and streamed."""
    path = write_clocks(tmp_path / f"clocks{kind}", masked)
    for changes in (
        {"data.stride": 2, "data.crop": "2:8", "data.coarsen": 2},
        {"data.rollout": 4, "data.memory": 1e-9},
        {"data.stride": 3, "data.memory": 1e-9},
    ):
        config = hero.make_config(
            overrides={"data.path": str(path), "data.forcing": "hour,source", "train.unroll": 2, "strategy": "one_step",
                       "data.fields": "u", "backbone.modes": 1, **changes}
        )  # fmt: skip
        assert config.source.forcing == ("hour", "source")
        stride = int(changes.get("data.stride", 1))
        for split in ("train", "val", "test"):
            data = load_data(config, split, tmp_path, "cpu")
            assert data.is_in_memory == ("data.memory" not in changes)
            batches = Batches(data, 2, 3, 0)
            x = torch.arange(8.0)[2:8:2] if "data.crop" in changes else torch.arange(8.0)
            for context in (batches(0).context, batches(1).context, data.first(1)):
                time = context.states[:, -1, 0, 0] - 0.25 * x[0]
                hour, source = context.forcing[:, :2, 0, 0], context.forcing[:, :2, 1]
                assert torch.equal(hour, time[:, None] + stride * torch.arange(2.0))
                assert torch.equal(source, hour[..., None] + 0.5 * x)


def test_forcing_loses_a_doubled_end_point_with_the_states(tmp_path: Path) -> None:
    x, t = np.linspace(0, 2 * np.pi, 17), np.arange(STATES)[:, None]
    u = np.stack([np.sin(x - 0.3 * t + i) for i in range(5)])
    np.savez(tmp_path / "wave.npz", u=u[:, :, None], source=2 * u)
    values = {"data.path": str(tmp_path / "wave.npz"), "data.forcing": "source", "backbone.modes": 1}
    config = hero.make_config(overrides=values | {"strategy": "one_step", "train.unroll": 1})
    data = load_data(config, "train", tmp_path, "cpu")
    assert config.source.periodic == (True,)
    assert data.shape[3:] == (16,)
    assert torch.equal(data.forcing, 2 * data.states)


def test_the_rows_of_every_process_have_their_own_forcing() -> None:
    times = torch.from_numpy(clocks())
    data = Trajectories(torch.from_numpy(fields(clocks())), None, None, times[:, :, None])
    whole = Batches(data, 3, 5, 0, history=2)(1)
    shares = [Batches(data, 3, 5, 0, history=2, ranks=Ranks(rank, 2))(1) for rank in range(2)]
    for share in shares:
        newest = share.context.states[:, -1, 0, 0]
        assert torch.equal(share.context.forcing[:, :, 0], newest[:, None] + torch.arange(3.0))
        part = share.rows(slice(1, 2)).context  # as train.accumulate cuts a batch
        assert torch.equal(part.forcing[:, 0, 0], part.states[:, -1, 0, 0])
    together = torch.cat([share.context.forcing for share in shares])
    assert sorted(together.flatten().tolist()) == sorted(whole.context.forcing.flatten().tolist())


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> tuple[hero.Result, np.ndarray, np.ndarray]:
    """A small network with a number and a history, on random states."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(6, STATES, 2, POINTS)).cumsum(1).astype(np.float32)
    f = (3 + 2 * rng.normal(size=(6, STATES, 1))).astype(np.float32)
    root = tmp_path_factory.mktemp("forced")
    settings = {"train.batch": 4, "train.compile": "false", "train.unroll": 2}
    return hero.train(u, small(3), "one_step", steps=3, forcing=f, settings=settings, **folders(root)), u, f


def test_it_is_standardised_by_the_training_data(forced: tuple[hero.Result, np.ndarray, np.ndarray]) -> None:
    result, _, _ = forced
    training = load_data(result.config, "train", result.data_dir, "cpu").forcing
    network = result.model.network
    np.testing.assert_allclose(network.mu_mean, training.double().mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(network.mu_std, training.double().std((0, 1), correction=0), rtol=1e-5)


def test_predictions_of_python_command_and_exported_files_agree(
    forced: tuple[hero.Result, np.ndarray, np.ndarray], tmp_path: Path, call: Call
) -> None:
    pytest.importorskip("onnxruntime")
    result, u, f = forced
    expected = result.predict(u[:, 0], STATES - 1, forcing=f)
    export_run(result.path, result.data_dir, tmp_path)  # checks every step along a rollout
    result.save(tmp_path / "folder")
    np.testing.assert_array_equal(
        hero.load(tmp_path / "folder").rollout(u[:, 0], STATES - 1, forcing=f[:, : STATES - 1]), expected
    )
    np.savez(tmp_path / "states.npz", states=u[:, 0], forcing=f)
    np.savez(tmp_path / "recording.npz", u=u, forcing=f)
    arguments = ("--steps", STATES - 1, "--out", tmp_path / "out.npy")
    for model in (result.path, tmp_path / "model.onnx", tmp_path / "folder"):
        for start in ("states.npz", "recording.npz"):
            code, _, err = call("predict", model, "--from", tmp_path / start, *arguments)
            assert (code, err) == (0, "")
            np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-4, atol=1e-4)
    late = call(
        "predict", result.path, "--from", tmp_path / "recording.npz", "--steps", 99, "--out", tmp_path / "x.npy"
    )
    assert_refused(late, "the forcing (forcing_0) is given for 14 steps", "99")
    np.save(tmp_path / "bare.npy", u[:, 0])
    assert_refused(call("predict", result.path, "--from", tmp_path / "bare.npy", *arguments), "forcing", "forcing_0")
    with pytest.raises(HeroError, match=r"needs `forcing` of shape \(6, steps, 1\), which holds forcing_0"):
        result.predict(u[:, 0], 3)
    found = hero.evaluate(result, u, forcing=f)
    again = hero.evaluate(lambda x: result.model.network(x).detach(), u, forcing=f)
    np.testing.assert_allclose(found.errors, again.errors, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train.bundle": 2}, "train.bundle=2 is not for data.forcing"),
        ({"train.scale": 2.0}, "train.scale=2 is not for data.forcing"),
        ({"data.forcing": "our"}, "did you mean 'hour'"),
        ({"data.fields": "u,source", "data.forcing": "source"}, "source is in data.fields and in data.forcing"),
    ],
)
def test_what_cannot_have_forcing_says_so(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write_clocks(tmp_path / "clocks.nc")
    values = {"data.path": str(path), "data.forcing": "hour", "backbone.modes": 1, "train.unroll": 2, **changes}
    with pytest.raises(HeroError, match=words):
        hero.make_config(overrides=values)


SPLIT = Split("train", 5, 4, seed=3)
COARSE = {"resolution": 32, "substeps": 2}
LOADED = {"viscosity": [1e-3, 1e-1], "convection": [-0.2, -0.1]}


def test_every_trajectory_is_solved_with_its_own_coefficients(tmp_path: Path) -> None:
    task = get_task("burgers", COARSE | LOADED)
    assert tuple(task.ranges) == ("viscosity", "convection")
    data = load_trajectories(task.source(), SPLIT, tmp_path)
    mu = task.coefficients(5, 3)
    assert torch.equal(data.mu, mu.float())
    assert len(set(mu[:, 0].tolist())) == 5
    for i, (viscosity, convection) in enumerate(mu.tolist()):
        alone = get_task("burgers", COARSE | {"viscosity": viscosity, "convection": convection})
        expected = solve(alone.stepper(), alone.initial_states(5, 3)[i : i + 1], 4)[0]
        assert torch.allclose(data.states[i].double(), expected, atol=1e-6)
    with h5py.File(split_path(task, SPLIT, tmp_path)) as file:
        assert np.array_equal(file["mu"], mu.numpy())
        assert list(file["mu"].attrs["names"]) == ["viscosity", "convection"]


def test_draws_stay_in_the_range_and_depend_on_seed_and_index_alone() -> None:
    task = get_task("burgers", LOADED)
    many, few = task.coefficients(400, 0), task.coefficients(7, 0)
    assert torch.equal(many[:7], few)
    assert not torch.equal(few, task.coefficients(7, 1))
    alone = get_task("burgers", {"viscosity": LOADED["viscosity"]}).coefficients(400, 0)
    assert torch.equal(alone[:, 0], many[:, 0])  # whatever else has a range
    viscosity, convection = many.T
    assert 1e-3 <= viscosity.min() < viscosity.max() <= 1e-1
    assert -0.2 <= convection.min() < convection.max() <= -0.1
    assert (viscosity < 1e-2).double().mean() == pytest.approx(0.5, abs=0.1)  # uniform in the logarithm
    assert (convection < -0.15).double().mean() == pytest.approx(0.5, abs=0.1)
    assert Range(1.0, 10.0).at(0.5) == 5.5  # a ratio of 10 is not yet far apart
    assert Range(1.0, 100.0).at(0.5) == pytest.approx(10)
    assert Range(-1.0, 100.0).at(0.5) == 49.5


def test_a_range_of_one_value_gives_the_data_of_that_value() -> None:
    own = get_task("kuramoto_sivashinsky", {"resolution": 32, "warmup": 2})
    coefficient = next(iter(own.parameters))
    value = own.parameters[coefficient]
    ranged = own.with_settings({coefficient: [value, value]})
    assert torch.equal(generate(own, SPLIT), generate(ranged, SPLIT))
    assert split_path(own, SPLIT, Path()) != split_path(ranged, SPLIT, Path())


def test_settings_return_from_toml_and_a_number_ends_the_range(tmp_path: Path) -> None:
    config = tiny(task__viscosity=[1e-3, 1e-2])
    (tmp_path / "config.toml").write_text(config.to_toml())
    again = make_config(file=tmp_path / "config.toml")
    assert again == config
    assert again.run_id() == config.run_id() != tiny().run_id()
    source = again.source
    assert source.title == "Burgers, viscosity 0.001 to 0.01"
    assert source.task.with_settings({"viscosity": 0.5}) == get_task("burgers", source.settings() | {"viscosity": 0.5})
    assert source.task.with_settings({"viscosity": 0.5}).title == "Burgers"
    assert describe(config).input == (2, 32)


def test_there_is_no_solver_for_all_and_no_shift(tmp_path: Path) -> None:
    config = tiny(task__viscosity=[1e-3, 1e-2])
    source = config.source
    assert not source.has_solver
    with pytest.raises(HeroError, match=r"task.viscosity has a range, so that Burgers, .* has no single solver"):
        source.stepper()
    with pytest.raises(HeroError, match=r"diverted_chain needs a solver .* Burgers, viscosity 0.001 to 0.01 has none"):
        tiny(strategy="diverted_chain", task__viscosity=[1e-3, 1e-2])
    with pytest.raises(HeroError, match="a shift changes one task"):
        changed_task(config, {"convection": -0.2}, tmp_path)


CONDITIONED = [(strategy, "fno", "history") for strategy in ("push_forward", "hero", "refiner")]
CONDITIONED += [("push_forward", backbone, "bundle") for backbone in BACKBONES if backbone != "fno"]


@pytest.mark.parametrize(("strategy", "backbone", "memory"), CONDITIONED)
def test_every_strategy_and_backbone_is_conditioned(
    strategy: str, backbone: str, memory: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "ranges"
    extra = {"train.history": 2} if memory == "history" else {"train.bundle": 2}
    if strategy != "refiner":  # which predicts changes by a setting of its own
        extra["backbone.residual"] = True
    small = {"data.val_steps": 6, "data.test_steps": 6, "train.steps": 6, "train.unroll": 2, "hero.start": 2}
    small |= {"backbone.modes": None, "backbone.name": backbone, **SMALL[backbone]}
    config = tiny(strategy=strategy, task__viscosity=[1e-3, 1e-1], **small, **extra)
    run = train(config, folder / "runs", folder / "data")
    opened = Run(run)
    model = opened.operator("cpu")
    wrapper = next(module for module in model.modules() if hasattr(module, "mu_mean"))
    trained_on, test = (load_data(config, name, folder / "data", "cpu") for name in ("train", "test"))
    assert torch.allclose(wrapper.mu_mean, trained_on.mu.mean(0))
    assert torch.allclose(wrapper.mu_std, trained_on.mu.std(0, correction=0))
    context = test.first(config.train.history)
    step = opened.stepper(model)
    with torch.no_grad():
        torch.manual_seed(0)
        one = rollout(step, context, 3)
        torch.manual_seed(0)
        other = rollout(step, type(context)(context.states, context.mu * 3), 3)
    assert one.isfinite().all()
    assert not torch.allclose(one, other)


def test_evaluated_exported_and_predicted(tmp_path: Path) -> None:
    config = tiny(strategy="push_forward", task__viscosity=[1e-3, 1e-1], train__history=2, train__steps=5)
    run = train(config, tmp_path / "runs", tmp_path / "data")
    assert isinstance(Run(run).operator("cpu"), Normalised)
    assert evaluate(run, tmp_path / "data").trajectories == 2
    checks = export_run(run, tmp_path / "data", formats=["torch"])  # ONNX with such an input: test_forcing
    stored = split_path(config.source.task, config.split("test"), tmp_path / "data")
    found = []
    for model in (str(run), str(checks["torch"].path)):
        predict(model, tmp_path, tmp_path / "data", steps=4, out=tmp_path / "p.npy", trust_code=True)
        found.append(np.load(tmp_path / "p.npy"))
        predict(model, tmp_path, tmp_path / "data", stored, 4, tmp_path / "q.npy", trust_code=True)
        assert np.allclose(found[-1], np.load(tmp_path / "q.npy"), atol=1e-6)
    assert np.allclose(found[0], found[1], atol=1e-4)
    assert load_stepper(checks["torch"].path, trust_code=True).card.conditioning == ("viscosity",)
