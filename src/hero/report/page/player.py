"""Rollouts for the page: a few bytes per point and step, so that a page with many of them can still be mailed.

A field is stored in one byte: 1 to 255 for −limit to +limit, 0 where it is not finite. Truth and prediction share their
limit, the error has its own. Long rollouts are thinned in time and large 2D fields averaged over blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from hero.method.metrics import Scoring
from hero.report.figures.fields import ERROR_MAP, FIELD_MAP, GONE, Scaled, scale_fields
from hero.runs.rollouts import Rollout

LARGEST_SIDE = 64
LEVELS = 127
FLOOR = 1e-40
"""Power below this is drawn as this: a field without a mode has none."""


def player(
    rollout: Rollout,
    errors: np.ndarray | None,
    dims: int,
    bytes_allowed: int,
    scoring: Scoring | None = None,
    first: bool = False,
) -> dict[str, Any]:
    """The data with which the page shows `rollout`; `errors` is the score of that trajectory at each step, if known.

    The trajectory is the median one by the GM of the scoring, or the `first` of the test set. The page stores a truth
    that several runs share once: `truth` is taken out of the result.
    """
    scaled = scale_fields(rollout)
    block = block_size(scaled.truth.shape[1:])
    frames = (averaged(scaled.truth, block), averaged(scaled.prediction, block), averaged(scaled.error, block))
    steps = kept_steps(len(scaled.truth), frames_that_fit(frames[0][0].size, rollout, bytes_allowed))
    kept = [frame[steps - 1] for frame in frames]
    truth, *fields = (
        encode(quantise(field, limit))
        for field, limit in zip(kept, (scaled.limit, scaled.limit, scaled.error_limit), strict=True)
    )
    truth_spectrum, spectrum = (
        encode(np.log10(np.maximum(power[steps - 1], FLOOR)).astype("<f4"))
        for power in (rollout.truth_spectrum, rollout.prediction_spectrum)
    )
    return {
        "dims": dims,
        "shape": list(kept[0].shape[1:]),
        "steps": steps.tolist(),
        "length": len(scaled.truth),
        "trajectory": rollout.trajectory,
        "truth": {"field": truth, "spectrum": truth_spectrum},
        "fields": fields,
        "limits": [scaled.limit, scaled.error_limit],
        "unit": scaled.unit,
        "nrmse": None if errors is None else [finite_or_none(errors[step - 1]) for step in steps],
        "spectrum": spectrum,
        "power_range": power_range(rollout.truth_spectrum),
        "notes": notes(rollout, scaled, steps, block, scoring or Scoring(), first),
    }


def colour_tables() -> dict[str, str]:
    """The colours of the bytes 0 to 255 for fields and errors, as RGB bytes."""
    tables = {}
    for name, cmap in (("field", FIELD_MAP), ("error", ERROR_MAP)):
        colours = colormaps[cmap](np.linspace(0, 1, 2 * LEVELS + 1))[:, :3]
        tables[name] = encode(np.rint(255 * np.vstack([to_rgb(GONE), colours])).astype(np.uint8))
    return tables


def quantise(field: np.ndarray, limit: float) -> np.ndarray:
    """Bytes 128 + round(127 x / limit), clipped to 1 .. 255; 0 where `field` is not finite."""
    finite = np.isfinite(field)
    levels = np.rint(LEVELS * np.clip(np.where(finite, field, 0.0) / limit, -1, 1)) + LEVELS + 1
    return np.where(finite, levels, 0).astype(np.uint8)


def encode(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def frames_that_fit(points: int, rollout: Rollout, bytes_allowed: int) -> int:
    """Frames of three fields in bytes and two spectra in float32, four thirds as long in base64."""
    per_frame = 3 * points + 8 * rollout.truth_spectrum.shape[1]
    return max(2, bytes_allowed * 3 // (4 * per_frame))


def kept_steps(length: int, count: int) -> np.ndarray:
    """At most `count` of the steps 1 .. length, evenly, the first and the last among them."""
    return np.unique(np.linspace(1, length, min(count, length)).round().astype(int))


def block_size(shape: Sequence[int]) -> int:
    """Side of the blocks over which a 2D field is averaged."""
    return -(-max(shape) // LARGEST_SIDE) if len(shape) == 2 else 1


def averaged(field: np.ndarray, block: int) -> np.ndarray:
    """Means over blocks of a field (time, x, y); what does not fill a block at the far ends is left out."""
    if block == 1:
        return field
    time, *sides = field.shape
    nx, ny = (side // block for side in sides)
    cut = field[:, : nx * block, : ny * block].reshape(time, nx, block, ny, block)
    means: np.ndarray = cut.mean(axis=(2, 4))
    return means


def power_range(spectrum: np.ndarray) -> list[float]:
    """Axis limits that hold the truth at all steps, with room above for noise; below 1e-17 of the top is rounding."""
    high = max(float(spectrum.max(initial=0)), FLOOR)
    visible = spectrum[spectrum > 1e-17 * high]
    return [float(visible.min(initial=high)) / 10, high * 100]


def finite_or_none(value: float) -> float | None:
    return float(f"{value:.9g}") if np.isfinite(value) else None


def notes(
    rollout: Rollout, scaled: Scaled, steps: np.ndarray, block: int, scoring: Scoring, first: bool = False
) -> list[str]:
    """Which trajectory it is, and the changes made to the data, in sentences."""
    found = [
        f"Test trajectory {rollout.trajectory}, {'the first' if first else f'the one with median {scoring.gm_title}'}.",
        f"Fields are stored with 255 levels: one level is {scaled.limit / LEVELS:.2g} for truth and prediction and "
        f"1/{LEVELS} of its largest value for the error; larger values have the colour of the end of the scale.",
        "Spectra are computed from the unrounded fields.",
    ]
    if scaled.unit != "u":
        found.append("The state decays far, so it is drawn relative to the largest |u| of the truth at each step.")
    if rollout.slice is not None:
        found.append(f"Slice {rollout.slice} along the last axis; the spectrum belongs to the whole field.")
    if len(steps) < len(scaled.truth):
        found.append(f"{len(steps)} of {len(scaled.truth)} steps are kept.")
    if block > 1:
        found.append(f"Each pixel is the mean of {block}×{block} points.")
    if not np.isfinite(scaled.prediction).all():
        gone = int(np.flatnonzero(~np.isfinite(scaled.prediction).reshape(len(scaled.prediction), -1).all(1))[0]) + 1
        found.append(f"The prediction leaves the finite range at step {gone}; grey from there on.")
    if rollout.truth.shape[1] > 1:
        found.append(f"The first of {rollout.truth.shape[1]} channels is shown.")
    return found
