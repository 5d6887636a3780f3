"""What the dimensions of an xarray.Dataset mean, by the CF conventions or by their names: time, space, levels, rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import Axis, Channel
from hero.data.formats.arrays import COMPONENTS, time_step
from hero.errors import HeroError

PERIODIC = "periodic"
"""The attribute of an axis that hero writes: 1 or 0."""
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


def letters_of(path: Path, dataset: Any) -> dict[str, str]:
    """A letter for each dimension of the largest variable: b where its points are trajectories, c d e channels."""
    kinds = {str(name): _kind_of_dimension(dataset, str(name)) for name in dataset.dims}
    moving = [
        variable
        for variable in dataset.data_vars.values()
        if variable.dtype.kind in "fiu" and any(kinds[name] == "time" for name in variable.dims) and variable.ndim > 1
    ]
    if not moving:
        known = [
            f"{n} ({', '.join(f'{d} {size}' for d, size in v.sizes.items())})" for n, v in dataset.data_vars.items()
        ]
        raise HeroError(
            f"{path} holds {', '.join(known[:8]) or 'no variables'}, and none of them varies in time and space; name "
            "the dimension of time `time`."
        )
    main = max(moving, key=lambda variable: (variable.ndim, variable.size))
    of: dict[str, list[str]] = {kind: [] for kind in ("time", "horizontal", "vertical", "row", "channel", "space")}
    for name in map(str, main.dims):
        of[kinds[name]].append(name)
    # Over latitude and longitude, levels are few and far apart: channels. In a box, z is the third axis.
    levels = (of["vertical"] if of["horizontal"] else []) + of["channel"]
    space = [str(name) for name in main.dims if str(name) not in (*of["time"], *of["row"], *levels)]
    if not 1 <= len(space) <= 3 or len(of["time"]) != 1 or len(levels) > len(COMPONENTS):
        raise HeroError(
            f"{path}: of the dimensions {', '.join(map(str, main.dims))} of {main.name}, {', '.join(space) or 'none'} "
            "are space; select 1 to 3 of space and one of time with xarray, and save that part."
        )
    letters = {"t": of["time"], "xyz": space, "b" * len(of["row"]): of["row"], COMPONENTS: levels}
    return {name: letter for word, names in letters.items() for name, letter in zip(names, word, strict=False)}


def level_channels(dataset: Any, name: str, levels: list[str]) -> list[Channel]:
    """A channel for each level of a variable."""
    own = [level for level in levels if level in dataset[name].dims]
    unit = str(dataset[name].attrs.get("units", ""))
    places = product(*([_label(dataset, level, i) for i in range(dataset.sizes[level])] for level in own))
    return [Channel("_".join([name, *labels]), unit) for labels in places]


def _label(dataset: Any, dimension: str, place: int) -> str:
    if dimension not in dataset.coords:
        return str(place)
    value = dataset[dimension].values[place]
    return f"{value:g}" if np.issubdtype(type(value), np.number) else str(value)


def times_of(dataset: Any, name: str) -> tuple[float, str, tuple[np.ndarray, ...]]:
    """(dt, its unit, `Recording.times`)."""
    if name not in dataset.coords:
        return 1.0, "", ()
    times = dataset[name].values
    if times.dtype.kind in "fiu":
        dt, found = time_step(times)
        return dt, str(dataset[name].attrs.get("units", "")).split(" since ")[0], found
    of_calendar = all(hasattr(one, "calendar") for one in times)  # dates as of noleap are objects
    if not times.size or not (of_calendar or times.dtype.kind in "mM"):
        return 1.0, "", ()
    start: Any = times[0] if of_calendar else np.zeros((), times.dtype)
    if hasattr(start, "year"):  # of cftime: one start for all files of a series
        start = type(start)(1970, 1, 1)
    passed = times - start
    seconds = np.array([one.total_seconds() for one in passed]) if of_calendar else passed / np.timedelta64(1, "s")
    if times.size < 2:
        return 1.0, "h", time_step(seconds / SECONDS["h"])[1]
    dt = time_step(seconds)[0]
    # The largest of day, hour and second of which dt is a whole number.
    unit = next((unit for unit, n in SECONDS.items() if dt >= n and abs(dt / n - round(dt / n)) < 1e-6), "s")
    dt, found = time_step(seconds / SECONDS[unit])
    return dt, unit, found


def _kind_of_dimension(dataset: Any, name: str) -> str:
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
    periodic = bool(dataset[name].attrs[PERIODIC]) if PERIODIC in dataset[name].attrs else None
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
