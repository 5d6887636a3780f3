"""HERO as a composition of its parts, with explicit state (paper, Algorithm 1):  L_total = L_roll + λ_s mean_i ℓ_rel,i.

    hero = Hero()
    state = hero.init()
    loss, state, comparison = hero(model, context, truth, state)   # once per update, then loss.backward()

A `Hero` is a value: `dataclasses.replace` of one part gives a variant, such as an ablation or the control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from hero.data.trajectories import Context
from hero.errors import HeroError, check_number
from hero.method.cache import WindowCache, is_cacheable
from hero.method.candidates import (
    CandidateInputs,
    FailureReference,
    Reference,
    lagged_copy,
    restored_lagged,
    tensors_of,
)
from hero.method.diagnostics import TrajectoryErrors, Truth, bounded
from hero.method.domain import Domain
from hero.method.rollout import Unroll, unroll
from hero.parallel import batch_std
from hero.seeding import seed_of


@dataclass(frozen=True)
class Ramp:
    """λ_s = λ_max clip((s - s_0) / W, 0, 1), called with s - s_0."""

    warmup: int = 2000  # W
    lambda_max: float = 0.02

    def __post_init__(self) -> None:
        check_number("warmup", self.warmup, low=1, whole=True)
        check_number("lambda_max", self.lambda_max, low=0)

    def __call__(self, since: int) -> float:
        return self.lambda_max * min(max(since / self.warmup, 0.0), 1.0)


@dataclass(frozen=True)
class Every:
    """Whether θ̄ is copied before update s: at s_0 and where (s - s_0) mod R = 0 after it; called with s - s_0."""

    refresh: int = 2000  # R

    def __post_init__(self) -> None:
        check_number("refresh", self.refresh, low=1, whole=True)

    def __call__(self, since: int) -> bool:
        return since >= 0 and since % self.refresh == 0


class RelativeRule(Protocol):
    """Stage 5, per sample: ℓ_rel, and its derivative α by d_cur. `d_fail` is `d_cur` unless `compares`."""

    compares: ClassVar[bool]

    def __call__(self, d_cur: Tensor, d_fail: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Margin:
    """ℓ_rel = (1/β) log(1 + exp(β [d_cur - d_fail + m])) and α = σ(β [d_cur - d_fail + m])."""

    m: float = 0.02
    beta: float = 5.0
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("m", self.m, above=0)
        check_number("beta", self.beta, above=0)

    def __call__(self, d_cur: Tensor, d_fail: Tensor) -> tuple[Tensor, Tensor]:
        gap = d_cur - d_fail + self.m
        return softplus(gap, beta=self.beta), torch.sigmoid(self.beta * gap.detach())


@dataclass(frozen=True)
class FixedWeight:
    """The control, ℓ_rel = α₀ d_cur: HERO's schedule and added distance without its history."""

    alpha: float = 0.5  # α₀
    compares: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, low=0)

    def __call__(self, d_cur: Tensor, d_fail: Tensor) -> tuple[Tensor, Tensor]:
        return self.alpha * d_cur, torch.full_like(d_cur, self.alpha)


@dataclass(frozen=True)
class RelativeTerm:
    """The relative term of one batch; all but `loss` is detached."""

    loss: Tensor  # ℓ_rel, (batch,)
    alpha: Tensor  # α = ∂ℓ_rel/∂d_cur, (batch,)
    d_cur: Tensor  # (batch,)
    reference: Reference | None  # None where no history is compared with
    weight: float  # λ_s

    def statistics(self) -> dict[str, Tensor | float]:
        """Scalars for the log, still on the device: α, the margin d_fail - d_cur, shares of the candidates, mean E."""
        reference = self.reference
        if reference is None:
            return {"lambda": self.weight}
        columns = torch.stack([self.loss.detach(), self.alpha, reference.d_fail - self.d_cur])
        pairs = [f"{candidate}.{q}" for candidate in reference.candidates for q in reference.diagnostics]
        names = ["relative_loss", "alpha", "margin", *reference.candidates, *pairs]
        values = zip(names, (*columns.mean(dim=1).unbind(), *reference.means.unbind()), strict=True)
        return {"lambda": self.weight, "alpha_std": batch_std(self.alpha), **dict(values)}


@dataclass(frozen=True)
class HeroState:
    """Everything that changes from update to update. The modules and tables in it are renewed in place."""

    step: int = 0  # s
    lagged: nn.Module | None = None  # G_θ̄, None before s_0
    cacheable: bool = False  # whether its rollout of a window is always the same
    cache: WindowCache = field(default_factory=WindowCache)

    def refreshed(self, model: nn.Module) -> HeroState:
        """The state with θ̄ = sg(θ), and nothing kept of the operator before."""
        lagged = lagged_copy(model, self.lagged)
        for table in self.cache.lagged.values():
            table.clear()
        return replace(self, lagged=lagged, cacheable=is_cacheable(lagged))

    def state_dict(self) -> dict[str, Any]:
        """State that resuming needs, see `Hero.load`. The cache is left out: it fills again with the same bits."""
        return {"step": self.step, "lagged": {} if self.lagged is None else tensors_of(self.lagged)}


@dataclass(frozen=True)
class Hero:
    """The objective of history-enriched rollout training; numbers default to the paper's."""

    start: int = 4000  # s_0, the first update with a relative term
    reference: FailureReference = field(default_factory=FailureReference)
    relative: RelativeRule | None = Margin()  # None: push-forward
    weight: Callable[[int], float] = Ramp()  # s - s_0 -> λ_s
    refresh: Callable[[int], bool] = Every()  # s - s_0 -> whether θ̄ is copied
    domain: Domain = field(default_factory=Domain)
    absolute: Callable[[Tensor, Tensor], Tensor] | None = None  # (τ_θ, τ_*) -> L_roll; None: the mean of D
    seed: int = 0  # of the perturbations, unless a generator is given

    def __post_init__(self) -> None:
        check_number("start", self.start, low=0, whole=True)
        spectral = [name for name, q in self.reference.diagnostics.items() if q.needs_spectrum]
        if spectral and self.domain.spectrum is None:
            raise HeroError(
                f"the diagnostic {spectral[0]!r} reads a spectrum and the domain has none; give the domain a spectrum "
                "or leave the diagnostic out."
            )

    @property
    def compares(self) -> bool:
        """Whether there is a failure reference, and so a lagged operator, from s_0 on."""
        return self.relative is not None and self.relative.compares

    def init(self) -> HeroState:
        """The state before the first update."""
        return HeroState()

    def load(self, saved: Mapping[str, Any], model: nn.Module) -> HeroState:
        """The state whose `state_dict` is `saved`; `model` gives the architecture of the lagged operator."""
        if not saved["lagged"]:
            return HeroState(saved["step"])
        lagged = restored_lagged(model, saved["lagged"])
        return HeroState(saved["step"], lagged, is_cacheable(lagged))

    def __call__(
        self,
        model: nn.Module,
        context: Context | Tensor,
        truth: Tensor,
        state: HeroState,
        *,
        index: Tensor | None = None,
        generator: Generator | None = None,
        unroll: Unroll = unroll,
        total: Callable[..., tuple[Tensor, ...]] | None = None,
    ) -> tuple[Tensor, HeroState, RelativeTerm | None]:
        """L_total of one batch, the state of the next update, and the comparison, None without a relative term.

        `context` is a `Context` or a state (batch, channel, *space), `truth` its future (batch, K, channel, *space).
        `index` numbers the windows of a finite training set (int64, on the CPU); with it, results that depend on a
        window alone are computed once per refresh. `unroll` and `total` may be compiled forms of `rollout.unroll` and
        `total_loss`.
        """
        context = checked_context(context, truth, index, self.domain)
        since = state.step - self.start
        if self.compares and since >= 0 and (state.lagged is None or self.refresh(since)):
            state = state.refreshed(model)  # stage 1

        true = Truth(truth, self.domain, state.cache, index)
        weight, inputs = None if self.relative is None or since < 0 else self.weight(since), None
        if weight is not None and self.compares and state.lagged is not None:
            if generator is None:
                generator = Generator(device=truth.device).manual_seed(seed_of(self.seed, "noise", state.step))
            diagnostics, tau = tuple(self.reference.diagnostics.values()), TrajectoryErrors(truth, true)
            inputs = CandidateInputs(model, state.lagged, context, tau, diagnostics, generator, unroll, state.cacheable)
            inputs = self.reference.prepared(inputs)
        scale = None if weight is None else torch.full((), weight, dtype=truth.dtype, device=truth.device)
        loss, *found = (total or total_loss)(model, context, true, self, unroll, scale, inputs)
        comparison = None
        if weight is not None:
            rel, alpha, d_cur, *ranked = found
            reference = self.reference.named(*ranked) if ranked else None
            comparison = RelativeTerm(rel, alpha, d_cur, reference, weight)
        return loss, replace(state, step=state.step + 1), comparison


def total_loss(
    model: nn.Module,
    context: Context,
    true: Truth,
    hero: Hero,
    unroll: Unroll,
    weight: Tensor | None,
    inputs: CandidateInputs | None,
) -> tuple[Tensor, ...]:
    """L_total, and what `RelativeTerm` holds: stages 2 to 5 as one function of tensors, which can be compiled.

    `weight` is λ_s, None for L_roll alone; `inputs` are prepared ones, None where no history is compared with.
    """
    tau = TrajectoryErrors(unroll(model, context, true.states.shape[1]), true)
    loss = tau.D.mean() if hero.absolute is None else hero.absolute(tau.states, true.states)
    if weight is None or hero.relative is None:
        return (loss,)
    d_cur = bounded(tau.D)
    ranked = () if inputs is None else hero.reference(replace(inputs, tau=tau.detached()))  # stages 2 to 4
    rel, alpha = hero.relative(d_cur, ranked[0] if ranked else d_cur)  # stage 5
    return loss + weight * rel.mean(), rel, alpha, d_cur.detach(), *ranked


def checked_context(context: Context | Tensor, truth: Tensor, index: Tensor | None, domain: Domain) -> Context:
    """`context` as a `Context`; refuses shapes that do not belong together."""
    context = Context(context[:, None]) if isinstance(context, Tensor) else context
    states, future = tuple(context.states.shape), tuple(truth.shape)
    if len(states) < 4 or states[:1] + states[2:] != future[:1] + future[2:] or 0 in future:
        raise HeroError(
            f"states {states} and a truth {future} do not belong together; give a Context of states (batch, history, "
            "channel, *space), or a state (batch, channel, *space), and a truth (batch, time, channel, *space)."
        )
    if domain.weights is not None and domain.weights.shape != future[3:]:
        raise HeroError(
            f"quadrature weights {tuple(domain.weights.shape)} do not fit the space {future[3:]}; give one per point."
        )
    if index is not None and (index.shape != future[:1] or index.dtype != torch.int64 or index.device.type != "cpu"):
        raise HeroError(
            f"index is {index.dtype} {tuple(index.shape)} on {index.device}; give {future[0]} int64 numbers on the CPU."
        )
    return context
