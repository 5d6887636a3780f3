"""The one norm: losses, diagnostics, scores, spectra and metrics all measure errors with it.

A state has channels on points with quadrature weights ω (Σ ω = 1), of which a mask leaves some out. It is measured as

    ũ_c(x) = (u_c(x) - m_c) mask_c(x) √(a_c / V_c) / σ_c,     V_c = Σ_x ω(x) mask_c(x), the share of valid points,

so that ‖ũ‖² = Σ_c a_c (mean over the valid points of ((u_c - m_c)/σ_c)²): masked points do not exist, no channel hides
behind another, and an offset makes no error small. m and σ are the mean and standard deviation of each channel in the
training data, a the weights of the user. The paper's norm is the special case m = 0, σ = a = 1 without a mask, and then
`scaled` returns the very tensor that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hero.data.trajectories import Trajectories, channel_scale


@dataclass(eq=False)
class Norm:
    """How errors are measured. `fit` takes the statistics of the training data."""

    weights: Tensor | None = None  # ω in the shape of space; None: all equal
    mask: Tensor | None = None  # true where there is a value, (channel, *space); None: everywhere
    by_channel: bool = False  # channels from their mean in units of their standard deviation; else in physical units
    importance: tuple[float, ...] = ()  # a of each channel; empty: all 1
    mean: Tensor | None = None  # m, (channel,), float64; None before `fit`
    std: Tensor | None = None  # σ likewise
    mean_state: Tensor | None = None  # over training trajectories and time, (channel, *space): a baseline
    low: Tensor | None = None  # the smallest value of each channel, (channel,), float64; version 0.2 has none
    high: Tensor | None = None  # the largest
    _tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @property
    def is_plain(self) -> bool:
        """Whether measured states are the states themselves."""
        return self.mask is None and not self.by_channel and not self.importance

    @property
    def measure(self) -> Literal["nrmse", "vrmse"]:
        """The measure that rollouts are scored by under this norm."""
        return "vrmse" if self.by_channel else "nrmse"

    def fit(self, data: Trajectories | Tensor) -> None:
        """Take the mask, the mean, the standard deviation and the mean state of the training data."""
        data = Trajectories.of(data)
        self.mask = None if data.mask is None else data.mask.cpu()
        self.load({name: part.numpy() for name, part in data.statistics()._asdict().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """What `load` takes back."""
        names = ("mean", "std", "mean_state", "mask", "low", "high")
        return {name: getattr(self, name).cpu().numpy() for name in names if getattr(self, name) is not None}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take statistics that were stored."""
        found = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        self.mean, self.mean_state = found["mean"].double(), found["mean_state"].float()
        self.std = channel_scale(self.mean, found["std"].double())
        if "low" in found:
            self.low, self.high = found["low"].double(), found["high"].double()
        if "mask" in found:
            self.mask = found["mask"].bool()
        self._tables.clear()

    def scaled(self, u: Tensor) -> Tensor:
        """ũ of trajectories (batch, time, channel, *space)."""
        if self.is_plain:
            return u
        origin, factor = self.tables(u)
        return (u - origin) * factor

    def centred(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """u - m with 0 at masked points, and m; u itself and None where states are measured as they are."""
        if self.mean is None or (self.mask is None and not self.by_channel):
            return u, None
        origin = self.mean.to(u.device, u.dtype).reshape(-1, *(1,) * (u.dim() - 3))
        return self.without_masked(u - origin), origin

    def tables(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """m and the factor of `scaled`, made once for each type and device."""
        key = (u.device, u.dtype)
        if key not in self._tables:
            shape = (-1, *(1,) * (u.dim() - 3))
            origin, factor = torch.zeros(u.shape[2]), self.counting(u.shape[2], u.dim() - 3)
            if self.by_channel and self.mean is not None and self.std is not None:
                origin, factor = self.mean, factor / self.std.reshape(shape)
            self._tables[key] = origin.reshape(shape).to(u), factor.to(u)
        return self._tables[key]

    def counting(self, channels: int, dims: int) -> Tensor:
        """mask √(a / V), (channel, *space) or with axes of length 1, float64."""
        shape = (-1, *(1,) * dims)
        table = torch.tensor(self.importance or (1.0,) * channels, dtype=torch.float64).sqrt().reshape(shape)
        return table if self.mask is None else table * self.mask / self.valid()[1].sqrt().reshape(shape)

    def counted(self, error: Tensor) -> Tensor:
        """Differences (.., channel, *space) that have their scale already: mask √(a / V) e."""
        if self.mask is None and not self.importance:
            return error
        return error * self.counting(error.shape[1], error.dim() - 2).to(error)

    def valid(self) -> tuple[Tensor, Tensor]:
        """mask ω, (channel, *space), and its sum V, (channel,); float64."""
        assert self.mask is not None
        equal = torch.full(self.mask.shape[1:], 1 / self.mask[0].numel(), dtype=torch.float64)
        omega = self.mask * (equal if self.weights is None else self.weights.double().cpu())
        return omega, omega.flatten(1).sum(1)

    def channel_means(self, values: Tensor) -> Tensor:
        """Mean over the valid points with their weights: (time, channel, *space) -> (time, channel)."""
        weights = self.point_weights(values)
        if weights is None:
            return values.flatten(2).mean(2)
        return (values * weights).flatten(2).sum(2)

    def point_weights(self, values: Tensor) -> Tensor | None:
        """ω mask / V of each channel, (channel, *space); None where all points weigh the same."""
        if self.mask is None:
            return None if self.weights is None else self.weights.to(values)[None]
        omega, share = self.valid()
        return (omega / share.reshape(-1, *(1,) * (omega.dim() - 1))).to(values)

    def physical(self, u: Tensor) -> Tensor:
        """States (time, channel, *space) in their own units, 0 at masked points and weighted by √(ω N) elsewhere."""
        u = self.without_masked(u)
        return u if self.weights is None else u * (self.weights.to(u) * math.prod(u.shape[2:])).sqrt()

    def without_masked(self, u: Tensor) -> Tensor:
        """States (.., channel, *space) with 0 at masked points, whatever stands there."""
        return u if self.mask is None else torch.where(self.mask.to(u.device), u, 0.0)

    def hidden(self, u: Tensor) -> Tensor:
        """States (.., channel, *space) with NaN at masked points, as they are handed out."""
        return u if self.mask is None else torch.where(self.mask.to(u.device), u, torch.nan)
