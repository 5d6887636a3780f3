"""The one abstraction: a strategy says how a window becomes a loss, and how the trained model steps at test time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from hero.config import Settings as BaseSettings
from hero.data import Source
from hero.data.windows import Batch, Context, Trajectories
from hero.errors import HeroError
from hero.method.domain import Geometry, geometry_of
from hero.method.losses import LOSSES, AbsoluteLoss
from hero.method.norm import Norm
from hero.method.rollout import Stepper, Unroll, as_stepper, recomputed_unroll, unroll
from hero.models.wrappers import Kept, Masked, Normalised, Residual
from hero.optimizers.build import Compiler as Compiler
from hero.ranks import RANKS
from hero.strategies.settings import TrainSettings, importance_of

S = TypeVar("S", bound=BaseSettings)

SMALL = 2**12  # values in a batch's contexts up to which one program for loss and gradients pays, measured on CPUs


@dataclass(frozen=True)
class Loss:
    """The number that is minimised, and detached scalars for the log."""

    value: Tensor
    statistics: dict[str, Tensor | float]
    gradients: Sequence[Tensor | None] | None = None  # by trained parameter, where compiled code made them as well

    def backward(self, parameters: Sequence[nn.Parameter], weight: float = 1.0) -> None:
        """Add the gradients of weight * value to those of the trained `parameters` of the model."""
        if self.gradients is None:
            (self.value if weight == 1 else weight * self.value).backward()
            return
        for p, g in zip(parameters, self.gradients, strict=True):
            if g is not None:
                g = g if weight == 1 else weight * g
                p.grad = g if p.grad is None else p.grad + g


@dataclass(frozen=True)
class Setup:
    """The part of a run's configuration that a strategy reads."""

    settings: BaseSettings  # the strategy's own section
    train: TrainSettings
    seed: int
    residual: bool  # whether the operator predicts the change of the state
    source: Source
    loss: BaseSettings  # the section of the absolute loss
    reach: tuple[int, ...] | None = None  # modes per axis that the backbone keeps; None: all


class Strategy(Generic[S]):
    """Base of all strategies; a subclass is registered in `hero.strategies` and defines `loss`."""

    title: ClassVar[str] = ""
    """Display name; the name of the class unless set."""
    suffix: ClassVar[str | None] = None
    """Follows the name of the backbone in the labels of tables, as in FNO-HERO; a dash and the name unless set."""
    section: ClassVar[str] = ""
    """The configuration section with the strategy's own settings."""
    Settings: ClassVar[type[BaseSettings]] = BaseSettings
    """The class of that section."""
    ema: ClassVar[float] = 0.0
    """Default of train.ema."""
    recompute: ClassVar[bool] = False
    """Default of train.recompute."""
    unrolls: ClassVar[bool] = True
    """Whether an update keeps train.unroll steps for its gradient, or one."""
    loss_name: ClassVar[str] = "relative"
    """Default of train.loss."""

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        """`compile_with` compiles the functions in which an update spends its time."""
        self.setup, self.train, self.seed = setup, setup.train, setup.seed
        self.settings: S = setup.settings  # type: ignore[assignment]
        self.compiles = compile_with is not None
        self.compile: Compiler = compile_with or (lambda function: function)
        self.norm = norm_of(setup.source, setup.train)
        self.geometry: Geometry = replace(geometry_of(setup.source, setup.reach), norm=self.norm)  # type: ignore[type-var]
        self.absolute: AbsoluteLoss = LOSSES[setup.train.loss].of(setup.loss, self.geometry, self.compile)
        self.unroll: Unroll = self.compile(recomputed_unroll if setup.train.recompute else unroll)
        self._rolled_loss = self.differentiated(rolled_loss)

    def operator(self, backbone: Callable[[int, int], nn.Module], channels: int) -> nn.Module:
        """G_θ, untrained: `backbone(in_channels, out_channels)` with the wrappers that the settings ask for."""
        train, source = self.train, self.setup.source
        history, conditioning = train.history, len(source.known)
        masks = int(source.masked and train.mask_input)
        model = backbone(history * channels + conditioning + masks, train.bundle * channels)
        if self.setup.residual:
            model = Residual(model, channels, history)
        if source.masked:
            model = Masked(model, channels, source.space, history, train.mask_input)
        return Normalised(model, channels, history, conditioning) if train.normalise else model

    def begin(self, model: nn.Module, data: Trajectories) -> None:
        """Before the first update of a session: `data` is the training set."""
        self.norm.fit(data)
        for part in model.modules():
            if isinstance(part, Normalised | Masked):
                part.fit(data)
            elif isinstance(part, Kept):
                part.fit_weights(self.norm.point_weights(torch.ones(1, *data.shape[2:])))

    @property
    def has_variable_length(self) -> bool:
        """Whether updates unroll different numbers of steps, for each of which code would be compiled."""
        return self.train.curriculum != "fixed"

    @property
    def first_windows_only(self) -> bool:
        """Whether windows begin with the first state of a trajectory."""
        return False

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of one batch of windows."""
        raise TypeError(f"{type(self).__name__} must define loss(model, batch)")

    def differentiated(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """`loss`, a function (model, context, ...) -> (value, *more), as one that returns this, and gradients.

        They are None unless one compiled program computes both: a quarter less time for updates of small networks.
        """

        def forward(model: nn.Module, *rest: Any) -> Any:
            value, *more = loss(model, *rest)
            return value, *(found.detach() for found in more)

        def both(model: nn.Module, *rest: Any) -> Any:
            value, *more = forward(model, *rest)
            return (value.detach(), *more), torch.autograd.grad(value, trained_parameters(model), allow_unused=True)

        if not self.compiles:
            return lambda *arguments: (loss(*arguments), None)
        compiled, compiled_both = self.compile(forward), self.compile(both)
        # Several processes talk to each other in the middle, and one program has no use for recomputing.
        apart = RANKS.count > 1 or self.train.recompute or not hasattr(torch._dynamo.config, "trace_autograd_ops")

        def call(model: nn.Module, context: Context, *rest: Any) -> Any:
            if apart or context.states.numel() > SMALL:
                return compiled(model, context, *rest), None
            torch._dynamo.config.trace_autograd_ops = True
            return compiled_both(model, context, *rest)

        return call

    def stepper(self, model: nn.Module) -> Stepper:
        """How the trained model makes one step at test time."""
        return as_stepper(model)

    def rolled_loss(self, model: nn.Module, context: Context, truth: Tensor) -> Loss:
        """The absolute loss of a rollout as long as `truth`; compiled, one function computes it and its gradients."""
        (value,), gradients = self._rolled_loss(model, context, truth, self.unroll, self.absolute)
        return Loss(value, {}, gradients)

    def state_dict(self) -> dict[str, Any]:
        """State that resuming needs in addition to model and optimizer."""
        return {}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Undo `state_dict`; `model` gives the architecture."""


def rolled_loss(
    model: nn.Module, context: Context, truth: Tensor, unroll: Unroll, absolute: AbsoluteLoss
) -> tuple[Tensor]:
    """ℓ(Rollout(G_θ, z_n, K), τ_*)."""
    return (absolute(unroll(model, context, truth.shape[1]), truth),)


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes."""
    return [p for p in model.parameters() if p.requires_grad]


def norm_of(source: Source, train: TrainSettings) -> Norm:
    """The norm of a run, before it knows the statistics of the training data."""
    importance = importance_of(train.channel_weights, source.channel_names)
    weights = geometry_of(source, None).weights
    return Norm(weights, by_channel=train.norm == "channels", importance=importance)


def require_solver(source: Source, part: str) -> None:
    """Refuse data that cannot be continued from another state."""
    if not source.has_solver:
        raise HeroError(
            f"{part} needs a solver that continues the truth from any state, and {source.title} has none; choose a "
            "strategy that learns from data alone, such as hero or push_forward."
        )
