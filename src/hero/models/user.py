"""Your own module as a backbone: named `package.module:Class`, with its arguments as data, or handed over in Python."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import torch
from torch import nn

from hero.config.given import found, give
from hero.config.registry import import_part
from hero.errors import HeroError, reason_of
from hero.models.settings import UserModuleSettings


def import_class(name: str) -> type[nn.Module]:
    """The nn.Module subclass called `package.module:Class`, also from the current folder."""
    module_name, _, class_name = name.partition(":")
    found = import_part("backbone", name)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise HeroError(f"{module_name} has no nn.Module called {class_name!r}; give backbone as package.module:Class.")
    return found


def build_user_module(settings: UserModuleSettings, dims: int | None, in_channels: int, out_channels: int) -> nn.Module:
    """The class with `backbone.kwargs`; in_channels and out_channels are filled in where it takes them."""
    cls = import_class(settings.name)
    takes = {name for base in cls.__mro__ for name in inspect.signature(base).parameters}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    kwargs: dict[str, Any] = {name: value for name, value in channels.items() if name in takes}
    kwargs.update(settings.kwargs)
    try:
        return cls(**kwargs)
    except Exception as error:  # whatever the constructor may raise is about its arguments
        raise HeroError(
            f"backbone {settings.name} refuses {kwargs} ({error}); set its arguments with backbone.kwargs.NAME=VALUE."
        ) from error


def given_module(net: nn.Module) -> str:
    """The name by which configurations know a network that is trained from the weights that it has now."""
    return give(net)


def build_given_module(
    settings: UserModuleSettings, dims: int | None, in_channels: int, out_channels: int
) -> nn.Module:
    """A copy of the network that was handed over; its own weights are the start, whatever the seed."""
    net: nn.Module = copy.deepcopy(found("backbone", settings.name))
    return net.float().cpu().train()


@torch.no_grad()
def check_shapes(model: nn.Module, name: str, in_channels: int, out_channels: int, space: tuple[int, ...]) -> None:
    """Refuse a module that does not map (batch, in_channels, *space) to (batch, out_channels, *space)."""
    given, wanted = (2, in_channels, *space), (2, out_channels, *space)
    try:
        with torch.random.fork_rng(devices=[]):  # dropout may draw
            result = model(torch.zeros(given))
        is_same = not remembers(model, torch.rand(given, generator=torch.Generator().manual_seed(0)))
    except Exception as error:
        raise HeroError(
            f"backbone {name} fails on an input of shape {given} ({reason_of(error)}); a backbone maps it to {wanted}."
        ) from error
    shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
    if shape != wanted:
        raise HeroError(
            f"backbone {name} maps {given} to {shape}, not to {wanted}; adapt it, or set its backbone.kwargs."
        )
    if result.dtype != torch.float32:
        raise HeroError(f"backbone {name} gives {result.dtype} for float32 states; make it return float32.")
    if not is_same:
        raise HeroError(
            f"backbone {name} keeps a state from one call to the next: the same input is answered in two ways; begin "
            "the state inside of forward, from the states that train.history gives."
        )


def remembers(model: nn.Module, x: torch.Tensor) -> bool:
    """Whether a module in evaluation mode, with equal random numbers, treats the same input in two ways.

    Inputs of its submodules are compared as well: a head that starts at zero would hide the difference.
    """
    sizes: list[list[float]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any = None) -> None:
        numbers = (part for part in (*inputs, output) if isinstance(part, torch.Tensor))
        sizes[-1].extend(float(part.abs().sum(dtype=torch.float64)) for part in numbers if part.dtype != torch.bool)

    was_training = model.training
    model.eval()
    hooks = [part.register_forward_pre_hook(note) for part in model.modules()]
    hooks.append(model.register_forward_hook(note))
    try:
        for _ in range(2):
            sizes.append([])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model(x)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    first, second = sizes
    return len(first) != len(second) or not np.allclose(first, second, rtol=1e-5, equal_nan=True)
