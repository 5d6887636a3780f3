"""The Python API as a user calls it: arrays and networks in, results out, and a model folder that others open."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

import hero
from conftest import Call, tiny
from hero.config.given import fingerprint_of, give
from hero.data.windows import Context
from hero.deploy.model_folder import write_folder
from hero.errors import HeroError
from hero.files import write_json
from hero.method.rollout import rollout
from hero.runs.folder import Run, load_data

SMALL: dict[str, Any] = {"backbone.width": 4, "backbone.modes": 6, "train.batch": 5, "train.compile": "false"}
POINTS, SHIFT = 24, 2


def waves(count: int = 10, states: int = 12, seed: int = 0) -> np.ndarray:
    """Trajectories (trajectory, time, channel, x) that move by SHIFT points per step, so the truth is a roll."""
    start = np.random.default_rng(seed).normal(size=(count, 1, POINTS)).cumsum(axis=2)
    start -= start.mean(axis=2, keepdims=True)
    return np.stack([np.roll(start, SHIFT * n, axis=2) for n in range(states)], axis=1)


class Net(nn.Module):
    """A small network of somebody else."""

    def __init__(self, width: int = 3, in_channels: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv1d(in_channels, width, 5, padding=2, padding_mode="circular")
        self.last = nn.Conv1d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


class Roll(nn.Module):
    """The exact operator of `waves`, with a weight that training may move."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.roll(x, SHIFT, dims=-1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("api")
    return {"runs": root / "runs", "data_dir": root / "data"}


@pytest.fixture(scope="module")
def result(folders: dict[str, Path]) -> hero.Result:
    """A small FNO on an array."""
    return hero.train(
        waves(), strategy="push_forward", steps=10, dt=0.5, extent=2, periodic=True, channels=["height"],
        settings=SMALL, task__name="waves", **folders,
    )  # fmt: skip


def test_an_array_becomes_a_run_with_everything_around_it(result: hero.Result, folders: dict[str, Path]) -> None:
    config = result.config
    assert (config.data.dt, config.data.extent, config.data.periodic) == (0.5, (2.0,), (True,))
    assert (config.source.channel_names, config.task.name) == (("height",), "waves")
    assert result.path.parent == folders["runs"]
    assert result.errors.shape == (1, 11)
    assert result.metrics["nrmse@1"] == result.metrics.nrmse_1 == pytest.approx(result.errors[:, 0].mean())
    assert not hasattr(result.metrics, "vrmse_gm12")
    page = result._repr_html_()
    assert ("<table" in page, "data:image/png;base64," in page) == (True, True)
    assert len(result.plot().axes) >= 2


def test_the_same_call_finds_the_same_run_and_another_array_another(
    result: hero.Result, folders: dict[str, Path]
) -> None:
    given: dict[str, Any] = {"strategy": "push_forward", "steps": 10, "dt": 0.5, "extent": 2, "periodic": True}
    given |= {"channels": ["height"], "settings": SMALL, "task__name": "waves", **folders}
    before = (result.path / "metrics.json").stat().st_mtime_ns
    assert hero.train(torch.from_numpy(waves()), **given).path == result.path
    assert (result.path / "metrics.json").stat().st_mtime_ns == before
    assert len(list(folders["data_dir"].glob("given-*.npy"))) == 1
    assert hero.train(data=waves(seed=1), **given).path != result.path


def test_predict_takes_and_gives_what_the_caller_has(result: hero.Result) -> None:
    states = waves(3, 4)[:, 0]
    array = result.predict(states, 5)
    assert (type(array), array.shape) == (np.ndarray, (3, 5, 1, POINTS))
    tensor = hero.predict(result, torch.from_numpy(states), 5)
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(hero.predict(result.path, states, 5), array)
    np.testing.assert_array_equal(hero.predict(result.model, states[:, None], 5), array)
    one = result.model.step(hero.Context(torch.from_numpy(states[:, None]).float()))
    np.testing.assert_allclose(one.detach().numpy(), array[:, 0], rtol=1e-6, atol=1e-6)
    for wrong, steps in ((states[..., :20], 5), (states, 0)):
        with pytest.raises(HeroError):
            result.predict(wrong, steps)


def test_a_network_is_trained_from_its_own_weights_and_left_alone(folders: dict[str, Path]) -> None:
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    trained = hero.train(waves(), net, "one_step", steps=4, train__lr=1e-9, settings={"train.batch": 5}, **folders)
    assert trained.config.backbone.name.startswith("given:Net-")
    for name, value in trained.model.backbone.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=1e-7)
        assert torch.equal(net.state_dict()[name], before[name])
    moved = hero.train(waves(), net, "one_step", steps=4, settings={"train.batch": 5}, **folders)
    assert not torch.allclose(moved.model.backbone.last.weight, before["last.weight"], rtol=0, atol=1e-7)
    assert moved.path != trained.path
    with pytest.raises(HeroError, match=r"given:Net-\w+ fails on an input of shape \(2, 1, 24\)"):
        hero.train(waves(), Net(in_channels=2), "one_step", steps=4, runs=folders["runs"] / "none",
                   data_dir=folders["data_dir"])  # fmt: skip
    assert not (folders["runs"] / "none").exists()
    with pytest.raises(HeroError, match=r"give an instance of nn\.Module"):
        hero.train(waves(), Net, "one_step", steps=4, **folders)


def test_functions_as_loss_optimizer_and_metric(folders: dict[str, Path]) -> None:
    """The loss is exactly 0 for the exact operator, so only a far scale of it moves, by plain gradient steps."""

    def squares(prediction: Tensor, truth: Tensor) -> Tensor:
        return (prediction - truth).square().mean()

    def largest(u_hat: Tensor, u: Tensor) -> Tensor:
        return (u_hat - u).abs().flatten(1).amax(1)

    trained = hero.train(
        waves(), Roll(0.5), "one_step", steps=3, loss=squares, optimizer=partial(torch.optim.SGD, lr=0.01),
        metrics={"largest": largest}, train__normalise=False, train__warmup=0, train__clip=0, train__batch=1000,
        **folders,
    )  # fmt: skip
    assert trained.config.train.lr == 0.01
    scale, data = 0.5, torch.from_numpy(waves()).double()
    split = load_data(trained.config, "train", folders["data_dir"], "cpu").states.double()
    assert len(split) == 8
    power = float(split[:, : 12 - trained.config.train.unroll].square().mean())  # one_step: the first of each window
    for update in range(3):
        lr = 0.01 * 0.5 * (1 + np.cos(np.pi * update / 3))
        scale -= lr * 2 * (scale - 1) * power
    learned = trained.model.backbone.scale.item()
    assert learned == pytest.approx(scale, rel=1e-4)
    test = trained.errors.shape[1]
    worst = np.mean([abs(learned**n - 1) for n in range(1, test + 1)])
    peaks = [float(part.abs().max()) for part in data]
    assert min(abs(trained.metrics.largest - worst * peak) for peak in peaks) < 1e-3 * trained.metrics.largest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": lambda a, b: (a - b).square()}, r"returns a tensor of shape .* return one number"),
        ({"optimizer": lambda parameters: None}, "returns NoneType; return a torch.optim.Optimizer"),
        ({"metrics": {"short": lambda a, b: torch.zeros(2)}}, r"metric short returns shape \(2,\)"),
        ({"metrics": {"gm100": lambda a, b: torch.zeros(2)}}, "a metric cannot be called 'gm100'"),
        ({"lr": 1e-3}, r"unknown argument 'lr'; did you mean train__lr\?"),
        ({"data": waves()[0, 0]}, r"`data` of shape \(1, 24\) are not \(trajectory, time, channel, \*space\)"),
        ({"data": {"a": waves()}}, "`data` has the arrays a; name them train, val and test, or u"),
        ({"data": 3}, "`data` of type int cannot be read"),
        ({"data": "burger"}, "did you mean 'burgers'"),
        ({"channels": ["a", "b"]}, "data.channels=a,b does not name the 1 channels u"),
    ],
)
def test_mistakes_are_told_in_one_sentence(changes: dict[str, Any], words: str, folders: dict[str, Path]) -> None:
    given = {"data": waves(), "model": Roll(0.9), "strategy": "one_step", "steps": 2, **folders} | changes
    with pytest.raises(HeroError, match=words):
        hero.train(**given)


def test_callbacks_see_the_run_and_may_stop_it(folders: dict[str, Path]) -> None:
    seen: list[hero.Progress] = []

    def watch(progress: hero.Progress) -> bool:
        seen.append(progress)
        return progress.step < 7

    trained = hero.train(
        waves(), Roll(0.8), "one_step", steps=40, callbacks=[watch], train__validate_every=5, **folders
    )
    assert [progress.step for progress in seen if progress.score is None] == list(range(1, 8))
    assert [progress.step for progress in seen if progress.score is not None] == [5, 7]
    assert all(progress.loss is not None for progress in seen)
    metrics = trained.run.metrics
    assert (metrics.training.steps, metrics.training.stopped_early) == (7, True)


def test_evaluate_a_function_on_data(folders: dict[str, Path], tmp_path: Path) -> None:
    net = nn.Sequential(Roll(), nn.Dropout(0.5)).train()
    exact = hero.evaluate(net, waves())
    assert (exact.errors.shape, exact.errors.max()) == ((10, 11), 0)
    assert net.training
    ones = {"ones": lambda u_hat, u: torch.ones(len(u))}
    half = hero.evaluate(lambda x: 0.5 * torch.roll(x, SHIFT, dims=-1), waves(), metrics=ones)
    np.testing.assert_allclose(half.errors, np.tile(1 - 0.5 ** np.arange(1, 12), (10, 1)), rtol=1e-6)
    assert half.test.ones == 1
    np.save(tmp_path / "waves.npy", waves().astype(np.float32))
    of_file = hero.evaluate(Roll(0.5), tmp_path / "waves.npy", data__layout="btcx")
    assert of_file.test["nrmse@1"] == pytest.approx(0.5)
    assert len(of_file.errors) == 1
    moving = hero.predict(Roll(), waves()[:, 0], 3)
    np.testing.assert_allclose(moving, waves()[:, 1:4], rtol=1e-6)
    with pytest.raises(HeroError, match="a model without a run is evaluated on `data`"):
        hero.evaluate(Roll())


def test_a_configuration_holds_all_other_arguments(data_dir: Path, runs_dir: Path) -> None:
    config = tiny(train__steps=2, strategy="one_step")
    found = hero.train(config, runs=runs_dir, data_dir=data_dir)
    assert (found.config, found.path) == (config, runs_dir / config.run_id())
    assert found.metrics
    for given in ({"steps": 3}, {"model": runs_dir}, {"train__lr": 0.1}):
        with pytest.raises(HeroError, match="holds every setting"):
            hero.train(config, **given)


def test_a_comparison_is_a_table_a_figure_and_a_page(folders: dict[str, Path]) -> None:
    compared = hero.compare(
        waves(), ["one_step", "push_forward"], seeds=2, model=Net(), steps=4, task__name="waves", train__batch=5,
        **folders,
    )  # fmt: skip
    assert [row["strategy"] for row in compared.table] == ["one_step", "push_forward"]
    assert [row["seeds"] for row in compared.table] == [2, 2]
    assert all(row["test_vrmse_gm11"] > 0 and row["test_vrmse_gm11_std"] is not None for row in compared.table)
    assert compared.study.failed == {}
    assert compared.plot().axes
    assert "<table" in compared._repr_html_()
    with pytest.raises(HeroError, match=r"given:Net-\w+ is known in this process alone; use workers=0"):
        hero.compare(waves(), ["one_step"], model=Net(), workers=1, **folders)


def test_model_folders_open_to_the_same_bits_without_the_hub_and_in_another_session(
    result: hero.Result, folders: dict[str, Path], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a registered backbone as it is; of a network that was handed over, with a network of the same class."""
    code, _, err = call(
        "export", result.path.name, "--format", "folder", "--license", "mit", "--out", tmp_path / "model",
        "--runs", folders["runs"], "--data", folders["data_dir"],
    )  # fmt: skip
    assert (code, err) == (0, "")
    names = ["README.md", "config.json", "model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    given = hero.train(waves(), Net(), "one_step", steps=4, settings={"train.batch": 5}, **folders)
    given.save(tmp_path / "given")
    result.model.save_pretrained(tmp_path / "saved")
    states = waves(4, 3, seed=5)[:, 0]
    expected, of_given = result.predict(states, 20), given.predict(states, 20)

    monkeypatch.setattr("hero.config.given._given", {})
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
    operator = hero.load(tmp_path / "model")
    assert np.array_equal(operator.rollout(states, 20), expected)
    assert (operator.card.dt, operator.training) == (0.5, False)
    for path in (tmp_path / "given", given.path):
        with pytest.raises(HeroError, match=r"hero\.load\(path, model=net\)"):
            hero.load(path)
        assert np.array_equal(hero.load(path, model=Net()).rollout(states, 20), of_given)
    hero.Operator.from_pretrained(tmp_path / "saved").save_pretrained(tmp_path / "again")
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "saved" / name).read_bytes()
    for needs_the_hub in (hero.Operator.from_pretrained, operator.push_to_hub):
        with pytest.raises(HeroError, match=r"hero-operators\[hub\]"):
            needs_the_hub("nobody/nothing")


def test_a_model_folder_is_uploaded(result: hero.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, seen = pytest.importorskip("huggingface_hub"), []
    monkeypatch.setattr(hub, "create_repo", lambda name, **options: seen.append((name, options)))
    monkeypatch.setattr(hub, "upload_folder", lambda folder_path, **_: seen.append(sorted(os.listdir(folder_path))))
    result.model.push_to_hub("me/model", private=True)
    options = {"exist_ok": True, "private": True}
    assert seen == [("me/model", options), ["README.md", "config.json", "model.safetensors"]]


def test_the_card_says_where_the_model_comes_from(result: hero.Result, tmp_path: Path) -> None:
    text = (result.save(tmp_path / "model", license="cc-by-4.0") / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    facts = yaml.safe_load(header)
    assert facts["license"] == "cc-by-4.0"
    assert {"fno", "push_forward", "neural-operator"} <= set(facts["tags"])
    data = result.config.data
    for words in (data.fingerprint, result.path.name, "nrmse@1", f"{result.metrics.vrmse_gm11:.4g}", "height", "torch"):
        assert words in body
    assert str(result.path.parent) not in text  # no path of the machine it was trained on
    assert str(data.path) not in (tmp_path / "model" / "config.json").read_text()
    assert hero.load(tmp_path / "model").about.license == "cc-by-4.0"


def test_a_loaded_operator_is_trained_further_and_saved(result: hero.Result, tmp_path: Path) -> None:
    operator = hero.load(result.path)
    data = torch.from_numpy(waves()).float()
    optimizer = torch.optim.Adam(operator.parameters(), lr=1e-2)
    before = operator.rollout(data[:, 0], 2)
    for _ in range(3):
        loss = (operator(data[:, 0]) - data[:, 1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = operator.rollout(data[:, 0], 2)
    assert not torch.equal(before, after)
    operator.save_pretrained(tmp_path / "further")
    assert torch.equal(hero.load(tmp_path / "further").rollout(data[:, 0], 2), after)


def test_an_exported_file_is_loaded_too(result: hero.Result, folders: dict[str, Path], tmp_path: Path) -> None:
    from hero.deploy.export import export_run

    export_run(result.path, folders["data_dir"], tmp_path, ["torch"])
    states = waves(2, 3)[:, 0]
    with pytest.raises(HeroError, match="can run code that is in it; use `trust_code`"):
        hero.load(tmp_path / "model.pt2")
    opened = hero.load(tmp_path / "model.pt2", trust_code=True)
    np.testing.assert_allclose(opened.rollout(states, 4), result.predict(states, 4), rtol=1e-4, atol=1e-4)
    assert opened.card.run == result.path.name
    with pytest.raises(HeroError, match="cannot become a model folder"):
        opened.save_pretrained(tmp_path / "folder")


def test_damaged_and_foreign_folders_are_refused(result: hero.Result, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder = write_folder(result.path, tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    content["config"]["backbone"]["width"] = 5

    def refused(words: str, path: object, **arguments: Any) -> None:
        with pytest.raises(HeroError, match=words):
            hero.load(path, **arguments)

    refused("is neither a run folder, a model folder", tmp_path / "empty")
    refused("there is no run 'nowhere'", "nowhere", runs=tmp_path)
    refused("which is built in; leave out `model`", folder, model=Net())
    write_json(folder / "config.json", content)
    refused("holds the weights of another model", folder)
    (folder / "config.json").write_text("{")
    refused(r"config\.json is damaged", folder)


def test_a_model_folder_holds_no_scattered_points(folders: dict[str, Path], tmp_path: Path) -> None:
    """Their positions are in the data file, which an operator needs to be opened."""
    coords = np.random.default_rng(3).random((POINTS, 2))
    data = {"u": waves(), "coords": coords}
    settings = {"backbone.width": 4, "backbone.heads": 2, "backbone.slices": 3, "backbone.depth": 1}
    trained = hero.train(data, "transolver", "one_step", steps=2, settings=settings, **folders)
    positions = np.tile(coords.T, (2, 1, 1))  # the conditioning of points
    assert trained.predict(waves(2, 3)[:, 0], 2, positions).shape == (2, 2, 1, POINTS)
    with pytest.raises(HeroError, match=r"needs `mu` of shape \(2, 2\)"):
        trained.predict(waves(2, 3)[:, 0], 2)
    with pytest.raises(HeroError, match="which a model folder does not hold"):
        trained.save(tmp_path / "model")


def test_names_of_given_objects_follow_their_content() -> None:
    torch.manual_seed(0)
    net = Net()
    assert give(net) == give(net) == give(net.eval())
    assert give(net) != give(Net())
    assert give(Roll(0.5)) != give(Roll(0.6))

    def scaled(factor: float) -> Any:
        return lambda a, b: factor * (a - b).square().mean()

    assert fingerprint_of(scaled(1.0)) == fingerprint_of(scaled(1.0))
    assert fingerprint_of(scaled(1.0)) != fingerprint_of(scaled(2.0))
    assert fingerprint_of(nn.L1Loss()) != fingerprint_of(nn.MSELoss())
    assert fingerprint_of(partial(torch.optim.SGD, lr=0.1)) != fingerprint_of(partial(torch.optim.SGD, lr=0.2))


def test_a_loaded_refiner_draws_the_numbers_of_its_run(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its random numbers continue from step to step of a rollout; drawn again at each step they would repeat."""
    refined = hero.train(waves(), "fno", "refiner", steps=2, settings=SMALL, **folders)
    operator = hero.load(refined.path)
    start = waves()[:2, 0].astype(np.float32)
    with torch.no_grad():
        run = Run(refined.path)
        expected = rollout(run.stepper(run.operator()), Context(torch.from_numpy(start)[:, None]), 4).numpy()
    np.testing.assert_array_equal(operator.rollout(start, 4), expected)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda net, states: hero.rollout(hero.as_stepper(net), states, 3),
        lambda net, states: hero.Operator(net),
        lambda net, states: hero.evaluate(states, np.zeros((4, 9, 1, 8), np.float32)),
        lambda net, states: hero.predict(states, states, 3),
        lambda net, states: hero.load(3),
    ],
)
def test_a_mix_up_of_arguments_is_one_sentence(wrong: Callable[[nn.Module, Tensor], object]) -> None:
    with pytest.raises(HeroError):
        wrong(nn.Conv1d(1, 1, 3, padding=1), torch.zeros(2, 1, 8))
