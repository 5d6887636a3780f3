"""Stage 2 of HERO: the candidate rollouts, detached, in the fixed priority lag ≻ perturbed ≻ self."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor, nn

from hero.data.windows import Context
from hero.method.perturbations import Perturbation
from hero.method.rollout import Unroll


@dataclass(frozen=True)
class Scene:
    """All that a candidate may be made from, at one iteration."""

    model: nn.Module  # G_θ
    lagged: nn.Module  # G_θ̄
    context: Context  # z_n
    current: Tensor  # τ_θ, (batch, K, channel, *space)
    perturbation: Perturbation  # P_ζ
    generator: Generator
    unroll: Unroll


Candidate = Callable[[Scene], Tensor]


def lag(scene: Scene) -> Tensor:
    """τ_lag = Rollout(G_θ̄, z_n, K)."""
    return scene.unroll(scene.lagged, scene.context, scene.current.shape[1])


def perturbed(scene: Scene) -> Tensor:
    """τ_pert = sg[Rollout(G_θ, P_ζ(z_n), K)]."""
    return scene.unroll(scene.model, scene.perturbation(scene.context, scene.generator), scene.current.shape[1])


def itself(scene: Scene) -> Tensor:
    """τ_self = sg(τ_θ)."""
    return scene.current.detach()


CANDIDATES: dict[str, Candidate] = {"lag": lag, "perturbed": perturbed, "self": itself}
"""In order of priority, which decides between equal scores."""
