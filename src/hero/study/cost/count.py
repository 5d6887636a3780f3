"""What a configuration costs before anything is made or trained: parameters, FLOPs per update, memory, files.

Counted on one update of each phase on the meta device, where tensors have shapes and no numbers: at any size in a
moment. A module that needs numbers is counted on the CPU instead, with two and three windows, and scaled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Generator, Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hero.console import console
from hero.data.windows import Batch, Context
from hero.models import count_parameters
from hero.runs.config import RunConfig
from hero.strategies.hero import HeroStrategy
from hero.study.cost.phases import Phase, empty_windows, numbered, phases_of
from hero.training.memory import KeptForBackward

SPLITS = ("train", "val", "test")
SIZES = (2, 3)
"""Batches that are counted on the CPU; not 1, at which some copies become views and the line would be another."""


def describe(config: RunConfig) -> dict[str, Any]:
    """Numbers about the run of `config`: operator, FLOPs, memory and files in bytes. Draws nothing, writes nothing."""
    task, windows = config.make_task(), empty_windows(config)
    state = (task.channels, *(task.resolution,) * task.dims)
    inputs = (config.train.history * state[0], *state[1:])
    model = config.build_operator()
    with torch.random.fork_rng(devices=[]):  # dropout may draw
        phases = phases_of(config)
        counts = count_updates(config, model, phases, min(config.train.batch, windows.count))
        step_flops = count_step(model, inputs)
    flops: list[dict[str, Any]] = [
        {"name": phase.name, "updates": phase.updates, "flops": count.flops}
        for phase, count in zip(phases, counts, strict=True)
    ]
    trained = sum(nbytes(p) for p in model.parameters() if p.requires_grad)
    frames = {name: config.split(name).trajectories * (config.split(name).steps + 1) for name in SPLITS}
    files = {name: 4 * count * torch.Size(state).numel() for name, count in frames.items()}
    memory = {
        "parameters": sum(map(nbytes, model.parameters())),
        "gradients": trained,
        "optimiser": 2 * trained,
        "activations": max(count.activations for count in counts),
        "training data": files["train"],
        "validation data": files["val"],
        "strategy state": counts[-1].state,
        "strategy caches": counts[-1].caches,
    }
    return {
        **config.identity(),
        "settings": {name: value for name, value in config.to_dict()["backbone"].items() if name != "name"},
        "parameters": count_parameters(model),
        "parts": parts_of(model),
        "input": list(inputs),
        "output": [config.train.bundle * state[0], *state[1:]],
        "batch": min(config.train.batch, windows.count),
        "unroll": config.train.unroll,
        "windows": windows.count,
        "flops": {"step": step_flops, "updates": flops, "run": sum(row["updates"] * row["flops"] for row in flops)},
        "memory": {**memory, "total": sum(memory.values())},
        "files": {**files, "weights": sum(map(nbytes, model.state_dict().values()))},
    }


@dataclass(frozen=True)
class Count:
    """What one update takes: FLOPs, and bytes kept for backward, by the strategy, and in its caches."""

    flops: int
    activations: int
    state: int
    caches: int


def count_updates(config: RunConfig, model: nn.Module, phases: list[Phase], batch: int) -> list[Count]:
    """The cost of one update of each phase with `batch` windows."""
    try:
        return count_at(config, without_numbers(model), phases, batch)
    except Exception:  # whatever anyone's module may raise when there are no numbers to look at
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
    """FLOPs of one call, after a first one that may make what is kept, such as matrices."""
    model(x)
    with FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops()


def without_numbers(model: nn.Module) -> nn.Module:
    """A copy on the meta device."""
    return copy.deepcopy(model).to("meta")


def count_at(config: RunConfig, model: nn.Module, phases: list[Phase], size: int) -> list[Count]:
    """The cost of one update of each phase with `size` windows, counted while they are done one after the other.

    They are the same windows each time, so that the phase after the one that fills a cache finds it filled.
    """
    task, windows = config.make_task(), empty_windows(config).count
    space = (task.resolution,) * task.dims
    device = next(model.parameters()).device
    past, future = (
        torch.ones(size, n, task.channels, *space, device=device) for n in (config.train.history, config.train.unroll)
    )
    # The last windows by number: the caches then get the size that they have when all windows are in them.
    index = torch.arange(size) + max(0, windows - size) if numbered(config) else None
    strategy = config.make_strategy()
    count_forward(model, Context(past).inputs())  # what a first call makes for good is no part of an update
    counts = []
    for phase in phases:
        batch = Batch(Context(past), future, phase.step, index, Generator().manual_seed(0))
        kept = KeptForBackward(model)
        with FlopCounterMode(display=False) as counter, kept.hooks():
            strategy.loss(model, batch).value.backward()
        model.zero_grad(set_to_none=True)
        count = Count(
            flops=counter.get_total_flops(),
            activations=kept.nbytes(),
            state=sum(map(nbytes, tensors_in(strategy.state_dict()))),
            caches=strategy.state.cache.nbytes() if isinstance(strategy, HeroStrategy) else 0,
        )
        counts.append(count)
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
    while isinstance(inner := getattr(model, "backbone", None), nn.Module):  # what surrounds it has no parameters
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


def print_description(numbers: dict[str, Any]) -> None:
    """One table, and what its numbers leave out."""
    table = Table(show_header=False, title=f"{numbers['task']}: {numbers['backbone']} with {numbers['strategy']}")
    settings = ", ".join(f"{name} {value}" for name, value in numbers["settings"].items())
    table.add_row("backbone", f"{numbers['backbone']}: {settings}")
    table.add_row("parameters", f"{numbers['parameters']:,}")
    for name, count in numbers["parts"].items():
        table.add_row(f"  {name}", f"{count:,}")
    table.add_row("input, output", " -> ".join("×".join(map(str, numbers[key])) for key in ("input", "output")))
    table.add_row("windows", f"{numbers['windows']:,} of {numbers['unroll']} steps, {numbers['batch']} per update")
    table.add_section()
    flops = numbers["flops"]
    table.add_row("one step of one sample", readable(flops["step"], "FLOP"))
    for row in flops["updates"]:
        table.add_row(f"one update, {row['name']}", f"{readable(row['flops'], 'FLOP')}, {row['updates']:,} times")
    table.add_row("all updates", readable(flops["run"], "FLOP"))
    for section in ("memory", "files"):
        table.add_section()
        for name, count in numbers[section].items():
            table.add_row(f"{section}: {name}", readable(count, "B"))
    console.print(table)
    console.print(
        "FLOP: matrix products and convolutions only, twice their multiplications; no FFT, activation or validation. "
        "Memory: without PyTorch itself and passing values; activations as kept without torch.compile.",
        style="dim",
    )
