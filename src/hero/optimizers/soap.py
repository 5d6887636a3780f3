"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's preconditioners.

For each axis i of a weight, C_i is the decaying mean of G_(i) G_(i)ᵀ, G_(i) the gradient as a matrix whose rows run
along that axis, and Q_i are the eigenvectors of C_i. Adam sees the gradient in the basis Q_1 ⊗ Q_2 ⊗ …; its update is
rotated back. Unlike the reference code, the momentum is kept in the rotated basis and turned when the basis changes:
the same numbers with a third fewer rotations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Work = tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor], list[Tensor], list[int]]
"""Tensors of one parameter: w, g, mean, square, q, c and the axes of the latter two."""


def rotated_axes(p: Tensor, longest: int) -> list[int]:
    """The axes that get a basis: all of a matrix, none of a vector, in and out of a spectral weight.

    That is a matrix for each mode: complex (in, out, *modes), or real (2, in, out, *modes).
    """
    axes = range(p.dim()) if p.dim() > 1 else range(0)
    if p.is_complex() and p.dim() >= 3:
        axes = range(2)
    elif not p.is_complex() and p.dim() >= 4 and p.shape[0] == 2:
        axes = range(1, 3)
    return [axis for axis in axes if 1 < p.shape[axis] <= longest]


def real(x: Tensor) -> Tensor:
    """A view of `x` as real numbers; a complex one gets a last axis of two."""
    return torch.view_as_real(x) if x.is_complex() else x


def gradient(p: Tensor) -> Tensor:
    """The gradient of `p` as contiguous real numbers."""
    assert p.grad is not None  # for the type checker
    return real(p.grad).contiguous()


def gram(x: Tensor, axis: int) -> Tensor:
    """X_(i) X_(i)ᵀ."""
    rows = x.movedim(axis, 0).flatten(1)
    return rows @ rows.T


def rotate(x: Tensor, bases: list[Tensor], axes: list[int], back: bool = False) -> Tensor:
    """`x` in the basis of `bases` along `axes`, or back from it."""
    for q, axis in zip(bases, axes, strict=True):
        q = q.T if back else q
        if axis == x.dim() - 1:
            x = (x.reshape(-1, len(q)) @ q).view(x.shape)
        else:  # a product for each index before the axis, without a copy
            matrices = x.reshape(-1, len(q), math.prod(x.shape[axis + 1 :]))
            x = torch.bmm(q.T.expand(len(matrices), -1, -1), matrices).view(x.shape)
    return x


class SOAP(torch.optim.Optimizer):
    """The first update of a parameter only makes its basis; with η_t = η √(1 - β₂ᵗ) / (1 - β₁ᵗ) the others are

    G' = Q₁ᵀ G Q₂,  M ← β₁ M + (1 - β₁) G',  V ← β₂ V + (1 - β₂) G'²,
    W ← (1 - η λ) (W - η_t Q₁ [M / (√V + ε)] Q₂ᵀ),  C_i ← β₂ C_i + (1 - β₂) G_(i) G_(i)ᵀ.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        refresh: int = 10,
        longest_axis: int = 1024,
        *,
        compile_with: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> None:
        """`refresh` updates are between two refreshes of the bases; axes above `longest_axis` are not rotated."""
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"refresh": refresh, "longest_axis": longest_axis})
        self.update = update if compile_with is None else compile_with(update)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Earlier versions stored the learning rate and the weight decay alone."""
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("betas", "eps", "refresh", "longest_axis"):
                group.setdefault(name, self.defaults[name])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; `closure` computes loss and gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            ages: dict[int, list[Tensor]] = {}  # as a rule there is one: updates that its parameters have seen
            for p in group["params"]:
                if p.grad is None:
                    continue
                if self.state[p]:
                    ages.setdefault(self.state[p]["step"], []).append(p)
                else:
                    self.begin(p, group)
            for age, parameters in ages.items():
                self.advance(parameters, age + 1, group)
        return loss

    def begin(self, p: Tensor, group: dict[str, Any]) -> None:
        """The state of a parameter after its first gradient."""
        g, state = gradient(p), self.state[p]
        state["step"], state["mean"], state["square"] = 0, torch.zeros_like(g), torch.zeros_like(g)
        axes = rotated_axes(p, group["longest_axis"])
        state["c"] = [(1 - group["betas"][1]) * gram(g, axis) for axis in axes]
        # Eigenvectors by falling eigenvalue; NaN where c is not finite, on which eigh would raise.
        vectors = (torch.linalg.eigh(c.nan_to_num(0, 0, 0)).eigenvectors for c in state["c"])
        state["q"] = [v.flip(-1).contiguous() + 0 * c for v, c in zip(vectors, state["c"], strict=True)]

    def advance(self, parameters: list[Tensor], step: int, group: dict[str, Any]) -> None:
        """Update `parameters`, which have seen `step` updates after this one."""
        lr, (beta1, beta2) = group["lr"], group["betas"]
        # As tensors: numbers that change would be compiled again for each update.
        size = torch.tensor(lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step), dtype=torch.float64)
        kept = torch.tensor(1 - lr * group["weight_decay"], dtype=torch.float64)
        work = []
        for p in parameters:
            state, axes = self.state[p], rotated_axes(p, group["longest_axis"])
            state["step"] = step
            w, g = real(p.detach()), gradient(p)
            work.append((w, g, state["mean"], state["square"], state["q"], state["c"], axes))
        self.update(work, size, kept, beta1, beta2, group["eps"])
        if step % group["refresh"] == 0:
            for p in parameters:
                turn(self.state[p], rotated_axes(p, group["longest_axis"]))


def update(work: list[Work], size: Tensor, kept: Tensor, beta1: float, beta2: float, eps: float) -> None:
    """The formulas of `SOAP`, in place; one function of all parameters, so that it can be compiled."""
    for w, g, mean, square, q, c, axes in work:
        rotated = rotate(g, q, axes)
        mean.lerp_(rotated, 1 - beta1)
        square.lerp_(rotated.square(), 1 - beta2)
        w.sub_(size * rotate(mean / (square.sqrt() + eps), q, axes, back=True)).mul_(kept)
        for c_i, axis in zip(c, axes, strict=True):
            c_i.lerp_(gram(g, axis), 1 - beta2)


def turn(state: dict[str, Any], axes: list[int]) -> None:
    """Refresh the bases of a parameter by one power iteration, and bring its moments into them."""
    mean = rotate(state["mean"], state["q"], axes, back=True)
    for i, axis in enumerate(axes):
        power = state["c"][i] @ state["q"][i]
        order = (state["q"][i] * power).sum(0).argsort(descending=True)  # by falling estimated eigenvalue
        state["q"][i] = torch.linalg.qr(power[:, order]).Q.contiguous()
        state["square"] = state["square"].index_select(axis, order)
    state["mean"] = rotate(mean, state["q"], axes)
