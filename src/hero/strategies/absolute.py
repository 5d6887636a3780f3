"""Absolute supervision of the model's own rollout: one step, push-forward, recurrent, and the diverted chain."""

from __future__ import annotations

from functools import cache
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hero.config import Settings, setting
from hero.data.windows import Batch, Context
from hero.seeding import seed_of
from hero.strategies.base import Compiler, Loss, Setup, Strategy, require_solver


class OneStep(Strategy[Settings]):
    """Teacher forcing: L = ℓ(G_θ(z_n), u_{n+1}) on the first transition of each window.

    It draws the same windows as the others, so that seeds pair.
    """

    title: ClassVar[str] = "One-step"
    suffix: ClassVar[str | None] = ""
    unrolls: ClassVar[bool] = False

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return self.rolled_loss(model, batch.context, batch.truth[:, :1])


class PushForwardSettings(Settings):
    """Variants of push-forward."""

    variant: Literal["full", "cut", "truncated", "original", "last"] = setting(
        "full",
        "Gradient through the whole unroll (full), cut after each step (cut) or every cut_every steps (truncated), "
        "only through the last of a random number of steps (original), or the full one with only the last step "
        "supervised (last).",
    )
    cut_every: int = setting(2, "truncated only: steps between two cuts of the gradient.", ge=1)


class PushForward(Strategy[PushForwardSettings]):
    """ℓ(τ_θ, τ_*) with τ_θ a K-step rollout; the variant decides where gradients flow and which steps count.

    The paper's is `full`, L_roll = ℓ over the rollout, back-propagated through all of it: supervised unrolling. The
    trick of that name (Brandstetter et al. 2022) is `original`: some steps without gradient, then one with it.
    """

    title: ClassVar[str] = "Push-forward"
    suffix: ClassVar[str | None] = "-PF"
    section: ClassVar[str] = "push_forward"
    Settings: ClassVar[type[Settings]] = PushForwardSettings

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings, steps = self.settings, batch.truth.shape[1]
        if settings.variant == "full":
            return self.rolled_loss(model, batch.context, batch.truth)
        if settings.variant == "original":
            return self.original(model, batch)
        every = {"cut": 1, "truncated": settings.cut_every}.get(settings.variant, steps)
        context, parts = batch.context, []
        for first in range(0, steps, every):
            parts.append(self.unroll(model, context, min(every, steps - first)))
            context = context.advance(parts[-1].detach()) if first + every < steps else context
        tau = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        kept = slice(-1, None) if settings.variant == "last" else slice(None)
        return Loss(self.absolute(tau[:, kept], batch.truth[:, kept]), {})

    def original(self, model: nn.Module, batch: Batch) -> Loss:
        """ℓ(G_θ(sg û_{n+r}), u_{n+r+1}) with r drawn uniformly from {0, ..., K-1}, the same for the whole batch."""
        bundle = self.train.bundle
        r = seed_of(self.seed, "push", batch.step) % (batch.truth.shape[1] // bundle) * bundle
        context = batch.context
        if r > 0:
            with torch.no_grad():
                context = context.advance(self.unroll(model, context, r))
        return self.rolled_loss(model, context, batch.truth[:, r : r + bundle])

    @property
    def has_variable_length(self) -> bool:
        return super().has_variable_length or self.settings.variant == "original"


class RecurrentSettings(Settings):
    """Recurrent training; the window is train.unroll, the residual form backbone.residual."""

    starts: Literal["any", "first"] = setting(
        "any",
        "Windows from every state, as in the shared protocol, or from the first state of each trajectory only.",
        stated=False,
    )


class Recurrent(Strategy[RecurrentSettings]):
    """RNO (Ye, Zhang and Wang 2025): L = (1/N) Σ_{n=1..N} ℓ(û_n, u_n) with û_0 = u_0 and û_n = G_θ(û_{n-1}).

    It is push-forward's loss on longer windows, up to a whole trajectory, and recomputes activations to save memory.
    """

    title: ClassVar[str] = "RNO"
    suffix: ClassVar[str | None] = "-RNO"
    section: ClassVar[str] = "recurrent"
    Settings: ClassVar[type[Settings]] = RecurrentSettings
    recompute: ClassVar[bool] = True

    @property
    def first_windows_only(self) -> bool:
        return self.settings.starts == "first"

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return self.rolled_loss(model, batch.context, batch.truth)


class DivertedChainSettings(Settings):
    """Targets from the solver at the model's own states."""

    through_solver: bool = setting(True, "Back-propagate through the solver as well; false cuts the gradient there.")


class DivertedChain(Strategy[DivertedChainSettings]):
    """L = (1/K) Σ_k ℓ(û_k, S(û_{k-1})) with û_0 = u_n, û_k = G_θ(û_{k-1}) and S one step of the solver.

    A rollout (`div` of APEBench) is compared with the solver's step from the model's own states, not with data that it
    has left behind. No error of earlier steps is held against later ones, and only the first state of a window is read.
    """

    title: ClassVar[str] = "Diverted chain"
    suffix: ClassVar[str | None] = "-div"
    section: ClassVar[str] = "diverted_chain"
    Settings: ClassVar[type[Settings]] = DivertedChainSettings

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        require_solver(setup.source, "diverted_chain")
        self.solver = cache(setup.source.stepper)  # S, built once per device

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.absolute(tau, self.targets(batch.context, tau)), {})

    def targets(self, context: Context, tau: Tensor) -> Tensor:
        """(S(û_0), .., S(û_{K-1})): (batch, K, channel, *space), in one call because all û are there."""
        previous = torch.cat([context.states[:, -1:], tau[:, :-1]], dim=1)
        if not self.settings.through_solver:
            previous = previous.detach()
        return self.solver(tau.device)(previous.flatten(0, 1)).unflatten(0, previous.shape[:2])
