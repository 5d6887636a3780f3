"""Foresight: what an operator makes of a defect in each mode over the next N steps, by its adjoint along its rollouts.

A defect δ_n added to step n of a rollout v changes the readout L = Σ_m ⟨probe_m, v_m⟩ by ⟨λ_n, δ_n⟩ with

    λ_n = probe_n + J_G(v_n)ᵀ λ_{n+1},     probe_n ~ N(0, 1)/‖v_n‖,     λ_N = probe_N

so that E|λ_n|² is the sum of the squared relative errors that a unit defect leaves at the steps from n to N, and
g_k = mean of ‖v_n‖² |λ_n,k|² says how much a relative defect in mode k matters later. On a homogeneous periodic box the
mean of λ λᵀ is diagonal in k, which is why one number per shell is enough. No truth and no solver is needed, and N may
exceed the length of the training trajectories. States and defects are measured in the norm of the run: v and δ are ũ.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.utils.checkpoint import checkpoint

from hero.data.windows import Context
from hero.method.distance import EPS, norm
from hero.method.modes import Modes
from hero.method.norm import Norm
from hero.method.rollout import Stepper, rollout

LEFT_OUT = 5
"""The last λ have seen too few steps."""


def adjoints(
    step: Stepper,
    context: Context,
    horizon: int,
    generator: Generator,
    weights: Tensor | None = None,
    measured: Norm | None = None,
) -> tuple[Tensor, Tensor]:
    """v and λ of `horizon` steps, each (batch, step, channel, *space), as they are `measured`.

    λ_n is the gradient by a zero that is added to step n, so history, bundles and conditioning need no care. Only
    states are kept for the backward pass; each step is computed again there. `weights`: quadrature. A defect of a
    channel or point that does not count has λ = 0.
    """
    measured = measured or Norm()
    defects: list[Tensor] = []

    def disturbed(z: Context) -> Tensor:
        made: Tensor = checkpoint(step, z, use_reentrant=False, preserve_rng_state=False)
        defects.append(torch.zeros_like(made, requires_grad=True))
        return made + defects[-1]

    with torch.enable_grad():
        v = measured.scaled(rollout(disturbed, context, horizon))
        draws = torch.randn(v.shape, generator=generator, device=v.device, dtype=v.dtype)
        probe = draws / (norm(v.detach(), weights)[(..., *(None,) * (v.dim() - 2))] + EPS)
        omega = torch.ones((), dtype=v.dtype, device=v.device) if weights is None else weights.to(v)
        gradients = torch.autograd.grad(v, defects, probe * omega.sqrt())
    parts = [gradient.unflatten(1, (-1, v.shape[2])) for gradient in gradients]
    return v.detach(), measured.dual(torch.cat(parts, dim=1)[:, :horizon]) / omega


def sensitivity(
    step: Stepper, context: Context, horizon: int, modes: Modes, generator: Generator, measured: Norm | None = None
) -> Tensor:
    """g (channel, shell), scaled to mean 1; trajectories that overflow are left out, and without any other g is 1.

    Overflow begins where the sum of all trajectories could exceed the largest number.
    """
    v, lambdas = adjoints(step, context, horizon, generator, modes.weights, measured)
    relative = lambdas * norm(v, modes.weights)[(..., *(None,) * (v.dim() - 2))]
    power = modes.shell_power(relative[:, : max(1, horizon - LEFT_OUT)])
    finite = (power < torch.finfo(power.dtype).max / power.numel()).flatten(1).all(dim=1)  # NaN is not below either
    power = torch.where(finite[:, None, None, None], power, 0.0)
    g = power.mean(dim=1).sum(dim=0) / finite.sum().clamp(min=1) / modes.tables(power)[1]
    return torch.where(finite.any(), g / g.mean().clamp(min=torch.finfo(g.dtype).tiny), torch.ones_like(g))
