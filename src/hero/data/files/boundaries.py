"""Whether an axis is periodic, judged from states where the file does not say; and end points that are stored twice.

An axis is periodic if states continue across its boundary as smoothly as they do next to it, and if values or slopes
at the boundary change in time: the zeros at two fixed walls are equal as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from hero.data.files.recording import Axis, Recording, cut

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
        doubled = axis.periodic is not False and is_doubled(axis, lines)
        if doubled:
            periodic = True
            note = f"{axis.name}: the last point repeats the first and is dropped; the axis is periodic."
        elif axis.periodic is None:
            periodic, reason = is_periodic(lines)
            if periodic and not is_even(np.diff(axis.coordinates)):
                periodic, reason = False, "its points are not evenly spaced"
            note = f"{axis.name} is taken as {'periodic' if periodic else 'not periodic'}: {reason}."
        else:
            continue
        known = [periodic if i == place else one.periodic for i, one in enumerate(recording.axes)]
        parts = [slice(-1 if doubled and i == place else None) for i in range(len(known))]
        recording = replace(cut(recording, parts, known), notes=(*recording.notes, note))
        states = [values[..., *parts] for values in states]
    return recording


def is_doubled(axis: Axis, lines: Sequence[np.ndarray]) -> bool:
    """Whether the last point of a uniform axis is the first one again; `lines` are (frame, channel, ..., points)."""
    if axis.points < 2 * NEAR or not is_even(np.diff(axis.coordinates)) or not _varies(lines):
        return False
    states = np.concatenate(lines)
    apart = np.abs(states[..., 0] - states[..., -1]) > EQUAL * _scale(states)[..., 0]  # False where something is NaN
    if apart.any():
        return False
    return axis.periodic is True or (_continues([part[..., :-1] for part in lines]) and _ends_move(lines))


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


def _scale(states: np.ndarray) -> np.ndarray:
    """The range of each channel over all finite values, (1, channel, 1, ...); tiny where it is zero."""
    ranges = np.ma.masked_invalid(states).ptp(axis=(0, *range(2, states.ndim)), keepdims=True)
    return np.maximum(ranges.filled(0), 1e-300)


def _varies(lines: Sequence[np.ndarray]) -> bool:
    """Whether states change along the axis at all."""
    states = np.concatenate(lines)
    return bool((np.abs(np.diff(states)) > EQUAL * EQUAL * _scale(states)).any())


def _continues(lines: Sequence[np.ndarray]) -> bool:
    """First and second differences across the boundary are like those next to it, in most states of every channel."""
    states = np.concatenate(lines)
    for order in (1, 2):
        seam = np.concatenate([states[..., -order:], states[..., :order]], axis=-1)
        across, left, right = (
            np.abs(np.diff(part, order)).max(axis=-1) for part in (seam, states[..., :NEAR], states[..., -NEAR:])
        )
        fits = ~(across > SMOOTH * np.maximum(left, right) + EQUAL * _scale(states)[..., 0])  # True where one is NaN
        if (fits.mean(axis=(0, *range(2, fits.ndim))) < MOSTLY).any():
            return False
    return True


def _ends_move(lines: Sequence[np.ndarray]) -> bool:
    """Whether values or slopes at the boundary change within a trajectory."""
    scale = _scale(np.concatenate(lines))[0]
    for part in lines:
        values = np.ptp(part[..., [0, -1]], axis=0) / scale
        steps = np.diff(part)
        largest = np.nanmax(np.abs(steps), axis=(0, *range(2, part.ndim)), initial=0, keepdims=True)[0]
        slopes = np.ptp(steps[..., [0, -1]], axis=0) / np.maximum(largest, 1e-300)
        if (values > MOVING_VALUES).any() or (slopes > MOVING_SLOPES).any():
            return True
    return False
