"""Autoregressive rollouts.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hero.data.trajectories import Context, states_of
from hero.errors import HeroError, shown
from hero.models.once import frozen_weights, inference

Stepper = Callable[[Context], Tensor]
Unroll = Callable[[nn.Module, Context, int], Tensor]


def as_stepper(model: nn.Module) -> Stepper:
    """A backbone as G_θ: z_n ↦ û_{n+1}."""
    return lambda context: model(context.inputs())


def counted(step: Stepper, advance: Callable[[int], None]) -> Stepper:
    """`step` that moves a progress bar, by one for each state that it makes."""

    def advancing(context: Context) -> Tensor:
        made = step(context)
        advance(len(made) * made.shape[1] // context.states.shape[2])
        return made

    return advancing


def rollout(step: Stepper, context: Context, steps: int) -> Tensor:
    """τ = (û_{n+1}, .., û_{n+K}) with û_{n+k} = G(û_{n+k-H}, .., û_{n+k-1}; μ, f_{n+k-1}).

    It is (batch, steps, channel, *space).
    A stepper may make several steps per call; then its output has as many times the channels of a state.
    """
    with inference():
        return _rollout(step, context, steps)


def _rollout(step: Stepper, context: Context, steps: int) -> Tensor:
    """`rollout` with the numbers of training, bit for bit."""
    if not isinstance(context, Context) or not isinstance(steps, int) or steps < 1:
        raise HeroError(
            "a rollout begins at a hero.Context(states) of states (batch, H, channel, *space) and has at least one "
            "step; `hero.predict(model, states, steps)` takes bare states."
        )
    context.check_forcing(steps)
    in_place = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    tau, parts, count = reserved(context.states, steps) if in_place else None, [], 0
    with frozen_weights() if in_place else nullcontext():
        while count < steps:
            output = step(context)
            made = steps_in(output, context)
            if tau is None:
                parts.append(made)
            elif made.shape[1] == 1:  # views of less than all take as long as small steps
                tau.select(1, count).copy_(output)
            else:
                tau[:, count : count + made.shape[1]].copy_(made[:, : steps - count])
            count += made.shape[1]
            context = context.advance(made)
    return torch.cat(parts, dim=1)[:, :steps] if tau is None else tau


def steps_in(output: Tensor, context: Context) -> Tensor:
    """The steps that one call made, (batch, steps, channel, *space)."""
    if not isinstance(output, Tensor):
        raise HeroError(f"the model returned {type(output).__name__}; return a tensor (batch, channel, *space).")
    shape, (batch, _, *state) = output.shape, context.states.shape
    if shape == (batch, *state):
        return output.unsqueeze(1)
    if shape[1] % state[0] or [*shape[2:]] != state[1:]:
        raise HeroError(
            f"the model returned {tuple(output.shape)} for states of (channel, *space) {tuple(state)}; its output "
            "must have the channels of a state, or a multiple of them, on the same grid."
        )
    return output[:, None] if output.shape[1] == state[0] else output.unflatten(1, (-1, state[0]))


def reserved(states: Tensor, steps: int) -> Tensor:
    """Room for a rollout from `states`; without gradient each state goes there at once.

    Small ones kept between large ones would waste memory.
    """
    shape = states.shape[0], steps, *states.shape[2:]
    try:
        return torch.empty(shape, dtype=states.dtype, device=states.device)
    except RuntimeError as error:
        size = f"{math.prod(shape) * states.element_size() / 1e9:.3g} GB"
        raise HeroError(
            f"a rollout of {steps} steps takes {size} of memory; `hero predict --out` streams it."
        ) from error


def unroll(model: nn.Module, state: Context | Tensor, steps: int, recompute: bool = False) -> Tensor:
    """Rollout(G_θ, z_n, K) of any module, with gradient: (batch, steps, channel, *space).

    `state` is (batch, channel, *space), or a Context where the module takes a history or a conditioning. `recompute`
    keeps only the states for the backward pass and computes each step again there: the memory of long rollouts.
    Training may replace it by its compiled form, which does the same.
    """
    if not callable(model):
        raise HeroError(f"`model` is {shown(model)}; give a module that maps a state to the next one.")
    context = state if isinstance(state, Context) else Context(states_of(state, "(batch, channel, *space)", 3)[:, None])
    if recompute and torch.is_grad_enabled():
        return _rollout(lambda z: checkpoint(model, z.inputs(), use_reentrant=False), context, steps)
    with nullcontext() if torch.compiler.is_compiling() else frozen_weights():
        return _rollout(as_stepper(model), context, steps)


def recomputed_unroll(model: nn.Module, context: Context, steps: int) -> Tensor:
    """`unroll` that recomputes, as one function, which is compiled once."""
    return unroll(model, context, steps, recompute=True)
