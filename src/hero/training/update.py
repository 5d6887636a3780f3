"""One update, the same for the loop, measurements and the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hero.data.windows import Batch
from hero.optimizers import make_optimizer
from hero.parallel import combined
from hero.runs.config import RunConfig
from hero.runs.start import freeze
from hero.strategies import Compiler, Strategy, TrainSettings
from hero.training.ema import AveragedWeights
from hero.training.schedule import learning_rate


@dataclass
class Trainee:
    """Everything that an update changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    strategy: Strategy[Any]
    average: AveragedWeights
    settings: TrainSettings

    @classmethod
    def of(cls, config: RunConfig, model: nn.Module, compile_with: Compiler | None = None) -> Trainee:
        """The model of a run, its optimizer, strategy and averaged weights; `compile_with` compiles functions."""
        freeze(model, config.train.freeze)
        strategy = config.make_strategy(compile_with)
        train, average = config.train, AveragedWeights(model, config.train.ema)
        optimizer = make_optimizer(train.optimizer, config.optimizer, model, train.lr, train.weight_decay, compile_with)
        return cls(model, optimizer, strategy, average, train)


def update(trainee: Trainee, batch: Batch) -> dict[str, Tensor | float]:
    """Update the weights on one batch of windows; returns detached statistics, still on the device."""
    settings, model, optimizer = trainee.settings, trainee.model, trainee.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(batch.step, settings.lr, settings.warmup, settings.steps)
    loss = trainee.strategy.loss(model, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.value.backward()
    statistics = combined(model.parameters(), {"loss": loss.value.detach(), **loss.statistics})
    norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip or float("inf"))
    optimizer.step()
    trainee.average.update(model)
    return {"loss": statistics.pop("loss"), "grad_norm": norm, **statistics}
