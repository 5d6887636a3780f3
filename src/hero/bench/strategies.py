"""Cost of the strategies relative to push_forward: the same work in one run, alternating, medians.

Timings differ between machines and moments; ratios taken in one run on the same work are what can be compared.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from hero.console import console, progress_bar
from hero.data.windows import Windows
from hero.runs.config import RunConfig, make_config
from hero.training.compile import compiled as compiled_function

TASK_OF_DIM = {1: "burgers", 2: "decaying_turbulence", 3: "swift_hohenberg"}


class Arm:
    """One strategy at the paper's settings, past its warm-up, on noise of the size of the paper's training set."""

    def __init__(self, config: RunConfig, windows: Windows, compiled: bool) -> None:
        self.windows = windows
        self.model = config.build_operator().to(windows.data.device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.strategy = config.make_strategy()
        if compiled:
            with torch.no_grad():
                self.model(windows(0).context.inputs())
            self.strategy.unroll = compiled_function(self.strategy.unroll, windows.data.device)
        self.step = config.method.plain()["start"]

    def update(self) -> float:
        """Seconds of one optimiser update."""
        begin = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        self.strategy.loss(self.model, self.windows(self.step)).value.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        if self.windows.data.is_cuda:
            torch.cuda.synchronize()
        self.step += 1
        return time.perf_counter() - begin


def strategy_cost(dims: int, compiled: bool, rounds: int, windows_kept: int = 100) -> dict[str, Any]:
    """Median seconds per update of each strategy, with hero before and after its cache is filled, and their ratios.

    `windows_kept` shortens the epoch so that the cache fills quickly; the cost of a step does not depend on it.
    """
    torch.compiler.reset()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = make_config(overrides={"task.name": TASK_OF_DIM[dims]})
    task = base.make_task()
    trajectories = -(-windows_kept // 46)
    noise = torch.randn(trajectories, 51, 1, *(task.resolution,) * dims, generator=torch.Generator().manual_seed(0))
    windows = Windows(noise.to(device), base.train.unroll, base.train.batch, seed=0)
    names = ("push_forward", "one_step", "fixed_weight", "hero")
    arms = {
        name: Arm(make_config(overrides={"task.name": task.name, "strategy": name}), windows, compiled)
        for name in names
    }
    first: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in names}
    with progress_bar(f"{dims}D, {'compiled' if compiled else 'eager'}", windows.per_epoch + rounds) as advance:
        for name in names:
            arms[name].update()  # compiles, allocates
        for _ in range(windows.per_epoch - 1):  # the first epoch fills the cache
            first.append(arms["hero"].update())
            advance()
        arms["hero"].update()
        for _ in range(rounds):
            for name in names:
                times[name].append(arms[name].update())
            advance()
    medians = {name: statistics.median(values) for name, values in times.items()}
    medians["hero, cache not yet filled"] = statistics.median(first)
    ratios = {name: value / medians["push_forward"] for name, value in medians.items()}
    # At the paper's settings the first 115 to 230 of every 2000 steps after a refresh roll the lagged operator out.
    share = 1.5 * 115 / base.method.plain()["refresh"]
    ratios["hero, mean over a refresh"] = (1 - share) * ratios["hero"] + share * ratios["hero, cache not yet filled"]
    cached = getattr(arms["hero"].strategy, "state").cache.nbytes() / windows.count * 2300  # noqa: B009
    return {"dims": dims, "compiled": compiled, "seconds": medians, "ratio": ratios, "cache_megabytes": cached / 2**20}


def print_cost(result: dict[str, Any]) -> None:
    """One line per strategy."""
    how = f"{'compiled' if result['compiled'] else 'eager'}, {torch.get_num_threads()} threads"
    console.print(
        f"{result['dims']}D paper FNO, {how}; cache of 2,300 windows {result['cache_megabytes']:.1f} MB",
        soft_wrap=True,
    )
    for name, ratio in result["ratio"].items():
        seconds = result["seconds"].get(name)
        time_text = f"{1e3 * seconds:8.1f} ms" if seconds is not None else " " * 11
        console.print(f"  {name:28s} {time_text}   {ratio:.2f} x push_forward", highlight=False)
