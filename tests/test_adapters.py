"""Fine-tuning in parts: low-rank adapters, learning rates by name, batches in parts, and the memory of an unroll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import tiny
from hero.errors import HeroError
from hero.models import FNO
from hero.models.lora import adapt, merged
from hero.optimizers import scale_groups
from hero.runs.checkpoint import load_state, read_weights, weights_of
from hero.runs.config import RunConfig
from hero.runs.folder import Run, load_data
from hero.strategies import STRATEGIES
from hero.training.loop import train
from hero.training.memory import unroll_note
from hero.training.update import Trainee, check_shares, update
from test_train import assert_resumes


class Net(nn.Module):
    """A linear layer, a 1x1 convolution, a wide one with groups, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.mix = nn.Conv1d(2, 4, 1), nn.Conv1d(4, 4, 3, padding=1, groups=2)
        self.dense, self.head = nn.Linear(16, 16), nn.Conv1d(4, 2, 1)

    def forward(self, u: Tensor) -> Tensor:
        return self.head(torch.tanh(self.dense(self.mix(torch.tanh(self.lift(u))))))


def adapted(**more: Any) -> Net:
    torch.manual_seed(0)
    net = Net().double()
    adapt(net, **{"rank": 2, "layers": (), "full": ("head.*",), "seed": 1, **more})
    return net


def test_adapters_begin_as_nothing_train_alone_and_merge_into_the_plain_network() -> None:
    torch.manual_seed(0)
    plain, net, u = Net().double(), adapted(), torch.randn(3, 2, 16, dtype=torch.float64)
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
        net = Net()
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
    cpu = torch.device("cpu")
    kept = 4 * 64 * 4 * (1 + 8 + 8)  # the input of each layer
    assert not list(unroll_note(net, lambda: net(u), 10, u.numel() * 4, False, cpu))
    steps = 2 * 10**9 // kept
    (note,) = unroll_note(net, lambda: net(u), steps, 0, False, cpu)
    assert "keeps about 2 GB" in note
    assert "train.recompute=true keeps about 1.7e-05 GB" in note
    assert not list(unroll_note(net, lambda: net(u), steps, 0, True, cpu))
