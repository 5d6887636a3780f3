"""The torch participants: our FNO as a user gets it, and neuraloperator's layers as the same network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.participant import LR, WEIGHT_DECAY, Prepared, Workload
from hero.data.windows import Batch, Context
from hero.method.rollout import as_stepper, rollout, unroll
from hero.models import FNO, count_parameters
from hero.runs.config import make_config
from hero.runs.folder import choose_device
from hero.training.compile import compiled as compiled_function
from hero.training.compile import find_compiler


def hero_work(work: Workload, compiled: bool) -> Prepared:
    """Our FNO as `hero train` trains it by push_forward, and as `hero.rollout` rolls it out."""
    device = choose_device("auto")
    torch.manual_seed(0)
    model = FNO(1, 1, work.width, (work.modes,) * work.dims, work.depth).to(device)
    count = count_parameters(model)
    context = Context(torch.randn(work.batch, 1, 1, *work.space, device=device))
    if work.kind == "inference":
        step = as_stepper(model.requires_grad_(False))
        roll = compiled_rollout(model, context, work.steps) if compiled else lambda: rollout(step, context, work.steps)
        return Prepared(rollout_of(roll), count, compiled)

    truth = torch.randn(work.batch, work.steps, 1, *work.space, device=device)
    batch = Batch(context, truth, 0, None, torch.Generator(device))
    choice = "auto" if compiled else "false"
    config = make_config(overrides={"strategy": "push_forward", "train.loss": "mse", "train.compile": choice})
    compiler = find_compiler(config, model, batch)
    strategy, compiled = config.make_strategy(compiler), compiler is not None
    return Prepared(update_of(model, lambda: strategy.loss(model, batch).value), count, compiled)


def compiled_rollout(model: nn.Module, context: Context, steps: int, chunk: int = 5) -> Callable[[], Tensor]:
    """The rollout as calls of one compiled `unroll` of `chunk` steps: each call then costs its checks only once."""
    with torch.inference_mode():
        model(context.inputs())  # fills the caches of the model outside of the compiled code
    some_steps = compiled_function(unroll, context.states.device)

    def roll() -> Tensor:
        z, parts = context, []
        for first in range(0, steps, chunk):
            parts.append(some_steps(model, z, min(chunk, steps - first)))
            z = z.advance(parts[-1])
        return torch.cat(parts, dim=1)

    return roll


def neuralop_model(work: Workload) -> nn.Module:
    """neuraloperator's own layers in the order of our network.

    Its class `FNO` cannot be this network: without channel MLPs it applies the activation twice in every inner block,
    and its projection has a hidden layer. The layers alone do less, so this favours neuraloperator.
    """
    from neuralop.layers.channel_mlp import ChannelMLP
    from neuralop.layers.fno_block import FNOBlocks

    n_modes = (*(2 * work.modes,) * (work.dims - 1), 2 * (work.modes - 1))  # it keeps -n/2 .. n/2-1, and 0 .. n/2 last
    layers: list[nn.Module] = [ChannelMLP(1, work.width, n_layers=1)]
    for _ in range(work.depth):
        layers += [FNOBlocks(work.width, work.width, n_modes, use_channel_mlp=False), nn.GELU("tanh")]
    return nn.Sequential(*layers, ChannelMLP(work.width, 1, n_layers=1))


def neuralop_work(work: Workload, compiled: bool) -> Prepared:
    """neuraloperator as its users run it, eagerly; `compiled` is not for it."""
    device = choose_device("auto")
    torch.manual_seed(0)
    model = neuralop_model(work).to(device)
    count = sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())
    start = torch.randn(work.batch, 1, *work.space, device=device)
    if work.kind == "inference":

        def roll() -> Tensor:
            u, states = start, torch.empty(work.steps, *start.shape, device=device)
            for k in range(work.steps):
                u = states[k] = model(u)
            return states

        return Prepared(rollout_of(roll), count, False)

    truth = torch.randn(work.steps, *start.shape, device=device)

    def loss() -> Tensor:
        u, states = start, []
        for _ in range(work.steps):
            u = model(u)
            states.append(u)
        return (torch.stack(states) - truth).square().mean()

    return Prepared(update_of(model, loss), count, False)


def update_of(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """One optimiser update, without clipping: the peers have none."""
    fused = not any(p.is_complex() for p in model.parameters())  # torch has no fused step for complex weights
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=fused)

    def update() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()
        synchronise()

    return update


def rollout_of(roll: Callable[[], Tensor]) -> Callable[[], None]:
    """One rollout without gradients; the states are dropped."""

    def run() -> None:
        with torch.inference_mode():
            roll()
        synchronise()

    return run


def synchronise() -> None:
    """Wait for the device, if there is one to wait for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
