"""Foresight: push-forward under the balanced loss, whose weights know what the operator makes of a defect later.

At a refresh the operator as it is then, from there on the lagged one, measures g by its adjoint along its own rollouts
(`method/foresight.py`); until the next one the weights of the modes are multiplied by g^a. Data only. The controls are
settings: the adjoint of the solver, states with random phases, no adjoint (which is `balanced`), the spectrum of the
data (`loss.spectrum`); H1 is `push_forward` with `train.loss=h1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from hero.config import Facts, Settings, setting, share
from hero.data.windows import Batch, Batches, Context
from hero.errors import HeroError
from hero.method.candidates import unchanged_buffers
from hero.method.foresight import sensitivity
from hero.method.losses import balanced_part
from hero.method.rollout import Stepper, as_stepper
from hero.parallel import gathered
from hero.strategies.base import Compiler, Loss, Phase, Setup, Strategy, require_solver
from hero.strategies.hero import HeroSettings, HeroStrategy

LEAST_GAIN = 1e-30
"""Of g^a, whose mean is of order 1: products with weights stay above the smallest normal number of float32."""


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
        self.balanced = balanced_part(self.absolute_loss, "foresight")
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

    @property
    def measures(self) -> bool:
        """Whether g is used at all."""
        return self.settings.adjoint != "none" and self.settings.power > 0

    @property
    def reduces_to(self) -> str:
        return "" if self.measures or self.settings.relative else "push_forward"

    def is_refresh(self, step: int) -> bool:
        """Whether g is measured before update `step`."""
        since = step - self.settings.start
        return self.measures and since >= 0 and since % self.settings.refresh == 0

    def phases(self, windows: Batches) -> list[Phase]:
        steps = self.train.steps
        refreshes = [step for step in range(steps) if self.is_refresh(step)]
        others = [step for step in range(steps) if not self.is_refresh(step)]
        found = [("measuring the adjoint", refreshes), ("between", others)]
        return [Phase(name, len(updates), updates[-1]) for name, updates in found if updates]

    def cache_bytes(self) -> int:
        return 0 if self.hero is None else self.hero.cache_bytes()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        if self.is_refresh(batch.step):
            self.use(self.measure(model, batch))
        if self.hero is not None:
            found = self.hero.loss(model, batch)
        else:
            tau = self.unroll(model, batch.context, batch.truth.shape[1])
            found = Loss(self.balanced(tau, batch.truth), {})
        return found

    def use(self, g: Tensor | None) -> None:
        """Multiply the weights by g^a from now on."""
        self.g = g
        self.balanced.gain = None if g is None else (g**self.settings.power).clamp(min=LEAST_GAIN)

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """g of the operator as it is now, along rollouts from the first windows of the whole batch."""
        settings, states, mu = self.settings, batch.context.states, batch.context.mu
        count = settings.trajectories
        context = Context(gathered(states)[:count], None if mu is None else gathered(mu)[:count])
        with unchanged_buffers(model), as_deployed(model):  # in this order: buffers of modules in training are kept
            step = self.followed(model, context, batch.generator)
            return sensitivity(step, context, settings.horizon, self.balanced.modes, batch.generator, self.norm)

    def followed(self, model: nn.Module, context: Context, generator: Generator) -> Stepper:
        """The step whose adjoint is taken."""
        if self.settings.adjoint == "solver":
            solver = self.solver(context.states.device)
            return lambda z: solver(z.states[:, -1])
        step = as_stepper(model)
        return random_phases(step, context.states, generator) if self.settings.adjoint == "phases" else step

    def spectra(self) -> dict[str, Tensor]:
        return super().spectra() | ({} if self.g is None else {"sensitivity": self.g})

    def state_dict(self) -> dict[str, Any]:
        return {"g": self.g} | ({} if self.hero is None else {"hero": self.hero.state_dict()})

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.use(state["g"])
        if self.hero is not None:
            self.hero.load_state_dict(state["hero"], model)


def random_phases(step: Stepper, states: Tensor, generator: Generator) -> Stepper:
    """`step` from states whose Fourier modes keep their amplitudes and are turned by random phases.

    The turn, one draw for states of that shape, is applied before every step. It is orthogonal and diagonal in k, so
    |λ_k| sees it only through the states that the operator meets.
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
