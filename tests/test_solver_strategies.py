"""Strategies that ask the solver, diverted chain and history replay: naive twins and independent solver calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hero.strategies.history_replay import HistoryReplay
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data import TASKS
from hero.data.solver import solve
from hero.data.windows import Batch, Context
from hero.errors import HeroError
from hero.method.rollout import unroll
from hero.models import FNO
from hero.runs.config import RunConfig
from hero.strategies import STRATEGIES, Loss
from hero.strategies.diverted_chain import DivertedChain
from hero.study.cost.measure import Rehearsal
from hero.study.cost.phases import phases_of
from hero.training.loop import resume, train
from test_strategies import absolute, assert_same
from test_train import assert_same_run

K = 5
ONE_D = sorted(name for name, task in TASKS.items() if task.dims == 1)


def fno(history: int = 1, bundle: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return FNO(history, bundle, width=3, modes=(5,), depth=1).double()


def states(config: RunConfig, count: int = 3) -> Tensor:
    return config.make_task().initial_states(count, 0)


class Map(nn.Module):
    """Any function of a state as a model with one parameter that it does not read, or does."""

    def __init__(self, function: Callable[[Tensor], Tensor], weight: float = 1.0) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight * x)


@pytest.mark.parametrize("loss", ["relative", "mse"])
@pytest.mark.parametrize("through", [True, False])
@pytest.mark.parametrize("bundle", [1, 2])
def test_diverted_chain_equals_its_naive_twin(bundle: int, through: bool, loss: str) -> None:
    changes = {"diverted_chain__through_solver": through, "train__bundle": bundle, "train__loss": loss}
    config = tiny(strategy="diverted_chain", train__unroll=4, **changes)
    model, u0 = fno(bundle=bundle), states(config)
    batch = Batch(Context(u0[:, None]), torch.full((3, 4, 1, 32), torch.nan), 0, None, Generator())
    solver = config.make_task().stepper()
    twin = torch.zeros((), dtype=torch.float64)
    for u in u0:
        tau: list[Tensor] = []
        while len(tau) < 4:
            made = model((tau[-1] if tau else u)[None])
            tau += [made[:, j] for j in range(bundle)]
        targets = [solver((v if through else v.detach())[None])[0] for v in [u, *tau[:-1]]]
        twin = twin + absolute(tau, targets, loss) / len(u0)
    assert_same(model, DivertedChain(config).loss(model, batch).value, twin)


def test_without_the_solver_s_gradient_targets_are_constants() -> None:
    config = tiny(strategy="diverted_chain", diverted_chain__through_solver=False)
    strategy, model, u0 = DivertedChain(config), fno(), states(config)
    context = Context(u0[:, None])
    with torch.no_grad():
        constants = strategy.targets(context, unroll(model, context, K)).clone()
    batch = Batch(context, constants, 0, None, Generator())
    assert_same(model, strategy.loss(model, batch).value, strategy.absolute(unroll(model, context, K), constants))


@pytest.mark.parametrize("name", [*ONE_D, "decaying_turbulence", "swift_hohenberg"])
@pytest.mark.parametrize("through", [True, False])
def test_the_true_operator_has_no_loss(name: str, through: bool) -> None:
    small = {"task__resolution": 32} if TASKS[name].dims == 1 else {"task__resolution": 8, "task__cutoff": 1}
    small |= {"task__name": name, "backbone__modes": 2, "diverted_chain__through_solver": through}
    config = tiny(strategy="diverted_chain", task__substeps=TASKS[name].substeps, **small)
    u0 = states(config, 2)
    model = Map(config.make_task().stepper())
    batch = Batch(Context(u0[:, None]), u0[:, None].expand(-1, K, *u0.shape[1:]), 0, None, Generator())
    loss = DivertedChain(config).loss(model, batch)
    assert loss.value.item() < 1e-12
    assert 0 < float(loss.statistics["solver_share"]) < 1


def replay(**changes: Any) -> tuple[HistoryReplay, Tensor]:
    """The strategy after `begin`, filled at step 0 unless told otherwise, and its data in float64."""
    settings = {"start": 0, "refresh": 4, "horizon": 12, "buffer": 20, **changes}
    others = {key: settings.pop(key) for key in list(settings) if "__" in key}
    others |= {"data__val_steps": 110, "data__test_steps": 110}  # room for a history
    config = tiny(strategy="history_replay", **others, **{f"history_replay__{k}": v for k, v in settings.items()})
    data = solve(config.make_task().stepper(), states(config, 4), 10)
    strategy = HistoryReplay(config)
    strategy.begin(nn.Identity(), data)
    return strategy, data


def batch_at(strategy: HistoryReplay, data: Tensor, step: int) -> Batch:
    return training_windows(strategy.config, data)(step)


def filled(strategy: HistoryReplay, model: nn.Module, data: Tensor, step: int = 0) -> Tensor:
    strategy.loss(model, batch_at(strategy, data, step))
    assert strategy.buffer is not None
    return strategy.buffer


def lagged_states(model: nn.Module, data: Tensor, history: int, horizon: int = 12) -> dict[bytes, tuple[int, int]]:
    """Trajectory and time of each context of H states in the rollouts, by its bits."""
    found = {}
    path = list(data[:, :history].unbind(1))
    for t in range(1, horizon + 1):
        with torch.no_grad():
            path.append(model(torch.cat(path[-history:], dim=1)))
        for i, context in enumerate(torch.stack(path[-history:], dim=1)):
            found[context.numpy().tobytes()] = (i, t)
    return found


@pytest.mark.parametrize("history", [1, 2])
def test_the_buffer_holds_states_of_the_lagged_rollout_and_what_the_solver_makes_of_them(history: int) -> None:
    strategy, data = replay(train__history=history, absurd=100.0)
    model = fno(history)
    buffer, known = filled(strategy, model, data), lagged_states(model, data, history)
    assert buffer.shape == (20, history + K, 1, 32)
    origins = [known[window[:history].numpy().tobytes()] for window in buffer]
    assert len(set(origins)) == 20
    solver = strategy.config.make_task().stepper()
    for window in buffer:
        u = window[history - 1][None]
        for k in range(K):
            u = solver(u)
            torch.testing.assert_close(window[history + k][None], u, rtol=1e-12, atol=1e-14)
    with torch.no_grad():  # between refreshes the buffer stays, at the next one it is made anew
        next(iter(model.parameters())).mul_(1.1)
    assert filled(strategy, model, data, step=3) is buffer
    fresh = filled(strategy, model, data, step=4)
    known = lagged_states(model, data, history)
    assert all(window[:history].numpy().tobytes() in known for window in fresh)


def test_states_are_drawn_evenly_and_all_if_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, data = replay(buffer=1000, absurd=100.0)
    model = fno()
    known = lagged_states(model, data, 1)
    assert {window[0].numpy().tobytes() for window in filled(strategy, model, data)} == set(known)
    strategy, data = replay(absurd=100.0)
    whole = filled(strategy, model, data)
    monkeypatch.setattr("hero.strategies.history_replay.CHUNK_VALUES", 1)
    monkeypatch.setattr("hero.strategies.history_replay.CHUNK_POINTS", 64)
    torch.testing.assert_close(filled(strategy, model, data), whole, rtol=1e-12, atol=1e-12)
    monkeypatch.undo()
    seen = torch.zeros(4, 13)
    for step in range(0, 200, 4):
        for window in filled(strategy, model, data, step):
            seen[known[window[0].numpy().tobytes()]] += 1
    assert seen[:, 1:].min() > 8  # 20 of 48 in each of 50 draws: 21 on average, deviation 3.5
    assert seen[:, 1:].max() < 34


def test_absurd_and_non_finite_states_never_enter() -> None:
    strategy, data = replay(buffer=1000, absurd=3.0)
    sick = data[0, 0, 0, 0]
    growing = Map(lambda x: torch.where(x[:, :1, :1] * sick > 0, x, torch.nan), 1.5)  # 1.5^t u, or NaN at once
    rms = data.square().mean(dim=(2, 3)).sqrt()
    bound, expected = 3 * rms.max(), 0
    for i in range(len(data)):
        if data[i, 0, 0, 0] * sick > 0:
            expected += sum(bool(1.5**t * rms[i, 0] <= bound) for t in range(1, 13))
    buffer = filled(strategy, growing, data)
    assert 0 < len(buffer) == expected < 48
    assert bool((buffer.square().mean(dim=(2, 3)).sqrt() <= bound).all())


def test_a_state_that_the_solver_cannot_continue_is_left_out() -> None:
    strategy, data = replay(buffer=1000, absurd=100.0)
    true = strategy.config.make_task().stepper()
    strategy.solver = lambda device: lambda u: torch.where(u[:, :1, :1] > 0, true(u), torch.inf)
    buffer = filled(strategy, Map(lambda x: x.roll(3, dims=-1)), data)
    assert 0 < len(buffer) < 48
    assert bool(buffer.isfinite().all())


def test_an_operator_that_only_explodes_leaves_the_batch_plain() -> None:
    strategy, data = replay()
    model = Map(lambda x: x, 1e200)
    batch = batch_at(strategy, data, 0)
    loss = strategy.loss(model, batch)
    assert (loss.statistics["replayed"], loss.statistics["buffer"]) == (0.0, 0.0)
    plain = STRATEGIES["push_forward"](tiny(strategy="push_forward")).loss(model, batch)
    assert torch.equal(loss.value, plain.value) or bool(loss.value.isnan() & plain.value.isnan())


@pytest.mark.parametrize(("share", "rows"), [(0.2, 1), (0.5, 2), (0.6, 3), (1.0, 5)])
def test_the_share_is_honoured(share: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, data = replay(share=share)
    seen: list[Batch] = []
    original = strategy.base.loss

    def loss(model: nn.Module, batch: Batch) -> Loss:
        seen.append(batch)
        return original(model, batch)

    monkeypatch.setattr(strategy.base, "loss", loss)
    for step in (0, 1):
        batch = batch_at(strategy, data, step)
        statistics = strategy.loss(fno(), batch).statistics
        assert (statistics["replayed"], statistics["buffer"]) == (rows / 5, 20.0)
        assert (float(statistics["solver_seconds"]) > 0) == (step == 0)
        mixed = torch.cat([seen[-1].context.states, seen[-1].truth], dim=1)
        plain = torch.cat([batch.context.states, batch.truth], dim=1)
        assert seen[-1].index is None
        assert seen[-1].truth.stride() == batch.truth.stride()  # what code is compiled for
        assert torch.equal(mixed[: 5 - rows], plain[: 5 - rows])
        assert strategy.buffer is not None
        known = {window.numpy().tobytes() for window in strategy.buffer}
        assert all(window.numpy().tobytes() in known for window in mixed[5 - rows :])
        assert len({window.numpy().tobytes() for window in mixed[5 - rows :]}) == rows


def test_before_its_start_and_for_a_shorter_unroll() -> None:
    strategy, data = replay(start=3)
    batch, model = batch_at(strategy, data, 2), fno()
    plain = STRATEGIES["push_forward"](tiny(strategy="push_forward"))
    assert torch.equal(strategy.loss(model, batch).value, plain.loss(model, batch).value)
    assert strategy.buffer is None
    short = replace(batch, step=3, truth=batch.truth[:, :2])
    assert strategy.mixed(short, 0).truth.shape[1] == 2
    assert bool(strategy.loss(model, short).value.isfinite())
    assert filled(strategy, model, data, 3).shape[1] == 1 + K


def test_data_labels_are_slices_of_the_data() -> None:
    strategy, data = replay(labels="data", buffer=1000, absurd=100.0, train__history=2)
    model = fno(2)
    known = lagged_states(model, data, 2)
    buffer = filled(strategy, model, data)
    times = set()
    for window in buffer:
        i, t = known[window[:2].numpy().tobytes()]
        times.add(t)
        assert torch.equal(window[2:], data[i, 2 + t : 2 + t + K])
    assert times == {1, 2, 3, 4}  # 11 snapshots: u_{1+t} is the newest, u_{1+t+K} the last
    assert len(buffer) == 16


def test_with_the_relative_term_it_is_hero_on_the_mixed_batch() -> None:
    hero_settings = {"hero__start": 2, "hero__refresh": 3, "hero__warmup": 2, "hero__lambda_max": 0.5}
    strategy, data = replay(relative=True, start=1, **hero_settings)
    hero, model = STRATEGIES["hero"](tiny(strategy="hero", **hero_settings)), fno()
    for step in range(7):
        ours = strategy.loss(model, batch_at(strategy, data, step))
        batch = batch_at(strategy, data, step)  # again, with its generator at the beginning
        twin = hero.loss(model, batch if step < 1 else strategy.mixed(batch, 2))
        assert_same(model, ours.value, twin.value)
        assert ("alpha" in ours.statistics) == (step >= 2)
        with torch.no_grad():
            for p in model.parameters():
                p *= 1.02


def test_the_model_rolls_out_as_in_validation() -> None:
    strategy, data = replay(absurd=100.0)
    backbone = fno()
    model = nn.Sequential(backbone, nn.Dropout(0.5))
    known = lagged_states(backbone, data, 1)
    assert all(window[0].numpy().tobytes() in known for window in filled(strategy, model, data))
    assert model.training


def test_with_no_share_it_is_push_forward_bit_for_bit(runs_dir: Path, data_dir: Path) -> None:
    none = {"history_replay__share": 0.0, "history_replay__start": 0}
    runs = [
        train(tiny(strategy=s, **c), runs_dir, data_dir) for s, c in (("push_forward", {}), ("history_replay", none))
    ]
    assert (runs[0] / "model.safetensors").read_bytes() == (runs[1] / "model.safetensors").read_bytes()


@pytest.mark.parametrize("relative", [False, True])
def test_ten_updates_are_five_a_kill_and_five(
    relative: bool, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"train__steps": 10, "history_replay__relative": relative, "hero__start": 2}
    changes |= {"history_replay__start": 1, "history_replay__refresh": 3, "history_replay__buffer": 20}
    config = tiny(strategy="history_replay", **changes)  # refreshed at 1, 4, 7; saved after 5
    whole = train(config, tmp_path / "whole", data_dir)
    original = HistoryReplay.loss

    def killed(self: HistoryReplay, model: nn.Module, batch: Batch) -> Loss:
        if batch.step == 6:
            raise MemoryError
        return original(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(HistoryReplay, "loss", killed)
        with pytest.raises(MemoryError):
            train(config, tmp_path / "parts", data_dir)
    assert_same_run(resume(tmp_path / "parts" / config.run_id(), data_dir), whole)


@pytest.mark.parametrize(("setting", "value", "remedy"), [("share", 1.5, "give 1 or less"), ("start", 20, "lower it")])
def test_what_cannot_act_is_refused(setting: str, value: float, remedy: str) -> None:
    with pytest.raises(HeroError, match=rf"history_replay\.{setting}={value} .*{remedy}"):
        tiny(strategy="history_replay", **{f"history_replay__{setting}": value})


@pytest.mark.parametrize("relative", [False, True])
def test_the_phases_of_a_run_and_what_each_does(
    relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"history_replay__start": 10, "history_replay__refresh": 25, "hero__start": 50}
    config = tiny(strategy="history_replay", train__steps=100, history_replay__relative=relative, **changes)
    found = {phase.name: phase.updates for phase in phases_of(config)}
    if relative:
        late = {"buffer refresh, relative term": 2, "replaying, relative term": 48}
        assert found == {"before history_replay.start": 10, "buffer refresh": 2, "replaying": 38, **late}
    else:
        assert found == {"before history_replay.start": 10, "buffer refresh": 4, "replaying": 86}
    rehearsal, fillings = Rehearsal(config, tmp_path, torch.device("cpu")), []
    original = HistoryReplay.refilled
    monkeypatch.setattr(HistoryReplay, "refilled", lambda *a: (fillings.append(a[-1]), original(*a))[1])
    for phase in phases_of(config) * 2:
        rehearsal.update(0, phase.step)
        assert len(fillings) == ("refresh" in phase.name)
        fillings.clear()
    assert [phase.name for phase in phases_of(tiny(strategy="diverted_chain"))] == ["training"]
    assert phases_of(tiny(strategy="history_replay", history_replay__share=0.0))[0].updates == 20
