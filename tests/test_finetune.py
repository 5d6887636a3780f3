"""Fine-tuning: one start from every kind of file, frozen parts, stages, adapters, and a fair before and after."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Generator, Tensor, nn

from conftest import Call, assert_refused, set_options, tiny
from foreign_arrays import Trap
from hero.cli.options import Folders
from hero.cli.train import find_checkpoint
from hero.config import read_toml
from hero.data.windows import Batch, Context
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate, measure_before
from hero.models import FNO
from hero.models.lora import adapt, merged
from hero.optimizers import scale_groups
from hero.runs.checkpoint import load_state, read_weights, weights_of
from hero.runs.config import RunConfig, make_config
from hero.runs.finetune import finetune_config
from hero.runs.folder import Run, load_data
from hero.runs.start import freeze, open_start, read_start, start_notes, weights_hash
from hero.strategies import STRATEGIES
from hero.training.loop import train
from hero.training.memory import unroll_memory
from hero.training.schedule import unroll_length
from hero.training.update import Trainee, check_shares, update
from test_resume import state_of_files
from test_train import assert_resumes

MODULE = '''
import torch
from torch import nn

class Net(nn.Module):
    """A stranger's operator, which adds the change to the state itself."""

    def __init__(self, width=6):
        super().__init__()
        self.encoder = nn.Conv1d(1, width, 5, padding=2, padding_mode="circular")
        self.decoder = nn.Conv1d(width, 1, 5, padding=2, padding_mode="circular")

    def forward(self, u):
        return u + self.decoder(torch.tanh(self.encoder(u)))
'''
BACKBONE = "stranger_of_the_finetune_test:Net"
SHORT = {"train.steps": 30, "train.batch": 8, "train.compile": "false", "train.device": "cpu"}


def advected(trajectories: int, steps: int, points: int) -> np.ndarray:
    """u_t + u_x = 0.02 u_xx on a circle, exactly, from random waves: (trajectory, time, channel, x)."""
    generator = np.random.default_rng(0)
    k = np.fft.rfftfreq(points, 1 / points)
    start = np.where((k > 0) & (k < 6), 1.0, 0.0) * np.exp(2j * np.pi * generator.random((trajectories, len(k))))
    t = 0.1 * np.arange(steps + 1)[:, None]
    return np.fft.irfft(points / 4 * start[:, None] * np.exp(-(1j * k + 0.02 * k**2) * t), points)[:, :, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of trajectories, a module, and its weights after one-step training by plain torch, in three forms."""
    path = tmp_path_factory.mktemp("stranger")
    (path / "stranger_of_the_finetune_test.py").write_text(MODULE)
    sys.path.insert(0, str(path))
    data = advected(12, 30, 32).astype(np.float32)
    np.save(path / "waves.npy", data)
    pairs = torch.from_numpy(data)[:8]
    inputs, targets = pairs[:, :-1].flatten(0, 1), pairs[:, 1:].flatten(0, 1)
    torch.manual_seed(0)
    net = stranger()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (net(inputs) - targets).square().mean().backward()
        optimizer.step()
    weights = net.state_dict()
    safetensors.torch.save_file(weights, path / "net.safetensors")
    torch.save(weights, path / "net.pt")
    wrapped = {f"module._orig_mod.{name}": value for name, value in weights.items()}
    torch.save({"epoch": 3, "state_dict": wrapped, "optimizer": optimizer.state_dict()}, path / "net.ckpt")
    yield path
    sys.path.remove(str(path))


def stranger() -> Any:
    return import_module(BACKBONE.partition(":")[0]).Net()


def config_of(folder: Path, file: str = "net.pt", **changes: Any) -> RunConfig:
    named = {"backbone.name": BACKBONE, "data.path": str(folder / "waves.npy"), "strategy": "push_forward"}
    return finetune_config(
        folder / file, {**named, **SHORT, **{key.replace("__", "."): value for key, value in changes.items()}}
    )


def weights_at_start(config: RunConfig) -> dict[str, Tensor]:
    model = config.build_operator()
    open_start(model, config.train, config.backbone.name)
    return dict(model.state_dict())


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_other_weights_are_another_run_and_a_changed_file_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "net.pt", tmp_path / "net.pt")
    config = config_of(folder, str(tmp_path / "net.pt"))
    assert config.run_id() == config_of(folder).run_id()  # wherever it lies
    weights = torch.load(tmp_path / "net.pt", weights_only=True)
    weights["decoder.bias"] += 1
    torch.save(weights, tmp_path / "net.pt")
    assert config_of(folder, str(tmp_path / "net.pt")).run_id() != config.run_id()
    with pytest.raises(HeroError, match=r"net\.pt has changed since this run was configured; restore it"):
        weights_at_start(config)


def test_a_hash_knows_names_types_shapes_and_bytes() -> None:
    base = {"a": torch.arange(4.0), "b": torch.tensor(1 + 2j), "c": torch.zeros(0), "d": torch.ones(2).bfloat16()}
    others = [
        {**base, "a": torch.arange(4.0).reshape(2, 2)},
        {**base, "a": torch.arange(4.0).int()},
        {**base, "d": torch.tensor([1, 1.0078125]).bfloat16()},
        {("e" if name == "a" else name): value for name, value in base.items()},
    ]
    assert len({weights_hash(one) for one in (base, *others)}) == 5
    assert weights_hash({f"module.{name}": base[name] for name in reversed(base)}) == weights_hash(base)


def test_before_is_a_naive_rollout_of_the_module(folder: Path, runs_dir: Path) -> None:
    config = config_of(folder)
    assert (config.train.normalise, config.backbone.predicts_change) == (False, False)
    before = measure_before(config, runs_dir, runs_dir)
    net = stranger().double()
    net.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
    truth = load_data(config, "test", runs_dir, "cpu").states.double()
    u, errors = truth[:, 0], []
    with torch.no_grad():
        for t in range(1, truth.shape[1]):
            u = net(u)
            errors.append((u - truth[:, t]).flatten(1).norm(dim=1) / truth[:, t].flatten(1).norm(dim=1))
    naive = torch.stack(errors, dim=1)
    assert naive.shape[1] == config.horizon == 30
    assert before.test["nrmse@30"] == pytest.approx(float(naive[:, -1].mean()), rel=1e-4)
    np.testing.assert_allclose(Run(runs_dir / config.run_id()).before_errors.test["nrmse"], naive.numpy(), rtol=1e-4)


def test_the_command_improves_a_one_step_operator_and_says_so(folder: Path, runs_dir: Path, call: Call) -> None:
    settings = {**SHORT, "train.batch": 20, "train.lr": 2e-3}
    del settings["train.steps"]
    command = ["finetune", folder / "net.ckpt", "--backbone", BACKBONE, "--data", folder / "waves.npy"]
    command += ["--strategy", "push_forward", "--unroll", "1:20,4:60", "--runs", runs_dir, "--data-dir", runs_dir]
    command += set_options(settings)
    code, out, err = call(*command)
    assert (code, err) == (0, "")
    (path,) = runs_dir.glob("*/before.json")
    run = Run(path.parent)
    assert (run.config.train.steps, run.config.train.unroll, run.config.train.warmup) == (80, 4, 4)
    old, new = run.before.test["nrmse@30"], run.metrics.test["nrmse@30"]
    assert new < 0.8 * old
    old, new = run.before.test["vrmse@30"], run.metrics.test["vrmse@30"]
    row = next(line for line in out.splitlines() if "VRMSE@30" in line)
    assert f"{new / old - 1:+.1%}, better" in row
    assert (run.path / "figures" / "finetune.png").read_bytes().startswith(b"\x89PNG")

    files = state_of_files(run.path)
    again = call(*command)
    assert again[0] == 0
    assert f"{new / old - 1:+.1%}" in again[1]
    assert state_of_files(run.path) == files  # nothing is measured or trained twice

    (run.path / "before_errors.npz").write_bytes(b"")
    assert call("report", run.name, "--runs", runs_dir, "--out", runs_dir / "page.html")[0] == 0
    assert "before.json and repeat `hero finetune`" in (runs_dir / "page.html").read_text()


def test_a_run_that_got_worse_is_told(folder: Path, runs_dir: Path, call: Call) -> None:
    config = config_of(folder, train__steps=3, train__lr=0.5, train__warmup=0)
    measure_before(config, runs_dir, runs_dir)
    train(config, runs_dir, runs_dir)
    code, out, _ = call("evaluate", config.run_id(), "--runs", runs_dir, "--data", runs_dir)
    assert code == 0
    assert "fine-tuning did not help: test GM30" in out
    assert str(folder / "net.pt") in out


def test_frozen_bits_stay_and_have_no_optimizer_state(
    folder: Path, runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(config_of(folder, train__freeze="encoder.*", train__steps=5), runs_dir, runs_dir)
    assert "training 31 of 67 parameters; frozen: encoder.*" in capsys.readouterr().out
    start, end = read_start(folder / "net.pt")[0], read_weights(run / "model.safetensors")[0]
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert moved == {"decoder.weight", "decoder.bias"}
    state = torch.load(run / "last" / "state.pt", weights_only=True)
    assert len(state["optimiser"]["state"]) == 2


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (("lifting.*",), r"train\.freeze=lifting\.\* matches nothing.*encoder\.weight, encoder\.bias"),
        (("encoder.*", "decodr.*"), r"train\.freeze=decodr"),
        (("*",), r"train\.freeze=\* leaves no parameter to train"),
    ],
)
def test_patterns_that_freeze_nothing_or_all_are_refused(folder: Path, patterns: tuple[str, ...], words: str) -> None:
    with pytest.raises(HeroError, match=words):
        freeze(stranger(), patterns)


def test_names_that_do_not_match_are_counted_and_named(folder: Path, tmp_path: Path) -> None:
    weights = read_start(folder / "net.pt")[0]
    weights["head.weight"] = weights.pop("decoder.weight")
    torch.save(weights, tmp_path / "other.pt")
    words = (
        r"1 missing \(decoder\.weight\), 1 unexpected \(head\.weight\), 2 wrongly shaped \(encoder\.weight \(6, 1, 5\)"
    )
    with pytest.raises(HeroError, match=words):
        weights_at_start(config_of(folder, str(tmp_path / "other.pt"), backbone__kwargs={"width": 4}))
    config = config_of(folder, str(tmp_path / "other.pt"), train__init_strict=False)
    model = config.build_operator()
    start = open_start(model, config.train, BACKBONE)
    assert (len(start.found), start.difference) == (3, "1 missing (decoder.weight), 1 unexpected (head.weight)")
    assert torch.equal(dict(model.named_parameters())["encoder.weight"], weights["encoder.weight"])
    torch.save({"x": torch.ones(1)}, tmp_path / "nothing.pt")
    with pytest.raises(HeroError, match=r"4 missing .*, 1 unexpected \(x\)"):
        weights_at_start(config_of(folder, str(tmp_path / "nothing.pt"), train__init_strict=False))


def test_a_prefix_selects_a_part_of_a_file(folder: Path, tmp_path: Path) -> None:
    weights = read_start(folder / "net.pt")[0]
    both = {f"ema.{name}": x + 1 for name, x in weights.items()} | {f"net.{name}": x for name, x in weights.items()}
    torch.save({"model": both}, tmp_path / "both.pth")
    assert_equal(weights_at_start(config_of(folder, str(tmp_path / "both.pth"), train__init_prefix="net.")), weights)


def write_checkpoint(library: str, weights: dict[str, Tensor], path: Path) -> Path:
    """What a library leaves of a network: the names of its files and the objects that it puts beside the tensors."""
    folder = path / library
    folder.mkdir()
    if library == "Lightning":
        named = {f"model.{name}": tensor for name, tensor in weights.items()}
        more = {"hyper_parameters": {"activation": torch.tanh, "kind": Path}, "optimizer_states": [{"state": {}}]}
        torch.save({"epoch": 0, "state_dict": named, **more}, folder / "last.ckpt")
        return folder / "last.ckpt"
    if library == "Accelerate":
        safetensors.torch.save_file(weights, folder / "model.safetensors")
        torch.save({"state": {}}, folder / "optimizer.bin")
    elif library == "Hugging Face":
        torch.save(weights, folder / "pytorch_model.bin")
    elif library == "neuralop":
        metadata = {"conv_module": nn.Conv1d, "non_linearity": nn.functional.gelu, "n_modes": (6,)}
        torch.save({**weights, "_metadata": metadata}, folder / "model_state_dict.pt")
    else:
        torch.save(weights, folder / "model.pt")
        (folder / "args.json").write_text("{}")
        make: Any = zipfile.ZipFile if library == "PhysicsNeMo" else tarfile.open
        with make(path / "net.mdlus", "w") as archive:
            for file in folder.iterdir():
                (archive.write if library == "PhysicsNeMo" else archive.add)(file, file.name)
        return path / "net.mdlus"
    return folder


LEFT_OUT: dict[str, set[str]] = {"Lightning": {"hyper_parameters", "optimizer_states"}, "neuralop": {"_metadata"}}
LIBRARIES = [*LEFT_OUT, "Accelerate", "Hugging Face", "PhysicsNeMo", "Modulus", "net.safetensors", "net.ckpt"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_checkpoints_of_other_libraries_are_the_same_start(library: str, folder: Path, tmp_path: Path) -> None:
    net = stranger()
    net.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
    named = library if library.startswith("net.") else str(write_checkpoint(library, net.state_dict(), tmp_path))
    config = config_of(folder, named)
    assert config.run_id() == config_of(folder).run_id()
    model = config.build_operator()
    start = open_start(model, config.train, BACKBONE)
    assert_equal(dict(model.state_dict()), dict(net.state_dict()))
    assert LEFT_OUT.get(library, set()) <= set(start.left_out)
    (note,) = start_notes(model, config.train, start)
    assert ("left out, not being tensors: " in note) == bool(start.left_out)


class Method:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_no_code_in_a_file_is_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights, trap = read_start(folder / "net.pt")[0], Trap(Path("ran"))
    torch.save({"state_dict": weights, "hyper": trap, "more": [eval, trap]}, "evil.ckpt")
    found, others = read_start(Path("evil.ckpt"))
    assert_equal(found, weights)
    assert others == ("hyper", "more")
    Path("evil.pt").write_bytes(pickle.dumps(trap))
    torch.save({"state_dict": weights, "shell": os.system}, "shell.pt")  # torch itself refuses such names
    torch.save({"state_dict": weights, "method": Method()}, "method.pt")  # and results that are called
    for name in ("text.pt", "text.safetensors", "text.mdlus"):
        Path(name).write_text("no weights")
    with zipfile.ZipFile("bomb.mdlus", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.pt", bytes(10**7))
    torch.save({"epoch": 1}, "empty.pt")
    torch.save(stranger(), "whole.pt")
    for path in {*Path().iterdir()} - {Path("evil.ckpt")}:
        with pytest.raises(HeroError, match=re.escape(path.name)):
            read_start(path)
    assert not Path("ran").exists()


def test_a_resumed_run_has_the_same_bits_and_needs_no_file(folder: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(folder / "net.pt", tmp_path / "net.pt"))
    changes = {"train__stages": "1:10,3:20", "train__ema": 0.9, "train__validate_every": 10}
    config = config_of(folder, str(file), **changes, train__checkpoint_every=4)
    assert_resumes(config, 18, tmp_path, tmp_path, meanwhile=file.unlink)


def test_stages_say_the_length_of_every_update() -> None:
    config = make_config(overrides=["train.stages=1:3,4:2,2:5"])
    assert (config.train.steps, config.train.unroll, config.train.curriculum) == (10, 4, "stages")
    lengths = [unroll_length("stages", step, 10, 4, 0, [(1, 3), (4, 2), (2, 5)]) for step in range(10)]
    assert lengths == [1, 1, 1, 4, 4, 2, 2, 2, 2, 2]
    assert make_config(overrides=["train.stages=3:40"]).train.curriculum == "fixed"
    for wrong in ("1:0", "1-100", "2", "0:5", "1:2:3"):
        with pytest.raises(HeroError, match=r"is not LENGTH:UPDATES"):
            make_config(overrides={"train.stages": wrong})
    with pytest.raises(HeroError, match=r"train\.steps=7 contradicts train\.stages, which imply 10"):
        make_config(overrides=["train.stages=1:3,4:7", "train.steps=7"])
    with pytest.raises(HeroError, match=r"needs the stages"):
        make_config(overrides=["train.curriculum=stages"])


def test_from_a_run_data_backbone_and_statistics_are_handed_on(runs_dir: Path, data_dir: Path) -> None:
    base = train(tiny(train__normalise=True, strategy="one_step", seed=3), runs_dir, data_dir)
    metrics = evaluate(base, data_dir)
    config = finetune_config(base, {"strategy": "push_forward", "train.steps": 10, "train.compile": "false"})
    old = Run(base).config
    assert (config.task, config.data, config.backbone, config.seed) == (old.task, old.data, old.backbone, 3)
    assert (config.train.lr, config.train.batch, config.train.normalise) == (pytest.approx(1e-4), 5, True)
    before = measure_before(config, runs_dir, data_dir)
    assert (before.val, before.test) == (metrics.val, metrics.test)

    # On other data the operator keeps the scales that its weights were trained with.
    other = finetune_config(base, {**read_toml(base / "config.toml"), "task.viscosity": 0.02, "train.init_hash": ""})
    run = train(other, runs_dir, data_dir)
    scales = [read_weights(path / "model.safetensors")[0]["std"] for path in (base, run)]
    assert torch.equal(*scales)


def test_a_file_of_weights_needs_its_module_and_data(folder: Path, runs_dir: Path, call: Call) -> None:
    assert_refused(call("finetune", folder / "net.pt"), "weights without their module", "--backbone")
    assert_refused(call("finetune", folder / "net.pt", "--backbone", BACKBONE), "weights without data", "--data")
    assert_refused(call("finetune", folder / "nothing.pt"), "there is not a file")
    assert_refused(call("finetune", "nothing", "--runs", runs_dir), "there is no run 'nothing'")
    known = ("--backbone", BACKBONE, "--data", folder / "waves.npy", "--runs", runs_dir)
    assert_refused(call("finetune", folder / "net.pt", *known, "--unroll", "many"), "train.unroll", "many")
    assert find_checkpoint(str(folder / "net.pt"), Folders()) == folder / "net.pt"


def test_the_default_is_the_recommended_strategy_at_a_tenth_of_its_learning_rate(folder: Path) -> None:
    named = {"backbone.name": BACKBONE, "data.path": str(folder / "waves.npy")}
    config = finetune_config(folder / "net.pt", named, "recipe")
    train = config.train
    assert (train.loss, train.optimizer, train.steps, train.warmup) == ("relative", "soap", 2000, 100)
    assert train.lr == pytest.approx(5e-4)


class Layered(nn.Module):
    """A linear layer, a 1x1 convolution, a wide one with groups, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.mix = nn.Conv1d(2, 4, 1), nn.Conv1d(4, 4, 3, padding=1, groups=2)
        self.dense, self.head = nn.Linear(16, 16), nn.Conv1d(4, 2, 1)

    def forward(self, u: Tensor) -> Tensor:
        return self.head(torch.tanh(self.dense(self.mix(torch.tanh(self.lift(u))))))


def adapted(**more: Any) -> Layered:
    torch.manual_seed(0)
    net = Layered().double()
    adapt(net, **{"rank": 2, "layers": (), "full": ("head.*",), "seed": 1, **more})
    return net


def test_adapters_begin_as_nothing_train_alone_and_merge_into_the_plain_network() -> None:
    torch.manual_seed(0)
    plain, net, u = Layered().double(), adapted(), torch.randn(3, 2, 16, dtype=torch.float64)
    torch.testing.assert_close(net(u), plain(u), rtol=1e-13, atol=1e-14)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(u).square().sum().backward()
        optimizer.step()
    trained = {name for name, p in net.named_parameters() if p.grad is not None}
    assert trained == {
        name for name, _ in net.named_parameters() if "weight.0." in name or name.startswith("head.")
    } | {"head.bias", "head.parametrizations.weight.original"}
    weights = merged(net, weights_of(net))
    assert weights.keys() == plain.state_dict().keys()
    twin = plain.mix.weight + (net.mix.parametrizations.weight[0].b @ net.mix.parametrizations.weight[0].a).view(
        4, 2, 3
    )
    torch.testing.assert_close(weights["mix.weight"], twin.detach(), rtol=1e-14, atol=1e-15)
    assert torch.equal(weights["mix.bias"], plain.mix.bias)
    before = plain(u)
    plain.load_state_dict(weights)
    torch.testing.assert_close(plain(u), net(u), rtol=1e-13, atol=1e-14)
    assert (plain(u) - before).abs().max() > 1e-3


def test_adapters_of_named_layers_and_of_our_fno() -> None:
    net = adapted(layers=("mix", "dense"), full=())
    assert sum(p.requires_grad for p in net.parameters()) == 4
    fno = FNO(in_channels=1, out_channels=1, width=4, modes=(3,), depth=2)
    expected = fno(torch.ones(1, 1, 16))
    adapt(fno, 2, (), (), 0)
    torch.testing.assert_close(fno(torch.ones(1, 1, 16)), expected)
    assert any(p.requires_grad for p in fno.parameters())
    assert not any(p.requires_grad for name, p in fno.named_parameters() if "spectral" in name)
    for wrong in ({"layers": ("mixer",)}, {"full": ("tail.*",)}):
        with pytest.raises(HeroError, match="matches nothing in the backbone"):
            adapted(**wrong)
    with pytest.raises(HeroError, match="no linear layer or convolution"):
        adapt(nn.Sequential(nn.GELU()), 2, (), (), 0)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """A run to fine-tune."""
    return train(tiny(strategy="push_forward", train__steps=4), tmp_path_factory.mktemp("start"), data_dir)


def test_a_run_with_adapters_keeps_plain_weights_and_resumes_to_the_same_bits(
    start: Path, data_dir: Path, runs_dir: Path
) -> None:
    own = {"strategy": "hero", "train__init": str(start), "train__lora": 2, "train__ema": 0.5, "train__steps": 8}
    config = tiny(**own, hero__start=2, train__validate_every=4, train__checkpoint_every=4)
    assert_resumes(config, 6, runs_dir, data_dir)
    whole = runs_dir / "whole" / config.run_id()
    assert any(".weight.0.a" in name for name in load_state(whole / "last" / "state.pt")["model"])
    found, before = (read_weights(run / "model.safetensors")[0] for run in (whole, start))
    assert found.keys() == before.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, before[name]) == (not name.endswith(".weight") or "spectral" in name), name
    u = load_data(config, "val", data_dir, "cpu").states[:, 0]
    assert Run(whole).operator("cpu")(u).isfinite().all()


def test_adapters_need_weights_to_adapt() -> None:
    config = tiny(train__lora=2)
    with pytest.raises(HeroError, match=r"train\.lora=2 adapts the weights of train\.init"):
        Trainee.of(config, config.build_operator())


def test_learning_rates_by_name(data_dir: Path) -> None:
    sizes = {}
    for factors in ({}, {"head.*": 10.0, "*.bias": 0.0}):
        torch.manual_seed(0)
        net = Layered()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scale_groups(optimizer, net, factors)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * group.get("lr_scale", 1.0)
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        net(torch.ones(1, 2, 16)).sum().backward()
        optimizer.step()
        sizes[len(factors)] = {name: float((p.detach() - before[name]).norm()) for name, p in net.named_parameters()}
    for name, size in sizes[0].items():
        factor = 10 if name.startswith("head.") else 0 if name.endswith(".bias") else 1
        assert sizes[2][name] == pytest.approx(factor * size, rel=1e-4), name
    with pytest.raises(HeroError, match=r"train\.lr_scale=tail\.\* matches nothing"):
        scale_groups(optimizer, net, {"tail.*": 2.0})
    for wrong in ("head.*", ":2", "head.*:x", "head.*:-1", "head.*:inf"):
        with pytest.raises(HeroError, match=r"write it as in head\.\*:10"):
            tiny(train__lr_scale=wrong)
    config = tiny(train__lr_scale="blocks.*:0.5", strategy="push_forward")
    trainee = Trainee.of(config, config.build_operator())
    update(trainee, config.windows(load_data(config, "train", data_dir, "cpu"))(10))
    first, second = (group["lr"] for group in trainee.optimizer.param_groups)
    assert second == first / 2 > 0


def losses(config: RunConfig, data_dir: Path) -> tuple[list[float], list[float]]:
    """Losses and norms of gradients of some updates in float64."""
    data = load_data(config, "train", data_dir, "cpu").states.double()
    trainee, batches = Trainee.of(config, config.build_operator().double()), config.windows(data)
    trainee.strategy.begin(trainee.model, batches.data)
    found = [update(trainee, batches(step)) for step in range(8)]
    return [float(one["loss"]) for one in found], [float(one["grad_norm"]) for one in found]


@pytest.mark.parametrize(("strategy", "loss"), [*((name, "relative") for name in STRATEGIES), ("push_forward", "h1")])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(strategy: str, loss: str, data_dir: Path) -> None:
    more = {"hero__start": 2, "hero__refresh": 3} if strategy == "hero" else {}
    settings = {"strategy": strategy, "train__loss": loss, "train__steps": 8, **more}
    whole, parts = (losses(tiny(**settings, train__accumulate=n), data_dir) for n in (1, 3))  # batches of five
    np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=0)


def test_batches_that_are_no_means_over_samples_are_refused() -> None:
    mixing = nn.Sequential(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1))
    check_shares(mixing, batch=5, parts=1)
    with pytest.raises(HeroError, match=r"BatchNorm1d \(1\) mixes the samples of a batch, which is computed in parts"):
        check_shares(mixing, batch=5, parts=2)


def test_the_memory_of_a_long_unroll_is_told_before_training() -> None:
    net, u = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.GELU(), nn.Conv1d(8, 1, 1)), torch.randn(4, 1, 64)
    batch = Batch(Context(u[:, None]), u[:, :0], 0, None, Generator())
    kept = 4 * 64 * 4 * (1 + 8 + 8)  # the input of each layer

    def notes(steps: int, recompute: bool) -> list[str]:
        config = tiny(data__train_steps=steps, train__unroll=steps, train__recompute=recompute)
        return list(unroll_memory(config, net, batch).note(config.train.recompute))

    assert not notes(10, False)
    steps = 2 * 10**9 // kept
    (note,) = notes(steps, False)
    assert "keeps about 2 GB" in note
    assert "train.recompute=true keeps about 1.7e-05 GB" in note
    assert not notes(steps, True)
