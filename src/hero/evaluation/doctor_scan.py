"""One pass over a recording in bounded memory: the numbers from which `hero doctor` draws its findings.

A file above `READ_BYTES` is read in evenly spread blocks of frames; `Scan.complete` says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hero.console import progress_bar
from hero.data.recording import Recording
from hero.errors import HeroError

BLOCK_BYTES = 2**25
"""Of one block in float64; a block, its differences and its squares are in memory at once."""
READ_BYTES = 2**31
"""Of a file, as float32, that is read whole."""
COARSE_VALUES = 2048
"""Numbers of a state that the search for near states keeps."""
KEPT_VALUES = 2**24
"""Numbers that it keeps of all states."""

Block = tuple[int, int, int]
"""Trajectory, first frame, frame after the last."""


@dataclass(eq=False)
class TrajectoryScan:
    """Means over space of one trajectory, NaN where it was not read."""

    mean: np.ndarray  # (frames, channel)
    square: np.ndarray  # (frames, channel)
    change: np.ndarray  # (frames - 1, channel), of |u_{n+1} - u_n|²
    digests: dict[int, bytes]
    """By frame; frames that are constant in space are left out, because unrelated trajectories may share them."""


@dataclass(eq=False)
class Scan:
    """All that one pass finds."""

    trajectories: list[TrajectoryScan]
    low: np.ndarray  # (channel,)
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    bad: list[tuple[int, int, int]]
    """Trajectory, frame and channel with NaN or infinity, the first few."""
    bad_frames: int
    frames_read: int
    frames: int
    coarse: dict[int, tuple[int, np.ndarray]]
    """By trajectory: the first frame kept and states on fewer points, (frames, channel, points), float32."""

    @property
    def complete(self) -> bool:
        """Whether every frame was read."""
        return self.frames_read == self.frames

    def energy(self) -> np.ndarray:
        """Mean square over space and channels: (trajectory, frames), NaN where nothing was read."""
        longest = max(len(one.square) for one in self.trajectories)
        found = np.full((len(self.trajectories), longest), np.nan)
        for row, one in zip(found, self.trajectories, strict=True):
            row[: len(one.square)] = one.square.mean(axis=1)
        return found

    def changes(self, scaled: bool) -> list[np.ndarray]:
        """‖u_{n+1} - u_n‖ / ‖u_n‖ of each trajectory; `scaled`: with every channel at mean 0 and std 1."""
        mean, std = (self.mean, np.where(self.std > 0, self.std, 1)) if scaled else (0.0, 1.0)
        found = []
        for one in self.trajectories:
            with np.errstate(all="ignore"):  # NaN, and states of norm 0
                size = (one.square - 2 * mean * one.mean + np.square(mean)) / np.square(std)
                change = (one.change / np.square(std)).sum(axis=1)
                before = np.maximum(size, 0).sum(axis=1)[:-1]
                found.append(np.where(change == 0, 0, np.sqrt(change / before)))
        return found


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


def scan(recording: Recording) -> Scan:
    """Read the recording once."""
    channels = len(recording.channels)

    def unread(frames: int) -> np.ndarray:
        return np.full((frames, channels), np.nan)

    parts = [
        TrajectoryScan(unread(one.frames), unread(one.frames), unread(one.frames - 1), {})
        for one in recording.trajectories
    ]
    low, high = np.full(channels, np.inf), np.full(channels, -np.inf)
    total, squares, count = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    bad: list[tuple[int, int, int]] = []
    bad_frames = 0
    blocks = blocks_of(recording)
    keeper = Keeper(recording, blocks)
    previous: tuple[Block, np.ndarray] | None = None
    quiet = np.errstate(invalid="ignore", over="ignore")  # NaN and infinity are findings, not accidents
    with quiet, progress_bar("reading", sum(stop - start for _, start, stop in blocks)) as advance:
        for block in blocks:
            i, start, stop = block
            one, u = parts[i], read_block(recording, block).astype(np.float64)
            keeper.keep(block, u)
            flat = u.reshape(*u.shape[:2], -1)
            finite = np.isfinite(flat)
            if not finite.all():
                places = np.argwhere(~finite.all(axis=2))
                bad_frames += len(np.unique(places[:, 0]))
                bad += [(i, start + int(n), int(c)) for n, c in places[: 5 - len(bad)]]
            low = np.minimum(low, np.where(finite, flat, np.inf).min(axis=(0, 2)))
            high = np.maximum(high, np.where(finite, flat, -np.inf).max(axis=(0, 2)))
            clean = flat if finite.all() else np.where(finite, flat, 0)
            # About the first mean: squares of a large mean would swallow a small std.
            origin = total / np.maximum(count, 1) if count.any() else clean.mean(axis=(0, 2))
            shifted = np.where(finite, clean - origin[:, None], 0)
            new = finite.sum(axis=(0, 2))
            squares, total, count = _merged(
                (squares, total, count), (np.square(shifted).sum(axis=(0, 2)), shifted.sum(axis=(0, 2)), new), origin
            )
            one.mean[start:stop], one.square[start:stop] = flat.mean(axis=2), np.square(flat).mean(axis=2)
            one.change[start : stop - 1] = np.square(np.diff(flat, axis=0)).mean(axis=2)
            if previous is not None and previous[0][0] == i and previous[0][2] == start:
                one.change[start - 1] = np.square(flat[0] - previous[1]).mean(axis=1)
            previous = block, flat[-1].copy()
            varied = (flat != flat[..., :1]).any(axis=(1, 2))
            for n in np.flatnonzero(varied):
                one.digests[start + int(n)] = digest(flat[n])
            advance(stop - start)
    std = np.sqrt(squares / np.maximum(count, 1))
    return Scan(
        parts,
        low,
        high,
        total / np.maximum(count, 1),
        std,
        bad,
        bad_frames,
        sum(stop - start for _, start, stop in blocks),
        sum(one.frames for one in recording.trajectories),
        keeper.found,
    )


def _merged(
    old: tuple[np.ndarray, np.ndarray, np.ndarray],
    new: tuple[np.ndarray, np.ndarray, np.ndarray],
    origin: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squares about the mean, sum and count of both; `new` holds sums about `origin`, the mean of `old` if any."""
    squares, shifted, added = new
    count = old[2] + added
    total = old[1] + shifted + added * origin
    # Σ(x - m)² = Σ(x - origin)² - n (m - origin)²
    about = old[0] + squares - np.square(total / np.maximum(count, 1) - origin) * count
    return np.maximum(about, 0), total, count


def digest(state: np.ndarray) -> bytes:
    """The same bytes for states that are equal in float32."""
    return hashlib.blake2b((state.astype(np.float32) + np.float32(0)).tobytes(), digest_size=16).digest()


class Keeper:
    """Keeps states on fewer points, of evenly spread trajectories, as long as they fit `KEPT_VALUES`."""

    def __init__(self, recording: Recording, blocks: list[Block]) -> None:
        space, channels = recording.space, len(recording.channels)
        every = 1
        while channels * math.prod(-(-n // every) for n in space) > COARSE_VALUES and every < max(space):
            every += 1
        self.thin = (slice(None), slice(None), *(slice(None, None, every) for _ in space))
        values = channels * math.prod(-(-n // every) for n in space)
        self.found: dict[int, tuple[int, np.ndarray]] = {}
        frames: dict[int, int] = {}
        for i, start, stop in blocks:
            frames[i] = frames.get(i, 0) + stop - start
        count = min(len(frames), max(1, KEPT_VALUES // (values * max(frames.values(), default=1))))
        order = sorted(frames)
        self.chosen = {order[round(i)] for i in np.linspace(0, len(order) - 1, count)}
        self.most = max(2, KEPT_VALUES // values)

    def keep(self, block: Block, u: np.ndarray) -> None:
        """Keep a block that continues what is kept of its trajectory."""
        i, start, stop = block
        if i not in self.chosen:
            return
        first, kept = self.found.get(i, (start, np.empty(0, np.float32)))
        if i in self.found and (first + len(kept) != start or len(kept) + stop - start > self.most):
            return
        thin = u[self.thin][: self.most].astype(np.float32)
        thin = thin.reshape(*thin.shape[:2], -1)
        self.found[i] = first, np.concatenate([kept, thin]) if len(kept) else thin


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
