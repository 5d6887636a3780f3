"""Trajectories that stay in their file: windows and μ are read when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hero.console import progress_bar
from hero.data.files.checks import not_finite, tidy
from hero.data.files.selection import Selection, chosen_conditioning, chosen_forcing
from hero.data.files.settings import FileSettings
from hero.data.files.splits import Part
from hero.data.formats import open_recording
from hero.data.trajectories import Statistics, Trajectories
from hero.errors import HeroError
from hero.parallel import from_first

CHECK_SECONDS = 1.0


@dataclass(eq=False)
class Reading(Selection):
    """Reads what the settings choose from a recording: channels, stride, crop, grid points."""

    def __post_init__(self) -> None:
        self.stamps, self.checked = self.current_stamps(), time.monotonic()

    def current_stamps(self) -> list[tuple[int, int]]:
        """Size and time of change of every file."""
        found = [path.stat() for path in self.recording.files if path.is_file()]
        return [(status.st_size, status.st_mtime_ns) for status in found]

    def check_unchanged(self) -> None:
        """HeroError where somebody has written to the files since training began; looked at once a second."""
        if time.monotonic() - self.checked > CHECK_SECONDS:
            if self.current_stamps() != self.stamps:
                raise HeroError(f"{self.settings.path} changed while it was read; train again when it is complete.")
            self.checked = time.monotonic()

    def frames(self, first: int, count: int) -> slice:
        """The frames of the file that are `count` states."""
        stride = self.settings.stride
        return slice(first * stride, (first + count - 1) * stride + 1, stride)

    def states(self, trajectory: int, first: int, count: int) -> np.ndarray:
        """(time, channel, *space), float32."""
        self.check_unchanged()
        frames = self.frames(first, count)
        found = self.recording.trajectories[trajectory].read(frames, self.channels)
        return np.ascontiguousarray(found[(slice(None), slice(None), *self.cuts)], dtype=np.float32)

    def forcing(self, trajectory: int, first: int, count: int) -> np.ndarray:
        """(time, q), or (time, q, *space) if there are fields, float32."""
        one, frames, cuts = (
            self.recording.trajectories[trajectory],
            self.frames(first, count),
            (slice(None), *self.cuts),
        )
        parts = []
        for name in self.settings.forcing:
            if name in one.series:
                values = np.asarray(one.series[name](frames), dtype=np.float32)
                values = values[cuts] if values.ndim > 1 else values
            else:
                values = one.read(frames, [self.names.index(name)])[:, 0][cuts].astype(np.float32)
            if not np.isfinite(values).all():
                frame = frames.start + int(np.nonzero(~np.isfinite(values))[0][0]) * frames.step
                raise HeroError(
                    f"the forcing {name} of trajectory {trajectory} in {self.settings.path} is not finite at frame "
                    f"{frame}; fill it."
                )
            parts.append(values)
        if any(part.ndim > 1 for part in parts):
            ones = (1,) * len(self.settings.space)
            shape = (count, *self.settings.space)
            parts = [np.broadcast_to(p if p.ndim > 1 else p.reshape(-1, *ones), shape) for p in parts]
        return np.stack(parts, axis=1)

    def conditioning(self, trajectories: Sequence[int]) -> Tensor | None:
        """μ of each: numbers (trajectories, p), or fields (trajectories, p, *space) if there are fields."""
        names, recording = self.settings.condition, self.recording
        if not names:
            return None
        fields = [name for name in names if name in recording.field_names]
        rows = []
        for number in trajectories:
            trajectory = recording.trajectories[number]
            values = {name: np.float32(trajectory.scalars[name]) for name in names if name not in fields}
            if fields:
                assert trajectory.fields is not None
                found = self.filled(trajectory.fields()[(slice(None), *self.cuts)], number)
                values |= {name: found[recording.field_names.index(name)] for name in fields}
                rows.append(np.stack([np.broadcast_to(values[name], self.settings.space) for name in names]))
            else:
                rows.append(np.array([values[name] for name in names]))
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    def filled(self, fields: np.ndarray, trajectory: int) -> np.ndarray:
        """Conditioning fields with their mean where no channel has a value; HeroError where others are not finite."""
        outside = np.zeros(fields.shape[1:], bool) if self.mask is None else ~self.mask.numpy().any(axis=0)
        fields = fields.astype(np.float32)
        for name in set(self.settings.condition) & set(self.recording.field_names):
            field = fields[self.recording.field_names.index(name)]
            if not np.isfinite(field[~outside]).all():
                raise HeroError(
                    f"the field {name} of trajectory {trajectory} in {self.settings.path} is not finite where states "
                    "have values; fill it, or leave it out with data.condition."
                )
            field[outside & ~np.isfinite(field)] = field[~outside].mean()
        return fields


class FileTrajectories(Trajectories):
    """Trajectories that stay in their file: windows and μ are read when they are asked for."""

    reading: Reading
    kept: tuple[Part, ...]
    target: torch.device

    def __init__(self, reading: Reading, parts: tuple[Part, ...], target: str | torch.device = "cpu") -> None:
        vars(self).update(reading=reading, kept=parts, target=torch.device(target), mask=reading.mask)

    @property
    def shape(self) -> tuple[int, ...]:
        settings = self.reading.settings
        return (len(self.kept), self.kept[0].frames, len(settings.channels), *settings.space)

    @property
    def is_in_memory(self) -> bool:
        return False

    @property
    def is_conditioned(self) -> bool:
        return bool(self.reading.settings.condition or self.reading.settings.forcing)

    @property
    def forced_states(self) -> int:
        return self.shape[1]

    @property
    def device(self) -> torch.device:
        return self.target

    def __getitem__(self, part: slice) -> Trajectories:
        return FileTrajectories(self.reading, self.kept[part], self.target).in_memory()

    def frames(self, part: slice) -> Tensor:
        first, stop, _ = part.indices(self.shape[1])
        return self.read([(row, first) for row in range(len(self))], stop - first).to(self.target)

    def gather(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor:
        """On the host, in pinned memory if batches are wanted on a GPU."""
        return self._ready(self.read(list(zip(trajectory.tolist(), start.tolist(), strict=True)), count))

    def conditioning(self, trajectory: Tensor) -> Tensor | None:
        """On the host as well."""
        mu = self.reading.conditioning([self.kept[row].trajectory for row in trajectory.tolist()])
        return None if mu is None else self._ready(mu)

    def forcing_at(self, trajectory: Tensor, start: Tensor, count: int) -> Tensor | None:
        """On the host as well."""
        if not self.reading.settings.forcing:
            return None
        rows = [(self.kept[row], first) for row, first in zip(trajectory.tolist(), start.tolist(), strict=True)]
        found = [self.reading.forcing(part.trajectory, part.first + first, count) for part, first in rows]
        return self._ready(torch.from_numpy(np.stack(found)))

    def _ready(self, found: Tensor) -> Tensor:
        return found.pin_memory() if self.target.type == "cuda" else found

    def read(self, rows: Sequence[tuple[int, int]], count: int) -> Tensor:
        """`count` states from each (row, first state), on the host."""
        found = np.empty((len(rows), count, *self.shape[2:]), np.float32)
        for i in sorted(range(len(rows)), key=rows.__getitem__):  # in the order of the file
            row, first = rows[i]
            part = self.kept[row]
            found[i] = self.reading.states(part.trajectory, part.first + first, count)
            if not np.isfinite(found[i]).all():
                frame, channel = (int(places[0]) for places in np.nonzero(~np.isfinite(found[i]))[:2])
                place = (part.first + first + frame) * self.reading.settings.stride
                raise not_finite(self.reading.recording, part.trajectory, place, self.reading.channels[channel])
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
        return FileTrajectories(self.reading, self.kept, device)

    def statistics(self) -> Statistics:
        return from_first(super().statistics)  # one process reads the whole file

    def step_std(self) -> Tensor:
        return from_first(super().step_std)

    def mu_moments(self) -> tuple[Tensor, Tensor]:
        return from_first(super().mu_moments)


def all_trajectories(path: Path, forcing: Sequence[str] = ()) -> Trajectories:
    """Every trajectory of a file with all of its channels, its conditioning and the named forcing, in memory."""
    recording = tidy(open_recording(path))
    forced = chosen_forcing(recording, forcing)
    settings = FileSettings(
        path=str(path),
        channels=tuple(channel.name for channel in recording.channels if channel.name not in forced),
        condition=chosen_conditioning(recording, ()),
        forcing=forced,
        space=recording.space,
    )
    frames = min(trajectory.frames for trajectory in recording.trajectories)
    parts = tuple(Part(i, 0, frames) for i in range(len(recording.trajectories)))
    return FileTrajectories(Reading(recording, settings), parts).in_memory()
