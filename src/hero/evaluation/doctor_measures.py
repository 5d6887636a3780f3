"""Spectra of recorded states, and how fast states that were near each other part."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.fft import dctn, fftn

from hero.data.recording import Axis, Recording
from hero.evaluation.doctor_scan import Scan, read_block
from hero.records import Record

SPECTRUM_TRAJECTORIES = 8
BASES = 1200
"""States that are compared with each other in the search for near pairs."""
PAIRS = 60
NEAR = 0.2
"""Of the typical distance between states: pairs closer than this are near."""
SATURATED = 0.5
"""Of the typical distance: beyond it, a distance cannot grow freely."""
FOLLOWED = 40
"""Steps that a pair is followed, at most."""


class Spectrum(Record):
    """Power by radial wavenumber, relative to the variance of each channel and averaged over channels."""

    wavenumbers: tuple[int, ...]
    """Waves in the longest axis, from 0 to the largest that every axis resolves."""
    frames: tuple[int, ...]
    power: tuple[tuple[float, ...], ...]
    """One row for each frame."""
    upper_share: float
    """Share of the power without the mean in the upper third of the wavenumbers; of the frame with the largest."""
    decades: float
    """Powers of ten between the peak of that frame and the end of its spectrum."""
    channel: str
    """The channel with the largest upper share."""


class Growth(Record):
    """How the relative distance of near states develops."""

    pairs: int
    rate: float
    """d(log distance)/d(step), median over the pairs."""
    doubling: float
    """Steps until the distance has doubled; infinite where it does not grow."""
    distances: tuple[float, ...]
    """Median over the pairs, from step 0 on."""
    typical: float
    """Median distance between unrelated states."""


def extent(axis: Axis) -> float:
    """Its length with a cell for each point."""
    x = axis.coordinates
    return float(abs(x[-1] - x[0]) * len(x) / (len(x) - 1)) if len(x) > 1 else 1.0


def shell_power(state: np.ndarray, periodic: Sequence[bool], extents: Sequence[float]) -> np.ndarray:
    """Σ_{|k| in shell} |û_k|² of (channel, *space): (channel, shells); all shells with the rest sum to the mean square.

    Periodic axes have Fourier modes, others cosines, which count as half waves.
    """
    space = state.shape[1:]
    walls = [axis for axis, wraps in enumerate(periodic, start=1) if not wraps]
    waves = [axis for axis, wraps in enumerate(periodic, start=1) if wraps]
    u = dctn(state, axes=walls, norm="ortho") if walls else state
    u = fftn(u, axes=waves, norm="ortho") if waves else u
    power = np.square(np.abs(u)) / math.prod(space)
    longest = max(extents)
    scales = [longest / length for length in extents]
    numbers = [
        scale * (np.abs(np.fft.fftfreq(n, 1 / n)) if wraps else np.arange(n) / 2)
        for scale, n, wraps in zip(scales, space, periodic, strict=True)
    ]
    shell = np.rint(np.sqrt(sum(np.square(k) for k in np.meshgrid(*numbers, indexing="ij")))).astype(int)
    last = max(1, int(min(k.max() for k in numbers)))
    return np.stack([np.bincount(shell.ravel(), one.ravel(), last + 1)[: last + 1] for one in power])


def measure_spectrum(recording: Recording, found: Scan) -> Spectrum | None:
    """At the first, middle and last frame of some trajectories; None for point clouds and very small grids."""
    if recording.points is not None or min(recording.space) < 4:
        return None
    extents, periodic = [extent(axis) for axis in recording.axes], [bool(axis.periodic) for axis in recording.axes]
    varied = np.flatnonzero(found.std > 0)
    if not len(varied):
        return None
    chosen = spread(len(recording.trajectories), SPECTRUM_TRAJECTORIES)
    rows = []
    for i in chosen:
        last = recording.trajectories[i].frames - 1
        states = [read_block(recording, (i, n, n + 1))[0].astype(np.float64) for n in (0, last // 2, last)]
        rows.append([shell_power(u[varied], periodic, extents) for u in states])
    # A trajectory with NaN says nothing about the others.
    clean = [row for row in rows if np.isfinite(row).all()]
    if not clean:
        return None
    power = np.mean(clean, axis=0) / np.square(found.std[varied])[:, None]  # (frame, channel, shell)
    k = np.arange(power.shape[-1])
    upper, waves = power[..., k > 2 / 3 * k[-1]].sum(axis=-1), power[..., 1:].sum(axis=-1)
    share = np.divide(upper, waves, out=np.zeros_like(upper), where=waves > 0)  # (frame, channel)
    frame, channel = np.unravel_index(np.argmax(share), share.shape)
    line = power[frame, channel]
    tail = line[-max(1, len(k) // 10) :].mean()
    last = recording.trajectories[chosen[0]].frames - 1
    return Spectrum(
        wavenumbers=tuple(k.tolist()),
        frames=(0, last // 2, last),
        power=tuple(tuple(row) for row in power.mean(axis=1).tolist()),
        upper_share=float(share[frame, channel]),
        decades=float(np.log10(line[1:].max() / tail)) if tail > 0 else math.inf,
        channel=recording.channels[varied[channel]].name,
    )


def spread(count: int, most: int) -> list[int]:
    """At most `most` evenly spread numbers below `count`."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def measure_growth(found: Scan) -> Growth | None:
    """Follow pairs of near states: of different trajectories, or of one where it returns after a long time.

    None where no states are near.
    """
    varied = found.std > 0
    scale = np.where(varied, found.std, 1)[:, None]
    kept = {
        i: ((u[:, varied] - found.mean[varied, None]) / scale[varied]).reshape(len(u), -1)
        for i, (_, u) in found.coarse.items()
    }
    kept = {i: u.astype(np.float32) for i, u in kept.items() if np.isfinite(u).all() and u.shape[1]}
    longest = max((len(u) for u in kept.values()), default=0)
    steps = min(FOLLOWED, longest // 2)
    places = [(i, n) for i, u in kept.items() for n in range(len(u) - steps)]
    if steps < 2 or len(places) < 3:
        return None
    places = [places[j] for j in spread(len(places), BASES)]
    bases = np.stack([kept[i][n] for i, n in places])
    size = np.linalg.norm(bases, axis=1).astype(np.float64)
    size = np.where(size > 0, size, np.inf)  # a state at the mean has no direction
    with np.errstate(invalid="ignore"):
        squares = np.square(size)[:, None] + np.square(size) - 2 * (bases @ bases.T).astype(np.float64)
        distance = np.sqrt(np.maximum(squares, 0) / np.outer(size, size))
    owner, time = np.array(places).T
    related = (owner[:, None] == owner) & (np.abs(time[:, None] - time) <= max(steps, longest // 10))
    distance[related | ~np.isfinite(distance)] = np.inf
    unrelated = distance[np.isfinite(distance)]
    if not unrelated.size:
        return None
    typical = float(np.median(unrelated))
    nearest = distance.argmin(axis=1)
    pairs = {(min(a, int(b)), max(a, int(b))) for a, b in enumerate(nearest) if distance[a, b] <= NEAR * typical}
    closest = sorted(pairs, key=lambda pair: distance[pair])[: 4 * PAIRS]
    lines = []
    for a, b in closest:
        (i, n), (j, m) = places[a], places[b]
        u, v = (kept[x][y : y + steps + 1].astype(np.float64) for x, y in ((i, n), (j, m)))
        line = relative_distance(u, v)
        if line.min() > 1e-6:  # equal states are duplicates, which another finding names
            lines.append(line)
    rates = [rate for line in lines[:PAIRS] if math.isfinite(rate := growth_rate(line, SATURATED * typical))]
    if not rates:
        return None
    rate = float(np.median(rates))
    middle = np.median(lines[:PAIRS], axis=0)
    doubling = math.log(2) / rate if rate > 0 else math.inf
    return Growth(pairs=len(rates), rate=rate, doubling=doubling, distances=tuple(middle.tolist()), typical=typical)


def relative_distance(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """‖u_n - v_n‖ / (‖u_n‖ ‖v_n‖)^½ of states (time, values)."""
    return np.linalg.norm(u - v, axis=1) / np.sqrt(np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1) + 1e-30)


def growth_rate(distances: np.ndarray, saturated: float) -> float:
    """Slope of log d_n, by least squares, up to the first distance beyond `saturated`; NaN below two steps."""
    beyond = np.flatnonzero(distances > saturated)
    stop = int(beyond[0]) if beyond.size else len(distances)
    return float(np.polyfit(np.arange(stop), np.log(distances[:stop]), 1)[0]) if stop >= 2 else math.nan
