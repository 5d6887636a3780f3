"""Anyone's own module as the backbone: neuraloperator's models for real, and clear words when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import Call, assert_refused, options, tiny
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.training.loop import train

NEURALOP: dict[str, dict[str, Any]] = {
    "neuralop.models:FNO": {"n_modes": [6], "hidden_channels": 4, "n_layers": 2},
    "neuralop.models:TFNO": {"n_modes": [6], "hidden_channels": 4, "n_layers": 2, "rank": 0.5},
    "neuralop.models:UNO": {
        "hidden_channels": 4,
        "uno_out_channels": [4, 4, 4],
        "uno_n_modes": [[4], [4], [4]],
        "uno_scalings": [[1.0], [0.5], [2.0]],
        "channel_mlp_skip": "linear",
        "n_layers": 3,
    },
}


def config_of(name: str, **changes: Any) -> Any:
    own = {"backbone.name": name, "backbone.width": None, "backbone.modes": None}
    own.update({f"backbone.kwargs.{key}": value for key, value in NEURALOP.get(name, {}).items()})
    return tiny(**own, **changes)


@pytest.mark.parametrize("name", NEURALOP)
def test_neuraloperators_models_train_and_are_measured(name: str, runs_dir: Path, data_dir: Path) -> None:
    config = config_of(name, train__steps=6, hero__start=2)
    run = train(config, runs_dir, data_dir)
    metrics = evaluate(run, data_dir)
    assert metrics.backbone == name
    assert metrics.test["nrmse@1"] < float("inf")


MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, in_channels, out_channels, width=3, padding_mode="circular"):
        super().__init__()
        self.first = nn.Conv1d(in_channels, width, 3, padding=1, padding_mode=padding_mode)
        self.second = nn.Conv1d(width, out_channels, 1)

    def forward(self, u):
        return self.second(torch.tanh(self.first(u)))

class Short(Net):
    def forward(self, u):
        return super().forward(u)[..., 1:]

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(1, 1)

    def forward(self, u):
        return self.map(u)

class Half(Net):
    def forward(self, u):
        return super().forward(u).bfloat16()

class Two(Net):
    def forward(self, u):
        return super().forward(u), None

def function(u):
    return u
"""


@pytest.fixture
def module_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("module_here")
def test_a_class_in_the_current_folder_from_the_command_line(call: Call, runs_dir: Path, data_dir: Path) -> None:
    settings = options(train__steps=5, backbone__width="", backbone__modes="")
    pairs = zip(settings[::2], settings[1::2], strict=True)
    settings = [part for pair in pairs if not pair[1].endswith("=") for part in pair]
    code, out, err = call(
        "train", "burgers", "--strategy", "hero", "--backbone", "my_own_models:Net", "--set", "backbone.kwargs.width=5",
        "--runs", runs_dir, "--data", data_dir, *settings,
    )  # fmt: skip
    assert code == 0, err
    assert "report:" in out
    assert list(runs_dir.glob("burgers-Net-hero-s0-*"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_package:Net", ("no_such_package", "install")),
        ("my_own_models:Nett", ("my_own_models has no 'Nett'", "package.module:Class")),
        ("my_own_models:function", ("no nn.Module called 'function'",)),
        ("my_own_models:Short", ("(2, 1, 32) to (2, 1, 31)", "not to (2, 1, 32)")),
        ("my_own_models:Last", ("fails on an input of shape (2, 1, 32)",)),
        ("my_own_models:Two", ("tuple",)),
        ("my_own_models:Half", ("bfloat16", "float32")),
    ],
)
@pytest.mark.usefixtures("module_here")
def test_what_does_not_fit_is_told_in_one_sentence(
    name: str, words: tuple[str, ...], call: Call, runs_dir: Path, data_dir: Path
) -> None:
    config = config_of(name)
    (Path.cwd() / "config.toml").write_text(config.to_toml())
    result = call("train", "--config", "config.toml", "--runs", runs_dir, "--data", data_dir)
    assert_refused(result, *words)


@pytest.mark.usefixtures("module_here")
def test_wrong_arguments_are_named() -> None:
    config = config_of("my_own_models:Net", **{"backbone.kwargs.colour": "red"})
    with pytest.raises(HeroError, match=r"Net refuses .*colour.*backbone\.kwargs"):
        config.build_operator()


@pytest.mark.usefixtures("module_here")
def test_the_seed_decides_its_weights() -> None:
    models = []
    for seed in (1, 1, 2):
        config = config_of("my_own_models:Net", seed=seed)
        models.append(torch.cat([p.flatten() for p in config.build_operator().parameters()]))
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])
