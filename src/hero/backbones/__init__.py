"""Backbones by name: any nn.Module (batch, H*channels + conditioning, *space) -> (batch, channels, *space)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from hero.backbones.fno import FNO
from hero.backbones.normalised import Normalised
from hero.backbones.spectral import check_modes

if TYPE_CHECKING:
    from hero.config import BackboneConfig, RunConfig
    from hero.tasks import Task

__all__ = ["BACKBONES", "FNO", "Normalised", "build_backbone", "build_operator", "check_backbone", "count_parameters"]


@dataclass(frozen=True)
class BackboneSpec:
    """How to build a backbone from its settings, and the paper's settings per dimension."""

    build: Callable[[BackboneConfig, int, int, int], nn.Module]  # (settings, dims, in channels, out channels)
    paper: dict[int, dict[str, int]]


def build_fno(config: BackboneConfig, dims: int, in_channels: int, out_channels: int) -> FNO:
    """FNO from a resolved configuration."""
    assert config.width is not None
    assert config.modes is not None
    assert config.depth is not None
    return FNO(in_channels, out_channels, config.width, (config.modes,) * dims, config.depth)


BACKBONES: dict[str, BackboneSpec] = {
    "fno": BackboneSpec(
        build_fno,
        paper={
            1: {"width": 28, "modes": 28, "depth": 1},
            2: {"width": 20, "modes": 8, "depth": 1},
            3: {"width": 4, "modes": 8, "depth": 5},
        },
    ),
}


def build_backbone(config: BackboneConfig, dims: int, in_channels: int, out_channels: int, seed: int) -> nn.Module:
    """The backbone with initial weights that depend on `seed` alone.

    Modules draw their weights from the global generator; it is seeded inside a fork, so the caller's is untouched and
    anyone's module is reproducible without knowing about us.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BACKBONES[config.name].build(config, dims, in_channels, out_channels)


def build_operator(config: RunConfig, task: Task) -> nn.Module:
    """G_θ of a run, untrained: the backbone for its history and channels, normalised if the run asks for it."""
    history, channels = config.train.history, task.channels
    model = build_backbone(config.backbone, task.dims, history * channels, channels, config.seed)
    return Normalised(model, channels, history) if config.train.normalise else model


def check_backbone(config: BackboneConfig, space: tuple[int, ...]) -> None:
    """Refuse settings that do not fit the grid, before anything is trained."""
    if config.modes is not None:
        check_modes((config.modes,) * len(space), space)


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers; real and imaginary parts count separately."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
