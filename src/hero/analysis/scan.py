"""One pass over a recording in bounded memory: the numbers from which `hero doctor` draws its findings.

A file above `READ_BYTES` is read in evenly spread blocks of frames; `Scan.complete` says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hero.console import progress_bar
from hero.data.files.recording import Recording
from hero.errors import HeroError
from hero.method.norm import CONSTANT

BLOCK_BYTES = 2**25
"""Bytes of one block in float64; a block, its differences and its squares are in memory at once."""
READ_BYTES = 2**31
"""Bytes of a file, as float32, that is read whole."""

Block = tuple[int, int, int]
"""Trajectory, first frame, frame after the last."""


@dataclass(eq=False)
class TrajectoryScan:
    """Means ⟨·⟩ over the valid points of each state of one trajectory; NaN where it was not read."""

    mean: np.ndarray  # (frames, channel), ⟨u_n⟩
    variance: np.ndarray  # (frames, channel), ⟨|u_n - ⟨u_n⟩|²⟩
    change: np.ndarray  # (frames - 1, channel), ⟨|u_{n+1} - u_n|²⟩
    bend: np.ndarray  # (frames - 2, channel), ⟨|u_{n+2} - 2u_{n+1} + u_n|²⟩
    digests: dict[int, bytes]
    """By frame; frames that are constant in space are left out, because unrelated trajectories may share them."""


@dataclass(eq=False)
class Scan:
    """All that one pass finds."""

    trajectories: list[TrajectoryScan]
    low: np.ndarray  # (channel,)
    high: np.ndarray
    bad: list[tuple[int, int, int]]
    """Trajectory, frame and channel that are not finite at valid points, the first few."""
    bad_frames: int = 0
    frames_read: int = 0
    mean_state: np.ndarray | None = None
    """(channel, points), over the frames to train on; None where none was read."""

    @cached_property
    def mean(self) -> np.ndarray:
        """m of each channel over all valid points of all states, (channel,)."""
        return finite_mean(np.concatenate([one.mean for one in self.trajectories]), axis=0)

    @cached_property
    def std(self) -> np.ndarray:
        """σ = (mean over all states of ⟨|u - ⟨u⟩|²⟩ + (⟨u⟩ - m)²)^½ of each channel, (channel,)."""
        parts = [one.variance + np.square(one.mean - self.mean) for one in self.trajectories]
        return np.sqrt(finite_mean(np.concatenate(parts), axis=0))

    @property
    def frames(self) -> int:
        """Frames of the file."""
        return sum(len(one.mean) for one in self.trajectories)

    @property
    def complete(self) -> bool:
        """Whether every frame was read."""
        return self.frames_read == self.frames

    @property
    def varied(self) -> np.ndarray:
        """Channels that are more than a constant with rounding."""
        return np.flatnonzero(self.std > CONSTANT * np.abs(self.mean))

    def in_stds(self, squares: np.ndarray) -> np.ndarray:
        """Mean over the channels of squares_c / σ_c²: (frames, channel) -> (frames,), σ over the whole file."""
        varied = self.varied
        return (squares[:, varied] / np.square(self.std[varied])).sum(axis=1) / max(1, len(varied))

    def energy(self) -> np.ndarray:
        """Mean over channels of ⟨|u_c - m_c|²⟩ / σ_c²: (trajectory, frames), NaN where nothing was read."""
        found = np.full((len(self.trajectories), max(len(one.mean) for one in self.trajectories)), np.nan)
        for row, one in zip(found, self.trajectories, strict=True):
            row[: len(one.mean)] = self.in_stds(one.variance + np.square(one.mean - self.mean))
        return found

    def changes(self) -> list[np.ndarray]:
        """(mean over channels of ⟨|u_{n+1,c} - u_{n,c}|²⟩ / σ_c²)^½ of each trajectory."""
        return [np.sqrt(self.in_stds(one.change)) for one in self.trajectories]

    def frequency(self) -> float:
        """ω = ‖u_{n+2} - 2u_{n+1} + u_n‖ / ‖u_{n+1} - u_n‖, the angle by which the fastest waves turn in a step."""
        bend, change = (
            finite_mean(np.concatenate([self.in_stds(getattr(one, name)) for one in self.trajectories]), axis=0)
            for name in ("bend", "change")
        )
        return float(np.sqrt(bend / change)) if change > 0 else 0.0


def finite_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean over what is finite; NaN where nothing is."""
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.sum(axis=axis) / values.shape[axis]
        if np.isfinite(mean).all():
            return np.asarray(mean)
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
            f"{expected[1:]}{_off_by_one(found.shape, expected)}; correct the coordinates in the file."
        )
    return found


def _off_by_one(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    near = len(found) == len(expected) and max(abs(a - b) for a, b in zip(found, expected, strict=True)) == 1
    return " (off by one: cell edges in the place of cell centres?)" if near else ""


def scan(recording: Recording, training: Mapping[int, range]) -> Scan:
    """Read the recording once; `training` has the frames to train on by trajectory."""
    channels = len(recording.channels)

    def unread(frames: int) -> np.ndarray:
        return np.full((max(0, frames), channels), np.nan)

    parts = [
        TrajectoryScan(unread(n), unread(n), unread(n - 1), unread(n - 2), {})
        for n in (one.frames for one in recording.trajectories)
    ]
    found = Scan(parts, np.full(channels, np.inf), np.full(channels, -np.inf), [])
    outside = False if recording.mask is None else ~recording.mask.reshape(channels, -1)
    blocks, total, count, before = blocks_of(recording), np.zeros(()), 0, (-1, 0, np.empty(0))
    with progress_bar("reading", sum(stop - start for _, start, stop in blocks)) as advance:
        for i, start, stop in blocks:
            values = read_block(recording, (i, start, stop)).astype(np.float64)
            flat = np.where(outside, np.nan, with_bad_noted(found, i, start, values.reshape(*values.shape[:2], -1)))
            tail = before[2] if before[:2] == (i, start) else flat[:0]
            measure_block(found, parts[i], start, tail, flat)
            before = i, stop, np.concatenate([tail, flat])[-2:]
            trained = training.get(i, range(0))
            kept = flat[max(0, trained.start - start) : max(0, trained.stop - start)]
            total, count = total + np.nan_to_num(kept).sum(axis=0), count + len(kept)
            found.frames_read += stop - start
            advance(stop - start)
    found.mean_state = total / count if count else None
    return found


def with_bad_noted(found: Scan, trajectory: int, start: int, flat: np.ndarray) -> np.ndarray:
    """(frame, channel, point) with NaN for all that is not finite in float32, whose place is noted."""
    with np.errstate(over="ignore"):
        broken = ~np.isfinite(flat.astype(np.float32))
    if not broken.any():
        return flat
    places = np.argwhere(broken.any(axis=2))
    found.bad_frames += len(np.unique(places[:, 0]))
    found.bad += [(trajectory, start + int(n), int(c)) for n, c in places[: 5 - len(found.bad)]]
    return np.where(broken, np.nan, flat)


def measure_block(found: Scan, one: TrajectoryScan, start: int, tail: np.ndarray, flat: np.ndarray) -> None:
    """Take the numbers of a block; `tail` are up to two frames before it."""
    stop, low, high = start + len(flat), np.fmin.reduce(flat, axis=2), np.fmax.reduce(flat, axis=2)
    found.low, found.high = np.fmin(found.low, np.fmin.reduce(low)), np.fmax(found.high, np.fmax.reduce(high))
    one.mean[start:stop] = mean = finite_mean(flat, axis=2)
    one.variance[start:stop] = finite_mean(np.square(flat - mean[..., None]), axis=2)
    steps = np.diff(np.concatenate([tail, flat]), axis=0)
    one.change[start - len(tail) : stop - 1] = finite_mean(np.square(steps), axis=2)
    if len(steps) > 1:
        one.bend[start - len(tail) : stop - 2] = finite_mean(np.square(np.diff(steps, axis=0)), axis=2)
    for n in np.flatnonzero((low < high).any(axis=1)):
        one.digests[start + int(n)] = digest(flat[n])


def digest(state: np.ndarray) -> bytes:
    """A digest that is equal for states that are equal in float32."""
    return hashlib.blake2b((state.astype(np.float32) + np.float32(0)).tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Shared:
    """Frames of two trajectories that are equal."""

    first: int
    second: int
    pairs: tuple[tuple[int, int], ...]
    """Frame of the first, frame of the second."""

    @property
    def only_starts(self) -> bool:
        """Whether they share their initial state alone, as runs with different parameters do."""
        return self.pairs == ((0, 0),)


def shared_frames(recording: Recording, found: Scan) -> list[Shared]:
    """Pairs of trajectories with equal frames; each frame is compared with one earlier trajectory of each split."""
    seen: dict[bytes, dict[str, tuple[int, int]]] = {}
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, (one, trajectory) in enumerate(zip(found.trajectories, recording.trajectories, strict=True)):
        for frame, key in one.digests.items():
            places = seen.setdefault(key, {})
            for j, other in places.values():
                if j != i:
                    pairs.setdefault((j, i), []).append((other, frame))
            places.setdefault(trajectory.split, (i, frame))
    return [Shared(*both, tuple(frames)) for both, frames in pairs.items()]


def are_equal(recording: Recording, first: int, second: int) -> bool:
    """Whether two trajectories are the same numbers, block by block."""
    a, b = (recording.trajectories[i] for i in (first, second))
    if a.frames != b.frames:
        return False
    values = len(recording.channels) * math.prod(recording.space)
    starts = [*range(0, a.frames, max(1, BLOCK_BYTES // (8 * values))), a.frames]

    def parts(i: int) -> Iterator[np.ndarray]:
        return (read_block(recording, (i, *ends)).astype(np.float32) for ends in pairwise(starts))

    return all(np.array_equal(x, y) for x, y in zip(parts(first), parts(second), strict=True))
