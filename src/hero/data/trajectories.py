"""Trajectories, in memory or (`hero.data.files.trajectories`) in files, and the contexts that operators step from.

Layout: a state is (batch, channel, *space), a trajectory (batch, time, channel, *space).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hero.data.files.checks import stand_in
from hero.errors import HeroError

CONSTANT = 1e-6  # a standard deviation below this share of the mean is rounding: the channel is constant


@dataclass(frozen=True)
class Context:
    """z_n = (u_{n-H+1}, .., u_n; μ, f_n): the H most recent states, and what is known of the step from u_n to u_{n+1}.

    That is the conditioning μ, which is constant in time, and the forcing f, of which the step sees the value at n.
    Neither is ever perturbed.
    """

    states: Tensor  # (batch, H, channel, *space)
    mu: Tensor | None = None  # scalars (batch, p) or fields (batch, p, *space)
    forcing: Tensor | None = None  # f_n, f_{n+1}, ..: scalars (batch, time, q) or fields (batch, time, q, *space)

    def inputs(self) -> Tensor:
        """The input of a backbone: (batch, H*channel + p + q, *space)."""
        x = self.states.flatten(1, 2)
        if self.mu is None and self.forcing is None:
            return x
        parts = [x]
        for known in (self.mu, None if self.forcing is None else self.forcing[:, 0]):
            if known is not None and known.dim() == 2:
                parts.append(known[(..., *(None,) * (x.dim() - 2))].expand(*known.shape, *x.shape[2:]))
            elif known is not None:
                parts.append(known)
        return torch.cat(parts, dim=1)

    def each(self, function: Callable[[Tensor], Tensor]) -> Context:
        """The context with `function` of its tensors."""
        parts = (self.states, self.mu, self.forcing)
        return Context(*(None if part is None else function(part) for part in parts))  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> Context:
        return self.each(lambda part: part.to(device))

    def check_forcing(self, steps: int) -> None:
        """HeroError where the forcing ends before `steps` steps are made."""
        if self.forcing is not None and self.forcing.shape[1] < steps:
            raise HeroError(
                f"the forcing is given for {self.forcing.shape[1]} steps, and a rollout of {steps} was asked for; give "
                "it for every step, or ask for fewer."
            )

    def advance(self, new_states: Tensor) -> Context:
        """The context after appending `new_states` (batch, steps, channel, *space); keeps the H most recent."""
        history, steps = self.states.shape[1], new_states.shape[1]
        if steps < history:
            new_states = torch.cat([self.states, new_states], dim=1)
        forcing = None if self.forcing is None else self.forcing[:, steps:]
        return Context(new_states if steps == history else new_states[:, -history:], self.mu, forcing)


class Statistics(NamedTuple):
    """Statistics of training data; masked points do not count."""

    mean: Tensor  # of each channel, (channel,), float64
    std: Tensor  # standard deviation likewise
    mean_state: Tensor  # the mean over trajectories and time, (channel, *space)
    low: Tensor  # the smallest value of each channel
    high: Tensor  # the largest


@dataclass(frozen=True, eq=False)
class Trajectories:
    """States (trajectory, time, channel, *space) and μ, one row per trajectory: (trajectory, p) or with *space."""

    states: Tensor
    mu: Tensor | None = None
    mask: Tensor | None = None  # true where there is a value, (channel, *space), in every state; None: everywhere
    forcing: Tensor | None = None  # at the times of the states: (trajectory, time, q), or with *space

    @classmethod
    def of(cls, data: Trajectories | Tensor) -> Trajectories:
        """`data` as trajectories; a tensor has no conditioning."""
        return cls(data) if isinstance(data, Tensor) else data

    @classmethod
    def joined(cls, parts: Sequence[Trajectories]) -> Trajectories:
        """Several of one kind, in memory."""
        columns = ([getattr(part, name) for part in parts] for name in ("states", "mu", "forcing"))
        states, mu, forcing = (None if column[0] is None else torch.cat(column) for column in columns)
        return cls(states, mu, parts[0].mask, forcing)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """(trajectories, states of each, channels, *space)."""
        return tuple(self.states.shape)

    @property
    def is_in_memory(self) -> bool:
        return True

    @property
    def device(self) -> torch.device:
        """Where batches are wanted."""
        return self.states.device

    def __getitem__(self, part: slice) -> Trajectories:
        return self._each(lambda values: values[part])

    def _each(self, function: Callable[[Tensor], Tensor]) -> Trajectories:
        mu, forcing = (None if values is None else function(values) for values in (self.mu, self.forcing))
        return replace(self, states=function(self.states), mu=mu, forcing=forcing)

    def frames(self, part: slice) -> Tensor:
        """Some states of all trajectories, in memory."""
        return self.states[:, part]

    def parts(self, size: int) -> Iterator[Trajectories]:
        """All trajectories, at most `size` at a time, in memory."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def first(self, history: int, device: torch.device | str | None = None) -> Context:
        """The first H states of each trajectory, and all that is known of the steps after them."""
        return self.window(0, history).to(device or self.device)

    def window(self, start: int, history: int, steps: int | None = None) -> Context:
        """H states of each trajectory from number `start` on, with the forcing of `steps` steps after them, or all."""
        rows, newest = torch.arange(len(self)), start + history - 1
        steps = self.forced_states - newest if steps is None else steps
        forcing = self.forcing_at(rows, torch.full_like(rows, newest), steps)
        return Context(self.frames(slice(start, start + history)), self.conditioning(rows), forcing)

    @property
    def forced_states(self) -> int:
        """States from the first on that can be stepped from: the forcing may continue after the states."""
        return self.shape[1] if self.forcing is None else self.forcing.shape[1]

    def conditioning(self, trajectory: Tensor) -> Tensor | None:
        """μ of each of the trajectories with these numbers."""
        return None if self.mu is None else self.mu[trajectory]

    def gather(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor:
        """Windows (batch, count, channel, *space) that begin at state `start` of each `trajectory`."""
        return self.states[trajectory[:, None], start[:, None] + torch.arange(count, device=start.device)]

    def forcing_at(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor | None:
        """The forcing (batch, count, q, ..) from the time of state `start` of each `trajectory` on."""
        return None if self.forcing is None else replace(self, states=self.forcing).gather(trajectory, start, count)

    def to(self, device: torch.device | str) -> Trajectories:
        return self._each(lambda values: values.to(device))

    def each(self) -> Iterator[Tensor]:
        """The states (1, time, channel, *space) of one trajectory after the other, on the host."""
        return (part.states.cpu() for part in self.parts(1))

    def statistics(self) -> Statistics:
        """Statistics of all states; read once."""
        return self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        total = torch.zeros(self.shape[2:], dtype=torch.float64)
        low, high = (torch.full(self.shape[2:3], edge) for edge in (torch.inf, -torch.inf))
        rest = (0, 1, *range(3, len(self.shape)))

        def parts() -> Iterator[Tensor]:
            for part in self.each():
                total.add_(part.double().sum(dim=(0, 1)))
                low.copy_(torch.minimum(low, part.amin(rest)))
                high.copy_(torch.maximum(high, part.amax(rest)))
                yield part

        moments = streamed_moments(parts(), correction=1, mask=self.mask)
        return Statistics(*moments, (total / (self.shape[0] * self.shape[1])).float(), low, high)

    def step_std(self) -> Tensor:
        """The std of the change per step, for each channel."""
        changes = (part.diff(dim=1) for part in self.each())
        return streamed_moments(changes, correction=1, mask=self.mask)[1]

    def mu_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel of μ, then of the forcing; 1 for a constant up to rounding."""
        rows = torch.arange(len(self)).split(1)
        mu = (self.conditioning(row) for row in rows)
        forcing = (self.forcing_at(row, torch.zeros_like(row), self.forced_states) for row in rows)
        known = ((one[:, None].cpu() for one in mu if one is not None), (f.cpu() for f in forcing if f is not None))
        found = [streamed_moments(parts, correction=0) for parts in known]
        mean, std = (torch.cat([moment for moment in moments if moment.dim()]) for moments in zip(*found, strict=True))
        return mean, torch.where(std > CONSTANT * mean.abs(), std, 1.0)


def states_of(value: Any, layout: str, dims: int) -> Tensor:
    """Somebody's states as a tensor of at least `dims` axes; HeroError where they are none."""
    try:
        states = torch.as_tensor(value)
    except Exception as error:  # whatever the object raises
        raise HeroError(f"{type(value).__name__} cannot be read as states; give a tensor {layout}.") from error
    if states.dim() < dims or states.is_meta or states.is_sparse or not states.dtype.is_floating_point:
        kind = str(states.dtype).removeprefix("torch.")
        raise HeroError(f"states of shape {tuple(states.shape)} and type {kind} are not real numbers {layout}.")
    if 0 in states.shape:
        raise HeroError(f"states of shape {tuple(states.shape)} are empty; give at least one of each axis.")
    return states


def masked_trajectories(states: Tensor, mu: Tensor | None = None) -> Trajectories:
    """Trajectories whose points with NaN (or a number for it) in every state are masked and hold the others' mean.

    HeroError where other values are not finite.
    """
    channels = states.flatten(0, 1).movedim(1, 0).cpu()
    numbers = torch.tensor([stand_in(channel.double().numpy()) for channel in channels], dtype=torch.float64)
    if not bool(numbers.isnan().all()):
        states = torch.where(states == numbers.to(states).reshape(-1, *(1,) * (states.dim() - 3)), torch.nan, states)
    outside = states.isnan().double().mean(dim=(0, 1)) > 0.5
    for found, fault in (
        (~states.isfinite() & ~outside, "is not finite in"),
        (~states.isnan() & outside, "has a value of"),
    ):
        if bool(found.any()):
            trajectory, frame, channel = found.nonzero()[0, :3].tolist()
            raise HeroError(
                f"trajectory {trajectory} {fault} channel {channel} at frame {frame}, and not at the same points in "
                "every state, as a mask would be; fill the values or leave the trajectory out."
            )
    if not bool(outside.any()):
        return Trajectories(states, mu)
    empty = outside.flatten(1).all(1)
    if bool(empty.any()):
        raise HeroError(f"channel {int(empty.nonzero()[0])} has no value at all, only NaN; leave it out.")
    mean = streamed_moments([states.nan_to_num(nan=0.0)], 0, ~outside)[0]
    filled = torch.where(outside, mean.reshape(-1, *(1,) * (states.dim() - 3)), states)
    return Trajectories(filled, mu, ~outside)


def streamed_moments(parts: Iterable[Tensor], correction: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, one part (trajectory, time, channel, *space) at a time.

    `mask` (channel, *space) is true at the points that count. Data in memory and in files give the same bits.
    """
    count, total, squares = torch.zeros(()).double(), torch.zeros(()).double(), torch.zeros(()).double()
    for part in parts:
        values = part.double().movedim(2, 0)  # (channel, trajectory, time, *space)
        number: Tensor | int = values[0].numel()
        if mask is not None:
            values = values * mask[:, None, None].cpu()
            number = mask.flatten(1).sum(1).cpu() * math.prod(part.shape[:2])
        values = values.flatten(1)
        count, total, squares = count + number, total + values.sum(1), squares + values.square().sum(1)
    mean = total / count
    variance = (squares - count * mean.square()) / (count - correction).clamp(min=1)
    return mean.float(), variance.clamp(min=0).sqrt().float()


def channel_scale(mean: Tensor, std: Tensor) -> Tensor:
    """σ of channels; a constant channel is measured by its size instead, and one that is zero by 1."""
    return torch.where(std > CONSTANT * mean.abs(), std, torch.where(mean == 0, 1.0, mean.abs()))
