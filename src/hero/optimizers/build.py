"""Optimizers by name: adamw (the paper's), soap, any class of torch.optim, your own class or function.

`OPTIMIZERS["mine"] = OptimizerPart(...)` adds one.
"""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from hero.config import Registry, Settings, setting
from hero.config.given import found, is_given, is_known
from hero.config.registry import check_part_name, import_subclass
from hero.errors import HeroError, unknown_name
from hero.models.lora import matching
from hero.optimizers.soap import SOAP as SOAP

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # makes a faster form of a function that does the same


class OptimizerSettings(Settings):
    """Section `optimizer`: the settings of the chosen optimizer."""


@dataclass(frozen=True)
class OptimizerPart:
    """An entry of the registry. `make(settings, model, lr, weight_decay, compile_with)` returns the optimizer."""

    title: str  # display name
    lr: float  # default peak learning rate
    Settings: type[OptimizerSettings]
    make: Callable[[Any, nn.Module, float, float, Compiler | None], torch.optim.Optimizer]


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


class SOAPSettings(OptimizerSettings):
    """SOAP."""

    beta1: float = setting(0.95, "Decay of the mean of the gradient.", ge=0, lt=1)
    beta2: float = setting(0.95, "Decay of the mean of its square, and of the preconditioners.", ge=0, lt=1)
    eps: float = setting(1e-8, "Added to the root of the mean square.", ge=0)
    refresh: int = setting(10, "Updates between two refreshes of the eigenvectors.", ge=1)
    longest_axis: int = setting(1024, "Longer axes of a weight are not rotated.", ge=0)


def make_soap(
    settings: SOAPSettings, model: nn.Module, lr: float, weight_decay: float, compile_with: Compiler | None
) -> torch.optim.Optimizer:
    betas, own = (settings.beta1, settings.beta2), (settings.refresh, settings.longest_axis)
    return SOAP(model.parameters(), lr, betas, settings.eps, weight_decay, *own, compile_with=compile_with)


OPTIMIZERS: Registry[OptimizerPart] = Registry(
    "optimizer",
    {
        "adamw": OptimizerPart("AdamW", 1e-3, AdamWSettings, make_adamw),
        "soap": OptimizerPart("SOAP", 5e-3, SOAPSettings, make_soap),
    },
)

NEED_MORE = {"Optimizer", "LBFGS", "SparseAdam"}
"""Not usable by name: the base class, one that evaluates the loss itself, one for sparse gradients."""
TORCH_NAMES = {
    name.lower(): name
    for name, part in vars(torch.optim).items()
    if isinstance(part, type) and issubclass(part, torch.optim.Optimizer) and name not in NEED_MORE
}


class UserOptimizerSettings(OptimizerSettings):
    """A class of torch.optim, or your own."""

    kwargs: Mapping[str, Any] = setting({}, "Arguments of the class by name.")


def get_optimizer(name: str) -> OptimizerPart:
    """A registered optimizer, a class of torch.optim in any case, or package.module:Class, imported when it is made."""
    lower, title = name.lower(), name.rpartition(":")[2]
    if is_given(name):
        return given_optimizer(name, title)
    if ":" in name:
        check_part_name("optimizer", name)
        find = partial(import_subclass, "optimizer", name, torch.optim.Optimizer)
        return OptimizerPart(title, 1e-3, UserOptimizerSettings, partial(make_of_class, name, find))
    known = {registered.lower(): registered for registered in OPTIMIZERS}
    if lower in known:
        return OPTIMIZERS[known[lower]]
    if lower in TORCH_NAMES:
        cls = getattr(torch.optim, TORCH_NAMES[lower])
        make = partial(make_of_class, cls.__name__, lambda: cls)
        lr = float(inspect.signature(cls).parameters["lr"].default)
        return OptimizerPart(cls.__name__, lr, UserOptimizerSettings, make)
    torch_names = [torch_name for lower, torch_name in TORCH_NAMES.items() if lower not in known]
    raise unknown_name("optimizer", name, [*OPTIMIZERS, *torch_names, "package.module:Class"])


def scale_groups(optimizer: torch.optim.Optimizer, model: nn.Module, factors: Mapping[str, float]) -> None:
    """Split the groups of an optimizer by the factor on the learning rate of their parameters, `lr_scale`."""
    if not factors:
        return
    names = dict(model.named_parameters())
    for pattern in factors:
        matching("lr_scale", pattern, names)
    of = {
        id(parameter): next((factor for pattern, factor in factors.items() if fnmatch.fnmatch(name, pattern)), 1.0)
        for name, parameter in names.items()
    }
    optimizer.param_groups[:] = [
        {**group, "params": parameters, "lr_scale": factor}
        for group in optimizer.param_groups
        for factor in (1.0, *sorted({*factors.values()} - {1.0}))
        if (parameters := [p for p in group["params"] if of.get(id(p), 1.0) == factor])
    ]


def make_of_class(
    name: str,
    find: Callable[[], Any],
    settings: UserOptimizerSettings,
    model: nn.Module,
    lr: float,
    weight_decay: float,
    compile_with: Compiler | None,
) -> torch.optim.Optimizer:
    """The class that `find` gives, with lr, weight_decay where it takes that, and `optimizer.kwargs`."""
    cls = find()
    decays = {"weight_decay": weight_decay} if "weight_decay" in inspect.signature(cls).parameters else {}
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.kwargs.items()}
    kwargs = {"lr": lr, **decays, **own}
    try:
        made: torch.optim.Optimizer = cls(model.parameters(), **kwargs)
    except Exception as error:  # whatever the constructor may raise is about its arguments
        raise HeroError(
            f"optimizer {name} refuses {kwargs} ({error}); set its arguments with optimizer.kwargs.NAME=VALUE."
        ) from error
    return made


def given_optimizer(name: str, title: str) -> OptimizerPart:
    """A function of the parameters that was handed over; the learning rate that it sets is the default of train.lr."""

    def made(parameters: Any) -> torch.optim.Optimizer:
        optimizer = found("optimizer", name)(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise HeroError(f"optimizer {name} returns {type(optimizer).__name__}; return a torch.optim.Optimizer.")
        return optimizer

    lr = 1e-3
    if is_known(name):
        lr = float(made([nn.Parameter(torch.zeros(2, 2))]).param_groups[0].get("lr", lr))
    return OptimizerPart(title, lr, OptimizerSettings, lambda settings, model, *unused: made(model.parameters()))
