"""Spectra of recorded states, and the errors of doing nothing."""

from __future__ import annotations

import math

import numpy as np
import torch

from hero.analysis.scan import Scan, read_block
from hero.data.files.checks import spread
from hero.data.files.recording import Recording
from hero.data.files.selection import divided, length_of, selected
from hero.data.files.settings import FileSettings
from hero.method.domain import PointCloud, quadrature_weights
from hero.method.domain.transform import shell_power
from hero.method.metrics import HORIZON, baseline_errors
from hero.method.norm import Norm
from hero.records import Record

SPECTRUM_TRAJECTORIES = 8
ROLLOUT_VALUES = 2**25
"""Numbers of test rollouts from which baselines are measured, if one rollout is not more."""


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


class Baselines(Record):
    """VRMSE of doing nothing on test rollouts, at the steps `steps`: what an operator has to beat."""

    steps: tuple[int, ...]
    persistence: tuple[float, ...]
    """The first state stays."""
    mean: tuple[float, ...]
    """The mean state of the training data."""


def measure_spectrum(recording: Recording, found: Scan) -> Spectrum | None:
    """At the first, middle and last frame of some trajectories; None for point clouds and very small grids.

    Masked points count as the mean of their channel, as in every spectrum of a run.
    """
    if recording.points is not None or min(recording.space) < 4:
        return None
    axes = recording.axes
    extents, periodic = [length_of(axis.coordinates, True) for axis in axes], [bool(axis.periodic) for axis in axes]
    varied, mask = found.varied, recording.mask
    if not len(varied):
        return None
    chosen = spread(len(recording.trajectories), SPECTRUM_TRAJECTORIES)
    rows = []
    for i in chosen:
        last = recording.trajectories[i].frames - 1
        states = [read_block(recording, (i, n, n + 1))[0][varied].astype(np.float64) for n in (0, last // 2, last)]
        if mask is not None:  # the mean of the channel, which has no power
            mean = found.mean[varied].reshape(-1, *(1,) * len(recording.space))
            states = [np.where(mask[varied], u, mean) for u in states]
        rows.append([shell_power(u, periodic, extents)[0] for u in states])
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


def measure_baselines(recording: Recording, found: Scan, settings: FileSettings) -> Baselines | None:
    """VRMSE of keeping the first state and of the mean state, averaged over test rollouts; None without training data.

    It is measured as training does, with its norm, on evenly spread rollouts.
    """
    if found.mean_state is None:
        return None
    chosen = selected(recording, settings)
    parts = divided(chosen, settings)["test"]
    steps = sorted({1, min(HORIZON, parts[0].frames - 1)})
    values = math.prod(recording.space) * len(chosen.channels) * (1 + len(steps))
    rollouts = [parts[j] for j in spread(len(parts), max(1, ROLLOUT_VALUES // values))]
    blocks = [[(one.trajectory, one.first + n, one.first + n + 1) for n in (0, *steps)] for one in rollouts]
    states = np.stack([np.concatenate([read_block(chosen, block) for block in some]) for some in blocks])
    norm = Norm(point_weights(recording), by_channel=True)
    mean_state = found.mean_state.reshape(-1, *recording.space)
    arrays = {"mean": found.mean, "std": found.std, "mean_state": mean_state}
    arrays |= {} if recording.mask is None else {"mask": recording.mask}
    kept = [c for c, channel in enumerate(recording.channels) if channel in chosen.channels]
    norm.load({name: values[kept] for name, values in arrays.items()})
    errors = baseline_errors(torch.from_numpy(states.astype(np.float32)), len(steps), 1, norm)
    curves = {name: tuple(one["vrmse"].mean(dim=0).tolist()) for name, one in errors.items()}
    return Baselines(steps=tuple(steps), **curves)


def point_weights(recording: Recording) -> torch.Tensor | None:
    """Quadrature weights of the points; None where all are equal."""
    if recording.points is None:
        coordinates = [axis.coordinates.copy() for axis in recording.axes]  # torch wants arrays that may be written
        return quadrature_weights(coordinates, [bool(axis.periodic) for axis in recording.axes])
    points, weights = (
        None if part is None else torch.from_numpy(part).float() for part in (recording.points, recording.weights)
    )
    assert points is not None
    return PointCloud(points, weights).weights
