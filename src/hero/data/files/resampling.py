"""States at equal time steps, linear between the frames of a file whose times are uneven: `data.resample`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from hero.data.files.recording import Recording, Trajectory
from hero.errors import HeroError


@lru_cache(maxsize=2)
def resampled(recording: Recording, dt: float) -> Recording:
    """The recording at steps of `dt` from the first frame of each trajectory on; itself where dt is 0."""
    if not dt:
        return recording
    clocks = [row for times in recording.times for row in np.atleast_2d(times)]
    clocks = clocks * len(recording.trajectories) if len(clocks) == 1 else clocks
    lengths = [one.frames for one in recording.trajectories]
    if [len(clock) for clock in clocks] != lengths or any((np.diff(clock) <= 0).any() for clock in clocks):
        raise HeroError(
            f"{recording.files[0]} has no times that increase for each of its trajectories, so data.resample does not "
            "apply; leave it out."
        )
    pairs = zip(recording.trajectories, clocks, strict=True)
    runs = [_resampled(one, clock, dt) for one, clock in pairs]
    times = tuple(dt * np.arange(run.frames) for run in runs)
    note = f"States are linear between the frames of the file, at steps of {dt:g}."
    return replace(recording, trajectories=runs, dt=dt, times=times, notes=(*recording.notes, note))


def _resampled(trajectory: Trajectory, clock: np.ndarray, dt: float) -> Trajectory:
    frames = int((clock[-1] - clock[0]) / dt + 1e-6) + 1
    between = partial(_between, clock, clock[0] + dt * np.arange(frames))

    def read(wanted: slice, channels: Sequence[int]) -> np.ndarray:
        return between(lambda part: trajectory.read(part, channels), wanted)

    series = {name: partial(between, values) for name, values in trajectory.series.items()}
    return replace(trajectory, frames=frames, read=read, series=series)


def _between(clock: np.ndarray, times: np.ndarray, read: Callable[[slice], np.ndarray], wanted: slice) -> np.ndarray:
    """u(t) = (1 - w) u_n + w u_{n+1} with w = (t - t_n) / (t_{n+1} - t_n)."""
    t = times[wanted]
    if not len(t):
        return read(slice(0, 0))
    n = np.clip(np.searchsorted(clock, t, side="right") - 1, 0, len(clock) - 2)
    block = read(slice(int(n.min()), int(n.max()) + 2))
    w = ((t - clock[n]) / (clock[n + 1] - clock[n])).clip(0, 1).reshape(-1, *(1,) * (block.ndim - 1))
    return (1 - w) * block[n - n.min()] + w * block[n + 1 - n.min()]
