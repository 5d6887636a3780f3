"""Learning rate, length of the unroll and noise as pure functions of the update, so that a resume needs no state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator

from hero.data.windows import Batch, Context
from hero.method.norm import Norm
from hero.parallel import draw
from hero.seeding import seed_of
from hero.strategies.settings import TrainSettings, stage_lengths


def learning_rate(step: int, peak: float, warmup: int, total: int) -> float:
    """Linear to `peak` over `warmup` updates, then cosine towards 0 at `total`; `step` counts from 0."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def unroll_length(
    curriculum: str, step: int, steps: int, longest: int, seed: int, stages: Sequence[tuple[int, int]] = ()
) -> int:
    """K of update `step`: the longest, or growing to it in equal stages, or drawn uniformly from 1 to it.

    With curriculum "stages" it is the length in the first of `stages` (length, updates) that is not over.
    """
    if curriculum == "stages":
        for length, updates in stages:
            if step < updates:
                return length
            step -= updates
    if curriculum == "steps":
        return min(longest, 1 + step * longest // steps)
    if curriculum == "random":
        return 1 + seed_of(seed, "unroll", step) % longest
    return longest


def augment(batch: Batch, train: TrainSettings, seed: int, norm: Norm) -> Batch:
    """The batch after the curriculum on its length and the noise on its input.

    A window that changes from epoch to epoch loses its number: a result cached per window would be wrong.
    """
    if train.curriculum != "fixed":
        stages = stage_lengths(train.stages)
        length = unroll_length(train.curriculum, batch.step, train.steps, train.unroll, seed, stages)
        batch = replace(batch, truth=batch.truth[:, :length], index=None)
    if train.scale > 1:
        batch = scaled(batch, train.scale)
    if train.noise:
        batch = replace(batch, context=noisy(batch.context, train.noise, batch.generator, norm), index=None)
    return batch


def scaled(batch: Batch, largest: float) -> Batch:
    """Every window times its own factor, log-uniform between 1/largest and largest."""
    u = batch.context.states
    xi = draw(torch.rand, (len(u),), generator=batch.generator, device=u.device, dtype=u.dtype)
    factor = (largest ** (2 * xi - 1)).reshape(-1, *(1,) * (u.dim() - 1))
    context = replace(batch.context, states=u * factor)
    return replace(batch, context=context, truth=batch.truth * factor, index=None)


def noisy(context: Context, noise: float, generator: Generator, norm: Norm) -> Context:
    """u + σ rms(u) ξ for every state of the context, ξ standard normal; the conditioning is unchanged.

    Where channels are measured one by one, the standard deviation of each is in the place of the root mean square.
    """
    u = context.states
    if norm.by_channel and norm.std is not None:
        rms = norm.std.to(u).reshape(-1, *(1,) * (u.dim() - 3))
    else:
        rms = u.square().mean(dim=tuple(range(2, u.dim())), keepdim=True).sqrt()
    xi = draw(torch.randn, u.shape, generator=generator, device=u.device, dtype=u.dtype)
    return replace(context, states=u + noise * rms * xi)
