"""The examples run as a reader would run them, in few steps; the parts that they register or define are used."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import hero, options, tiny
from forked import in_fork
from hero import train
from hero.data.tasks.solver import solve
from hero.data.windows import Batch, Context, Trajectories
from hero.method.domain import fourier_modes
from hero.method.norm import Norm
from hero.method.rollout import rollout
from hero.models import FNO
from hero.runs.folder import Run
from history_replay import HistoryReplay
from test_train import assert_resumes

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
    result = train(states.numpy(), model=model, steps=6, settings=settings, **places)
    assert all(math.isfinite(value) for key, value in result.metrics.items() if "@" in key)
    assert result.model.card.history == settings["train.history"]


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


NAME = "history_replay:HistoryReplay"
K = 5


def fno(history: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return FNO(history, 1, width=3, modes=(5,), depth=1).double()


def replay(**changes: Any) -> tuple[HistoryReplay, Callable[[int], Batch], Tensor]:
    """The strategy after `begin`, its batches by step, and its data in float64."""
    settings = {"start": 0, "refresh": 4, "horizon": 12, "buffer": 20, "largest": 100.0, **changes}
    others = {key: settings.pop(key) for key in list(settings) if "__" in key}
    others |= {"data__val_steps": 110, "data__test_steps": 110}  # room for a history
    config = tiny(strategy=NAME, **others, **{f"history_replay__{k}": v for k, v in settings.items()})
    task = config.source.task
    data = solve(task.stepper(), task.initial_states(4, 0), 10)
    strategy = config.make_strategy()
    strategy.begin(nn.Identity(), Trajectories(data))
    return strategy, config.windows(data), data


def filled(strategy: HistoryReplay, model: nn.Module, batch: Batch) -> Tensor:
    strategy.loss(model, batch)
    return strategy.buffer


class LaggedStates:
    """All contexts of H states in the rollouts from the data, one step after the other, and where each is from."""

    def __init__(self, model: nn.Module, data: Tensor, history: int, horizon: int = 12) -> None:
        path, self.origins, contexts = list(data[:, :history].unbind(1)), [], []
        for t in range(1, horizon + 1):
            with torch.no_grad():
                path.append(model(torch.cat(path[-history:], dim=1)))
            contexts.append(torch.stack(path[-history:], dim=1))
            self.origins += [(i, t) for i in range(len(data))]
        self.contexts = torch.cat(contexts)

    def origin(self, context: Tensor) -> tuple[int, int]:
        """Trajectory and time; fails for a context that is none of them."""
        distance = (self.contexts - context).flatten(1).norm(dim=1)
        assert distance.min() < 1e-12 * context.norm()
        return self.origins[int(distance.argmin())]


@pytest.mark.parametrize("history", [1, 2])
def test_the_buffer_holds_states_of_the_lagged_rollout_and_their_true_continuation(history: int) -> None:
    strategy, windows, data = replay(train__history=history)
    model = fno(history)
    buffer, known = filled(strategy, model, windows(0)), LaggedStates(model, data, history)
    assert buffer.shape == (20, history + K, 1, 32)
    assert len({known.origin(window[:history]) for window in buffer}) == 20
    solver = strategy.setup.source.stepper()
    for window in buffer:
        u = window[history - 1][None]
        for k in range(K):
            u = solver(u)
            torch.testing.assert_close(window[history + k][None], u, rtol=1e-12, atol=1e-14)
    with torch.no_grad():  # between refreshes the buffer stays, at the next one it is filled again
        next(iter(model.parameters())).mul_(1.1)
    assert filled(strategy, model, windows(3)) is buffer
    known = LaggedStates(model, data, history)
    for window in filled(strategy, model, windows(4)):
        known.origin(window[:history])


@pytest.mark.parametrize(("share", "rows"), [(0.5, 2), (1.0, 5)])
def test_the_loss_is_push_forward_on_the_mixed_batch(share: float, rows: int) -> None:
    strategy, windows, _ = replay(share=share)
    model = fno()
    for step in (0, 1):
        batch = windows(step)
        loss = strategy.loss(model, batch)
        assert (loss.statistics["replayed"], loss.statistics["buffer"]) == (rows / 5, 20.0)
        mixed = strategy.mixed(batch, rows)
        assert mixed.index is None
        assert mixed.truth.stride() == batch.truth.stride()  # what code is compiled for
        whole = torch.cat([mixed.context.states, mixed.truth], dim=1)
        plain = torch.cat([batch.context.states, batch.truth], dim=1)
        assert torch.equal(whole[: 5 - rows], plain[: 5 - rows])
        known = {window.numpy().tobytes() for window in strategy.buffer}
        replayed = {window.numpy().tobytes() for window in whole[5 - rows :]}
        assert replayed <= known
        assert len(replayed) == rows
        twin = tiny(strategy="push_forward").make_strategy().loss(model, mixed)
        assert torch.equal(loss.value, twin.value)


def test_ten_updates_are_five_a_kill_and_five(tmp_path: Path, data_dir: Path) -> None:
    changes = {"history_replay__start": 1, "history_replay__refresh": 3, "history_replay__buffer": 20}
    config = tiny(strategy=NAME, train__steps=10, **changes)  # refreshed at 1, 4, 7; saved after 5
    assert_resumes(config, 6, tmp_path, data_dir)


def test_the_command_of_its_docstring(tmp_path: Path, data_dir: Path) -> None:
    """As a reader types it, in the folder of the example: training, evaluation and the page."""
    command = ["train", "burgers", "--strategy", NAME, "--set", "history_replay.share=0.2", *options()]
    folders = ["--runs", str(tmp_path), "--data", str(data_dir)]
    code, _, err = hero(*command, *folders, cwd=EXAMPLES)
    assert code == 0, err
    (run,) = tmp_path.iterdir()
    assert run.name.startswith("burgers-fno-HistoryReplay-s0-")
    assert '"replayed": 0.2' in (run / "log.jsonl").read_text()
    assert "HistoryReplay" in (run / "report.html").read_text(encoding="utf-8")


SMALL = {"task__resolution": 32, "task__substeps": 1, "backbone__width": None, "backbone__modes": None}


def extended(*arguments: Any) -> tuple[int, str, str]:
    """The command in a process of its own, with the parts of examples/extending.py: exit code, stdout, stderr."""
    return hero(*arguments, cwd=EXAMPLES, env={"HERO_IMPORT": "extending", "COLUMNS": "200"})


def toy(**changes: Any) -> list[str]:
    """Options of a tiny run, without the settings of the FNO."""
    found = options(**changes)
    pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
    return [part for pair in pairs if "=None" not in pair[1] for part in pair]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the toy strategy and one of HERO with the toy candidate and diagnostic."""
    folder = tmp_path_factory.mktemp("extended")
    folders = ["--runs", folder, "--data", folder / "data"]
    stencil = toy(backbone__width=None, backbone__modes=None, weighted_steps__ratio=3)
    code, _, err = extended(
        "train", "damped_advection", *folders, "--backbone", "stencil", "--strategy", "weighted_steps", *stencil
    )
    assert code == 0, err
    parts = toy(hero__start=4, hero__candidates="lag,frozen", hero__diagnostics="roll,mean", train__loss="largest")
    code, _, err = extended("train", "damped_advection", *folders, *parts)
    assert code == 0, err
    return folder


def test_a_toy_task_backbone_strategy_and_metric_are_trained_and_measured(runs: Path) -> None:
    (path,) = runs.glob("damped_advection-stencil-weighted_steps-*")
    metrics = json.loads((path / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["test"]["worst@50"] >= metrics["test"]["nrmse@50"] > 0
    log = (path / "log.jsonl").read_text(encoding="utf-8")
    assert "last_step_error" in log
    assert "ratio = 3.0" in (path / "config.toml").read_text(encoding="utf-8")


def test_a_toy_candidate_and_diagnostic_are_ranked_and_logged(runs: Path) -> None:
    (path,) = runs.glob("damped_advection-fno-hero-*")
    last = Run(path).log.training[-1].statistics
    assert last["lag"] + last["frozen"] == pytest.approx(1)
    assert last["frozen.mean"] >= 0


def test_a_toy_study_has_its_rows_and_columns_in_the_table_and_on_the_page(runs: Path, tmp_path: Path) -> None:
    small = toy(backbone__width=None, backbone__modes=None)
    folders = ("--runs", runs, "--data", runs / "data")
    code, _, err = extended(
        "study", "stencils", *folders, "--seeds", 1, "--workers", 0, *small, "--out", tmp_path / "study"
    )
    assert code == 0, err
    table = (tmp_path / "study" / "table.md").read_text(encoding="utf-8")
    assert "Worst nRMSE@50" in table
    assert "Sten.-weighted" in table
    code, _, err = extended("report", tmp_path / "study", *folders, "--out", tmp_path / "page.html")
    assert code == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("Stencils", "Worst nRMSE@50", "Sten.-weighted"):
        assert name in page, name


def test_they_are_settings_like_any_other() -> None:
    _, out, _ = extended(
        "settings", "damped_advection", "--set", "strategy=weighted_steps", "--set", "backbone.name=stencil"
    )
    assert "weighted_steps.ratio" in out
    assert "backbone.points" in out
    code, _, err = extended("train", "damped_advection", "--set", "weighted_steps.ratio=-1")
    assert code == 2
    assert err.startswith("hero: weighted_steps.ratio=-1 should be greater than 0; ")
    code, _, err = extended("train", "damped_advection", "--set", "hero.candidates=lag,frozn")
    assert (code, "frozen" in err) == (2, True)
