"""The torch participants: our networks as a user gets them, and the layers of others as the same networks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.participant import LR, WEIGHT_DECAY, Prepared, Workload
from benchmarks.references import AuthorsUNet, authors_transolver
from hero.data.windows import Batch, Context
from hero.method.rollout import as_stepper, rollout, unroll
from hero.models import FNO, Transolver, UNet, count_parameters, spectral
from hero.runs.config import make_config
from hero.runs.folder import choose_device
from hero.strategies.base import Loss
from hero.training.compile import compiled as compiled_function
from hero.training.compile import find_compiler
from hero.training.memory import keep_freed_memory, unroll_memory

HEADS = 8
"""Heads of a Transolver."""


def hero_work(work: Workload, compiled: bool) -> Prepared:
    """Our FNO as `hero train` trains it by push_forward, and as `hero.rollout` rolls it out."""
    device = choose_device("auto")
    torch.manual_seed(0)
    model = hero_model(work).to(device)
    count = count_parameters(model)
    context = Context(torch.randn(work.batch, 1, 1, *work.space, device=device))
    if work.kind == "inference":
        step = as_stepper(model.requires_grad_(False))
        roll = compiled_rollout(model, context, work.steps) if compiled else lambda: rollout(step, context, work.steps)
        return Prepared(rollout_of(roll), count, compiled)

    truth = torch.randn(work.batch, work.steps, 1, *work.space, device=device)
    batch = Batch(context, truth, 0, None, torch.Generator(device))
    choice = "auto" if compiled else "false"
    unrolled = {"train.unroll": work.steps, "train.loss": "mse", "train.compile": choice}
    config = make_config(overrides={"strategy": "push_forward", **unrolled})
    if unroll_memory(config, model, batch).is_small:  # as `hero train` does
        keep_freed_memory()
    compiler = find_compiler(config, model, batch)
    strategy, compiled = config.make_strategy(compiler), compiler is not None
    return Prepared(update_of(model, lambda: strategy.loss(model, batch)), count, compiled)


def hero_model(work: Workload) -> nn.Module:
    """Our network; Transolver and U-Net with walls, as their authors have them."""
    if work.network == "transolver":
        return Transolver(1, 1, work.dims, work.width, work.depth, HEADS, slices=work.modes, periodic=False)
    if work.network == "unet":
        return UNet(1, 1, (False,) * work.dims, work.width, levels=work.depth)
    return FNO(1, 1, work.width, (work.modes,) * work.dims, work.depth)


def hero_matrices_work(work: Workload, compiled: bool) -> Prepared:
    """Our FNO with the transform by matrices, whatever the count says."""
    spectral.GEMM_OVER_FFT = math.inf  # type: ignore[assignment]
    return hero_work(work, compiled)


def hero_fft_work(work: Workload, compiled: bool) -> Prepared:
    """Our FNO with the transform by an FFT, whatever the count says."""
    spectral.GEMM_OVER_FFT = 0
    return hero_work(work, compiled)


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
    return eager_work(neuralop_model, work)


def authors_model(work: Workload) -> nn.Module:
    """Transolver and U-Net with the layers of their authors."""
    if work.network == "transolver":
        model = hero_model(work)
        assert isinstance(model, Transolver)
        return authors_transolver(model)
    return AuthorsUNet(1, 1, work.width, work.depth)


def authors_work(work: Workload, compiled: bool) -> Prepared:
    """The layers of the authors, eagerly, as their code runs them."""
    return eager_work(authors_model, work)


def eager_work(make: Callable[[Workload], nn.Module], work: Workload) -> Prepared:
    """A plain loop of torch around a network."""
    device = choose_device("auto")
    torch.manual_seed(0)
    model = make(work).to(device)
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

    def loss() -> Loss:
        u, states = start, []
        for _ in range(work.steps):
            u = model(u)
            states.append(u)
        return Loss((torch.stack(states) - truth).square().mean(), {})

    return Prepared(update_of(model, loss), count, False)


def update_of(model: nn.Module, loss: Callable[[], Loss]) -> Callable[[], None]:
    """One optimiser update, without clipping: the peers have none."""
    fused = not any(p.is_complex() for p in model.parameters())  # torch has no fused step for complex weights
    parameters = list(model.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=LR, weight_decay=WEIGHT_DECAY, fused=fused)

    def update() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward(parameters)
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
