"""A benchmark task: an equation with its coefficients, a box, a grid, a time step and a law for initial states."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hero.data.files.recording import Axis
from hero.data.source import Source
from hero.data.tasks.solver import Grid, SpectralStepper, alias_free_mode
from hero.errors import HeroError, unknown_name
from hero.seeding import seed_of

Nonlinearity = Callable[[Tensor], Tensor]

LARGEST_GRID = 2**28  # points of a state: 645 along each of three axes
NUMERICS = ("extent", "resolution", "dt", "substeps", "warmup", "cutoff")


class Range(NamedTuple):
    """A coefficient that every trajectory draws for itself."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """The value at a share from 0 to 1 of the way: of its logarithm if both ends are positive and far apart."""
        if self.low > 0 and self.high / self.low > 10:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True)
class Task:
    """A time-dependent equation u_t = L u + N(u) on the periodic box [0, extent)^dims, and how to draw its data."""

    name: str
    title: str
    equation: str  # in one line; the names of its coefficients are the keys of `parameters`
    dims: int
    parameters: Mapping[str, Any] = field(hash=False)  # numbers, ranges of numbers, or nested tuples of numbers
    linear: Callable[[Task, Grid], Tensor] = field(repr=False)  # the symbol of L on a grid
    extent: float = 1.0
    resolution: int = 160  # grid points per axis
    dt: float = 0.1  # time between two snapshots
    nonlinear: Callable[[Task, Grid], Nonlinearity] | None = field(default=None, repr=False)  # None: a linear equation
    degree: int = 1  # polynomial degree of N (1 for a linear equation), which sets the modes free of aliasing
    substeps: int = 1  # internal steps per snapshot
    warmup: int = 0  # snapshots thrown away before the first one that is kept
    cutoff: int = 5  # highest mode number per axis in the initial states
    channels: int = 1

    @property
    def space(self) -> tuple[int, ...]:
        return (self.resolution,) * self.dims

    def source(self) -> Source:
        points = np.arange(self.resolution) * self.extent / self.resolution
        return Source(
            name=self.name,
            title=self.title,
            dt=self.dt,
            space=self.space,
            extents=(self.extent,) * self.dims,
            periodic=(True,) * self.dims,
            channel_names=("u",) if self.channels == 1 else tuple(f"u{i}" for i in range(self.channels)),
            units=("",) * self.channels,
            conditioning=tuple(self.ranges),
            axes=tuple(Axis(name, points, periodic=True) for name in "xyz"[: self.dims]),
            task=self,
        )

    @property
    def ranges(self) -> dict[str, Range]:
        """The coefficients that differ between trajectories."""
        return {name: value for name, value in self.parameters.items() if isinstance(value, Range)}

    def settings(self) -> dict[str, Any]:
        """Every value that an override may change, flat and ready for JSON."""
        return {name: _as_list(value) for name, value in self.parameters.items()} | {
            name: getattr(self, name) for name in NUMERICS
        }

    def with_settings(self, overrides: Mapping[str, object]) -> Task:
        """The task with some settings changed; HeroError if a name, type or value does not fit."""
        defaults = self.settings()
        values: dict[str, Any] = {}
        for name, value in overrides.items():
            if name not in defaults:
                raise unknown_name(f"setting of task {self.name!r}:", name, defaults)
            default = self.ranges[name].low if name in self.ranges else defaults[name]
            ranged = name in self.parameters and isinstance(default, float) and isinstance(value, list | tuple)
            values[name] = (_checked_range if ranged else _checked)(f"task.{name}", value, default)
        numerics = {name: values.pop(name) for name in NUMERICS if name in values}
        task = replace(self, parameters={**self.parameters, **values}, **numerics)
        task._check()
        return replace(task, title=self.title.removesuffix(_in_title(self.ranges)) + _in_title(task.ranges))

    def coefficients(self, count: int, seed: int) -> Tensor | None:
        """μ of each trajectory, (count, p), float64; row i is the same whatever the count. None without ranges."""
        if not self.ranges:
            return None
        rows = [
            [bounds.at(np.random.default_rng(seed_of(seed, name, i)).random()) for name, bounds in self.ranges.items()]
            for i in range(count)
        ]
        return torch.tensor(rows, dtype=torch.float64)

    def grid(self, device: torch.device | str = "cpu") -> Grid:
        return Grid(self.dims, self.resolution, self.extent, device)

    def stepper(self, device: torch.device | str = "cpu") -> SpectralStepper:
        """The solver for one `dt`; HeroError if coefficients have ranges."""
        if self.ranges:
            raise HeroError(
                f"task.{next(iter(self.ranges))} has a range, so that {self.title} has no single solver; give it one "
                "number."
            )
        grid = self.grid(device)
        nonlinear = None if self.nonlinear is None else self.nonlinear(self, grid)
        return SpectralStepper(grid, self.linear(self, grid), nonlinear, self.dt, self.substeps)

    def initial_states(self, count: int, seed: int) -> Tensor:
        """u(x) = Re Σ_n A_n exp(i φ_n) exp(2πi n·x/extent) / max|u| before warm-up, (count, channels, *space), float64.

        The sum runs over |n_j| <= cutoff on every axis (n >= 0 on the last, as u is real) without n = 0; A_n is uniform
        on (-1, 1) and φ_n on (0, 2π). Each state has its own random stream, keyed by (seed, index), further channels by
        their number as well, and its coefficients do not depend on the resolution: a seed names the same field on every
        grid, up to where the grid samples the maximum.
        """
        block = (2 * self.cutoff + 1,) * (self.dims - 1) + (self.cutoff + 1,)
        modes = np.meshgrid(*[np.arange(n) - (n - 1 - self.cutoff) for n in block], indexing="ij")
        place = tuple(n % self.resolution for n in modes)
        states = torch.empty(count, self.channels, *self.space, dtype=torch.float64)
        for i, channel in itertools.product(range(count), range(self.channels)):
            stream = [seed, i, channel] if channel else [seed, i]
            amplitude, phase = np.random.default_rng(stream).random((2, *block))
            coefficients = (2 * amplitude - 1) * np.exp(2j * math.pi * phase)
            coefficients[sum(n**2 for n in modes) == 0] = 0
            spectrum = np.zeros(self.space, dtype=np.complex128)
            spectrum[place] = coefficients
            u = np.fft.ifftn(spectrum).real
            states[i, channel] = torch.from_numpy(u / np.abs(u).max())
        return states

    def _check(self) -> None:
        for name, least in (("substeps", 1), ("warmup", 0), ("cutoff", 1)):
            if getattr(self, name) < least:
                raise HeroError(f"task.{name} is {getattr(self, name)}; give an integer of at least {least}.")
        for name in ("extent", "dt"):
            if getattr(self, name) <= 0:
                raise HeroError(f"task.{name} is {getattr(self, name)}; give a number above zero.")
        if self.resolution**self.dims > LARGEST_GRID:
            raise HeroError(f"task.resolution is {self.resolution}, more than {LARGEST_GRID:,} points; lower it.")
        highest = alias_free_mode(self.resolution, self.degree)
        if self.resolution % 2 or highest < self.cutoff:
            least = (self.degree + 1) * self.cutoff + 1
            raise HeroError(
                f"task.resolution is {self.resolution}; give an even number of at least {least + least % 2}, so that "
                f"the modes of the initial states (task.cutoff {self.cutoff}) do not alias, or lower task.cutoff."
            )
        mode = self.parameters.get("forcing_mode", 0)
        if not 0 <= mode <= highest:
            raise HeroError(f"task.forcing_mode is {mode}; give an integer from 0 to {highest}, or more points.")


def _as_list(value: Any) -> Any:
    return [_as_list(v) for v in value] if isinstance(value, tuple) else value


def _checked(name: str, value: object, default: Any) -> Any:
    """`value` in the type and shape of `default`: int, finite float, or nested tuple of floats."""
    if isinstance(default, list):
        if not isinstance(value, list | tuple) or len(value) != len(default):
            raise HeroError(f"{name} is {value!r}; give a list of {len(default)} values such as {default}.")
        return tuple(_checked(f"{name}[{i}]", v, d) for i, (v, d) in enumerate(zip(value, default, strict=True)))
    if isinstance(value, bool) or not isinstance(value, int if isinstance(default, int) else int | float):
        kind = "an integer" if isinstance(default, int) else "a number"
        raise HeroError(f"{name} is {value!r}; give {kind} such as {default}.")
    if not math.isfinite(value):
        raise HeroError(f"{name} is {value!r}; give a finite number such as {default}.")
    return value if isinstance(default, int) else float(value)


def _checked_range(name: str, value: Any, default: float) -> Range:
    """Two numbers, the smaller first."""
    if len(value) != 2:
        raise HeroError(f"{name} is {value!r}; give a number such as {default}, or a range as [LOW, HIGH].")
    found = Range(*(_checked(f"{name}[{i}]", bound, default) for i, bound in enumerate(value)))
    if found.low > found.high:
        raise HeroError(f"{name} is {list(found)}; give the smaller number first.")
    return found


def _in_title(ranges: Mapping[str, Range]) -> str:
    return "".join(f", {name} {bounds.low:g} to {bounds.high:g}" for name, bounds in ranges.items())
