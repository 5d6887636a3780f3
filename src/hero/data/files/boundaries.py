"""Whether an axis is periodic, judged from states where the file does not say; and end points that are stored twice.

An axis is periodic if states continue across its boundary as smoothly as they do next to it, and if values or slopes
at the boundary change in time: the zeros at two fixed walls are equal as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from hero.data.files.recording import Axis, Recording, Trajectory

UNEVEN = 1e-3
"""Differences of the spacing, relative to it, that are taken for rounding of the coordinates."""
EQUAL = 1e-6
"""Difference of equal values, as a share of the range of their channel."""
SMOOTH = 2.0
"""Differences across a periodic boundary are at most this times the largest ones next to it, .."""
MOSTLY = 0.8
""".. in this share of states: now and then a shock stands exactly on the boundary."""
NEAR = 4  # points next to a boundary
MOVING_VALUES = 1e-2  # of the range of a channel
MOVING_SLOPES = 1e-1  # of the largest difference of neighbours


def decide_boundaries(recording: Recording, states: Sequence[np.ndarray]) -> Recording:
    """`periodic` of every axis decided, and doubled end points dropped; `states` are (frame, channel, *space) parts."""
    for place, axis in enumerate(recording.axes):
        lines = [np.moveaxis(values, place + 2, -1) for values in states]
        if axis.periodic is not False and is_doubled(axis, lines):
            recording = _without_last(recording, place)
            states = [values.take(range(axis.points - 1), axis=place + 2) for values in states]
            note = f"{axis.name}: the last point repeats the first and is dropped; the axis is periodic."
        elif axis.periodic is None:
            periodic, reason = is_periodic(lines)
            if periodic and not is_even(np.diff(axis.coordinates)):
                periodic, reason = False, "its points are not evenly spaced"
            recording = _with_axis(recording, place, replace(axis, periodic=periodic))
            note = f"{axis.name} is taken as {'periodic' if periodic else 'not periodic'}: {reason}."
        else:
            continue
        recording = replace(recording, notes=(*recording.notes, note))
    return recording


def is_doubled(axis: Axis, lines: Sequence[np.ndarray]) -> bool:
    """Whether the last point of a uniform axis is the first one again; `lines` are (frame, channel, ..., points)."""
    if axis.points < 2 * NEAR or not is_even(np.diff(axis.coordinates)) or not _varies(lines):
        return False
    if not all(_equal_ends(part, scale) for part, scale in zip(lines, _scales(lines), strict=True)):
        return False
    single = [part[..., :-1] for part in lines]
    return axis.periodic is True or (_continues(single) and _ends_move(lines))


def is_periodic(lines: Sequence[np.ndarray]) -> tuple[bool, str]:
    """(periodic, reason) of an axis without a doubled end point."""
    if lines[0].shape[-1] < 2 * NEAR:
        return False, f"it has fewer than {2 * NEAR} points"
    if not _varies(lines):
        return False, "states do not vary along it"
    if not _continues(lines):
        return False, "states jump or bend at its boundary"
    if not _ends_move(lines):
        return False, "its ends are fixed in time"
    return True, "states continue smoothly across its boundary"


def is_even(values: np.ndarray | Tensor, tolerance: float = UNEVEN) -> bool:
    """Whether all are equal but for rounding, as the gaps between points of a uniform axis."""
    array = np.asarray(values)
    return not array.size or bool(np.abs(array - array.mean()).max() <= tolerance * abs(array.mean()))


def _scales(lines: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The range of each channel over all parts, shaped to divide them."""
    finite = [np.where(np.isfinite(part), part, np.nan) for part in lines]
    channels = range(lines[0].shape[1])
    ranges = [
        max(np.nanmax(part[:, c], initial=-np.inf) for part in finite)
        - min(np.nanmin(part[:, c], initial=np.inf) for part in finite)
        for c in channels
    ]
    table = np.maximum(np.nan_to_num(np.array(ranges), nan=0.0, posinf=0.0, neginf=0.0), 1e-300)
    return [table.reshape(1, -1, *(1,) * (part.ndim - 2)) for part in lines]


def _varies(lines: Sequence[np.ndarray]) -> bool:
    """Whether states change along the axis at all."""
    scales = _scales(lines)
    return any(
        bool((np.abs(np.diff(part)) > EQUAL * EQUAL * scale).any()) for part, scale in zip(lines, scales, strict=True)
    )


def _equal_ends(part: np.ndarray, scale: np.ndarray) -> bool:
    difference = np.abs(part[..., 0] - part[..., -1])
    return bool((difference <= EQUAL * scale[..., 0])[np.isfinite(difference)].all())


def _continues(lines: Sequence[np.ndarray]) -> bool:
    """First and second differences across the boundary are like those next to it, in most states of every channel."""
    scales = _scales(lines)
    for order in (1, 2):
        fits = [_seam_fits(part, scale, order) for part, scale in zip(lines, scales, strict=True)]
        per_channel = np.concatenate([np.moveaxis(fit, 1, 0).reshape(fit.shape[1], -1) for fit in fits], axis=1)
        if (per_channel.mean(axis=1) < MOSTLY).any():
            return False
    return True


def _seam_fits(part: np.ndarray, scale: np.ndarray, order: int) -> np.ndarray:
    seam = np.abs(np.diff(np.concatenate([part[..., -order:], part[..., :order]], axis=-1), order)).max(axis=-1)
    left = np.abs(np.diff(part[..., :NEAR], order)).max(axis=-1)
    right = np.abs(np.diff(part[..., -NEAR:], order)).max(axis=-1)
    return ~(seam > SMOOTH * np.maximum(left, right) + EQUAL * scale[..., 0])  # True where something is NaN


def _ends_move(lines: Sequence[np.ndarray]) -> bool:
    """Whether values or slopes at the boundary change within a trajectory."""
    for part, scale in zip(lines, _scales(lines), strict=True):
        values = np.ptp(part[..., [0, -1]], axis=0) / scale[0]
        steps = np.diff(part)
        largest = np.nanmax(np.abs(steps), axis=(0, *range(2, part.ndim)), initial=0, keepdims=True)[0]
        slopes = np.ptp(steps[..., [0, -1]], axis=0) / np.maximum(largest, 1e-300)
        if (values > MOVING_VALUES).any() or (slopes > MOVING_SLOPES).any():
            return True
    return False


def _with_axis(recording: Recording, place: int, axis: Axis) -> Recording:
    axes = (*recording.axes[:place], axis, *recording.axes[place + 1 :])
    return replace(recording, axes=axes)


def _without_last(recording: Recording, place: int) -> Recording:
    axis = recording.axes[place]
    shorter = replace(axis, coordinates=axis.coordinates[:-1], periodic=True)
    trajectories = [_trajectory_without_last(trajectory, place) for trajectory in recording.trajectories]
    mask = (
        recording.mask if recording.mask is None else recording.mask[(slice(None),) * (place + 1) + (slice(None, -1),)]
    )
    return replace(_with_axis(recording, place, shorter), trajectories=trajectories, mask=mask)


def _trajectory_without_last(trajectory: Trajectory, place: int) -> Trajectory:
    def without_last(values: np.ndarray, axis: int) -> np.ndarray:
        return values[(slice(None),) * axis + (slice(None, -1),)]

    fields = trajectory.fields
    return replace(
        trajectory,
        read=lambda frames, channels: without_last(trajectory.read(frames, channels), place + 2),
        fields=None if fields is None else lambda: without_last(fields(), place + 1),
    )
