"""Networks by size: the rule for files fits every grid, benchmarks keep the paper's, one word makes one larger."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from conftest import Call, assert_refused
from hero.config import Facts
from hero.models import BACKBONES, count_parameters
from hero.models.settings import SIZES, FNOSettings, UNetSettings
from hero.runs.config import RunConfig, make_config, stored_config
from hero.study.cost.count import network_sentence

WORDS = ("small", "base", "large")
LENGTHS = (4, 5, 7, 8, 16, 21, 48, 64, 96, 129, 256, 1024)
SHORT = ["train.steps=2", "train.batch=2", "train.unroll=1", "train.compile=false", "data.rollout=2"]


def written(folder: Path, *space: int, channels: int = 2, count: int = 6, states: int = 8) -> Path:
    """A file of smooth random states."""
    rng = np.random.default_rng(0)
    states_of = rng.normal(size=(count, states, channels, *space)).cumsum(axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "u.npy", states_of.astype(np.float32))
    return folder / "u.npy"


def of_file(path: Path, dims: int, **settings: Any) -> RunConfig:
    more = {name.replace("__", "."): value for name, value in settings.items()}
    return make_config("recipe", overrides={"data.path": str(path), "data.layout": "btcxyz"[: 3 + dims], **more})


def test_the_words_are_the_same_everywhere() -> None:
    assert get_args(FNOSettings.model_fields["size"].annotation) == tuple(SIZES)
    assert tuple(SIZES)[:3] == WORDS == get_args(UNetSettings.model_fields["size"].annotation)


@pytest.mark.parametrize("size", WORDS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_rule_fits_every_grid(size: str, dims: int) -> None:
    for space in itertools.product(LENGTHS, repeat=dims):
        for wraps, channels in ((True, 1), (False, 4), (True, 12)):
            facts = Facts(dims=dims, space=space, periodic=(wraps,) * dims, channels=channels)
            found = FNOSettings.from_values("backbone", {"size": size}, facts)
            found.check(space)
            assert len(found.modes) == dims
            assert min(found.width, found.depth, *found.modes) >= 1
            UNetSettings.from_values("backbone", {"name": "unet", "size": size}, facts).check(space)


@pytest.mark.parametrize("space", [(4,), (4, 4), (5, 9), (4, 5, 4)])
@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_the_smallest_grids_are_trained_on(space: tuple[int, ...], backbone: str, tmp_path: Path) -> None:
    config = of_file(written(tmp_path, *space), len(space), backbone__name=backbone, backbone__size="small")
    u = torch.randn(2, 2, *space)
    assert config.build_operator()(u).shape == u.shape


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
@pytest.mark.parametrize("space", [(96,), (24, 40), (8, 8, 12)])
def test_a_larger_size_has_more_parameters(space: tuple[int, ...], backbone: str, tmp_path: Path) -> None:
    path = written(tmp_path, *space)
    sizes = [of_file(path, len(space), backbone__name=backbone, backbone__size=size) for size in WORDS]
    counts = [count_parameters(config.build_operator()) for config in sizes]
    assert counts[0] < counts[1] < counts[2]
    assert of_file(path, len(space), backbone__name=backbone) == sizes[1]


def test_a_stored_run_on_a_file_keeps_its_network(tmp_path: Path) -> None:
    """Earlier versions trained the paper's network on files; their configurations hold its numbers."""
    path = written(tmp_path, 24, 24)
    old = of_file(path, 2, backbone__size="apebench")
    file = tmp_path / "run" / "config.toml"
    file.parent.mkdir()
    file.write_text(old.to_toml(), encoding="utf-8")
    assert stored_config(file) == old
    assert (old.backbone.width, old.backbone.depth, old.backbone.modes) == (20, 1, (8, 8))
    changed = file.read_text().replace('size = "apebench"\n', "")  # as another backbone of an earlier version
    file.write_text(changed, encoding="utf-8")
    assert make_config(file=file).backbone.width == 20


def test_the_option_is_short_for_the_setting(tmp_path: Path, call: Call) -> None:
    path, places = written(tmp_path, 16), ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    given = [part for text in (*SHORT, "data.layout=btcx") for part in ("--set", text)]
    code, out, err = call("train", path, "--size", "large", *given, *places)
    assert code == 0, err
    (run,) = (tmp_path / "runs").iterdir()
    config = stored_config(run / "config.toml")
    assert config.backbone.own() == of_file(path, 1, backbone__size="large").backbone.own()
    assert network_sentence(config) in " ".join((out + err).split())
    assert_refused(call("train", path, "--size", "huge", *given, *places), "huge", "base, large")
    assert_refused(call("finetune", run, "--size", "small", *places[:2]), "backbone.size=small")
    for command in (("describe",), ("compare", "--seeds", 1, "--strategies", "push_forward", "--workers", 0)):
        code, out, err = call(command[0], path, *command[1:], "--size", "small", *given, *places)
        assert code == 0, err
    (compared,) = set((tmp_path / "runs").glob("*/config.toml")) - {run / "config.toml"}
    assert stored_config(compared).backbone.size == "small"
