"""An optimizer as a part: its settings, its default learning rate and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hero.config import Settings

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class OptimizerSettings(Settings):
    """Section `optimizer`: the settings of the chosen optimizer."""


@dataclass(frozen=True)
class OptimizerPart:
    """An entry of the registry. `make(settings, model, lr, weight_decay, compile_with)` returns the optimizer."""

    title: str
    """Display name."""
    lr: float
    """Default peak learning rate."""
    Settings: type[OptimizerSettings]
    make: Callable[[Any, nn.Module, float, float, Compiler | None], torch.optim.Optimizer]


def is_spectral(p: Tensor) -> bool:
    """Whether `p` is a complex matrix for each mode: complex (in, out, *modes), or real (2, in, out, *modes)."""
    return p.dim() >= 3 if p.is_complex() else p.dim() >= 4 and p.shape[0] == 2
