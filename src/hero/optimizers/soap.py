"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's preconditioners.

For each axis i of a weight, C_i is the decaying mean of G_(i) G_(i)ᵀ, G_(i) the gradient as a matrix whose rows run
along that axis, and Q_i are the eigenvectors of C_i. Adam sees the gradient in the basis Q_1 ⊗ Q_2 ⊗ …; its update is
rotated back. Unlike the reference code, the momentum is kept in the rotated basis and turned when the basis changes:
the same numbers with a third fewer rotations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hero.config import setting
from hero.optimizers.base import Compiler, OptimizerPart, OptimizerSettings


class SOAPSettings(OptimizerSettings):
    """SOAP."""

    beta1: float = setting(0.95, "Decay of the mean of the gradient.", ge=0, lt=1)
    beta2: float = setting(0.95, "Decay of the mean of its square, and of the preconditioners.", ge=0, lt=1)
    eps: float = setting(1e-8, "Added to the root of the mean square.", ge=0)
    precondition_frequency: int = setting(10, "Updates between two refreshes of the eigenvectors.", ge=1)
    max_precond_dim: int = setting(1024, "Longer axes of a weight are not rotated.", ge=0)


def along(x: Tensor, axis: int) -> Tensor:
    """`x` as (before, axis, after), without a copy."""
    return x.reshape(-1, x.shape[axis], math.prod(x.shape[axis + 1 :]))


def gram(x: Tensor, axis: int) -> Tensor:
    """X_(i) X_(i)ᵀ."""
    matrices = along(x, axis)
    return (matrices @ matrices.mT).sum(0)


def rotate(x: Tensor, bases: list[Tensor], axes: list[int], back: bool = False) -> Tensor:
    """`x` in the basis of `bases` along `axes`, or back from it."""
    for q, axis in zip(bases, axes, strict=True):
        matrices = along(x, axis)
        x = torch.bmm((q if back else q.mT).expand(len(matrices), -1, -1), matrices).view(x.shape)
    return x


def first_basis(c: Tensor) -> Tensor:
    """Eigenvectors of `c` by falling eigenvalue; not a number where `c` is not finite, on which eigh would raise."""
    return torch.linalg.eigh(c.nan_to_num(0, 0, 0)).eigenvectors.flip(-1) + 0 * c


def refresh(q: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The basis after one power iteration, and the order of its columns by falling estimated eigenvalue."""
    power = c @ q
    order = (q * power).sum(0).argsort(descending=True)
    return torch.linalg.qr(power[:, order]).Q, order


class SOAP(torch.optim.Optimizer):
    """The first update of a parameter only makes its basis; with η_t = η √(1 - β₂ᵗ) / (1 - β₁ᵗ) the others are

    G' = Q₁ᵀ G Q₂,  M ← β₁ M + (1 - β₁) G',  V ← β₂ V + (1 - β₂) G'²,
    W ← (1 - η λ) (W - η_t Q₁ [M / (√V + ε)] Q₂ᵀ),  C_i ← β₂ C_i + (1 - β₂) G_(i) G_(i)ᵀ.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, weight_decay: float, beta1: float = 0.95, beta2: float = 0.95,
        eps: float = 1e-8, precondition_frequency: int = 10, max_precond_dim: int = 1024,
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "weight_decay": weight_decay, "beta1": beta1, "beta2": beta2, "eps": eps}
        defaults |= {"precondition_frequency": precondition_frequency, "max_precond_dim": max_precond_dim}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                w, g = (torch.view_as_real(x) if x.is_complex() else x for x in (p, p.grad))
                g, state = g.contiguous(), self.state[p]
                axes = [i for i, n in enumerate(g.shape) if w.dim() > 1 and 2 < n <= group["max_precond_dim"]]
                if not state:
                    state["step"], state["mean"], state["square"] = 0, torch.zeros_like(g), torch.zeros_like(g)
                    state["c"] = [(1 - group["beta2"]) * gram(g, axis) for axis in axes]
                    state["q"] = [first_basis(c) for c in state["c"]]
                    continue
                self.update(w, g, state, axes, group)

    def update(self, w: Tensor, g: Tensor, state: dict[str, Any], axes: list[int], group: dict[str, Any]) -> None:
        state["step"] += 1
        lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
        mean, square = state["mean"], state["square"]
        rotated = rotate(g, state["q"], axes)
        mean.lerp_(rotated, 1 - beta1)
        square.lerp_(rotated.square(), 1 - beta2)
        size = lr * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        w.add_(rotate(mean / (square.sqrt() + group["eps"]), state["q"], axes, back=True), alpha=-size)
        w.mul_(1 - lr * group["weight_decay"])
        for c, axis in zip(state["c"], axes, strict=True):
            c.lerp_(gram(g, axis), 1 - beta2)
        if axes and state["step"] % group["precondition_frequency"] == 0:
            mean = rotate(mean, state["q"], axes, back=True)
            for i, axis in enumerate(axes):
                state["q"][i], order = refresh(state["q"][i], state["c"][i])
                state["square"] = state["square"].index_select(axis, order)
            state["mean"] = rotate(mean, state["q"], axes)


def make_soap(
    settings: SOAPSettings, model: nn.Module, lr: float, weight_decay: float, compile_with: Compiler | None
) -> torch.optim.Optimizer:
    """SOAP for all parameters of `model`."""
    return SOAP(model.parameters(), lr, weight_decay, **settings.plain())


SOAP_PART = OptimizerPart("SOAP", 5e-3, SOAPSettings, make_soap)
