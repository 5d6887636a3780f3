"""AdamW, the paper's optimizer."""

from __future__ import annotations

import torch
from torch import nn

from hero.config import setting
from hero.optimizers.base import Compiler, OptimizerPart, OptimizerSettings


class AdamWSettings(OptimizerSettings):
    """AdamW."""

    beta1: float = setting(0.9, "Decay of the mean of the gradient.", ge=0, lt=1)
    beta2: float = setting(0.999, "Decay of the mean of its square.", ge=0, lt=1)
    eps: float = setting(1e-8, "Added to the root of the mean square.", ge=0)


def make_adamw(
    settings: AdamWSettings, model: nn.Module, lr: float, weight_decay: float, compile_with: Compiler | None
) -> torch.optim.Optimizer:
    """AdamW, in one kernel where torch has one: not for complex weights such as neuralop's."""
    parameters = list(model.parameters())
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(parameters, lr, betas, settings.eps, weight_decay, fused=fused)


ADAMW = OptimizerPart("AdamW", 1e-3, AdamWSettings, make_adamw)
