"""The registered example, examples/foresight.py: adjoints against explicit Jacobians, g in closed form, its state."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from conftest import tiny
from hero.data.windows import Batches, Context
from hero.errors import HeroError
from hero.method.domain import fourier_modes
from hero.method.norm import Norm
from hero.method.rollout import rollout
from hero.runs.config import RunConfig, make_config
from hero.strategies import Strategy
from test_train import assert_resumes

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


def test_g_is_finite_whatever_the_operator_does(foresight: ModuleType) -> None:
    """λ² runs through all sizes up to overflow, in which the sum over trajectories would be lost first."""
    context, modes = Context(torch.full((100, 1, 1, 8), 0.5)), fourier_modes((8,))

    def g_of(step: Any, horizon: int) -> Tensor:
        found: Tensor = foresight.sensitivity(step, context, horizon, modes, Generator().manual_seed(0), Norm())
        return found

    for factor in torch.logspace(3, 4.5, 20).tolist():  # to the power of 10 after six steps
        g = g_of(lambda z, factor=factor: 0.5 + factor * (z.states[:, -1] - 0.5), 6)
        assert bool(g.isfinite().all()), factor
        assert float(g.min()) > 0
    for step in (lambda z: 10 * z.states[:, -1] ** 3 + 9, lambda z: z.states[:, -1] * math.nan):
        assert bool((g_of(step, 12) == 1).all())


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


@pytest.mark.usefixtures("foresight")
@pytest.mark.parametrize(
    ("control", "same_as"),
    [
        ({"foresight__power": 0.0}, config_for("push_forward")),
        ({"foresight__adjoint": "none", "foresight__relative": 0.3}, config_for("hero", hero__lambda_max=0.3)),
    ],
    ids=["push_forward", "hero"],
)
def test_without_g_it_is_another_strategy_to_the_bit(control: dict[str, Any], same_as: RunConfig) -> None:
    runs = []
    for config in (config_for(**control), same_as):
        model = config.build_operator().double()
        runs.append(descend(config.make_strategy(), model, windows_for(config), range(14)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.usefixtures("foresight")
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, data_dir: Path) -> None:
    """With SOAP; the checkpoint of update 10 lies between the refreshes at 8 and 11."""
    own = {"foresight__start": 2, "foresight__refresh": 3, "foresight__horizon": 7, "foresight__relative": 0.1}
    assert_resumes(tiny(strategy="foresight", train__optimizer="soap", **own), 13, tmp_path, data_dir)
