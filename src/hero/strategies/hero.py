"""HERO: push-forward plus the relative term, L_total = L_roll + λ_s L_rel; and its control, with one part replaced.

Training only: the trained model is the plain one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator
from torch import nn

from hero.config import Settings, setting, share
from hero.config.settings import one_of
from hero.data.windows import Batch
from hero.errors import HeroError
from hero.method.candidates import CANDIDATES, PAPER_CANDIDATES, FailureReference
from hero.method.diagnostics import DIAGNOSTICS, PAPER_DIAGNOSTICS
from hero.method.domain import Domain
from hero.method.objective import Every, FixedWeight, Hero, Margin, Ramp, total_loss
from hero.strategies.base import Compiler, Loss, Setup, Strategy


class RelativeSettings(Settings):
    """The schedule of the relative term (strategies hero and fixed_weight)."""

    start: Annotated[int, share(0.4, least=0)] = setting("s_0, the first update of the relative term.", ge=0)
    warmup: Annotated[int, share(0.2)] = setting("W, updates over which lambda rises from 0.", ge=1)
    lambda_max: float = setting(0.02, "Largest weight of the relative term; 0 leaves the term out.", ge=0)


class HeroSettings(RelativeSettings):
    """The relative term."""

    refresh: Annotated[int, share(0.2)] = setting("R, updates between copies into the lagged operator.", ge=1)
    margin: float = setting(0.02, "Margin m by which the current rollout should beat the reference.", gt=0)
    beta: float = setting(5.0, "Sharpness of the softplus margin.", gt=0)
    perturbation: float = setting(0.01, "s, relative size of the spectral perturbation.", ge=0, stated=False)
    candidates: Annotated[tuple[str, ...], BeforeValidator(one_of(CANDIDATES))] = setting(
        PAPER_CANDIDATES, "Candidate rollouts, ranked for failure."
    )
    diagnostics: Annotated[tuple[str, ...], BeforeValidator(one_of(DIAGNOSTICS))] = setting(
        PAPER_DIAGNOSTICS, "Diagnostics that rank them."
    )


class FixedWeightSettings(RelativeSettings):
    """The control of HERO."""

    fixed_alpha: float = setting(0.5, "The constant that replaces alpha.", ge=0)


class RelativeStrategy(Strategy[Any]):
    """A `Hero` in training: its state, and the trainer's count of updates."""

    section: ClassVar[str] = "hero"

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        settings: RelativeSettings = self.settings
        if settings.start >= self.train.steps:
            raise HeroError(
                f"hero.start={settings.start} is not below train.steps={self.train.steps}: the relative term would "
                "never act; lower it."
            )
        schedule = Ramp(settings.warmup, settings.lambda_max)
        absolute = None if self.train.loss == "relative" else self.absolute
        domain = Domain(self.geometry.weights, norm=self.norm)
        self.hero = Hero(settings.start, weight=schedule, domain=domain, absolute=absolute)
        self.state = self.hero.init()
        self.total = self.differentiated(total_loss)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        gradients = None

        def total(*arguments: Any) -> Any:
            nonlocal gradients
            found, gradients = self.total(*arguments)
            return found

        value, self.state, comparison = self.hero(
            model,
            batch.context,
            batch.truth,
            replace(self.state, step=batch.step),
            index=batch.index,
            generator=batch.generator,
            unroll=self.unroll,
            total=total,
        )
        return Loss(value, {} if comparison is None else comparison.statistics(), gradients)

    def state_dict(self) -> dict[str, Any]:
        return self.state.state_dict()

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.state = self.hero.load(state, model)


class HeroStrategy(RelativeStrategy):
    """The history-enriched objective on top of the absolute rollout loss."""

    title: ClassVar[str] = "HERO"
    suffix: ClassVar[str | None] = "-HERO"
    Settings: ClassVar[type[Settings]] = HeroSettings

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        settings: HeroSettings = self.settings
        self.hero = replace(
            self.hero,
            reference=FailureReference(CANDIDATES.only(*settings.candidates), DIAGNOSTICS.only(*settings.diagnostics)),
            relative=Margin(settings.margin, settings.beta) if settings.lambda_max else None,
            refresh=Every(settings.refresh),
            domain=self.geometry.domain(settings.perturbation),
        )


class FixedWeightStrategy(RelativeStrategy):
    """The control of HERO: the same schedule with α replaced by a constant, L = L_roll + λ_s α₀ D(τ_θ, τ_*).

    HERO's gain over it is the effect of history, its own gain over push_forward that of the added distance alone.
    """

    title: ClassVar[str] = "Fixed weight"
    suffix: ClassVar[str | None] = "-fixed"
    Settings: ClassVar[type[Settings]] = FixedWeightSettings

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        self.hero = replace(self.hero, relative=FixedWeight(self.settings.fixed_alpha))
