"""HERO: push-forward plus the relative term, L_total = L_roll + λ_s L_rel. Training only: the model stays plain."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from hero.objective import HeroObjective
from hero.strategies.base import Batch, Loss, Strategy

if TYPE_CHECKING:
    from hero.config import RunConfig


class Hero(Strategy):
    """The history-enriched objective on top of the absolute rollout loss."""

    sections: ClassVar[tuple[str, ...]] = ("hero",)

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        settings = dataclasses.asdict(config.hero)
        settings.pop("fixed_alpha")
        self.objective = HeroObjective(**settings)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        current = self.unroll(model, batch.context, batch.truth.shape[1])
        absolute = self.absolute(current, batch.truth)
        term = self.objective.relative(
            model, batch.context, current, batch.truth, batch.step, batch.generator, self.unroll
        )
        if term is None:
            return Loss(absolute, {})
        return Loss(absolute + term.weight * term.loss.mean(), {"lambda": term.weight, **term.statistics()})

    def state_dict(self) -> dict[str, Any]:
        return self.objective.state_dict()

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.objective.load_state_dict(state, model)
