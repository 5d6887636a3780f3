"""Low-rank adapters (LoRA, Hu et al. 2022) while a checkpoint is fine-tuned; stored weights are merged, W + B A.

The deployed operator is the plain architecture: nothing but training knows of adapters.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hero.errors import HeroError
from hero.models.fno import Pointwise

ADAPTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, Pointwise)  # the weight is a matrix, or flattens to one


class LowRank(nn.Module):
    """W + B A with A of `rank` rows; B starts at zero, so that the first prediction is unchanged."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        columns = weight[0].numel()
        self.a = nn.Parameter(torch.randn(rank, columns, dtype=weight.dtype).to(weight.device) * columns**-0.5)
        self.b = nn.Parameter(weight.new_zeros(len(weight), rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.b @ self.a).view_as(weight)


def adapt(backbone: nn.Module, rank: int, layers: tuple[str, ...], full: tuple[str, ...], seed: int) -> None:
    """Train adapters of the layers that match a pattern, and the parameters that match `full`, and nothing else."""
    found = {
        name: module
        for name, module in backbone.named_modules()
        if isinstance(module, ADAPTED) and module.weight.is_floating_point() and not parametrize.is_parametrized(module)
    }
    parameters = dict(backbone.named_parameters())
    if not found:
        raise HeroError("the backbone has no linear layer or convolution for train.lora; leave it out.")
    trained = {name for pattern in full for name in matching("lora_full", pattern, parameters)}
    adapted = {name for pattern in layers for name in matching("lora_layers", pattern, found)} or found.keys()
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trained)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in found.items():
            if name in adapted:
                parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank))


def matching(setting: str, pattern: str, names: Iterable[str]) -> list[str]:
    """The names of parameters or layers that match a pattern, as `encoder.*`, of a setting of `train`; at least one."""
    names = list(names)
    if not (found := fnmatch.filter(names, pattern)):
        raise HeroError(
            f"train.{setting}={pattern} matches nothing in the backbone; its names are like {', '.join(names[:3])}."
        )
    return found


def has_adapters(model: nn.Module) -> bool:
    """Whether `adapt` was here."""
    return any(isinstance(module, LowRank) for module in model.modules())


def merged(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state `weights` of `model` under the names of the plain architecture, adapters added to their layers."""
    for name, module in model.named_modules():
        if parametrize.is_parametrized(module, "weight") and isinstance(module.parametrizations.weight[0], LowRank):
            prefix = f"{name}." if name else ""
            weights = {k: w for k, w in weights.items() if not k.startswith(f"{prefix}parametrizations.weight.")}
            weights[f"{prefix}weight"] = module.weight.detach()
    return weights
