"""The worked example of your own strategy, examples/history_replay.py: naive twins, a resume, and `hero train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import hero, options, tiny
from hero.data.tasks.solver import solve
from hero.data.windows import Batch, Trajectories
from hero.models import FNO
from history_replay import HistoryReplay
from test_train import assert_resumes

NAME = "history_replay:HistoryReplay"
EXAMPLES = Path(__file__).parent.parent / "examples"
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
