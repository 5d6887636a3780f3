"""The registered example, examples/foresight.py: adjoints against explicit Jacobians, g in closed form, its state."""

from __future__ import annotations

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from hero.data.windows import Batches, Context
from hero.errors import HeroError
from hero.method.domain import fourier_modes
from hero.method.norm import Norm
from hero.method.rollout import rollout
from hero.runs.config import RunConfig, make_config
from hero.strategies import Strategy

EXAMPLES = Path(__file__).parents[1] / "examples"
POINTS, CHANNELS = 5, 2


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


SMALL: dict[str, Any] = {
    "task.resolution": 12,
    "task.cutoff": 2,
    "task.substeps": 1,
    "backbone.width": 3,
    "backbone.modes": 3,
    "backbone.depth": 1,
    "train.steps": 20,
    "train.unroll": 3,
    "train.batch": 4,
    "train.loss": "balanced",
}
OWN = {"foresight.start": 2, "foresight.refresh": 3, "foresight.horizon": 8, "foresight.trajectories": 3}


def config_for(strategy: str = "foresight", **changes: Any) -> RunConfig:
    own = OWN if strategy == "foresight" else {}
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return make_config(overrides={**SMALL, **own, "strategy": strategy, **values})


def windows_for(config: RunConfig) -> Batches:
    """Decaying waves, as data of any run."""
    u = config.source.task.initial_states(4, seed=1).double()
    return config.windows(torch.stack([u * (1 - 0.05 * k) for k in range(7)], dim=1))


def descend(strategy: Strategy[Any], model: nn.Module, windows: Batches, steps: range) -> list[Tensor]:
    """Plain gradient descent; returns the losses and the weights."""
    values = []
    for step in steps:
        value = strategy.loss(model, windows(step)).value
        gradients = torch.autograd.grad(value, list(model.parameters()))
        values.append(value.detach())
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p -= 0.02 * g
    return [*values, *(p.detach().clone() for p in model.parameters())]


@pytest.mark.usefixtures("foresight")
def test_g_lags_multiplies_the_weights_and_travels_in_the_state() -> None:
    config = config_for()
    strategy, model, windows = config.make_strategy(), config.build_operator().double(), windows_for(config)
    descend(strategy, model, windows, range(2))
    assert strategy.state_dict() == {"g": None}
    descend(strategy, model, windows, range(2, 4))
    g = strategy.state_dict()["g"]
    assert g.shape == (1, 7)
    assert torch.equal(strategy.absolute.gain, g)
    descend(strategy, model, windows, range(4, 5))
    assert strategy.state_dict()["g"] is g
    again = config.make_strategy()
    again.load_state_dict(copy.deepcopy(strategy.state_dict()), model)
    assert torch.equal(again.loss(model, windows(4)).value, strategy.loss(model, windows(4)).value)
    descend(strategy, model, windows, range(5, 6))
    assert not torch.equal(strategy.state_dict()["g"], g)
    with pytest.raises(HeroError, match=r"set train\.loss=balanced"):
        config_for(train__loss="mse")
