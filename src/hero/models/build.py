"""Backbones by name: any nn.Module (batch, H*channels + conditioning, *space) -> (batch, channels, *space)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hero.config.given import is_given
from hero.config.registry import Registry, check_part_name
from hero.errors import HeroError
from hero.models.fno import FNO
from hero.models.settings import BackboneSettings, FNOSettings, TransolverSettings, UNetSettings, UserModuleSettings
from hero.models.transolver import Transolver
from hero.models.unet import UNet
from hero.models.user import build_given_module, build_user_module, check_shapes
from hero.models.wrappers import MixedPrecision, Normalised
from hero.parts import BACKBONES as BY_NAME

__all__ = [
    "BACKBONES",
    "FNO",
    "Backbone",
    "BackboneSettings",
    "Normalised",
    "Transolver",
    "UNet",
    "build_backbone",
    "count_parameters",
]


@dataclass(frozen=True)
class Backbone:
    """An entry of the registry. `build(settings, dims, in_channels, out_channels)` returns the module."""

    title: str
    """Display name."""
    short: str
    """Display name in the labels of strategies, as in Trans.-HERO."""
    Settings: type[BackboneSettings]
    build: Callable[..., nn.Module]
    takes_boundary: bool = False
    """Whether `build` takes a fifth argument, for each axis whether it is periodic."""
    takes_points: bool = False
    """Whether it also maps scattered points, (batch, channel, points), which it gets with dims=None."""


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
    build = build_given_module if is_given(name) else build_user_module
    return Backbone(title, title, UserModuleSettings, build, takes_points=True)


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
