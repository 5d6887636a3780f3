"""Trajectories that are too large for the memory stay in their file: windows and μ are read when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hero.console import progress_bar
from hero.data.files.checks import not_finite
from hero.data.files.recording import Recording, Trajectory
from hero.data.files.selection import Part
from hero.data.trajectories import Statistics, Trajectories
from hero.errors import HeroError
from hero.parallel import from_first

CHECK_SECONDS = 1.0


def watched(recording: Recording) -> Recording:
    """The recording, which refuses to read once somebody has written to its files; looked at once a second."""

    def stamps() -> list[tuple[int, int]]:
        found = [path.stat() for path in recording.files if path.is_file()]
        return [(status.st_size, status.st_mtime_ns) for status in found]

    before, checked = stamps(), time.monotonic()

    def read(whole: Trajectory, frames: slice, channels: Sequence[int]) -> np.ndarray:
        nonlocal checked
        if time.monotonic() - checked > CHECK_SECONDS:
            if stamps() != before:
                raise HeroError(f"{recording.files[0]} changed while it was read; train again when it is complete.")
            checked = time.monotonic()
        return whole.read(frames, channels)

    return replace(recording, trajectories=[replace(one, read=partial(read, one)) for one in recording.trajectories])


class FileTrajectories(Trajectories):
    """The interface of trajectories in memory for a recording."""

    recording: Recording
    kept: tuple[Part, ...]
    condition: tuple[str, ...]
    target: torch.device

    def __init__(
        self,
        recording: Recording,
        parts: Sequence[Part],
        condition: Sequence[str] = (),
        target: str | torch.device = "cpu",
    ) -> None:
        """`condition` names numbers and fields of the recording; its series are the forcing."""
        mask = None if recording.mask is None else torch.from_numpy(np.ascontiguousarray(recording.mask))
        device = torch.device(target)
        vars(self).update(recording=recording, kept=tuple(parts), condition=tuple(condition), target=device, mask=mask)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.kept), self.kept[0].frames, len(self.recording.channels), *self.recording.space)

    @property
    def is_in_memory(self) -> bool:
        return False

    @property
    def device(self) -> torch.device:
        return self.target

    def __getitem__(self, part: slice) -> Trajectories:
        return self.only(part).in_memory()

    def only(self, part: slice) -> FileTrajectories:
        """Some of the trajectories, in their file."""
        return FileTrajectories(self.recording, self.kept[part], self.condition, self.target)

    def frames(self, part: slice) -> Tensor:
        first, stop, _ = part.indices(self.shape[1])
        return self.read([(row, first) for row in range(len(self))], stop - first).to(self.target)

    def gather(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor:
        """On the host, in pinned memory if batches are wanted on a GPU."""
        return self._ready(self.read(list(zip(trajectory.tolist(), start.tolist(), strict=True)), count))

    def conditioning(self, trajectory: Tensor) -> Tensor | None:
        """Numbers (trajectories, p), or fields (trajectories, p, *space) if there are fields; on the host as well."""
        if not self.condition:
            return None
        rows = [self._conditioning(self.kept[row].trajectory) for row in trajectory.tolist()]
        return self._ready(torch.from_numpy(np.stack(rows).astype(np.float32)))

    def _conditioning(self, number: int) -> np.ndarray:
        trajectory, names = self.recording.trajectories[number], self.recording.field_names
        values: dict[str, Any] = dict(trajectory.scalars)
        if not set(self.condition) & set(names):
            return np.array([values[name] for name in self.condition])
        assert trajectory.fields is not None
        fields = dict(zip(names, trajectory.fields().astype(np.float32), strict=True))
        values |= {name: self._filled(fields[name], name, number) for name in self.condition if name in names}
        return np.stack([np.broadcast_to(values[name], self.recording.space) for name in self.condition])

    def _filled(self, field: np.ndarray, name: str, number: int) -> np.ndarray:
        """A field with its mean where no channel has a value; HeroError where other values are not finite."""
        mask = self.recording.mask
        outside = np.zeros(field.shape, bool) if mask is None else ~mask.any(axis=0)
        if not np.isfinite(field[~outside]).all():
            raise HeroError(
                f"the field {name} of trajectory {number} in {self.recording.files[0]} is not finite where states have "
                "values; fill it, or leave it out with data.condition."
            )
        return np.where(outside & ~np.isfinite(field), field[~outside].mean(), field)

    def forcing_at(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor | None:
        if not self.recording.series_names:
            return None
        rows = [(self.kept[row], first) for row, first in zip(trajectory.tolist(), start.tolist(), strict=True)]
        found = [self._forcing(part.trajectory, part.first + first, count) for part, first in rows]
        return self._ready(torch.from_numpy(np.stack(found)))

    def _forcing(self, number: int, first: int, count: int) -> np.ndarray:
        """(time, q), or (time, q, *space) if there are fields."""
        parts, space = [], self.recording.space
        for name, read in self.recording.trajectories[number].series.items():
            values = np.asarray(read(slice(first, first + count)), dtype=np.float32)
            if not np.isfinite(values).all():
                frame = first + int(np.nonzero(~np.isfinite(values))[0][0])
                raise HeroError(f"the forcing {name} of trajectory {number} is not finite at frame {frame}; fill it.")
            parts.append(values)
        if any(part.ndim > 1 for part in parts):
            wide = [part.reshape(count, *part.shape[1:] or (1,) * len(space)) for part in parts]
            parts = [np.broadcast_to(part, (count, *space)) for part in wide]
        return np.stack(parts, axis=1)

    def _ready(self, found: Tensor) -> Tensor:
        return found.pin_memory() if self.target.type == "cuda" else found

    def read(self, rows: Sequence[tuple[int, int]], count: int) -> Tensor:
        """`count` states from each (row, first state), on the host."""
        found = np.empty((len(rows), count, *self.shape[2:]), np.float32)
        for i in sorted(range(len(rows)), key=rows.__getitem__):  # in the order of the file
            part, first = self.kept[rows[i][0]], self.kept[rows[i][0]].first + rows[i][1]
            trajectory = self.recording.trajectories[part.trajectory]
            found[i] = trajectory.read(slice(first, first + count), range(self.shape[2]))
            if not np.isfinite(found[i]).all():
                frame, channel = (int(places[0]) for places in np.nonzero(~np.isfinite(found[i]))[:2])
                raise not_finite(self.recording, part.trajectory, first + frame, channel)
        return torch.from_numpy(found)

    def in_memory(self, title: str = "") -> Trajectories:
        """All of them; `title` names a progress bar."""
        states, rows = torch.empty(self.shape), torch.arange(len(self))
        for row, part in enumerate(self.each(title)):
            states[row] = part[0]
        forcing = self.forcing_at(rows, torch.zeros_like(rows), self.shape[1])
        return Trajectories(states, self.conditioning(rows), self.mask, forcing).to(self.target)

    def each(self, title: str = "measuring") -> Iterator[Tensor]:
        with progress_bar(title, len(self)) if title else nullcontext(lambda n: None) as advance:
            for row in range(len(self)):
                yield self.read([(row, 0)], self.shape[1])
                advance(1)

    def to(self, device: torch.device | str) -> Trajectories:
        return FileTrajectories(self.recording, self.kept, self.condition, device)

    def statistics(self) -> Statistics:
        return from_first(super().statistics)  # one process reads the whole file

    def step_std(self) -> Tensor:
        return from_first(super().step_std)

    def mu_moments(self) -> tuple[Tensor, Tensor]:
        return from_first(super().mu_moments)
