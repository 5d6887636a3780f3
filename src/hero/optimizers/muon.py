"""Muon (Jordan et al. 2024): momentum, orthogonalised; vectors are updated by AdamW.

A matrix is updated along U Vᵀ of its momentum U S Vᵀ. The weight of a spectral convolution, (2, in, out, *modes) or
complex (in, out, *modes), is a stack of complex matrices, one for each mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hero.config import setting
from hero.optimizers.base import Compiler, OptimizerPart, OptimizerSettings, is_spectral

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration, steep at zero; singular values end between about 0.7 and 1.2."""
ITERATIONS = 5


class MuonSettings(OptimizerSettings):
    """Muon for matrices, AdamW for vectors."""

    momentum: float = setting(0.95, "Decay of the momentum of matrices.", ge=0, lt=1)
    beta1: float = setting(0.9, "Decay of the mean of the gradient of vectors.", ge=0, lt=1)
    beta2: float = setting(0.999, "Decay of the mean of its square.", ge=0, lt=1)
    eps: float = setting(1e-8, "Added to the root of the mean square.", ge=0)


def as_matrices(p: Tensor) -> Tensor | None:
    """A view or copy (..., rows, columns) of a weight, None for vectors and for shapes that are not matrices."""
    if p.dim() != 2 and not is_spectral(p):
        return None
    return (torch.complex(p[0], p[1]) if p.dim() > 2 and not p.is_complex() else p).movedim((0, 1), (-2, -1))


def from_matrices(matrices: Tensor, like: Tensor) -> Tensor:
    """The inverse of `as_matrices`."""
    weight = matrices.movedim((-2, -1), (0, 1))
    return weight if like.is_complex() or like.dim() == 2 else torch.stack([weight.real, weight.imag])


def orthogonalise(matrices: Tensor) -> Tensor:
    """About U Vᴴ for each matrix U S Vᴴ: X ← a X + (b A + c A²) X with A = X Xᴴ, from X of norm 1."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mH if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-12)
    for _ in range(ITERATIONS):
        gram = x @ x.mH
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mH if tall else x


class Muon(torch.optim.Optimizer):
    """B ← μ B + (1 - μ) G;  W ← W - η λ W - 0.2 η √max(in, out) · orthogonalise(μ B + (1 - μ) G).

    The factor gives the update the usual size of AdamW's, so that both share the learning rate η and the decay λ.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, weight_decay: float, momentum: float, beta1: float, beta2: float,
        eps: float,
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, defaults | {"beta1": beta1, "beta2": beta2, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(self.direction(p, p.grad, group), alpha=-group["lr"])

    def direction(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> Tensor:
        """The direction of steepest descent, after an update of the momentum."""
        state, matrices = self.state[p], as_matrices(g)
        if not state:
            state["step"], state["mean"] = 0, torch.zeros_like(p)
        state["step"] += 1
        if matrices is not None:
            momentum = group["momentum"]
            ahead = torch.lerp(g, state["mean"].lerp_(g, 1 - momentum), momentum)  # Nesterov
            matrices = as_matrices(ahead)
            assert matrices is not None  # for the type checker
            return from_matrices(0.2 * math.sqrt(max(matrices.shape[-2:])) * orthogonalise(matrices), p)
        square = state.setdefault("square", torch.zeros_like(g.abs()))
        state["mean"].lerp_(g, 1 - group["beta1"])
        square.lerp_(g.abs().square(), 1 - group["beta2"])
        unbiased = [1 - group[beta] ** state["step"] for beta in ("beta1", "beta2")]
        return state["mean"] / unbiased[0] / ((square / unbiased[1]).sqrt() + group["eps"])


def make_muon(
    settings: MuonSettings, model: nn.Module, lr: float, weight_decay: float, compile_with: Compiler | None
) -> torch.optim.Optimizer:
    """Muon for all parameters of `model`."""
    return Muon(model.parameters(), lr, weight_decay, **settings.plain())


MUON = OptimizerPart("Muon", 1e-2, MuonSettings, make_muon)
