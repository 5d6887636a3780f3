"""Stage 5 of HERO, and the whole objective put together from its parts: L_total = L_roll + λ_s L_rel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from hero.candidates import CANDIDATES, candidate_rollouts
from hero.diagnostics import diagnose
from hero.lagged import LaggedOperator
from hero.rollout import Context, Unroll, trajectory_distance, unroll
from hero.schedule import relative_weight
from hero.selection import select


def margin_loss(d_cur: Tensor, d_fail: Tensor, margin: float, beta: float) -> Tensor:
    """ℓ_rel = (1/β) log(1 + exp(β [d_cur - d_fail + m])), per sample."""
    return softplus(d_cur - d_fail + margin, beta=beta)


def activation(d_cur: Tensor, d_fail: Tensor, margin: float, beta: float) -> Tensor:
    """α = σ(β [d_cur - d_fail + m]), the factor by which the relative term scales the gradient of d_cur."""
    return torch.sigmoid(beta * (d_cur - d_fail + margin))


@dataclass(frozen=True)
class RelativeTerm:
    """What one evaluation of the relative term gives; the statistics are detached."""

    weight: float  # λ_s
    loss: Tensor  # ℓ_rel per sample, (batch,)
    alpha: Tensor  # (batch,)
    selected: Tensor  # index into CANDIDATES per sample, (batch,)
    diagnostics: Tensor  # (batch, candidate, diagnostic)

    def statistics(self) -> dict[str, Tensor]:
        """Scalars for the log, still on the device."""
        shares = {name: (self.selected == j).float().mean() for j, name in enumerate(CANDIDATES)}
        return {"relative_loss": self.loss.detach().mean(), "alpha": self.alpha.mean(), **shares}


class HeroObjective:
    """The relative supervision of Algorithm 1, with the lagged operator as its only state."""

    def __init__(
        self,
        start: int = 4000,
        refresh: int = 2000,
        warmup: int = 2000,
        lambda_max: float = 0.02,
        margin: float = 0.02,
        beta: float = 5.0,
        perturbation: float = 0.01,
    ) -> None:
        self.start, self.warmup, self.lambda_max = start, warmup, lambda_max
        self.margin, self.beta, self.perturbation = margin, beta, perturbation
        self.lagged = LaggedOperator(start, refresh)

    def relative(
        self,
        model: nn.Module,
        context: Context,
        current: Tensor,
        truth: Tensor,
        step: int,
        generator: Generator,
        unroll: Unroll = unroll,
    ) -> RelativeTerm | None:
        """The relative term of the rollout `current` = τ_θ at iteration `step`; None before s_0."""
        if step < self.start:
            return None
        lagged = self.lagged.update(model, step)
        candidates = candidate_rollouts(model, lagged, context, current, self.perturbation, generator, unroll)
        diagnostics = torch.stack([diagnose(tau, truth) for tau in candidates], dim=1)
        selected = select(diagnostics)
        # D(τ⁻, τ_*) is the first diagnostic of the selected candidate: nothing is rolled out or measured twice.
        d_fail = diagnostics[:, :, 0].gather(1, selected[:, None])[:, 0]
        d_cur = trajectory_distance(current, truth)
        return RelativeTerm(
            weight=relative_weight(step, self.start, self.warmup, self.lambda_max),
            loss=margin_loss(d_cur, d_fail, self.margin, self.beta),
            alpha=activation(d_cur.detach(), d_fail, self.margin, self.beta),
            selected=selected,
            diagnostics=diagnostics,
        )

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs."""
        return {"lagged": self.lagged.state_dict()}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Undo `state_dict`; `model` gives the architecture of the lagged operator."""
        self.lagged.load_state_dict(state["lagged"], model)
