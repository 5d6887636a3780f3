"""The examples run as a reader would run them, in few steps, and do what they say."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Generator, Tensor, nn

import hero
from forked import in_fork
from hero.data.windows import Context
from hero.method.domain import fourier_modes
from hero.method.norm import Norm
from hero.method.rollout import rollout

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: object, cwd: Path) -> str:
    """What the example prints."""
    return run_several(name, arguments, cwd=cwd)[0]


def run_several(name: str, *calls: Sequence[object], cwd: Path) -> list[str]:
    """What each call prints, one after the other in one process."""
    printed: list[str] | None = in_fork(run_here, EXAMPLES / name, [list(map(str, call)) for call in calls], cwd)
    assert printed is not None, "it failed; its traceback is above"
    return printed


def run_here(path: Path, calls: Sequence[Sequence[str]], cwd: Path) -> list[str]:
    os.chdir(cwd)
    printed = []
    for call in calls:
        sys.argv = [str(path), *call]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(str(path), run_name="__main__")
        printed.append(out.getvalue())
    return printed


def errors(text: str) -> list[float]:
    """Every nRMSE in a sentence of the output."""
    return [float(value) for value in re.findall(r"nRMSE@\d+ (\S+?)(?:,|$)", text, re.M)]


def test_scattered_points_trains_and_draws(tmp_path: Path) -> None:
    out = run("scattered_points.py", "--steps", 20, "--out", "picture.png", cwd=tmp_path)
    learned_1, learned_100, still_1, still_100 = errors(out)
    assert learned_1 < still_1  # 20 steps are enough to beat persistence
    assert learned_100 < still_100
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_conditioned_never_perturbs_mu(tmp_path: Path) -> None:
    out = run("conditioned.py", "--steps", 10, "--data", "data", cwd=tmp_path)
    states, mu = map(float, re.findall(r"states (\S+), mu (\S+)", out)[0])
    assert states > 0
    assert mu == 0
    rows = re.findall(r"^ *(\S+e-0\d) +(yes|no) +(\S+) +(\S+) +(\S+)$", out, re.M)
    assert [seen for _, seen, *_ in rows].count("no") == 2
    assert len(rows) == 5
    assert all(math.isfinite(float(error)) for row in rows for error in row[2:])


def test_neuralop_fno_resumes_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("neuralop", reason="the example needs `pip install neuraloperator`")
    options = ("--data", "data", "--start", 3, "--checkpoint")
    calls = [("--steps", steps, *options, file) for steps, file in ((8, "whole.pt"), (5, "parts.pt"), (8, "parts.pt"))]
    whole, _, resumed = run_several("neuralop_fno.py", *calls, cwd=tmp_path)
    assert "resumed at step 5" in resumed
    assert errors(whole) == errors(resumed)
    assert len(errors(whole)) == 2
    assert all(map(math.isfinite, errors(whole)))
    # The file is one that this test has just written itself; neuralop stores classes beside the weights.
    one, two = (torch.load(tmp_path / name, weights_only=False) for name in ("whole.pt", "parts.pt"))
    assert one["hero"]["step"] == two["hero"]["step"] == 8
    for key, value in one["model"].items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, two["model"][key]), key
    for key, value in one["hero"]["lagged"].items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, two["hero"]["lagged"][key]), key


class SmallDPOT(nn.Module):
    """DPOTNet's interface: (batch, x, y, time, channel) to the next states and logits of the dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.classes = nn.Linear(10, 1), nn.Linear(2, 3)
        nn.init.constant_(self.mix.weight, 0.1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert x.shape[1:] == (8, 6, 10, 2)
        out = self.mix(x.movedim(3, -1)).movedim(-1, 3)  # (batch, x, y, 1, channel)
        return out, self.classes(out.mean(dim=(1, 2, 3)))


@dataclass
class ScOTOutput:
    loss: Tensor | None
    output: Tensor


class SmallScOT(nn.Module):
    """ScOT's interface: `pixel_values` and `time` to an object with `output`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lead = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(1, 2)

    def forward(self, pixel_values: Tensor, time: Tensor) -> ScOTOutput:
        assert time.shape == pixel_values.shape[:1]
        return ScOTOutput(None, pixel_values + self.conv(pixel_values) + self.lead(time[:, None])[..., None, None])


@pytest.mark.parametrize("name", ["dpot", "poseidon"])
def test_adapters_of_foundation_models_train_along_rollouts(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = import_module(name)
    model = module.DPOT(SmallDPOT()) if name == "dpot" else module.Poseidon(SmallScOT(), time=1 / 20)
    states = torch.randn(8, 16, 2, 8, 6).cumsum(dim=1)
    if name == "dpot":  # states in channels, oldest first
        x = states[:1, :10].flatten(1, 2)
        torch.testing.assert_close(model(x), states[:1, :10].mean(dim=1) + model.net.mix.bias)
    settings = {"train.history": 10 if name == "dpot" else 1, "train.batch": 4, "train.compile": "false"}
    places = {"runs": tmp_path / "runs", "data_dir": tmp_path}
    result = hero.train(states.numpy(), model=model, steps=6, settings=settings, **places)
    assert all(math.isfinite(value) for key, value in result.metrics.items() if "@" in key)
    assert result.model.card.history == settings["train.history"]


_P, _C = 5, 2


def closed_form(a: Tensor, lengths: Tensor, left_out: int) -> Tensor:
    """g_k ∝ mean_n ‖v_n‖² Σ_{m ≥ n} |a_k|^{2(m-n)} / ‖v_m‖² of v_{n+1,k} = a_k v_{n,k}, scaled to mean 1."""
    horizon = len(lengths)
    used = range(max(1, horizon - left_out))
    terms = [(lengths[n] / lengths[m]) ** 2 * a.abs() ** (2 * (m - n)) for n in used for m in range(n, horizon)]
    g = torch.stack(terms).sum(0)
    return g / g.mean()


def test_g_of_a_linear_operator_is_known(foresight: ModuleType) -> None:
    """Each Fourier mode is damped or raised and turned by a phase; 3,000 equal trajectories make the mean a number."""
    n, horizon, count = 12, 12, 3000
    sizes, phases = torch.tensor([1.0, 1.1, 0.9, 0.6, 0.3, 0.05, 0.8]), torch.tensor([0, 1.0, 2, 0.5, 3, 1, 0])
    a = torch.polar(sizes, phases).to(torch.complex128)
    u = torch.randn(1, 1, 1, n, generator=Generator().manual_seed(0), dtype=torch.float64).expand(count, -1, -1, -1)

    def step(z: Context) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(z.states[:, -1]) * a, n=n)

    g = foresight.sensitivity(step, Context(u), horizon, fourier_modes((n,)), Generator().manual_seed(1), Norm())
    lengths = rollout(step, Context(u[:1]), horizon).square().mean(dim=(0, 2, 3)).sqrt()
    torch.testing.assert_close(g[0], closed_form(a, lengths, foresight.LEFT_OUT), rtol=0.06, atol=0)
    assert float(g.max() / g.min()) > 5
