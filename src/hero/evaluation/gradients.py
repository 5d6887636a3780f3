"""Gradients that the theory speaks of and training never forms: one per task, and one through a long rollout.

A gradient is a dictionary like `named_parameters`. Memory is bounded: per-task gradients exist for one chunk of tasks
at a time, and a long rollout is recomputed step by step in its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from hero.console import say
from hero.data.windows import Context
from hero.method.distance import state_distance, trajectory_distance
from hero.method.rollout import rollout

Vector = dict[str, Tensor]

CHUNK_BYTES = 2**28
"""The most that the per-task gradients of one chunk may take."""
CHUNK_TASKS = 8
"""And the most tasks in it: their rollouts take memory too, and more at once are not faster."""


def parameters_of(model: nn.Module) -> Vector:
    """θ, detached."""
    return {name: p.detach() for name, p in model.named_parameters()}


def dot(x: Vector, y: Vector) -> float:
    """⟨x, y⟩."""
    return float(sum((x[name] * y[name]).sum() for name in x))


def combine(x: Vector, y: Vector, factor: float) -> Vector:
    """x + factor·y."""
    return {name: x[name] + factor * y[name] for name in x}


def trajectory_risk(model: nn.Module, theta: Vector, states: Tensor, truth: Tensor) -> Tensor:
    """ℓ_T(q, θ) = D(τ_θ, τ_*) over the steps of `truth`, per task; `states` is (batch, H, channel, *space)."""
    tau = rollout(lambda z: functional_call(model, theta, (z.inputs(),)), Context(states), truth.shape[1])
    return trajectory_distance(tau, truth)


def task_gradients(model: nn.Module, states: Tensor, truth: Tensor, chunk: int | None = None) -> Iterator[Vector]:
    """g_i = ∇ℓ_tr(q_i, θ) for the tasks in order, in chunks: each entry is (chunk, *shape of the parameter).

    By torch.func in one go per chunk; a backbone with an operation that cannot be batched so is done task by task.
    """
    theta = parameters_of(model)
    if chunk is None:
        size = sum(p.numel() * p.element_size() for p in theta.values())
        chunk = max(1, min(CHUNK_TASKS, CHUNK_BYTES // size))

    def loss(theta: Vector, states: Tensor, truth: Tensor) -> Tensor:
        return trajectory_risk(model, theta, states[None], truth[None])[0]

    with torch.no_grad():
        model(Context(states[:1]).inputs())  # a backbone may cache by dtype; that must not happen inside of vmap
    batched = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    for u, v in zip(states.split(chunk), truth.split(chunk), strict=True):
        try:
            gradients = batched(theta, u, v)
        except (RuntimeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0][:100]
            say(f"per-task gradients one by one, torch.func.vmap cannot batch them ({reason})", style="dim")
            batched = one_by_one(grad(loss))
            gradients = batched(theta, u, v)
        yield gradients


def one_by_one(gradient: Callable[..., Vector]) -> Callable[..., Vector]:
    """The plain loop that `vmap` replaces."""

    def run(theta: Vector, states: Tensor, truth: Tensor) -> Vector:
        rows = [gradient(theta, u, v) for u, v in zip(states, truth, strict=True)]
        return {name: torch.stack([row[name] for row in rows]) for name in theta}

    return run


def long_gradient(model: nn.Module, theta: Vector, states: Tensor, truth: Tensor, batch: int) -> tuple[float, Vector]:
    """J_L(θ) = mean_i ℓ_{T_L}(q_i, θ) and ∇J_L(θ), back-propagated through all T_L steps of `truth`.

    `batch` tasks at a time. Forward, only the states are kept; backward, each step is computed again with its graph,
    and the derivative by its context is handed on to the step before. So memory is that of one step, whatever T_L.
    """
    leaves = {name: p.detach().requires_grad_() for name, p in theta.items()}
    scale = 1 / (truth.shape[1] * len(states))
    risk, slope = 0.0, {name: torch.zeros_like(p) for name, p in theta.items()}
    for u, target in zip(states.split(batch), truth.split(batch), strict=True):
        contexts = [Context(u)]
        with torch.no_grad():
            for _ in range(truth.shape[1] - 1):
                contexts.append(contexts[-1].advance(functional_call(model, theta, (contexts[-1].inputs(),))[:, None]))
        handed_on = torch.zeros_like(u)
        for k, context in reversed(list(enumerate(contexts))):
            start = context.states.detach().requires_grad_()
            v = functional_call(model, leaves, (Context(start).inputs(),))
            loss = scale * state_distance(v[:, None], target[:, k : k + 1]).sum()
            total = loss + (Context(start).advance(v[:, None]).states * handed_on).sum()
            handed_on, *gradients = torch.autograd.grad(total, [start, *leaves.values()])
            slope = {name: slope[name] + g for name, g in zip(slope, gradients, strict=True)}
            risk += float(loss.detach())
    return risk, slope


@torch.no_grad()
def long_risk(model: nn.Module, theta: Vector, states: Tensor, truth: Tensor, batch: int) -> float:
    """J_L(θ) alone."""
    parts = zip(states.split(batch), truth.split(batch), strict=True)
    return float(sum(trajectory_risk(model, theta, u, v).sum() for u, v in parts) / len(states))
