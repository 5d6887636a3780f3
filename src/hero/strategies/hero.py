"""HERO: push-forward plus the relative term, L_total = L_roll + λ_s L_rel. Training only: the model stays plain."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator
from torch import nn

from hero.config import Settings, Share, setting
from hero.config.settings import one_of
from hero.data.windows import Batch
from hero.errors import HeroError
from hero.method.candidates import CANDIDATES
from hero.method.diagnostics import DIAGNOSTICS
from hero.method.objective import HeroObjective
from hero.method.perturbations import SpectralNoise
from hero.method.rollout import Unroll, trajectory_distance
from hero.method.schedule import relative_weight
from hero.strategies.base import Loss, Setup, Strategy


class RelativeSettings(Settings):
    """The schedule of the relative term (strategies hero and fixed_weight)."""

    start: Annotated[int, Share(0.4, least=0)] = setting("s_0, the first update of the relative term.", ge=0)
    warmup: Annotated[int, Share(0.2)] = setting("W, updates over which lambda rises from 0.", ge=1)
    lambda_max: float = setting(0.02, "Largest weight of the relative term.", ge=0)


class HeroSettings(RelativeSettings):
    """The relative term."""

    refresh: Annotated[int, Share(0.2)] = setting("R, updates between copies into the lagged operator.", ge=1)
    margin: float = setting(0.02, "Margin m by which the current rollout should beat the reference.", gt=0)
    beta: float = setting(5.0, "Sharpness of the softplus margin.", gt=0)
    perturbation: float = setting(0.01, "s, relative size of the spectral perturbation.", ge=0)
    candidates: Annotated[tuple[str, ...], BeforeValidator(one_of(CANDIDATES))] = setting(
        ("lag", "perturbed", "self"), "Candidate rollouts, ranked for failure."
    )
    diagnostics: Annotated[tuple[str, ...], BeforeValidator(one_of(DIAGNOSTICS))] = setting(
        ("roll", "spec", "energy", "growth"), "Diagnostics that rank them."
    )


class FixedWeightSettings(RelativeSettings):
    """The control of HERO."""

    fixed_alpha: float = setting(0.5, "The constant that replaces alpha.", ge=0)


def make_objective(settings: HeroSettings) -> HeroObjective:
    """The objective that the section [hero] describes."""
    return HeroObjective(
        settings.start,
        settings.refresh,
        settings.warmup,
        settings.lambda_max,
        settings.margin,
        settings.beta,
        candidates=settings.candidates,
        diagnostics=settings.diagnostics,
        perturbation=SpectralNoise(settings.perturbation),
        single_candidate=True,
    )


def check_start(settings: RelativeSettings, updates: int) -> None:
    """Refuse a relative term that would never act."""
    if settings.start >= updates:
        raise HeroError(
            f"hero.start={settings.start} is not below train.steps={updates}: the relative term would never act; "
            "lower it."
        )


class Hero(Strategy[HeroSettings]):
    """The history-enriched objective on top of the absolute rollout loss."""

    title: ClassVar[str] = "HERO"
    suffix: ClassVar[str] = "-HERO"
    section: ClassVar[str] = "hero"
    Settings: ClassVar[type[Settings]] = HeroSettings

    def __init__(self, setup: Setup, unroll_with: Unroll | None = None) -> None:
        super().__init__(setup, unroll_with)
        check_start(self.settings, self.train.steps)
        self.objective = make_objective(self.settings)
        self.objective.absolute = self.absolute

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        objective = self.objective
        objective.step, objective.unroll = batch.step, self.unroll
        weight = objective.weight()
        value = objective(model, batch.context, batch.truth, batch.index, batch.generator)
        if objective.term is None:
            return Loss(value, {})
        return Loss(value, {"lambda": weight, **objective.term.statistics()})

    def state_dict(self) -> dict[str, Any]:
        return self.objective.state_dict()

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.objective.load_state_dict(state, model)


class FixedWeight(Strategy[FixedWeightSettings]):
    """The control of HERO: the same schedule with α replaced by a constant, L = L_roll + λ_s α₀ D(τ_θ, τ_*).

    A gain of HERO over this strategy is the effect of history; a gain of this one over push_forward is the effect of
    the added distance term alone.
    """

    title: ClassVar[str] = "Fixed weight"
    suffix: ClassVar[str] = "-fixed"
    section: ClassVar[str] = "hero"
    Settings: ClassVar[type[Settings]] = FixedWeightSettings

    def __init__(self, setup: Setup, unroll_with: Unroll | None = None) -> None:
        super().__init__(setup, unroll_with)
        check_start(self.settings, self.train.steps)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings = self.settings
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        value = self.absolute(tau, batch.truth)
        weight = relative_weight(batch.step, settings.start, settings.warmup, settings.lambda_max)
        if weight == 0:
            return Loss(value, {})
        value = value + weight * settings.fixed_alpha * trajectory_distance(tau, batch.truth).mean()
        return Loss(value, {"lambda": weight})
