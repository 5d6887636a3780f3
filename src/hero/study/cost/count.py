"""The cost of a configuration before anything is computed: parameters, FLOPs per update, memory, files.

Counted on one update of each phase on the meta device, where tensors have shapes and no numbers: at any size in a
moment. A module that needs numbers is counted on the CPU instead, with two and three windows, and scaled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hero.data import SPLITS
from hero.data.files.handles import CACHE_BYTES, KEPT
from hero.data.windows import AHEAD, Batch, Batches, Context
from hero.method.rollout_errors import CHUNK_VALUES
from hero.models import BACKBONES, count_parameters
from hero.records import Record
from hero.runs.config import RunConfig
from hero.strategies import Strategy, TrainSettings
from hero.strategies.hero import HeroStrategy, RelativeStrategy
from hero.training.memory import KeptForBackward

SIZES = (2, 3)
"""Batches that are counted on the CPU; not 1, at which some copies become views and the line would be another."""


class Phase(Record):
    """Updates of the same cost, which repeating update `step` repeats: `flops`, and `seconds` where measured."""

    name: str
    updates: int
    step: int
    flops: int = 0
    seconds: float | None = None


class Measurement(Record):
    """How a few real updates of a run were made; memory in bytes, None where the system does not tell."""

    compiled: bool
    device: str
    threads: int
    peak_memory: int | None
    available_memory: int | None


class Description(Record):
    """The run of a configuration in numbers; memory and files in bytes."""

    task: str
    backbone: str
    strategy: str
    seed: int
    settings: dict[str, Any]  # settings of the backbone
    parameters: int
    parts: dict[str, int]  # parameters of each part of the backbone
    input: tuple[int, ...]
    output: tuple[int, ...]
    batch: int
    unroll: int
    windows: int
    step_flops: int  # one step of one sample
    phases: tuple[Phase, ...]
    memory: dict[str, int]
    streamed: tuple[str, ...] = ()  # splits that stay in their file; only the parts in use are in memory
    files: dict[str, int]
    measured: Measurement | None = None  # where it was asked for

    @property
    def run_flops(self) -> int:
        """All updates."""
        return sum(phase.updates * phase.flops for phase in self.phases)

    @property
    def run_seconds(self) -> float:
        """All updates as measured, without validation."""
        return sum(phase.updates * (phase.seconds or 0.0) for phase in self.phases)


class Count(NamedTuple):
    """The cost of one update: FLOPs, and bytes kept for backward, by the strategy, and in its caches."""

    flops: int
    activations: int
    state: int
    caches: int


def describe(config: RunConfig) -> Description:
    """Count the run of `config`. Draws nothing, writes nothing."""
    source, windows = config.source, empty_windows(config)
    state = (source.channels, *source.space)
    batch = min(config.train.batch, windows.count)
    model = config.build_operator()
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        phases = phases_of(config.untrained_strategy, windows)
        step_flops, counts = count_updates(config, model, phases, batch)
    frames = {name: config.split(name).trajectories * (config.split(name).steps + 1) for name in SPLITS}
    files = {name: 4 * count * math.prod(state) for name, count in frames.items()}
    streamed = tuple(name for name in SPLITS if source.files and source.files.is_streamed(name))
    memory = memory_of(config, model, batch, counts, files, streamed)
    return Description(
        **config.identity(),
        settings={
            name: list(value) if isinstance(value, tuple) else value
            for name, value in config.backbone.model_dump().items()
            if name != "name"
        },
        parameters=count_parameters(model),
        parts=parts_of(model),
        input=(config.train.history * source.channels + len(source.known), *source.space),
        output=(config.train.bundle * source.channels, *source.space),
        batch=batch,
        unroll=config.train.unroll,
        windows=windows.count,
        step_flops=step_flops,
        phases=tuple(
            phase.model_copy(update={"flops": count.flops}) for phase, count in zip(phases, counts, strict=True)
        ),
        memory={**memory, "total": sum(memory.values())},
        streamed=streamed,
        files={**files, "weights": sum(tensor.nbytes for tensor in tensors_in(model.state_dict()))},
    )


def memory_of(
    config: RunConfig,
    model: nn.Module,
    batch: int,
    counts: Sequence[Count],
    files: Mapping[str, int],
    streamed: Sequence[str],
) -> dict[str, int]:
    """Bytes in memory by what they are for."""
    source, trained = config.source, sum(p.nbytes for p in model.parameters() if p.requires_grad)
    # Of streamed training data: the batch in use, those read ahead, and the open files.
    states = (config.train.history + config.train.unroll) * source.channels + len(source.known)
    in_use = (AHEAD + 1) * 4 * batch * states * math.prod(source.space) + KEPT * CACHE_BYTES
    return {
        "parameters": sum(p.nbytes for p in model.parameters()),
        "gradients": trained,
        "optimizer": 2 * trained,
        "activations": max(count.activations for count in counts),
        "training data": in_use if "train" in streamed else files["train"],
        "validation data": min(files["val"], 4 * CHUNK_VALUES) if "val" in streamed else files["val"],
        "strategy state": counts[-1].state,
        "strategy caches": counts[-1].caches,
    }


SHAPE = ("width", "depth", "levels", "modes", "heads", "slices")  # settings of a backbone that its sentence names


def network_sentence(config: RunConfig) -> str:
    """The network of a configuration, its parameters and the FLOPs of an update, the mean over the run."""

    def numbers(value: Any) -> str:
        """One number, or one per axis; a single number where all are equal."""
        several = value if isinstance(value, tuple | list) else (value,)
        return " x ".join(map(str, several if len(set(several)) > 1 else several[:1]))

    found, settings = describe(config), config.backbone.model_dump()
    shape = [f"{name} {numbers(settings[name])}" for name in SHAPE if name in settings]
    size = f" of size {settings['size']}" if "size" in settings else ""
    return (
        f"{BACKBONES[config.backbone.name].title}{size}{': ' * bool(shape)}{', '.join(shape)}; "
        f"{found.parameters:,} parameters, {readable(found.run_flops / config.train.steps, 'FLOP')} per update"
    )


def empty_windows(config: RunConfig) -> Batches:
    """The run's windows without their data, for how many there are."""
    return config.windows(torch.empty(config.split("train").trajectories, config.split("train").steps + 1, 0))


def phases_of(strategy: Strategy[Any], windows: Batches) -> list[Phase]:
    """Updates that a strategy makes early, late, and while a cache is filled; they add up to train.steps.

    HERO's cache saves much of the lagged candidate, once it is filled after a refresh.
    """
    steps = strategy.train.steps
    if not isinstance(strategy, RelativeStrategy):
        return [Phase(name="training", updates=steps, step=steps - 1)]
    start, filling, between = strategy.settings.start, 0, steps - 1
    last_refresh = between
    if isinstance(strategy, HeroStrategy):
        refresh = strategy.settings.refresh
        last_refresh = start + (steps - 1 - start) // refresh * refresh
        between = steps - 1 if steps - 1 != last_refresh else steps - 2
        if strategy.settings.lambda_max and windows_repeat(strategy.train):
            filling = filling_updates(windows, start, steps, refresh)
    found = [
        ("before hero.start", start, start - 1),
        ("cache filling", filling, last_refresh),
        ("cache filled" if filling else "after hero.start", steps - start - filling, between),
    ]
    return [Phase(name=name, updates=updates, step=step) for name, updates, step in found if updates > 0]


def filling_updates(windows: Batches, start: int, steps: int, refresh: int) -> int:
    """How many updates roll the lagged operator out because a window of theirs is not in the cache: the expectation.

    With E batches of B windows per epoch and a refresh at position p of an epoch, the E - p batches left are all new.
    Of the next epoch's windows a share p/E is still missing, and a batch meets one with probability 1 - (1 - p/E)^B.
    """
    epoch, total = windows.per_epoch, 0.0
    for step in range(start, steps, refresh):
        length = min(refresh, steps - step)
        position = step % epoch
        first = min(length, epoch - position)
        second = min(length - first, epoch)
        total += first + second * (1 - (1 - position / epoch) ** windows.batch)
    return round(total)


def windows_repeat(train: TrainSettings) -> bool:
    """Whether windows are identical on every visit, so that results can be cached per window."""
    return train.curriculum == "fixed" and not train.noise and train.scale == 1


def count_updates(config: RunConfig, model: nn.Module, phases: Sequence[Phase], batch: int) -> tuple[int, list[Count]]:
    """FLOPs of one step of one sample, and the cost of one update of each phase with `batch` windows."""
    try:
        return count_at(config, copy.deepcopy(model).to("meta"), phases, batch)
    except Exception:  # whatever a user's module may raise when there are no numbers to look at
        (step, low), (_, high) = (count_at(config, model, phases, size) for size in SIZES)
    # All is affine in the batch: weights that are folded once per step do not depend on it.
    more = batch - SIZES[0]
    pairs = (zip(*counts, strict=True) for counts in zip(low, high, strict=True))
    return step, [Count(*(a + more * (b - a) for a, b in pair)) for pair in pairs]


def count_at(config: RunConfig, model: nn.Module, phases: Sequence[Phase], size: int) -> tuple[int, list[Count]]:
    """FLOPs of one step of one sample, and the cost of one update of each phase with `size` windows.

    They are the same windows each time, so that the phase after the one that fills a cache finds it filled.
    """
    source, windows = config.source, empty_windows(config).count
    device = next(model.parameters()).device
    past, future = (
        torch.ones(size, n, source.channels, *source.space, device=device)
        for n in (config.train.history, config.train.unroll)
    )
    mu = torch.ones(size, len(source.known), *source.space, device=device) if source.known else None
    context = Context(past, mu)
    with torch.no_grad():
        model(context.inputs())  # the first call of a model, which may fill caches, is not a part of an update
        with FlopCounterMode(display=False) as counter:
            model(context.inputs()[:1])
    step_flops = counter.get_total_flops()
    strategy = config.make_strategy()
    # The last windows by number: the caches then get the size that they have when all windows are in them.
    index = torch.arange(size) + max(0, windows - size) if windows_repeat(config.train) else None
    counts = []
    for phase in phases:
        batch = Batch(context, future, phase.step, index, Generator().manual_seed(0))
        kept = KeptForBackward(model)
        with FlopCounterMode(display=False) as counter, kept.hooks():
            strategy.loss(model, batch).value.backward()
        model.zero_grad(set_to_none=True)
        state = sum(tensor.nbytes for tensor in tensors_in(strategy.state_dict()))
        caches = strategy.state.cache.nbytes() if isinstance(strategy, RelativeStrategy) else 0
        counts.append(Count(counter.get_total_flops(), kept.nbytes(), state, caches))
    return step_flops, counts


def tensors_in(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from tensors_in(value)


def parts_of(model: nn.Module) -> dict[str, int]:
    """Parameters of each part of the backbone, and of the backbone itself if it holds some outside of its parts."""
    while isinstance(inner := getattr(model, "backbone", None), nn.Module):  # its wrappers have no parameters
        model = inner
    parts = {name: count_parameters(child) for name, child in model.named_children()}
    rest = count_parameters(model) - sum(parts.values())
    return parts | ({"itself": rest} if rest else {})


def readable(value: float, unit: str) -> str:
    """4735584 B -> 4.7 MB."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            break
        value /= 1000
    return f"{value:.3g} {prefix}{unit}"
