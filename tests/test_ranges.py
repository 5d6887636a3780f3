"""Coefficients with a range: one value per trajectory, which conditions the operator."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from conftest import tiny
from hero.data import Split, generate, get_task, load_trajectories, split_path
from hero.data.tasks.solver import solve
from hero.data.tasks.task import Range
from hero.deploy.export import export_run
from hero.deploy.exported import load_stepper
from hero.deploy.predict import predict
from hero.errors import HeroError
from hero.evaluation.elsewhere import changed_task
from hero.evaluation.evaluate import evaluate
from hero.method.rollout import rollout
from hero.models import BACKBONES
from hero.models.wrappers import Normalised
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from hero.study.cost.count import describe
from hero.training.loop import train
from test_backbones import SMALL

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


CASES = [(strategy, "fno", "history") for strategy in ("push_forward", "hero", "refiner")]
CASES += [("push_forward", backbone, "bundle") for backbone in BACKBONES if backbone != "fno"]


@pytest.mark.parametrize(("strategy", "backbone", "memory"), CASES)
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
