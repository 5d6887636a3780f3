"""Backbones by name: any nn.Module (batch, H*channels + conditioning, *space) -> (batch, channels, *space)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from hero.config.given import found, is_given
from hero.config.registry import Registry, check_part_name, import_subclass
from hero.errors import HeroError, reason_of
from hero.models.fno import FNO as FNO
from hero.models.settings import BackboneSettings, FNOSettings, TransolverSettings, UNetSettings, UserModuleSettings
from hero.models.transolver import Transolver as Transolver
from hero.models.unet import UNet as UNet
from hero.models.wrappers import MixedPrecision
from hero.parts import BACKBONES as BY_NAME


@dataclass(frozen=True)
class Backbone:
    """An entry of the registry. `build(settings, dims, in_channels, out_channels)` returns the module."""

    title: str  # display name
    short: str  # display name in the labels of strategies, as in Trans.-HERO
    Settings: type[BackboneSettings]
    build: Callable[..., nn.Module]
    takes_boundary: bool = False  # whether `build` takes a fifth argument, for each axis whether it is periodic
    takes_points: bool = False  # whether it also maps scattered points, (batch, channel, points), with dims=None


BACKBONES: Registry[Backbone] = BY_NAME
OURS = {
    "fno": Backbone("FNO", "FNO", FNOSettings, lambda s, dims, i, o: FNO(i, o, **s.own())),
    "transolver": Backbone(
        "Transolver",
        "Trans.",
        TransolverSettings,
        lambda s, dims, i, o: Transolver(i, o, dims, **s.own()),
        takes_points=True,
    ),
    "unet": Backbone(
        "U-Net",
        "U-Net",
        UNetSettings,
        lambda s, dims, i, o, periodic: UNet(i, o, periodic, **s.own()),
        takes_boundary=True,
    ),
}


def user_backbone(name: str) -> Backbone:
    """Your own module as package.module:Class, which is imported only when it is built, or as it was handed over."""
    if not is_given(name):
        check_part_name("backbone", name)
    title = name.rpartition(":")[2]
    return Backbone(title, title, UserModuleSettings, build_user_module, takes_points=True)


def build_user_module(settings: UserModuleSettings, dims: int | None, in_channels: int, out_channels: int) -> nn.Module:
    """A copy of the network that was handed over, whose weights are the start; or the class with `backbone.kwargs`.

    in_channels and out_channels are filled in where the class takes them.
    """
    if is_given(settings.name):
        net: nn.Module = copy.deepcopy(found("backbone", settings.name))
        return net.float().cpu().train()
    cls = import_subclass("backbone", settings.name, nn.Module)
    takes = {name for base in cls.__mro__ for name in inspect.signature(base).parameters}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    kwargs = {name: value for name, value in channels.items() if name in takes} | dict(settings.kwargs)
    try:
        made: nn.Module = cls(**kwargs)
    except Exception as error:  # whatever the constructor may raise is about its arguments
        raise HeroError(
            f"backbone {settings.name} refuses {kwargs} ({error}); set its arguments with backbone.kwargs.NAME=VALUE."
        ) from error
    return made


def build_backbone(
    settings: BackboneSettings,
    space: tuple[int, ...],
    in_channels: int,
    out_channels: int,
    seed: int,
    periodic: tuple[bool, ...] | None = None,
    cloud: bool = False,
    most: int | None = None,
) -> nn.Module:
    """The backbone for the grid `space`, with initial weights that depend on `seed` alone.

    `periodic` says it of each axis, None of all; with `cloud` space is (points,), scattered. Modules draw their weights
    from the global generator; it is seeded inside a fork, so the caller's generator is untouched and any module is
    reproducible. OverflowError, before it takes memory, if one of our backbones has more than `most` numbers.
    """
    backbone = BACKBONES[settings.name]
    if cloud and not backbone.takes_points:
        able = ", ".join(name for name, part in BACKBONES.items() if part.takes_points)
        raise HeroError(
            f"backbone.name={settings.name} needs a grid and the data are scattered points; choose one of: {able}, "
            "package.module:Class."
        )
    boundary = (periodic or (True,) * len(space),) if backbone.takes_boundary else ()
    build = partial(backbone.build, settings, None if cloud else len(space), in_channels, out_channels, *boundary)
    if most is not None and settings.name in OURS:
        with torch.device("meta"):
            count = sum(tensor.numel() for tensor in build().state_dict().values())
        if count > most:
            raise OverflowError
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
    if settings.name not in BACKBONES:
        check_shapes(model, settings.name, in_channels, out_channels, space)
    return MixedPrecision(model) if settings.precision == "bfloat16" else model


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers; real and imaginary parts count separately."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters() if p.requires_grad)


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
    found = f"{tuple(result.shape)} in {result.dtype}" if isinstance(result, torch.Tensor) else type(result).__name__
    if found != f"{wanted} in {torch.float32}":
        raise HeroError(
            f"backbone {name} maps {given} to {found}, not to {wanted} in float32; adapt it or its backbone.kwargs."
        )
    if not is_same:
        raise HeroError(
            f"backbone {name} keeps a state from one call to the next: the same input is answered in two ways; begin "
            "the state inside of forward, from the states that train.history gives."
        )


def remembers(model: nn.Module, x: torch.Tensor) -> bool:
    """Whether a module in evaluation mode, with equal random numbers, treats the same input in two ways.

    Inputs and outputs of its submodules are compared as well: a head that starts at zero would hide the difference.
    """
    sizes: list[list[float]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        numbers = (part for part in (*inputs, output) if isinstance(part, torch.Tensor))
        sizes[-1].extend(float(part.abs().sum(dtype=torch.float64)) for part in numbers if part.dtype != torch.bool)

    was_training = model.training
    model.eval()
    hook = register_module_forward_hook(note)  # of every module
    try:
        for _ in range(2):
            sizes.append([])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model(x)
    finally:
        model.train(was_training)
        hook.remove()
    first, second = sizes
    return len(first) != len(second) or not np.allclose(first, second, rtol=1e-5, equal_nan=True)
