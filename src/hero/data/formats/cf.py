"""The meaning of dimensions in NetCDF and Zarr, from the attributes of the CF conventions, else from their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from hero.data.recording import Axis

NAMES = {
    "time": "time t valid_time times step",
    "horizontal": "lat latitude lon longitude rlat rlon",
    "vertical": "z lev level plev height depth altitude pressure_level isobaric",
    "row": "member ensemble number realization sample samples trajectory run simulation batch b",
    "channel": "channel channels variable component field c feature features",
}
STANDARD = {
    "time": "time forecast_period",
    "horizontal": "latitude longitude grid_latitude grid_longitude",
    "vertical": "height depth altitude air_pressure model_level_number",
    "row": "realization",
}
DEGREES = {"degrees_north", "degree_north", "degrees_east", "degree_east", "degrees_n", "degrees_e"}
SECONDS = {"d": 86400.0, "h": 3600.0, "s": 1.0}


def kind_of_dimension(dataset: Any, name: str) -> str:
    """time, horizontal (latitude and longitude), vertical, row (one trajectory per point), channel or space."""
    attributes = dict(dataset[name].attrs) if name in dataset.coords else {}
    if name in dataset.coords and dataset[name].dtype.kind in "mM":
        return "time"
    units = str(attributes.get("units", "")).lower()
    for kind, names in STANDARD.items():
        if attributes.get("standard_name") in names.split():
            return kind
    if attributes.get("axis") == "T" or " since " in units:
        return "time"
    if units in DEGREES:
        return "horizontal"
    if attributes.get("axis") == "Z" or "positive" in attributes:
        return "vertical"
    if attributes.get("axis") in ("X", "Y"):
        return "space"
    return next((kind for kind, names in NAMES.items() if name.lower() in names.split()), "space")


def axis_of(dataset: Any, name: str) -> Axis:
    """An axis of space; a longitude that goes around the globe is periodic, a latitude is not."""
    if name not in dataset.coords or dataset[name].dtype.kind not in "fiu":
        return Axis(name, np.arange(dataset.sizes[name], dtype=np.float64))
    points = np.asarray(dataset[name].values, dtype=np.float64)
    units = str(dataset[name].attrs.get("units", ""))
    lower, standard = name.lower(), str(dataset[name].attrs.get("standard_name", ""))
    periodic = None
    if "lat" in lower or "latitude" in standard or units.lower().endswith(("north", "_n")):
        periodic = False
    elif "lon" in lower or "longitude" in standard or units.lower().endswith(("east", "_e")):
        periodic = _covers_circle(points)
    return Axis(name, points, periodic, units)


def _covers_circle(degrees: np.ndarray) -> bool:
    """360 degrees, once: with or without the first meridian again at the end."""
    if len(degrees) < 2:
        return False
    step, width = abs(degrees[1] - degrees[0]), abs(degrees[-1] - degrees[0])
    return bool(abs(width + step - 360) < 0.1 * step or abs(width - 360) < 0.1 * step)


def seconds_unit(seconds: float) -> tuple[float, str]:
    """The largest of day, hour and second of which `seconds` is a whole number, and its length."""
    for unit, length in SECONDS.items():
        if seconds >= length and abs(seconds / length - round(seconds / length)) < 1e-6:
            return length, unit
    return 1.0, "s"
