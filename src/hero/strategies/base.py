"""The one abstraction: a strategy says how a window becomes a loss, and how the trained model steps at test time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Generator, Tensor, nn

from hero.method.rollout import Context, Stepper, Unroll, as_stepper, recomputed_unroll, trajectory_distance, unroll
from hero.models.wrappers import Normalised, Residual

if TYPE_CHECKING:
    from hero.runs.config import RunConfig


@dataclass(frozen=True)
class Batch:
    """Training windows: contexts z_n, their true futures τ_*, the step s, and a generator seeded for it alone."""

    context: Context
    truth: Tensor  # (batch, K, channel, *space)
    step: int
    index: Tensor | None  # window numbers on the CPU, None where windows cannot be numbered
    generator: Generator


@dataclass(frozen=True)
class Loss:
    """What is minimised, and detached scalars for the log."""

    value: Tensor
    statistics: dict[str, Tensor | float]


class Strategy:
    """Base of all strategies; a subclass is registered in `hero.strategies` and gives `loss`."""

    sections: ClassVar[tuple[str, ...]] = ()
    """Configuration sections, beyond the shared ones, that the strategy reads."""
    ema: ClassVar[float] = 0.0
    """What train.ema is unless set."""
    recompute: ClassVar[bool] = False
    """What train.recompute is unless set."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.unroll: Unroll = recomputed_unroll if config.train.recompute else unroll

    def operator(self, backbone: Callable[[int, int], nn.Module], channels: int) -> nn.Module:
        """G_θ, untrained: `backbone(in_channels, out_channels)` and what the configuration puts around it."""
        train = self.config.train
        model = backbone(train.history * channels, train.bundle * channels)
        if self.config.backbone.residual:
            model = Residual(model, channels, train.history)
        return Normalised(model, channels, train.history) if train.normalise else model

    def begin(self, model: nn.Module, data: Tensor) -> None:
        """Before the first update of a session: `data` is the training set (trajectory, time, channel, *space)."""
        if isinstance(model, Normalised):
            model.fit(data)

    @property
    def varies(self) -> bool:
        """Whether updates unroll different numbers of steps, for each of which code would be compiled."""
        return self.config.train.curriculum != "fixed"

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of one batch of windows."""
        raise TypeError(f"{type(self).__name__} must define loss(model, batch)")

    def stepper(self, model: nn.Module) -> Stepper:
        """How the trained model makes one step at test time."""
        return as_stepper(model)

    def absolute(self, tau: Tensor, truth: Tensor) -> Tensor:
        """The absolute loss, averaged over the batch: D(τ, τ_*), or the mean squared error under loss = "mse"."""
        if self.config.train.loss == "mse":
            return (tau - truth).square().mean()
        return trajectory_distance(tau, truth).mean()

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs beside the model and the optimiser."""
        return {}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Undo `state_dict`; `model` gives the architecture."""
