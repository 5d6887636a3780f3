"""Recurrent training: its naive twin, the strategies that it meets at the ends of its range, memory and windows."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data.windows import Batch, Context
from hero.runs.config import RunConfig
from test_strategies import absolute, assert_same, unroll


def operator(config: RunConfig) -> nn.Module:
    return config.build_operator().double()


def batch_of(steps: int) -> Batch:
    data = torch.randn(3, steps + 1, 1, 32, generator=Generator().manual_seed(1), dtype=torch.float64)
    return Batch(Context(data[:, :1]), data[:, 1:], 0, None, Generator())


def gradients(config: RunConfig, model: nn.Module, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    value = config.make_strategy().loss(model, batch).value
    return value.detach(), list(torch.autograd.grad(value, list(model.parameters())))


@pytest.mark.parametrize("loss", ["relative", "mse"])
@pytest.mark.parametrize("residual", [False, True])
def test_it_equals_its_naive_twin(residual: bool, loss: str) -> None:
    config = tiny(strategy="recurrent", backbone__residual=residual, train__loss=loss, train__unroll=8)
    model, batch = operator(config), batch_of(8)
    backbone = model.backbone if residual else model

    def step(u: Tensor) -> Tensor:
        return u + backbone(u) if residual else backbone(u)

    twin = torch.zeros((), dtype=torch.float64)
    for u, truth in zip(batch.context.states[:, 0], batch.truth, strict=True):
        twin = twin + absolute(unroll(step, u, 8), truth, loss) / len(batch.truth)
    assert_same(model, config.make_strategy().loss(model, batch).value, twin)


@pytest.mark.parametrize(("other", "steps"), [("one_step", 1), ("push_forward", 5)])
def test_at_its_ends_it_is_another_strategy(other: str, steps: int) -> None:
    """N = 1 is one_step, here in residual form, and N = K from any state is push_forward."""
    configs = [tiny(strategy=s, train__unroll=steps, backbone__residual=True) for s in ("recurrent", other)]
    model, batch = operator(configs[0]), batch_of(steps)
    (ours, mine), (theirs, other_gradients) = (gradients(config, model, batch) for config in configs)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    for a, b in zip(mine, other_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    windows = [config.windows(torch.arange(44.0).reshape(4, 11, 1, 1)) for config in configs]
    assert torch.equal(windows[0](3).context.states, windows[1](3).context.states)


@pytest.mark.parametrize("starts", ["any", "first"])
def test_windows_from_the_first_state_alone(starts: str) -> None:
    config = tiny(strategy="recurrent", recurrent__starts=starts, train__unroll=8)
    times = torch.arange(11.0).expand(4, 11)[:, :, None, None]
    windows = config.windows(times)
    seen = {float(n) for step in range(3 * windows.per_epoch) for n in windows(step).context.states.flatten()}
    assert seen == ({0.0} if starts == "first" else {0.0, 1.0, 2.0})
    assert windows.count == (4 if starts == "first" else 12)
