"""Errors of a rollout that arrives block by block in time, as if it had been measured at once."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hero.method.metrics import Measure, Scoring, measured, measures_of
from hero.method.norm import Norm


class StreamedErrors:
    """Every measure that metrics need, (batch, time), float64; a trajectory that diverged once stays diverged."""

    def __init__(self, norm: Norm | None = None) -> None:
        self.norm = norm or Norm()
        score: Literal["nrmse", "vrmse"] = "vrmse" if self.norm.by_channel else "nrmse"
        self.score = score
        self.measures: dict[str, Measure] = {one.name: one for one in measures_of(Scoring(measure=score))}
        self.parts: dict[str, list[Tensor]] = {name: [] for name in self.measures}
        self.gone: Tensor | None = None

    def __len__(self) -> int:
        """Steps so far."""
        return sum(part.shape[1] for part in next(iter(self.parts.values())))

    def add(self, prediction: Tensor, truth: Tensor) -> None:
        """The next steps of all trajectories, (batch, time, channel, *space)."""
        found = measured(list(self.measures.values()), prediction, truth, self.norm)
        if self.gone is not None:
            for name, measure in self.measures.items():
                found[name][self.gone] = measure.diverged
        for name, values in found.items():
            self.parts[name].append(values)
        self.gone = ~found[self.score][:, -1].isfinite()  # infinite from divergence on, and nowhere else

    @property
    def values(self) -> dict[str, Tensor]:
        """All steps by the name of their measure; empty if there are none."""
        return {name: torch.cat(parts, dim=1) for name, parts in self.parts.items() if parts}
