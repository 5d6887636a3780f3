"""The cost of a configuration before anything is computed: parameters, FLOPs per update, memory, files.

Counted on one update of each phase on the meta device, where tensors have shapes and no numbers: at any size in a
moment. A module that needs numbers is counted on the CPU instead, with two and three windows, and scaled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hero.data import SPLITS
from hero.data.files.handles import CACHE_BYTES, KEPT
from hero.data.windows import AHEAD, Batch, Batches, Context
from hero.method.metrics import CHUNK_VALUES
from hero.models import BACKBONES, count_parameters
from hero.records import Record
from hero.runs.config import RunConfig
from hero.study.cost.phases import Phase, cache_bytes, phases_of, windows_repeat
from hero.training.memory import KeptForBackward

SIZES = (2, 3)
"""Batches that are counted on the CPU; not 1, at which some copies become views and the line would be another."""


class PhaseFlops(Record):
    """FLOPs of one update of a phase."""

    name: str
    updates: int
    flops: int


class PhaseTime(Record):
    """Seconds of one update of a phase."""

    name: str
    updates: int
    seconds: float


class Measurement(Record):
    """A few real updates of a run; memory in bytes, None where the system does not tell."""

    phases: tuple[PhaseTime, ...]
    compiled: bool
    device: str
    threads: int
    peak_memory: int | None
    available_memory: int | None

    @property
    def run_seconds(self) -> float:
        """All updates, without validation."""
        return sum(phase.updates * phase.seconds for phase in self.phases)


class Description(Record):
    """The run of a configuration in numbers; memory and files in bytes."""

    task: str
    backbone: str
    strategy: str
    seed: int
    settings: dict[str, Any]
    """Settings of the backbone."""
    parameters: int
    parts: dict[str, int]
    """Parameters of each part of the backbone."""
    input: tuple[int, ...]
    output: tuple[int, ...]
    batch: int
    unroll: int
    windows: int
    step_flops: int
    """One step of one sample."""
    phases: tuple[PhaseFlops, ...]
    memory: dict[str, int]
    streamed: tuple[str, ...] = ()
    """Splits that stay in their file; only the parts in use are in memory."""
    files: dict[str, int]
    measured: Measurement | None = None
    """Where it was asked for."""

    @property
    def run_flops(self) -> int:
        """All updates."""
        return sum(phase.updates * phase.flops for phase in self.phases)


@dataclass(frozen=True)
class Count:
    """The cost of one update: FLOPs, and bytes kept for backward, by the strategy, and in its caches."""

    flops: int
    activations: int
    state: int
    caches: int


def describe(config: RunConfig) -> Description:
    """Count the run of `config`. Draws nothing, writes nothing."""
    source, windows = config.source, empty_windows(config)
    state = (source.channels, *source.space)
    inputs = (config.train.history * state[0] + len(source.known), *state[1:])
    model = config.build_operator()
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        phases = phases_of(config.untrained_strategy, windows)
        counts = count_updates(config, model, phases, min(config.train.batch, windows.count))
        step_flops = count_step(model, inputs)
    trained = sum(nbytes(p) for p in model.parameters() if p.requires_grad)
    frames = {name: config.split(name).trajectories * (config.split(name).steps + 1) for name in SPLITS}
    files = {name: 4 * count * torch.Size(state).numel() for name, count in frames.items()}
    streamed = tuple(name for name in SPLITS if source.files and source.files.is_streamed(name))
    memory = {
        "parameters": sum(map(nbytes, model.parameters())),
        "gradients": trained,
        "optimizer": 2 * trained,
        "activations": max(count.activations for count in counts),
        "training data": window_bytes(config, windows) if "train" in streamed else files["train"],
        "validation data": min(files["val"], 4 * CHUNK_VALUES) if "val" in streamed else files["val"],
        "strategy state": counts[-1].state,
        "strategy caches": counts[-1].caches,
    }
    return Description(
        **config.identity(),
        settings={
            name: list(value) if isinstance(value, tuple) else value
            for name, value in config.backbone.model_dump().items()
            if name != "name"
        },
        parameters=count_parameters(model),
        parts=parts_of(model),
        input=inputs,
        output=(config.train.bundle * state[0], *state[1:]),
        batch=min(config.train.batch, windows.count),
        unroll=config.train.unroll,
        windows=windows.count,
        step_flops=step_flops,
        phases=tuple(
            PhaseFlops(name=phase.name, updates=phase.updates, flops=count.flops)
            for phase, count in zip(phases, counts, strict=True)
        ),
        memory={**memory, "total": sum(memory.values())},
        streamed=streamed,
        files={**files, "weights": sum(map(nbytes, model.state_dict().values()))},
    )


SHAPE = ("width", "depth", "levels", "modes", "heads", "slices")
"""Settings of a backbone that its sentence names."""


def network_sentence(config: RunConfig) -> str:
    """The network of a configuration, its parameters and the FLOPs of an update, the mean over the run."""
    found, settings = describe(config), config.backbone.model_dump()
    shape = [f"{name} {numbers(settings[name])}" for name in SHAPE if name in settings]
    size = f" of size {settings['size']}" if "size" in settings else ""
    return (
        f"{BACKBONES[config.backbone.name].title}{size}{': ' * bool(shape)}{', '.join(shape)}; "
        f"{found.parameters:,} parameters, {readable(found.run_flops / config.train.steps, 'FLOP')} per update"
    )


def numbers(value: Any) -> str:
    """One number, or one per axis; a single number where all are equal."""
    several = value if isinstance(value, tuple | list) else (value,)
    return " x ".join(map(str, several if len(set(several)) > 1 else several[:1]))


def empty_windows(config: RunConfig) -> Batches:
    """The run's windows without their data, for how many there are."""
    return config.windows(torch.empty(config.split("train").trajectories, config.split("train").steps + 1, 0))


def window_bytes(config: RunConfig, windows: Batches) -> int:
    """Bytes of streamed training data at one time: the batch in use, those read ahead, and the open files."""
    source, train = config.source, config.train
    states = (train.history + train.unroll) * source.channels + len(source.known)
    batch = 4 * min(train.batch, windows.count) * states * math.prod(source.space)
    return (AHEAD + 1) * batch + KEPT * CACHE_BYTES


def count_updates(config: RunConfig, model: nn.Module, phases: Sequence[Phase], batch: int) -> list[Count]:
    """The cost of one update of each phase with `batch` windows."""
    try:
        return count_at(config, without_numbers(model), phases, batch)
    except Exception:  # whatever a user's module may raise when there are no numbers to look at
        pairs = zip(*(count_at(config, model, phases, size) for size in SIZES), strict=True)

    def line(low: int, high: int) -> int:
        """All is affine in the batch: weights that are folded once per step do not depend on it."""
        return low + (batch - SIZES[0]) * (high - low) // (SIZES[1] - SIZES[0])

    return [
        Count(line(a.flops, b.flops), line(a.activations, b.activations), state=b.state, caches=b.caches)
        for a, b in pairs
    ]


def count_step(model: nn.Module, inputs: tuple[int, ...]) -> int:
    """FLOPs of one step of one sample."""
    try:
        return count_forward(without_numbers(model), torch.ones(1, *inputs, device="meta"))
    except Exception:  # as above
        return count_forward(model, torch.ones(1, *inputs))


@torch.no_grad()
def count_forward(model: nn.Module, x: Tensor) -> int:
    """FLOPs of one call, after a first one that may fill the caches of the model."""
    model(x)
    with FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops()


def without_numbers(model: nn.Module) -> nn.Module:
    """A copy on the meta device."""
    return copy.deepcopy(model).to("meta")


def count_at(config: RunConfig, model: nn.Module, phases: Sequence[Phase], size: int) -> list[Count]:
    """The cost of one update of each phase with `size` windows, counted while they are done one after the other.

    They are the same windows each time, so that the phase after the one that fills a cache finds it filled.
    """
    source, windows = config.source, empty_windows(config).count
    space = source.space
    device = next(model.parameters()).device
    past, future = (
        torch.ones(size, n, source.channels, *space, device=device) for n in (config.train.history, config.train.unroll)
    )
    mu = torch.ones(size, len(source.known), *space, device=device) if source.known else None
    context = Context(past, mu)
    strategy = config.make_strategy()
    # The last windows by number: the caches then get the size that they have when all windows are in them.
    index = torch.arange(size) + max(0, windows - size) if windows_repeat(config.train) else None
    count_forward(model, context.inputs())  # the first call of a model is not a part of an update
    counts = []
    for phase in phases:
        batch = Batch(context, future, phase.step, index, Generator().manual_seed(0))
        kept = KeptForBackward(model)
        with FlopCounterMode(display=False) as counter, kept.hooks():
            strategy.loss(model, batch).value.backward()
        model.zero_grad(set_to_none=True)
        state = sum(map(nbytes, tensors_in(strategy.state_dict())))
        counts.append(Count(counter.get_total_flops(), kept.nbytes(), state, cache_bytes(strategy)))
    return counts


def nbytes(tensor: Any) -> int:
    """Bytes of a tensor; 0 for the other things that a state dict may hold."""
    return tensor.numel() * tensor.element_size() if isinstance(tensor, Tensor) else 0


def tensors_in(state: Any) -> Iterator[Tensor]:
    """All tensors in nested dictionaries."""
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
