"""Optimizers by name: adamw, soap, muon, any class of torch.optim, or your own as package.module:Class."""

from __future__ import annotations

import torch
from torch import nn

from hero.config import Registry
from hero.config.given import is_given
from hero.errors import unknown_name
from hero.optimizers.adamw import ADAMW
from hero.optimizers.base import Compiler, OptimizerPart, OptimizerSettings
from hero.optimizers.muon import MUON
from hero.optimizers.soap import SOAP_PART
from hero.optimizers.user import TORCH_NAMES, given_optimizer, torch_optimizer, user_optimizer

__all__ = ["OPTIMIZERS", "OptimizerPart", "OptimizerSettings", "get_optimizer", "make_optimizer"]

OPTIMIZERS: Registry[OptimizerPart] = Registry("optimizer", {"adamw": ADAMW, "soap": SOAP_PART, "muon": MUON})


def get_optimizer(name: str) -> OptimizerPart:
    """A registered optimizer, a class of torch.optim in any case, or package.module:Class, imported when it is made."""
    if is_given(name):
        return given_optimizer(name)
    if ":" in name:
        return user_optimizer(name)
    known = {registered.lower(): registered for registered in OPTIMIZERS}
    if name.lower() in known:
        return OPTIMIZERS[known[name.lower()]]
    if name.lower() in TORCH_NAMES:
        return torch_optimizer(TORCH_NAMES[name.lower()])
    torch_names = [torch_name for lower, torch_name in TORCH_NAMES.items() if lower not in known]
    raise unknown_name("optimizer", name, [*OPTIMIZERS, *torch_names, "package.module:Class"])


def make_optimizer(
    name: str,
    settings: OptimizerSettings,
    model: nn.Module,
    lr: float,
    weight_decay: float,
    compile_with: Compiler | None = None,
) -> torch.optim.Optimizer:
    """The optimizer of all parameters of `model`; `compile_with` compiles its functions, if it has any to compile."""
    return get_optimizer(name).make(settings, model, lr, weight_decay, compile_with)
