"""The recipe in anybody's loop: the same numbers as `hero train`, whatever the grid, the mask and the call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import hero
from conftest import tiny
from hero import SOAP, Balanced, HeroError, RolloutCheck, Windows, unroll
from hero.method.domain import cosine_modes, fourier_modes, mixed_modes
from hero.runs.folder import load_data
from hero.training.schedule import learning_rate
from hero.training.update import Trainee, update
from test_docs import ROOT, blocks

UPDATES = 30


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv1d(4, 2, 3, padding=1)).double()


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", ["joint", "channels"])
def test_the_losses_of_a_plain_loop_are_those_of_hero_train(norm: str, data_dir: Path) -> None:
    recipe = {"strategy": "push_forward", "train__loss": "balanced", "train__optimizer": "soap"}
    config = tiny(**recipe, train__steps=UPDATES, train__norm=norm)
    data = load_data(config, "train", data_dir, "cpu").states.double()
    trainee = Trainee.of(config, config.build_operator().double())
    batches = config.windows(data)
    trainee.strategy.begin(trainee.model, batches.data)
    ours = [float(update(trainee, batches(step))["loss"]) for step in range(UPDATES)]

    model, steps, train = config.build_operator().double(), config.train.unroll, config.train
    loss = Balanced.on(data.shape[3:], data=data if norm == "channels" else None)
    optimizer = SOAP(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: learning_rate(s, 1.0, train.warmup, UPDATES))
    order = [batches(step).index.tolist() for step in range(UPDATES)]
    theirs = []
    for window in DataLoader(Windows(data, steps), batch_sampler=order):
        optimizer.zero_grad()
        value = loss(unroll(model, window[:, 0], steps), window[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        optimizer.step()
        schedule.step()
        theirs.append(value.item())
    assert len(ours) == len(theirs) == UPDATES
    assert ours[-1] < 0.9 * ours[0]
    np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("grid", "periodic", "kept", "modes"),
    [
        ((12,), True, None, fourier_modes((12,))),
        ((8, 6), True, (3, 2), fourier_modes((8, 6), (3, 2))),
        ((8, 6), False, None, cosine_modes((8, 6))),
        ((8, 6), (True, False), (3, 2), mixed_modes((8, 6), (True, False), (3, 4))),
    ],
)
def test_a_grid_is_enough_for_the_loss(grid: Any, periodic: Any, kept: Any, modes: Any) -> None:
    out, truth = states(4, 3, 2, *grid), states(4, 3, 2, *grid).flip(0)
    loss = Balanced.on(grid, periodic, kept=kept)
    expected = Balanced(modes)(out, truth)
    assert torch.equal(loss(out, truth), expected)
    assert torch.equal(loss(out, x=truth[:, 0], y=truth), expected)


def test_the_data_give_scales_and_mask() -> None:
    data = states(5, 6, 2, 12) * torch.tensor([1.0, 1e4])[:, None] + torch.tensor([0.0, 1e6])[:, None]
    data[..., 0, :3] = torch.nan
    loss = Balanced.on((12,), data=data)
    truth = torch.stack(list(Windows(data, 2)))
    assert bool(truth.isfinite().all())
    off = truth.clone()
    off[..., 0, :3] += 7  # where there is no value
    assert float(loss(off, truth)) < 1e-9
    small, large = truth.clone(), truth.clone()
    small[..., 0, 5], large[..., 1, 5] = small[..., 0, 5] + 0.1, large[..., 1, 5] + 1e3  # a tenth of σ each
    assert float(loss(small, truth)) == pytest.approx(float(loss(large, truth)), rel=0.5)


def test_windows_are_all_stretches_in_order() -> None:
    data = torch.arange(3 * 5 * 2 * 4.0).reshape(3, 5, 2, 4)
    windows = Windows(data, 2)
    assert len(windows) == 9
    expected = [data[i, n : n + 3] for i in range(3) for n in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(windows, expected, strict=True))
    named = Windows(data.numpy(), 2, as_dict=True)[-1]
    assert torch.equal(named["x"], data[2, 2])
    assert torch.equal(named["y"], data[2, 3:])
    for wrong in (0, 5):
        with pytest.raises(HeroError, match=rf"\b{wrong}\b"):
            Windows(data, wrong)


def test_the_loop_of_the_readme_prints_the_numbers_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    exec(compile(block, "README.md", "exec", dont_inherit=True), {})
    one_step, recipe = (float(number) for number in re.findall(r"nRMSE@100 (\d\.\d+)", capsys.readouterr().out))
    shown = re.search(r"prints about (\d\.\d+) and (\d\.\d+)", (ROOT / "README.md").read_text("utf-8"))
    assert recipe < 0.3 * one_step
    assert [one_step, recipe] == pytest.approx([float(shown[1]), float(shown[2])], rel=0.5)  # other machines round


FRAMEWORKS = ROOT / "docs/howto/frameworks.md"
NEEDED = {"neuralop": "neuralop", "Lightning": "pytorch_lightning", "Accelerate": "accelerate"}
NEEDED |= {"Hugging Face": "transformers", "Watch the rollout": "pytorch_lightning"}


@pytest.mark.parametrize("section", ["Plain torch", *NEEDED])
def test_every_framework_trains_with_the_recipe(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section of the page runs, and its trainer calls the loss, whose values fall."""
    if section in NEEDED:
        pytest.importorskip(NEEDED[section])
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    first, *parts = re.split(r"^## ", FRAMEWORKS.read_text("utf-8"), flags=re.M)
    (own,) = (part for part in parts if part.startswith(f"{section}\n"))
    names: dict[str, Any] = {}
    run_blocks(first, names)
    if section == "Watch the rollout":  # with the module of the section on Lightning
        run_blocks(next(part for part in parts if part.startswith("Lightning\n")).split("HERO has a state")[0], names)
    loss, found = names["loss"], []

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        value = loss(*args, **kwargs)
        found.append(value.item())
        return value

    names |= {"loss": noted}
    run_blocks(own, names)
    assert len(found) >= 14
    assert np.mean(found[-3:]) < np.mean(found[:3])


def test_a_check_measures_as_evaluate_does_and_notices_a_blow_up() -> None:
    truth, model = states(3, 9, 2, 16).float(), net().float()
    check = RolloutCheck(truth, steps=(1, 4, 8))
    model.train()
    found, measured = check(model), hero.evaluate(model, truth.numpy())
    assert found == pytest.approx({f"vrmse@{n}": measured.errors[:, n - 1].mean() for n in (1, 4, 8)})
    assert model.training
    assert not check.blown_up
    growing = nn.Conv1d(2, 2, 1)
    nn.init.constant_(growing.weight, 10)
    assert check(growing)["vrmse@8"] > 1e6
    assert check.blown_up
    nn.init.constant_(growing.weight, 1e30)
    assert check(growing)["vrmse@8"] == float("inf")
    assert RolloutCheck(truth).steps == (1, 8)
    for wrong in ({"steps": (9,)}, {"steps": (0,)}, {"history": 9}):
        with pytest.raises(HeroError):
            RolloutCheck(truth, **wrong)


def run_blocks(text: str, names: dict[str, Any]) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(block, FRAMEWORKS.name, "exec", dont_inherit=True), names)
