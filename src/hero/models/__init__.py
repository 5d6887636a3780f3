"""Backbones by name: any nn.Module (batch, H*channels + conditioning, *space) -> (batch, channels, *space)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hero.errors import unknown_name
from hero.models.fno import FNO
from hero.models.spectral import check_modes
from hero.models.transolver import Transolver
from hero.models.user import build_foreign, check_shapes
from hero.models.wrappers import MixedPrecision, Normalised

if TYPE_CHECKING:
    from hero.data import Task
    from hero.runs.config import BackboneConfig, RunConfig

__all__ = [
    "BACKBONES",
    "FNO",
    "Normalised",
    "Transolver",
    "build_backbone",
    "build_operator",
    "check_backbone",
    "count_parameters",
    "get_backbone",
]


@dataclass(frozen=True)
class BackboneSpec:
    """How to build a backbone, which settings it reads beside those of every backbone, and the paper's values."""

    build: Callable[[BackboneConfig, int, int, int], nn.Module]  # (settings, dims, in channels, out channels)
    reads: tuple[str, ...]
    paper: dict[int, dict[str, Any]]  # per dimension

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of all settings that decide what is built."""
        return ("name", "residual", "precision", *self.reads)


def build_fno(config: BackboneConfig, dims: int, in_channels: int, out_channels: int) -> FNO:
    """FNO from a resolved configuration."""
    return FNO(in_channels, out_channels, **read_settings(config))


def build_transolver(config: BackboneConfig, dims: int, in_channels: int, out_channels: int) -> Transolver:
    """Transolver on a grid, from a resolved configuration."""
    return Transolver(in_channels, out_channels, dims, **read_settings(config))


def read_settings(config: BackboneConfig) -> dict[str, Any]:
    """The settings that this backbone alone reads, which are the arguments of its class."""
    return {name: getattr(config, name) for name in BACKBONES[config.name].reads}


BACKBONES: dict[str, BackboneSpec] = {
    "fno": BackboneSpec(
        build_fno,
        reads=("width", "modes", "depth", "lifting", "projection", "coordinates", "final_activation"),
        paper={
            1: {"width": 28, "modes": (28,), "depth": 1},
            2: {"width": 20, "modes": (8, 8), "depth": 1},
            3: {"width": 4, "modes": (8, 8, 8), "depth": 5},
        },
    ),
    "transolver": BackboneSpec(
        build_transolver,
        reads=("width", "depth", "heads", "slices", "mlp_ratio", "periodic"),
        paper={
            1: {"width": 224, "depth": 2, "heads": 4, "slices": 64},
            2: {"width": 256, "depth": 4, "heads": 8, "slices": 128},
            3: {"width": 512, "depth": 3, "heads": 8, "slices": 256},
        },
    ),
}
FOREIGN = BackboneSpec(build_foreign, reads=("kwargs",), paper={dims: {"kwargs": {}} for dims in (1, 2, 3)})


def get_backbone(name: str) -> BackboneSpec:
    """A registered backbone, or anyone's module as package.module:Class, which is imported only when it is built."""
    if ":" in name:
        return FOREIGN
    if name not in BACKBONES:
        raise unknown_name("backbone", name, [*BACKBONES, "package.module:Class"])
    return BACKBONES[name]


def build_backbone(config: BackboneConfig, dims: int, in_channels: int, out_channels: int, seed: int) -> nn.Module:
    """The backbone with initial weights that depend on `seed` alone.

    Modules draw their weights from the global generator; it is seeded inside a fork, so the caller's is untouched and
    anyone's module is reproducible without knowing about us.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_backbone(config.name).build(config, dims, in_channels, out_channels)


def build_operator(config: RunConfig, task: Task) -> nn.Module:
    """G_θ of a run, untrained: the backbone with the channels that its strategy needs, and what surrounds it."""
    from hero.strategies import STRATEGIES  # they surround a backbone, and so import from this package

    def backbone(in_channels: int, out_channels: int) -> nn.Module:
        model = build_backbone(config.backbone, task.dims, in_channels, out_channels, config.seed)
        if config.backbone.name not in BACKBONES:
            check_shapes(model, config.backbone.name, in_channels, out_channels, (task.resolution,) * task.dims)
        return MixedPrecision(model) if config.backbone.precision == "bfloat16" else model

    return STRATEGIES[config.strategy](config).operator(backbone, task.channels)


def check_backbone(config: BackboneConfig, space: tuple[int, ...]) -> None:
    """Refuse settings that do not fit the grid, before anything is trained."""
    if config.modes is not None:
        check_modes(config.modes, space)


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers; real and imaginary parts count separately."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters() if p.requires_grad)
