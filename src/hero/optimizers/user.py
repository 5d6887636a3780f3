"""Any class of torch.optim, your own optimizer named `package.module:Class`, or a function handed over in Python."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from hero.config import setting
from hero.config.given import found, is_known
from hero.config.registry import check_part_name, import_part
from hero.errors import HeroError
from hero.optimizers.base import Compiler, OptimizerPart, OptimizerSettings

NEED_MORE = {"Optimizer", "LBFGS", "SparseAdam"}
"""Not usable by name: the base class, one that evaluates the loss itself, one for sparse gradients."""
TORCH_NAMES = {
    name.lower(): name
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and name not in NEED_MORE
}


class UserOptimizerSettings(OptimizerSettings):
    """A class of torch.optim, or your own."""

    kwargs: Mapping[str, Any] = setting({}, "Arguments of the class by name.")


def torch_optimizer(name: str) -> OptimizerPart:
    """A class of torch.optim; its own default learning rate is kept."""
    cls = getattr(torch.optim, name)
    lr = float(inspect.signature(cls).parameters["lr"].default)
    return OptimizerPart(name, lr, UserOptimizerSettings, partial(build, lambda: cls, name))


def user_optimizer(name: str) -> OptimizerPart:
    """Your own class, imported when it is made."""
    check_part_name("optimizer", name)
    title = name.rpartition(":")[2]
    return OptimizerPart(title, 1e-3, UserOptimizerSettings, partial(build, partial(import_class, name), name))


def given_optimizer(name: str) -> OptimizerPart:
    """A function of the parameters that was handed over; the learning rate that it sets is the default of train.lr."""

    def made(parameters: Any) -> torch.optim.Optimizer:
        optimizer = found("optimizer", name)(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise HeroError(f"optimizer {name} returns {type(optimizer).__name__}; return a torch.optim.Optimizer.")
        return optimizer

    def make(settings: Any, model: nn.Module, lr: float, *unused: Any) -> torch.optim.Optimizer:
        return made(model.parameters())

    lr = 1e-3
    if is_known(name):
        lr = float(made([nn.Parameter(torch.zeros(2, 2))]).param_groups[0].get("lr", lr))
    return OptimizerPart(name.rpartition(":")[2], lr, OptimizerSettings, make)


def import_class(name: str) -> type[torch.optim.Optimizer]:
    """The torch.optim.Optimizer subclass called `package.module:Class`, also from the current folder."""
    found = import_part("optimizer", name)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise HeroError(f"{name} is not a torch.optim.Optimizer; give train.optimizer as package.module:Class.")
    return found


def build(
    find: Any,
    name: str,
    settings: UserOptimizerSettings,
    model: nn.Module,
    lr: float,
    weight_decay: float,
    compile_with: Compiler | None,
) -> torch.optim.Optimizer:
    """The class with lr, weight_decay where it takes that, and `optimizer.kwargs`."""
    cls = find()
    kwargs: dict[str, Any] = {"lr": lr}
    if "weight_decay" in inspect.signature(cls).parameters:
        kwargs["weight_decay"] = weight_decay
    kwargs.update({key: tuple(value) if isinstance(value, list) else value for key, value in settings.kwargs.items()})
    try:
        made: torch.optim.Optimizer = cls(model.parameters(), **kwargs)
    except Exception as error:  # whatever the constructor may raise is about its arguments
        raise HeroError(
            f"optimizer {name} refuses {kwargs} ({error}); set its arguments with optimizer.kwargs.NAME=VALUE."
        ) from error
    return made
