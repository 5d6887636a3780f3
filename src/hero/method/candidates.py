"""Stages 1 and 2 of HERO: the lagged operator G_θ̄ and the candidate rollouts; and the reference found among them.

A candidate is registered by one line, `CANDIDATES["persistence"] = Candidate("persistence", function)`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor, nn

from hero.config.registry import Registry
from hero.data.trajectories import Context
from hero.errors import HeroError
from hero.method.diagnostics import (
    DIAGNOSTICS,
    PAPER_DIAGNOSTICS,
    Diagnostic,
    Select,
    TrajectoryErrors,
    measure,
    rank,
    worst,
)
from hero.method.domain import Domain
from hero.method.rollout import Unroll


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and all buffers by name, also the buffers that a state dict leaves out."""
    return {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}


@torch.no_grad()
def lagged_copy(model: nn.Module, lagged: nn.Module | None = None) -> nn.Module:
    """θ̄ = sg(θ): a copy of `model`, made in `lagged` if it has room for it, so that compiled code stays valid."""
    source, target = tensors_of(model), {} if lagged is None else tensors_of(lagged)
    if lagged is None or {n: t.shape for n, t in source.items()} != {n: t.shape for n, t in target.items()}:
        return copy.deepcopy(model)
    for name, tensor in source.items():
        target[name].copy_(tensor)
    return lagged


@torch.no_grad()
def restored_lagged(model: nn.Module, saved: Mapping[str, Tensor]) -> nn.Module:
    """A lagged operator from its stored tensors; `model` gives the architecture."""
    lagged = copy.deepcopy(model)
    parameters = dict(lagged.named_parameters())
    for name, tensor in tensors_of(lagged).items():
        if name in saved and saved[name].shape == tensor.shape:
            tensor.copy_(saved[name])
        elif name in parameters:
            raise HeroError(
                f"the stored lagged operator has no parameter {name} of shape {tuple(tensor.shape)}; use the model "
                "that it was copied from."
            )
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
    """The material of a candidate in one update."""

    model: nn.Module  # G_θ
    lagged: nn.Module  # G_θ̄
    context: Context  # z_n
    tau: TrajectoryErrors  # τ_θ against the truth; the truth itself before τ_θ is there
    diagnostics: Sequence[Diagnostic]
    generator: Generator
    unroll: Unroll
    cacheable: bool  # whether G_θ̄ always rolls a window out in the same way
    perturbed: Context | None = None  # P_ζ(z_n), where a candidate begins there
    rows: tuple[Tensor | None, ...] = ()  # of each candidate, where it is known before τ_θ

    @property
    def current(self) -> Tensor:
        """τ_θ, (batch, K, channel, *space)."""
        return self.tau.states

    def errors(self, states: Tensor) -> TrajectoryErrors:
        """A candidate against the truth, known already if it is the current rollout."""
        return self.tau if states is self.current else TrajectoryErrors(states, self.tau.truth)


@dataclass(frozen=True)
class Candidate:
    """A rollout (batch, K, channel, *space) to compare with, made without gradient, and its name in figures."""

    title: str
    rollout: Callable[[CandidateInputs], Tensor]
    perturbs: bool = False  # whether it begins at P_ζ(z_n)

    def measured(self, inputs: CandidateInputs) -> Tensor:
        """The row of `diagnostics.measure` of the rollout."""
        return measure(inputs.errors(self.rollout(inputs)), inputs.diagnostics)

    def known(self, inputs: CandidateInputs) -> Tensor | None:
        """This row where it does not depend on τ_θ and can be looked up."""
        return None


class Cached(Candidate):
    """A candidate that follows from the window and the lagged operator alone: measured once per window and refresh."""

    def known(self, inputs: CandidateInputs) -> Tensor | None:
        """Rows of the windows in the cache, where they are numbered."""
        truth = inputs.tau.truth
        if truth.index is None or not inputs.cacheable:
            return None
        table = truth.cache.lagged[self, truth.states.shape[1]]

        def missing() -> Tensor:
            with unchanged_buffers(inputs.lagged):
                return self.measured(inputs)

        return table.get(truth.index, missing)


def lag(inputs: CandidateInputs) -> Tensor:
    """τ_lag = Rollout(G_θ̄, z_n, K)."""
    # The memory layout of a perturbed context, so that both candidates share their compiled code.
    context = replace(inputs.context, states=inputs.context.states.contiguous())
    return inputs.unroll(inputs.lagged, context, inputs.current.shape[1])


def perturbed(inputs: CandidateInputs) -> Tensor:
    """τ_pert = sg[Rollout(G_θ, P_ζ(z_n), K)]."""
    assert inputs.perturbed is not None
    return inputs.unroll(inputs.model, inputs.perturbed, inputs.current.shape[1])


def perturbation(context: Context, domain: Domain, generator: Generator) -> Context:
    """P_ζ(z_n); channels that are measured from their mean are perturbed about it."""
    states, mean = domain.norm.centred(context.states)
    perturbed = domain.perturbation(replace(context, states=states), generator)
    return perturbed if mean is None else replace(perturbed, states=perturbed.states + mean)


CANDIDATES: Registry[Candidate] = Registry(
    "candidate",
    {
        "lag": Cached("lagged operator", lag),
        "perturbed": Candidate("perturbed input", perturbed, perturbs=True),
        "self": Candidate("current rollout", lambda inputs: inputs.current),  # τ_self = sg(τ_θ)
    },
)
"""In order of priority, which decides between equal scores: lag ≻ perturbed ≻ self."""

PAPER_CANDIDATES = ("lag", "perturbed", "self")  # the paper's, and the default; any other is used where it is named


@dataclass(frozen=True)
class Reference:
    """The failure reference of each sample, detached."""

    d_fail: Tensor  # D(τ^(j*), τ_*), (batch,)
    j_star: Tensor  # index into the candidates, (batch,)
    E: Tensor  # (batch, candidate, diagnostic)
    means: Tensor  # over the batch: the share of each candidate, then E, (candidate + candidate * diagnostic,)
    candidates: tuple[str, ...]
    diagnostics: tuple[str, ...]


@dataclass(frozen=True)
class FailureReference:
    """Stages 2 to 4: the worst of the candidates, as the diagnostics rank them."""

    candidates: Mapping[str, Candidate] = field(default_factory=lambda: CANDIDATES.only(*PAPER_CANDIDATES))
    diagnostics: Mapping[str, Diagnostic] = field(default_factory=lambda: DIAGNOSTICS.only(*PAPER_DIAGNOSTICS))
    select: Select = worst  # E -> j*

    def __post_init__(self) -> None:
        for name in ("candidates", "diagnostics"):
            if not getattr(self, name):
                raise HeroError(f"{name} is empty, so there is no failure reference; give at least one.")

    @torch.no_grad()
    def prepared(self, inputs: CandidateInputs) -> CandidateInputs:
        """`inputs` with all that is known before τ_θ and that compilers do not know: random numbers and tables."""
        domain = inputs.tau.truth.domain
        if any(q.needs_spectrum for q in inputs.diagnostics):
            _ = inputs.tau.truth.amplitudes
        if any(candidate.perturbs for candidate in self.candidates.values()):
            inputs = replace(inputs, perturbed=perturbation(inputs.context, domain, inputs.generator))
        return replace(inputs, rows=tuple(candidate.known(inputs) for candidate in self.candidates.values()))

    @torch.no_grad()
    def __call__(self, inputs: CandidateInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors of `Reference` for `prepared` inputs, once τ_θ is in them."""
        pairs = zip(self.candidates.values(), inputs.rows, strict=True)
        with unchanged_buffers(inputs.model, inputs.lagged):
            rows = [candidate.measured(inputs) if row is None else row for candidate, row in pairs]
        return rank(rows, self.select)

    def named(self, d_fail: Tensor, j_star: Tensor, E: Tensor, means: Tensor) -> Reference:
        """The reference made of these tensors."""
        return Reference(d_fail, j_star, E, means, tuple(self.candidates), tuple(self.diagnostics))
