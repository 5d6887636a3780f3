"""One pass over a recording in bounded memory, and the spectra of some states: what `hero doctor` draws findings from.

A file above `READ_BYTES` is read in evenly spread blocks of frames.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from hero.console import progress_bar
from hero.data.files.checks import spread
from hero.data.files.recording import Recording
from hero.data.files.selection import length_of
from hero.data.trajectories import CONSTANT
from hero.errors import HeroError
from hero.method.domain.transform import shell_power
from hero.records import Record

BLOCK_BYTES = 2**25  # bytes of one block in float64; a block, its differences and its squares are in memory at once
READ_BYTES = 2**31  # bytes of a file, as float32, that is read whole
Block = tuple[int, int, int]  # trajectory, first frame, frame after the last


class Scan:
    """What one pass finds: means ⟨·⟩ over the valid points of each state, (trajectory, frame, channel).

    They are NaN where nothing was read, and after the end of a shorter trajectory.
    """

    def __init__(self, trajectories: int, frames: int, channels: int) -> None:
        unread = [np.full((trajectories, max(0, frames - n), channels), np.nan) for n in (0, 0, 1, 2)]
        self.state_mean, self.state_variance, self.step, self.bend = unread
        """⟨u_n⟩, ⟨|u_n - ⟨u_n⟩|²⟩, ⟨|u_{n+1} - u_n|²⟩ and ⟨|u_{n+2} - 2u_{n+1} + u_n|²⟩."""
        self.low, self.high = np.full(channels, np.inf), np.full(channels, -np.inf)
        self.digests: list[dict[int, bytes]] = [{} for _ in range(trajectories)]
        """By frame; frames that are constant in space are left out, because unrelated trajectories may share them."""
        self.bad: list[tuple[int, int, int]] = []
        """Trajectory, frame and channel that are not finite at valid points, the first few."""
        self.bad_frames = self.frames_read = 0
        self.mean_state: np.ndarray | None = None
        """(channel, points), over the frames to train on; None where none was read."""

    @cached_property
    def mean(self) -> np.ndarray:
        """m of each channel over all valid points of all states, (channel,)."""
        return finite_mean(self.state_mean, (0, 1))

    @cached_property
    def std(self) -> np.ndarray:
        """σ = (mean over all states of ⟨|u - ⟨u⟩|²⟩ + (⟨u⟩ - m)²)^½ of each channel, (channel,)."""
        return np.sqrt(finite_mean(self.state_variance + np.square(self.state_mean - self.mean), (0, 1)))

    @property
    def varied(self) -> np.ndarray:
        """Channels that are more than a constant with rounding."""
        return np.flatnonzero(self.std > CONSTANT * np.abs(self.mean))

    def in_stds(self, squares: np.ndarray) -> np.ndarray:
        """Mean over the channels of squares_c / σ_c²: (.., channel) -> (..), σ over the whole file."""
        varied = self.varied
        return (squares[..., varied] / np.square(self.std[varied])).sum(axis=-1) / max(1, len(varied))

    def energy(self) -> np.ndarray:
        """Mean over channels of ⟨|u_c - m_c|²⟩ / σ_c²: (trajectory, frame)."""
        return self.in_stds(self.state_variance + np.square(self.state_mean - self.mean))

    def changes(self) -> np.ndarray:
        """(mean over channels of ⟨|u_{n+1,c} - u_{n,c}|²⟩ / σ_c²)^½: (trajectory, frame - 1)."""
        return np.sqrt(self.in_stds(self.step))

    def frequency(self) -> float:
        """ω = ‖u_{n+2} - 2u_{n+1} + u_n‖ / ‖u_{n+1} - u_n‖, the angle by which the fastest waves turn in a step."""
        bend, change = (finite_mean(self.in_stds(part), (0, 1)) for part in (self.bend, self.step))
        return float(np.sqrt(bend / change)) if change > 0 else 0.0

    def add(self, i: int, start: int, tail: np.ndarray, flat: np.ndarray) -> None:
        """Take the numbers of a block (frame, channel, point); `tail` are up to two frames before it."""
        stop, low, high = start + len(flat), np.fmin.reduce(flat, axis=2), np.fmax.reduce(flat, axis=2)
        self.low, self.high = np.fmin(self.low, np.fmin.reduce(low)), np.fmax(self.high, np.fmax.reduce(high))
        self.state_mean[i, start:stop] = mean = finite_mean(flat, 2)
        self.state_variance[i, start:stop] = finite_mean(np.square(flat - mean[..., None]), 2)
        steps = np.diff(np.concatenate([tail, flat]), axis=0)
        self.step[i, start - len(tail) : stop - 1] = finite_mean(np.square(steps), 2)
        if len(steps) > 1:
            self.bend[i, start - len(tail) : stop - 2] = finite_mean(np.square(np.diff(steps, axis=0)), 2)
        for n in np.flatnonzero((low < high).any(axis=1)):
            self.digests[i][start + int(n)] = digest(flat[n])
        self.frames_read += len(flat)

    def without_bad(self, i: int, start: int, flat: np.ndarray) -> np.ndarray:
        """A block with NaN for all that is not finite in float32, whose place is noted."""
        with np.errstate(over="ignore"):
            broken = ~np.isfinite(flat.astype(np.float32))
        if not broken.any():
            return flat
        places = np.argwhere(broken.any(axis=2))
        self.bad_frames += len(np.unique(places[:, 0]))
        self.bad += [(i, start + int(n), int(c)) for n, c in places[: 5 - len(self.bad)]]
        return np.where(broken, np.nan, flat)


def finite_mean(values: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """The mean over what is finite; NaN where nothing is."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(axis=axis)
        if np.isfinite(total).all():
            return np.asarray(total / np.float64(values.size // max(1, total.size)))
        finite = np.isfinite(values)
        return np.asarray(np.where(finite, values, 0).sum(axis=axis) / finite.sum(axis=axis))


def blocks_of(recording: Recording) -> list[Block]:
    """Blocks of frames to read: all, or evenly spread ones and the first frame of every trajectory."""
    values = len(recording.channels) * math.prod(recording.space)
    per = max(2, BLOCK_BYTES // (8 * values))
    whole = [
        (i, start, min(start + per, one.frames))
        for i, one in enumerate(recording.trajectories)
        for start in range(0, one.frames, per)
    ]
    frames = sum(stop - start for _, start, stop in whole)
    if 4 * values * frames <= READ_BYTES:
        return whole
    count = max(1, int(len(whole) * READ_BYTES / (4 * values * frames)))
    chosen = {whole[round(i)] for i in np.linspace(0, len(whole) - 1, count)}
    begun = {i for i, start, _ in chosen if start == 0}
    if 4 * values * len(recording.trajectories) <= READ_BYTES:
        chosen |= {(i, 0, 1) for i in range(len(recording.trajectories)) if i not in begun}
    return sorted(chosen)


def read_block(recording: Recording, block: Block) -> np.ndarray:
    """(frames, channel, *space) of a block; HeroError where the file has another shape than it promised."""
    trajectory, start, stop = block
    found = recording.trajectories[trajectory].read(slice(start, stop), range(len(recording.channels)))
    expected = (stop - start, len(recording.channels), *recording.space)
    if found.shape != expected:
        raise HeroError(
            f"trajectory {trajectory} has states of shape {found.shape[1:]} and its channels and coordinates say "
            f"{expected[1:]}; correct the coordinates in the file."
        )
    return found


def scan(recording: Recording, training: Mapping[int, range]) -> Scan:
    """Read the recording once; `training` has the frames to train on by trajectory."""
    channels = len(recording.channels)
    found = Scan(len(recording.trajectories), max(one.frames for one in recording.trajectories), channels)
    outside = False if recording.mask is None else ~recording.mask.reshape(channels, -1)
    blocks, total, count, before = blocks_of(recording), np.zeros(()), 0, (-1, 0, np.empty(0))
    with progress_bar("reading", sum(stop - start for _, start, stop in blocks)) as advance:
        for i, start, stop in blocks:
            values = read_block(recording, (i, start, stop)).astype(np.float64).reshape(stop - start, channels, -1)
            flat = np.where(outside, np.nan, found.without_bad(i, start, values))
            tail = before[2] if before[:2] == (i, start) else flat[:0]
            found.add(i, start, tail, flat)
            before = i, stop, np.concatenate([tail, flat])[-2:]
            trained = training.get(i, range(0))
            kept = flat[max(0, trained.start - start) : max(0, trained.stop - start)]
            total, count = total + np.nan_to_num(kept).sum(axis=0), count + len(kept)
            advance(stop - start)
    found.mean_state = total / count if count else None
    return found


def digest(state: np.ndarray) -> bytes:
    """A digest that is equal for states that are equal in float32."""
    return hashlib.blake2b((state.astype(np.float32) + np.float32(0)).tobytes(), digest_size=16).digest()


def shared_frames(recording: Recording, found: Scan) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Pairs of trajectories with equal frames, and the numbers of these frames in the first and in the second.

    Each frame is compared with one earlier trajectory of each split. Trajectories with the initial state alone in
    common differ in a parameter, and do not count; in a file that was not read whole, they do if they end alike.
    """
    seen: dict[bytes, dict[str, tuple[int, int]]] = {}
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, trajectory in enumerate(recording.trajectories):
        for frame, key in found.digests[i].items():
            places = seen.setdefault(key, {})
            for j, other in places.values():
                if j != i:
                    pairs.setdefault((j, i), []).append((other, frame))
            places.setdefault(trajectory.split, (i, frame))

    def last(i: int) -> bytes:
        frames = recording.trajectories[i].frames
        return digest(read_block(recording, (i, frames - 1, frames)))

    return [(*both, frames) for both, frames in pairs.items() if frames != [(0, 0)] or last(both[0]) == last(both[1])]


SPECTRUM_TRAJECTORIES = 8


class Spectrum(Record):
    """Power by radial wavenumber, relative to the variance of each channel and averaged over channels."""

    frames: tuple[int, ...]
    power: tuple[tuple[float, ...], ...]  # a row for each frame, by waves in the longest axis that every axis resolves
    upper_share: float  # largest share of the power without the mean in the upper third of the wavenumbers
    channel: str  # the channel that has it


def measure_spectrum(recording: Recording, found: Scan) -> Spectrum | None:
    """At the first, middle and last frame of some trajectories; None for point clouds and very small grids.

    Masked points are read as the mean of their channel, which has no power.
    """
    axes, varied = recording.axes, found.varied
    if recording.points is not None or min(recording.space) < 4 or not len(varied):
        return None
    extents, periodic = [length_of(axis.coordinates, True) for axis in axes], [bool(axis.periodic) for axis in axes]
    frames = [(0, (one.frames - 1) // 2, one.frames - 1) for one in recording.trajectories]
    rows = []
    for i in spread(len(recording.trajectories), SPECTRUM_TRAJECTORIES):
        states = (read_block(recording, (i, n, n + 1))[0][varied].astype(np.float64) for n in frames[i])
        rows.append([shell_power(u, periodic, extents)[0] for u in states])
    clean = [row for row in rows if np.isfinite(row).all()]  # a trajectory with NaN says nothing about the others
    if not clean:
        return None
    power = np.mean(clean, axis=0) / np.square(found.std[varied])[:, None]  # (frame, channel, shell)
    shells = power.shape[-1]
    upper, waves = power[..., 2 * (shells - 1) // 3 + 1 :].sum(axis=-1), power[..., 1:].sum(axis=-1)
    share = np.divide(upper, waves, out=np.zeros_like(upper), where=waves > 0)  # (frame, channel)
    return Spectrum(
        frames=frames[0],
        power=tuple(tuple(row) for row in power.mean(axis=1).tolist()),
        upper_share=float(share.max()),
        channel=recording.channels[varied[share.max(axis=0).argmax()]].name,
    )
