"""The strategy that asks the solver, the diverted chain: a naive twin and independent solver calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data import TASKS
from hero.data.windows import Batch, Context
from hero.models import FNO
from hero.runs.config import RunConfig
from test_strategies import absolute, assert_same

K = 5
ONE_D = sorted(name for name, task in TASKS.items() if task.dims == 1)


def fno(history: int = 1, bundle: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return FNO(history, bundle, width=3, modes=(5,), depth=1).double()


def states(config: RunConfig, count: int = 3) -> Tensor:
    return config.source.task.initial_states(count, 0)


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
    solver = config.source.stepper()
    twin = torch.zeros((), dtype=torch.float64)
    for u in u0:
        tau: list[Tensor] = []
        while len(tau) < 4:
            made = model((tau[-1] if tau else u)[None])
            tau += [made[:, j] for j in range(bundle)]
        targets = [solver((v if through else v.detach())[None])[0] for v in [u, *tau[:-1]]]
        twin = twin + absolute(tau, targets, loss) / len(u0)
    assert_same(model, config.make_strategy().loss(model, batch).value, twin)


@pytest.mark.parametrize("name", [*ONE_D, "decaying_turbulence", "swift_hohenberg"])
@pytest.mark.parametrize("through", [True, False])
def test_the_true_operator_has_no_loss(name: str, through: bool) -> None:
    small = {"task__resolution": 32} if TASKS[name].dims == 1 else {"task__resolution": 8, "task__cutoff": 1}
    small |= {"task__name": name, "backbone__modes": 2, "diverted_chain__through_solver": through}
    config = tiny(strategy="diverted_chain", task__substeps=TASKS[name].substeps, **small)
    u0 = states(config, 2)
    model = Map(config.source.stepper())
    batch = Batch(Context(u0[:, None]), u0[:, None].expand(-1, K, *u0.shape[1:]), 0, None, Generator())
    loss = config.make_strategy().loss(model, batch)
    assert loss.value.item() < 1e-12
