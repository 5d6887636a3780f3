"""One update, the same for the loop, measurements and the benchmarks, and all that it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from hero.config.settings import factors
from hero.data.windows import Batch
from hero.errors import HeroError
from hero.method.cache import mixes_samples
from hero.models.lora import adapt, has_adapters
from hero.optimizers import get_optimizer, scale_groups
from hero.parallel import combined, drawing
from hero.ranks import RANKS
from hero.runs.config import RunConfig
from hero.runs.start import freeze, own_module
from hero.seeding import seed_of
from hero.strategies import Compiler, Strategy, TrainSettings
from hero.strategies.base import trained_parameters
from hero.training.schedule import learning_rate


class AveragedWeights:
    """θ̂ ← d θ̂ + (1 - d) θ after every update, from θ̂ = θ at the start; without decay it is the model itself.

    A shadow of the trained weights that is validated, kept and deployed in their place.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.names = [name for name, p in model.named_parameters() if p.requires_grad] if decay else []
        self.shadow = [model.get_parameter(name).detach().clone() for name in self.names]

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """After an optimiser step."""
        if self.shadow:
            torch._foreach_lerp_(self.shadow, [model.get_parameter(name) for name in self.names], 1 - self.decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights in it; its own come back afterwards."""
        own = [model.get_parameter(name).detach().clone() for name in self.names]
        self._put(model, self.shadow)
        try:
            yield
        finally:
            self._put(model, own)

    @torch.no_grad()
    def _put(self, model: nn.Module, values: list[Tensor]) -> None:
        for name, value in zip(self.names, values, strict=True):
            model.get_parameter(name).copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        """The shadow by name; empty without decay."""
        return dict(zip(self.names, self.shadow, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, mine in zip(self.names, self.shadow, strict=True):
            mine.copy_(state[name])


@dataclass
class Trainee:
    """Everything that an update changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    strategy: Strategy[Any]
    average: AveragedWeights
    settings: TrainSettings

    @cached_property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that have gradients."""
        return trained_parameters(self.model)

    @classmethod
    def of(cls, config: RunConfig, model: nn.Module, compile_with: Compiler | None = None) -> Trainee:
        """The model of a run, its optimizer, strategy and averaged weights; `compile_with` compiles functions."""
        train = config.train
        add_adapters(config, model)
        freeze(model, train.freeze)
        strategy, average = config.make_strategy(compile_with), AveragedWeights(model, train.ema)
        make = get_optimizer(train.optimizer).make
        optimizer = make(config.optimizer, model, train.lr, train.weight_decay, compile_with)
        scale_groups(optimizer, own_module(model), factors(train.lr_scale))
        return cls(model, optimizer, strategy, average, train)


def add_adapters(config: RunConfig, model: nn.Module) -> None:
    """The adapters of a run that has some, once."""
    train = config.train
    if train.lora and (not train.init or train.keep_every):
        raise HeroError(
            f"train.lora={train.lora} adapts the weights of train.init, and keeps no checkpoints by train.keep_every; "
            "name weights to start from, and leave the other out."
        )
    if train.lora and not has_adapters(model):
        adapt(own_module(model), train.lora, train.lora_layers, train.lora_full, seed_of(config.seed, "lora"))


def check_shares(model: nn.Module, batch: int, parts: int) -> None:
    """Refuse more processes than windows of a batch, and modules whose output for a sample depends on the others."""
    if RANKS.count == 1 and parts == 1:
        return
    if RANKS.count > 1 and parts > 1:
        raise HeroError(f"train.accumulate={parts} is for one process; {RANKS.count} compute a batch in parts already.")
    if batch < RANKS.count:
        raise HeroError(
            f"train.batch={batch} leaves nothing to some of the {RANKS.count} processes; raise it, or start fewer."
        )
    for name, module in model.named_modules():
        if mixes_samples(module):
            raise HeroError(
                f"{type(module).__name__} ({name}) mixes the samples of a batch, which is computed in parts; "
                "train it in one process with train.accumulate=1, or normalise each sample, as GroupNorm does."
            )


def gradients(trainee: Trainee, batch: Batch) -> dict[str, Tensor | float]:
    """Compute the gradient of the loss of a batch, at once or as the sum over its parts; returns detached statistics.

    A part draws the random numbers of the whole batch and takes its rows, so the loss is the same mean over samples.
    """
    total, parts = len(batch.truth), min(trainee.settings.accumulate, len(batch.truth))
    if parts == 1:
        loss = trainee.strategy.loss(trainee.model, batch)
        trainee.optimizer.zero_grad(set_to_none=True)
        loss.backward(trainee.trained)
        return {"loss": loss.value.detach(), **loss.statistics}
    trainee.optimizer.zero_grad(set_to_none=True)
    drawn, found = batch.generator.get_state(), dict[str, Tensor | float]()
    for part in range(parts):
        first, stop = (place * total // parts for place in (part, part + 1))
        batch.generator.set_state(drawn)
        with drawing(slice(first, stop), total):
            loss = trainee.strategy.loss(trainee.model, batch.rows(slice(first, stop)))
        weight = (stop - first) / total
        loss.backward(trainee.trained, weight)
        for name, value in {"loss": loss.value.detach(), **loss.statistics}.items():
            found[name] = found.get(name, 0.0) + weight * value
    return found


def update(trainee: Trainee, batch: Batch) -> dict[str, Tensor | float]:
    """Update the weights on one batch of windows; returns detached statistics, still on the device."""
    settings, model, optimizer = trainee.settings, trainee.model, trainee.optimizer
    for group in optimizer.param_groups:
        factor = group.get("lr_scale", 1.0)
        group["lr"] = factor * learning_rate(batch.step, settings.lr, settings.warmup, settings.steps)
    statistics = combined(trainee.trained, gradients(trainee, batch))
    norm = nn.utils.clip_grad_norm_(trainee.trained, settings.clip or float("inf"))
    optimizer.step()
    trainee.average.update(model)
    return {"loss": statistics.pop("loss"), "grad_norm": norm, **statistics}
