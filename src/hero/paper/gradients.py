"""Gradients that the theory speaks of and training never forms: one per task, and one through a long rollout.

A gradient is one vector, ordered as `parameters()`. Memory is bounded: per-task gradients exist for one chunk of tasks
at a time, and a long rollout is recomputed step by step in its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from hero.console import say
from hero.data.trajectories import Context
from hero.method.distance import trajectory_distance
from hero.method.norm import Norm
from hero.method.rollout import rollout

CHUNK_BYTES = 2**28
"""The most that the per-task gradients of one chunk may take."""
CHUNK_TASKS = 8
"""And the most tasks in it: their rollouts take memory too, and more at once are not faster."""


def parameters_of(model: nn.Module) -> Tensor:
    """θ, detached."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def apply(model: nn.Module, theta: Tensor, inputs: Tensor) -> Tensor:
    """G_θ of `inputs` (batch, H*channel, *space)."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    parts = theta.split([p.numel() for p in parameters])
    by_name = {name: part.view_as(p) for name, part, p in zip(names, parts, parameters, strict=True)}
    output: Tensor = functional_call(model, by_name, (inputs,))
    return output


def trajectory_risk(
    model: nn.Module, theta: Tensor, states: Tensor, truth: Tensor, norm: Norm | None = None, recompute: bool = False
) -> Tensor:
    """ℓ_T(q, θ) = D(τ_θ, τ_*) over the steps of `truth`, per task; `states` is (batch, H, channel, *space).

    With `recompute` only the states are kept, and each step is computed again in the backward pass.
    """

    def step(context: Context) -> Tensor:
        if not recompute:
            return apply(model, theta, context.inputs())
        output: Tensor = checkpoint(apply, model, theta, context.inputs(), use_reentrant=False)
        return output

    norm = norm or Norm()
    tau = rollout(step, Context(states), truth.shape[1])
    return trajectory_distance(norm.scaled(tau), norm.scaled(truth), norm.weights)


def task_gradients(
    model: nn.Module, states: Tensor, truth: Tensor, chunk: int | None = None, norm: Norm | None = None
) -> Iterator[Tensor]:
    """g_i = ∇ℓ_tr(q_i, θ) for the tasks in order, in chunks (chunk, size of θ).

    By torch.func in one go per chunk; a backbone with an operation that cannot be batched so is done task by task.
    """
    theta = parameters_of(model)
    chunk = chunk or max(1, min(CHUNK_TASKS, CHUNK_BYTES // theta.nbytes))

    def loss(theta: Tensor, states: Tensor, truth: Tensor) -> Tensor:
        return trajectory_risk(model, theta, states[None], truth[None], norm)[0]

    def one_by_one(theta: Tensor, states: Tensor, truth: Tensor) -> Tensor:
        return torch.stack([grad(loss)(theta, u, v) for u, v in zip(states, truth, strict=True)])

    with torch.no_grad():
        model(Context(states[:1]).inputs())  # a backbone may cache by dtype; that must not happen inside of vmap
    gradients: Callable[..., Tensor] = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    for u, v in zip(states.split(chunk), truth.split(chunk), strict=True):
        try:
            found = gradients(theta, u, v)
        except (RuntimeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0][:100]
            say(f"per-task gradients one by one, torch.func.vmap cannot batch them ({reason})", style="dim")
            gradients = one_by_one
            found = gradients(theta, u, v)
        yield found


def long_gradient(
    model: nn.Module, theta: Tensor, states: Tensor, truth: Tensor, batch: int, norm: Norm | None = None
) -> tuple[float, Tensor]:
    """J_L(θ) = mean_i ℓ_{T_L}(q_i, θ) and ∇J_L(θ), back-propagated through all T_L steps of `truth`.

    `batch` tasks at a time. One step takes all the memory of activations, whatever T_L.
    """
    leaf, risk, slope = theta.detach().requires_grad_(), 0.0, torch.zeros_like(theta)
    for u, v in zip(states.split(batch), truth.split(batch), strict=True):
        loss = trajectory_risk(model, leaf, u, v, norm, recompute=True).sum() / len(states)
        slope += torch.autograd.grad(loss, leaf)[0]
        risk += float(loss.detach())
    return risk, slope


@torch.no_grad()
def long_risk(
    model: nn.Module, theta: Tensor, states: Tensor, truth: Tensor, batch: int, norm: Norm | None = None
) -> float:
    """J_L(θ) alone."""
    parts = zip(states.split(batch), truth.split(batch), strict=True)
    return float(sum(trajectory_risk(model, theta, u, v, norm).sum() for u, v in parts) / len(states))
