"""HERO: push-forward plus the relative term, L_total = L_roll + λ_s L_rel. Training only: the model stays plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from hero.method.objective import HeroObjective
from hero.method.perturbations import SpectralNoise
from hero.strategies.base import Batch, Loss, Strategy

if TYPE_CHECKING:
    from hero.runs.config import RunConfig


def make_objective(config: RunConfig) -> HeroObjective:
    """The objective that the section [hero] of a resolved configuration describes."""
    settings = config.hero
    assert settings.start is not None
    assert settings.refresh is not None
    assert settings.warmup is not None
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
        single_candidate=settings.single_candidate,
    )


class Hero(Strategy):
    """The history-enriched objective on top of the absolute rollout loss."""

    sections: ClassVar[tuple[str, ...]] = ("hero",)

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.objective = make_objective(config)
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
