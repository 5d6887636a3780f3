"""Rollouts for the page: a few bytes per point and step, so that a page with many of them can still be mailed.

A channel is stored in one byte: 1 to 255 from the low to the high end of its colours, 0 where it has no value. Truth
and prediction share their ends, the error has its own. Long rollouts are thinned in time, large 2D fields in space.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from hero.data import Source
from hero.data.files.checks import spread
from hero.method.metrics import Scoring
from hero.report.figures.charts import Data, finite_or_none
from hero.report.figures.fields import time_text
from hero.report.views import ERROR, GREY, SIGNED, UNSIGNED, Scaled, View, channel_titles, scale_channel
from hero.runs.records import Rollout

LARGEST_SIDE = 64  # of a larger 2D field every second point is kept, or every third, and so on
LEVELS = 254  # steps between the ends of a scale
FLOOR = 1e-40  # power below this is drawn as this: a field without a mode has none


def player(
    rollout: Rollout,
    errors: np.ndarray | None,
    source: Source,
    bytes_allowed: int,
    scoring: Scoring | None = None,
    first: bool = False,
) -> Data:
    """The data with which the page shows `rollout`; `errors` (step, channel) is the score of that trajectory, if known.

    The trajectory is the median one by the GM of the scoring, or the `first` of the test set. The page stores a truth
    that several runs share once: `truth`, by channel, is taken out of the result.
    """
    view, scoring = View.of(source.axes), scoring or Scoring()
    length = len(rollout.truth)
    strides = [-(-len(side.points) // LARGEST_SIDE) if view.up else 1 for side in view.sides]
    shape = [len(side.points[::stride]) for side, stride in zip(view.sides, strides, strict=True)]
    # A frame of a channel: three fields in bytes and two spectra in float32, four thirds as long in base64.
    frame_bytes = 4 * source.channels * (3 * math.prod(shape) + 8 * rollout.truth_spectrum.shape[-1])
    steps = 1 + np.array(spread(length, max(2, bytes_allowed * 3 // frame_bytes)))
    drawn = np.ix_(steps - 1, *(np.arange(0, len(side.points), n) for side, n in zip(view.sides, strides, strict=True)))
    points = ([float(f"{x:.6g}") for x in side.drawn] for side in view.sides)
    sides = [
        {"name": side.name, "label": side.label, "ends": [side.start, side.end], "points": places}
        for side, places in zip(view.sides, points, strict=True)
    ]
    truths, channels = [], []
    for c, (name, title) in enumerate(zip(source.channel_names, channel_titles(source), strict=True)):
        truth, found = channel_data(rollout, source, c, view, steps, drawn)
        score = None if errors is None else [finite_or_none(errors[step - 1, c]) for step in steps]
        truths.append(truth)
        channels.append({"name": name, "title": title, "errors": score, **found})
    return {
        "shape": shape,
        "ratio": view.ratio,
        "sides": sides,
        "steps": steps.tolist(),
        "times": [time_text(source, step) for step in steps.tolist()],
        "length": length,
        "trajectory": rollout.trajectory,
        "measure": scoring.title,
        "truth": truths,
        "channels": channels,
        "notes": notes(rollout, steps, strides, scoring, first),
    }


def channel_data(
    rollout: Rollout, source: Source, c: int, view: View, steps: np.ndarray, drawn: tuple[np.ndarray, ...]
) -> tuple[Data, Data]:
    """One channel at the `drawn` places (step, across[, up]): the truth, and all that belongs to this run."""
    scaled = scale_channel(rollout, source, c, view)
    scale = scaled.truth.scale
    truth, *fields = (encode(quantise(part.field[drawn], part.scale.low, part.scale.high)) for part in scaled[:3])
    truth_spectrum, spectrum = (
        encode(np.log10(np.maximum(power[steps - 1, c], FLOOR)).astype("<f4"))
        for power in (rollout.truth_spectrum, rollout.prediction_spectrum)
    )
    power = rollout.truth_spectrum[:, c]
    high = max(float(power.max(initial=0)), FLOOR)
    low = power[power > 1e-17 * high].min(initial=high)  # below is rounding
    return {"field": truth, "spectrum": truth_spectrum}, {
        "label": scale.label,
        "colours": {SIGNED: "signed", UNSIGNED: "unsigned"}[scale.colours],
        "ends": [scale.low, scale.high],
        "error_limit": scaled.error.scale.high,
        "error_label": scaled.error.scale.label,
        "fields": fields,
        "spectrum": spectrum,
        "power_range": [float(low) / 10, high * 100],  # room above for noise
        "notes": channel_notes(scaled),
    }


def colour_tables() -> dict[str, str]:
    """The colours of the bytes 0 to 255 for fields that change their sign, others, and errors, as RGB bytes."""
    tables = {}
    for name, cmap in (("signed", SIGNED), ("unsigned", UNSIGNED), ("error", ERROR)):
        colours = colormaps[cmap](np.linspace(0, 1, LEVELS + 1))[:, :3]
        tables[name] = encode(np.rint(255 * np.vstack([to_rgb(GREY), colours])).astype(np.uint8))
    return tables


def quantise(field: np.ndarray, low: float, high: float) -> np.ndarray:
    """Bytes 1 + round(254 (x - low) / (high - low)), clipped to 1 .. 255; 0 where `field` is not finite."""
    finite = np.isfinite(field)
    shares = np.clip((np.where(finite, field, low) - low) / (high - low), 0, 1)
    return np.where(finite, np.rint(LEVELS * shares) + 1, 0).astype(np.uint8)


def encode(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def notes(rollout: Rollout, steps: np.ndarray, strides: Sequence[int], scoring: Scoring, first: bool) -> list[str]:
    """Which trajectory it is, and the changes made to the data, in sentences."""
    found = [
        f"Test trajectory {rollout.trajectory}, {'the first' if first else f'the one with median {scoring.gm_title}'}."
    ]
    if rollout.slice is not None:
        found.append(f"Slice {rollout.slice} along the last axis; the spectrum belongs to the whole field.")
    if len(steps) < len(rollout.truth):
        found.append(f"{len(steps)} of {len(rollout.truth)} steps are kept.")
    if max(strides) > 1:
        found.append(f"One of {'×'.join(map(str, strides))} points is shown.")
    return found


def channel_notes(scaled: Scaled) -> list[str]:
    """How the channel is stored, and what is grey."""
    level = (scaled.error.scale.high - scaled.error.scale.low) / LEVELS
    found = [f"Errors are stored in steps of {level:.2g}; values beyond have the colour of the end."]
    field, valid = scaled.prediction.field, scaled.prediction.valid
    if masked := 1 - np.mean(valid):
        found.append(f"Grey: masked points, {masked:.1%}; they count as the mean of the others in the spectrum.")
    lost = (~np.isfinite(field) & valid).reshape(len(field), -1).any(axis=1)
    if lost.any():
        found.append(f"The prediction leaves the finite range at step {int(lost.argmax()) + 1}; grey from there on.")
    return found
