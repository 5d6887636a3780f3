"""Foresight, a strategy of your own that is registered: a loss whose weights know what becomes of a defect later.

    cd examples
    HERO_IMPORT=foresight hero train burgers --strategy foresight --set train.optimizer=soap --set foresight.horizon=100
    HERO_IMPORT=foresight hero compare burgers --strategies push_forward,foresight --set train.loss=balanced --seeds 3

A defect δ_n added to step n of a rollout v of N steps changes the readout L = Σ_m ⟨probe_m, v_m⟩ by ⟨λ_n, δ_n⟩ with

    λ_n = probe_n + J_G(v_n)ᵀ λ_{n+1},     probe_n ~ N(0, 1)/‖v_n‖,     λ_N = probe_N

so that g_k = mean of ‖v_n‖² |λ_n,k|² says how much a relative defect in mode k matters later. At a refresh the operator
as it is then, from there on the lagged one, measures g along its own rollouts, which may be longer than the training
trajectories; until the next refresh the weights of the balanced loss are multiplied by g^a. Data only. The second
command leaves g as the only difference: it measures the effect of history. There was none (docs/results.md): the error
at step 100 is 1.03 [0.72, 1.49] times the error of the balanced loss alone, which is why this is an example and not a
part of hero. Runs that earlier versions trained with `--strategy foresight` continue with HERO_IMPORT=foresight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint

from hero.config import Facts, Settings, setting, share
from hero.data.windows import Batch, Context
from hero.errors import HeroError
from hero.method.candidates import unchanged_buffers
from hero.method.distance import EPS, norm
from hero.method.domain import Modes
from hero.method.losses import Balanced
from hero.method.norm import Norm
from hero.method.rollout import Stepper, as_stepper, rollout
from hero.parallel import gathered
from hero.strategies import STRATEGIES, Compiler, Loss, Setup, Strategy
from hero.strategies.base import require_solver
from hero.strategies.hero import HeroSettings, HeroStrategy

LEFT_OUT = 5
"""The last λ have seen too few steps."""
LEAST_GAIN = 1e-30
"""Of g^a, whose mean is of order 1: products with weights stay above the smallest normal number of float32."""


def adjoints(
    step: Stepper, context: Context, horizon: int, generator: Generator, weights: Tensor | None, measured: Norm
) -> tuple[Tensor, Tensor]:
    """v and λ of `horizon` steps, each (batch, step, channel, *space), as they are `measured`; `weights`: quadrature.

    λ_n is the gradient by a zero that is added to step n, so history, bundles and conditioning need no care. Only
    states are kept for the backward pass; each step is computed again there.
    """
    defects: list[Tensor] = []

    def disturbed(z: Context) -> Tensor:
        made: Tensor = checkpoint(step, z, use_reentrant=False, preserve_rng_state=False)
        defects.append(torch.zeros_like(made, requires_grad=True))
        return made + defects[-1]

    with torch.enable_grad():
        v = measured.scaled(rollout(disturbed, context, horizon))
        draws = torch.randn(v.shape, generator=generator, device=v.device, dtype=v.dtype)
        probe = draws / (norm(v.detach(), weights)[(..., *(None,) * (v.dim() - 2))] + EPS)
        omega = torch.ones((), dtype=v.dtype, device=v.device) if weights is None else weights.to(v)
        gradients = torch.autograd.grad(v, defects, probe * omega.sqrt())
    parts = [gradient.unflatten(1, (-1, v.shape[2])) for gradient in gradients]
    return v.detach(), by_measured(torch.cat(parts, dim=1)[:, :horizon], measured) / omega


def by_measured(gradient: Tensor, measured: Norm) -> Tensor:
    """The gradient by ũ from the gradient by u: divided by the factor between them, 0 where that is 0."""
    if measured.is_plain:
        return gradient
    factor = measured.tables(gradient)[1]
    return torch.where(factor > 0, gradient / torch.where(factor > 0, factor, 1.0), 0.0)


def sensitivity(
    step: Stepper, context: Context, horizon: int, modes: Modes, generator: Generator, measured: Norm
) -> Tensor:
    """g (channel, shell), scaled to mean 1; trajectories that overflow are left out, and without any other g is 1.

    Overflow begins where the sum of all trajectories could exceed the largest number.
    """
    v, lambdas = adjoints(step, context, horizon, generator, modes.weights, measured)
    relative = lambdas * norm(v, modes.weights)[(..., *(None,) * (v.dim() - 2))]
    power = modes.shell_power(relative[:, : max(1, horizon - LEFT_OUT)])
    finite = (power < torch.finfo(power.dtype).max / power.numel()).flatten(1).all(dim=1)  # NaN is not below either
    power = torch.where(finite[:, None, None, None], power, 0.0)
    g = power.mean(dim=1).sum(dim=0) / finite.sum().clamp(min=1) / modes.tables(power).sizes
    return torch.where(finite.any(), g / g.mean().clamp(min=torch.finfo(g.dtype).tiny), torch.ones_like(g))


class ForesightSettings(Settings):
    """Foresight."""

    power: float = setting(1.0, "a: the weights are multiplied by g^a; 0 is the balanced loss alone.", ge=0)
    horizon: int = setting(50, "N, steps over which a defect is followed; may exceed the training trajectories.", ge=1)
    start: Annotated[int, share(0.1, least=0)] = setting("First update at which g is measured.", ge=0)
    refresh: Annotated[int, share(0.05)] = setting("Updates between measurements of g.", ge=1)
    trajectories: int = setting(15, "Rollouts that g is a mean over, at most train.batch.", ge=1)
    adjoint: Literal["lagged", "solver", "phases", "none"] = setting(
        "lagged",
        "Whose adjoint: the lagged operator's; or, as controls, the solver's, the lagged operator's at states with "
        "random phases, or none.",
    )
    relative: float = setting(0.0, "Largest weight of HERO's relative term on top, 0.02 in the paper; 0 is none.", ge=0)


class Foresight(Strategy[ForesightSettings]):
    """L = mean √(c Σ_k w_k P_k(e)) with w_k ∝ S_k^-½ g_k^a over a K-step rollout."""

    title: ClassVar[str] = "Foresight"
    suffix: ClassVar[str | None] = "-FS"
    section: ClassVar[str] = "foresight"
    Settings: ClassVar[type[Settings]] = ForesightSettings
    loss_name: ClassVar[str] = "balanced"

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        if not isinstance(self.absolute, Balanced):
            raise HeroError("the strategy foresight multiplies weights of the balanced loss; set train.loss=balanced.")
        self.balanced = self.absolute
        self.measures = self.settings.adjoint != "none" and self.settings.power > 0
        if self.measures and self.settings.start >= self.train.steps:
            raise HeroError(
                f"foresight.start={self.settings.start} is not below train.steps={self.train.steps}: g would never be "
                "measured; lower it, or set foresight.adjoint=none."
            )
        if self.settings.adjoint == "solver":
            require_solver(setup.source, "foresight.adjoint=solver")
        self.solver = cache(setup.source.stepper)
        self.g: Tensor | None = None  # (channel, shell)
        self.hero: HeroStrategy | None = None
        if self.settings.relative:
            facts = Facts(self.train.steps, setup.source.dims, HeroStrategy)
            section = HeroSettings.from_values("hero", {"lambda_max": self.settings.relative}, facts)
            self.hero = HeroStrategy(replace(setup, settings=section), compile_with)
            domain = replace(self.hero.hero.domain, norm=self.norm)
            self.hero.hero = replace(self.hero.hero, absolute=self.balanced, domain=domain)

    def is_refresh(self, step: int) -> bool:
        """Whether g is measured before update `step`."""
        since = step - self.settings.start
        return self.measures and since >= 0 and since % self.settings.refresh == 0

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        if self.is_refresh(batch.step):
            self.use(self.measure(model, batch))
        if self.hero is not None:
            return self.hero.loss(model, batch)
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.balanced(tau, batch.truth), {})

    def use(self, g: Tensor | None) -> None:
        """Multiply the weights by g^a from now on."""
        self.g = g
        self.balanced.gain = None if g is None else (g**self.settings.power).clamp(min=LEAST_GAIN)

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """g of the operator as it is now, along rollouts from the first windows of the whole batch."""
        count = self.settings.trajectories
        context = batch.context.each(lambda part: gathered(part)[:count])
        with unchanged_buffers(model), as_deployed(model):  # in this order: buffers of modules in training are kept
            step = self.followed(model, context, batch.generator)
            return sensitivity(step, context, self.settings.horizon, self.balanced.modes, batch.generator, self.norm)

    def followed(self, model: nn.Module, context: Context, generator: Generator) -> Stepper:
        """The step whose adjoint is taken."""
        if self.settings.adjoint == "solver":
            solver = self.solver(context.states.device)
            return lambda z: solver(z.states[:, -1])
        step = as_stepper(model)
        return random_phases(step, context.states, generator) if self.settings.adjoint == "phases" else step

    def state_dict(self) -> dict[str, Any]:
        return {"g": self.g} | ({} if self.hero is None else {"hero": self.hero.state_dict()})

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.use(state["g"])
        if self.hero is not None:
            self.hero.load_state_dict(state["hero"], model)


def random_phases(step: Stepper, states: Tensor, generator: Generator) -> Stepper:
    """`step` from states whose Fourier modes keep their amplitudes and are turned by random phases, one draw for all.

    The turn is orthogonal and diagonal in k, so |λ_k| sees it only through the states that the operator meets.
    """
    axes = tuple(range(3, states.dim()))
    noise = torch.randn(states.shape, generator=generator, device=states.device, dtype=states.dtype)
    turn = torch.fft.rfftn(noise, dim=axes)
    turn = turn / turn.abs()

    def from_other_phases(z: Context) -> Tensor:
        turned = torch.fft.irfftn(torch.fft.rfftn(z.states, dim=axes) * turn, s=states.shape[3:], dim=axes)
        return step(replace(z, states=turned))

    return from_other_phases


@contextmanager
def as_deployed(model: nn.Module) -> Iterator[None]:
    """Within, the model is in evaluation mode, as it will be rolled out."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


STRATEGIES["foresight"] = Foresight
