"""Stages 1 and 2 of HERO: the lagged operator G_θ̄, and the candidate rollouts that may serve as failure reference.

A candidate is registered by one line, `CANDIDATES["persistence"] = Candidate("persistence", function)`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from hero.config.registry import Registry
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.cache import WindowCache
from hero.method.diagnostics import TrajectoryErrors
from hero.method.domain import Perturbation
from hero.method.rollout import Unroll


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and all buffers by name, also the buffers that a state dict leaves out."""
    return {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}


@torch.no_grad()
def lagged_copy(model: nn.Module, lagged: nn.Module | None = None) -> nn.Module:
    """θ̄ = sg(θ): a copy of `model`, made in `lagged` if it has room for it, so that compiled code stays valid."""
    source, target = tensors_of(model), {} if lagged is None else tensors_of(lagged)
    if lagged is None or any(target.get(name, t[..., None]).shape != t.shape for name, t in source.items()):
        return copy.deepcopy(model)
    for name, tensor in source.items():
        target[name].copy_(tensor)
    return lagged


@torch.no_grad()
def restored_lagged(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A lagged operator from its stored tensors; `model` gives the architecture."""
    lagged = copy.deepcopy(model)
    for name, parameter in lagged.named_parameters():
        if name not in tensors or tensors[name].shape != parameter.shape:
            raise HeroError(
                f"the stored lagged operator has no parameter {name} of shape {tuple(parameter.shape)}; "
                "use the model that it was made from."
            )
    for name, tensor in tensors_of(lagged).items():
        if name in tensors and tensors[name].shape == tensor.shape:
            tensor.copy_(tensors[name])
    return lagged


@contextmanager
def unchanged_buffers(*models: nn.Module) -> Iterator[None]:
    """Within, modules in training write to copies of their buffers: running statistics stay as training left them.

    Copies are put in and taken out again, because writing the old values back would spoil the graph of τ_θ.
    """
    modules = [module for model in models for module in model.modules() if module._buffers and module.training]
    kept = [(module._buffers, name, b) for module in modules for name, b in module._buffers.items() if b is not None]
    for buffers, name, tensor in kept:
        buffers[name] = tensor.clone()
    try:
        yield
    finally:
        for buffers, name, tensor in kept:
            buffers[name] = tensor


@dataclass(frozen=True)
class CandidateInputs:
    """All that a candidate may be made from, in one update."""

    model: nn.Module  # G_θ
    lagged: nn.Module  # G_θ̄
    context: Context  # z_n
    current: Tensor  # τ_θ, (batch, K, channel, *space)
    perturbation: Perturbation  # P_ζ
    generator: Generator
    unroll: Unroll
    index: Tensor | None  # numbers of the windows, None where nothing may be kept for them
    cache: WindowCache


Errors = Callable[[Tensor], TrajectoryErrors]
Row = Callable[[TrajectoryErrors], Tensor]


@dataclass(frozen=True)
class Candidate:
    """A rollout (batch, K, channel, *space) to compare with, made without gradient, and its name in figures."""

    title: str
    rollout: Callable[[CandidateInputs], Tensor]

    def found(self, inputs: CandidateInputs, errors: Errors, row: Row) -> TrajectoryErrors | Tensor:
        """The rollout against the truth."""
        return errors(self.rollout(inputs))


@dataclass(frozen=True)
class Cached:
    """A candidate that follows from the window and the lagged operator alone: measured once per window and refresh."""

    candidate: Candidate

    @property
    def title(self) -> str:
        return self.candidate.title

    def found(self, inputs: CandidateInputs, errors: Errors, row: Row) -> TrajectoryErrors | Tensor:
        """Its row of diagnostics, or the rollout where windows are not numbered."""
        rollout = self.candidate.rollout
        if inputs.index is None:
            return errors(rollout(inputs))
        table = inputs.cache.lagged[self, inputs.current.shape[1]]
        return table.get(inputs.index, lambda: row(errors(rollout(inputs))))


def lag(inputs: CandidateInputs) -> Tensor:
    """τ_lag = Rollout(G_θ̄, z_n, K)."""
    # The memory layout of a perturbed context, so that both candidates share their compiled code.
    context = replace(inputs.context, states=inputs.context.states.contiguous())
    return inputs.unroll(inputs.lagged, context, inputs.current.shape[1])


def perturbed(inputs: CandidateInputs) -> Tensor:
    """τ_pert = sg[Rollout(G_θ, P_ζ(z_n), K)]."""
    context = inputs.perturbation(inputs.context, inputs.generator)
    return inputs.unroll(inputs.model, context, inputs.current.shape[1])


def self_candidate(inputs: CandidateInputs) -> Tensor:
    """τ_self = sg(τ_θ)."""
    return inputs.current


CANDIDATES: Registry[Candidate | Cached] = Registry(
    "candidate",
    {
        "lag": Cached(Candidate("lagged operator", lag)),
        "perturbed": Candidate("perturbed input", perturbed),
        "self": Candidate("current rollout", self_candidate),
    },
)
"""In order of priority, which decides between equal scores: lag ≻ perturbed ≻ self."""

PAPER_CANDIDATES = tuple(CANDIDATES)
"""The paper's; one that is registered later is used where it is named."""
