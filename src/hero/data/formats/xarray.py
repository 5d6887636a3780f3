"""NetCDF, and Zarr as a folder or a zip file, through xarray: packed integers are decoded.

What a dimension means (time, space, levels, trajectories) follows from CF attributes, else from its name. Zarr arrays
whose dimensions have no names are arrays by name, as in .npz files.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import check_chunk, damage_reported, members
from hero.data.files.recording import Axis, Channel, Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.named import read_named
from hero.data.formats.plain import needs
from hero.data.formats.slabs import COMPONENTS, Slab, recording_of, time_step
from hero.errors import HeroError

PLACE = "channel"  # the attribute of a variable that hero writes: its place among the channels
PERIODIC = "periodic"  # the attribute of an axis that hero writes: 1 or 0
PREDICTED = "hero predict"  # the attribute `source` of a file that hero writes
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")  # first bytes of NetCDF 3
LEFT_OUT = "are left out, because they are not on the grid of the other variables"
ONLY_FORCING = "are used only as forcing, where data.forcing names them"
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


def has_dimensions(file: h5py.File) -> bool:
    """Whether an HDF5 file names the dimensions of its arrays as NetCDF does."""
    datasets = [item for item in file.values() if isinstance(item, h5py.Dataset)]
    return "_NCProperties" in file.attrs or any(one.attrs.get("CLASS") == b"DIMENSION_SCALE" for one in datasets)


def is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def open_dataset(path: Path) -> Any:
    """The xarray.Dataset of a NetCDF file or a Zarr store, of which coordinates are read; the last four stay open."""
    return _dataset(path, path.stat().st_mtime_ns, os.getpid())


@lru_cache(maxsize=4)
def _dataset(path: Path, changed: int, process: int) -> Any:
    head = b"PK"  # of the zip file of a store
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(8)
    engine = "scipy" if head[:4] in CLASSIC else "zarr" if head.startswith(b"PK") else "h5netcdf"
    xarray, _ = (needs(path, module, "xarray") for module in ("xarray", engine))
    arguments: dict[str, Any] = {"engine": engine, "chunks": None, "cache": False}
    arguments |= {"consolidated": False} if engine == "zarr" else {}
    source = _store(path) if engine == "zarr" else path
    try:
        opened = xarray.open_dataset(source, **arguments)
    except ValueError:  # a calendar or a unit of time that cannot be decoded: the numbers serve as well
        opened = xarray.open_dataset(source, decode_times=False, **arguments)
    if engine != "zarr":
        return opened
    # By their place, else by name: a Zarr store lists variables as its folder happens to.
    places = {name: variable.attrs.get(PLACE) for name, variable in opened.data_vars.items()}
    return opened[sorted(places, key=lambda name: (places[name] if isinstance(places[name], int) else 0, str(name)))]


def _store(path: Path) -> Any:
    """The path of a folder, or the zip file opened as a store; from version 3.1, zarr refuses the codec pickle."""
    import zarr

    if not path.is_file():
        return path
    members(path)
    return zarr.storage.ZipStore(path, mode="r")


def open_zarr(path: Path) -> Any:
    """An xarray.Dataset, or a dict of arrays where dimensions have no names."""
    zarr = needs(path, "zarr", "xarray")
    opened = zarr.open(_store(path), mode="r")
    arrays = {"u": opened} if hasattr(opened, "shape") else dict(opened.arrays())
    for name, array in arrays.items():
        check_chunk(path, name, math.prod(array.chunks) * array.dtype.itemsize)
    metadata = [(array.attrs, getattr(array.metadata, "dimension_names", None)) for array in arrays.values()]
    if arrays and all("_ARRAY_DIMENSIONS" in attributes or names is not None for attributes, names in metadata):
        return open_dataset(path)

    def part(array: Any, index: tuple[slice, ...]) -> np.ndarray:
        with damage_reported(path, (Exception,)):
            return np.asarray(array[index])

    return {n: FileArray(partial(part, array), path, n, array.shape, array.dtype) for n, array in arrays.items()}


def read_zarr(path: Path, content: Any, layout: str) -> Recording:
    if isinstance(content, dict):  # a dataset is a mapping, but no dict
        return read_named(path, content, layout, form="zarr")
    return read_xarray(path, content, layout)


def _array(path: Path, variable: Any) -> FileArray:
    name = str(variable.name)
    return FileArray(lambda index: open_dataset(path)[name][index].values, path, name, variable.shape, variable.dtype)


def _numeric(dataset: Any) -> dict[str, Any]:
    return {str(name): variable for name, variable in dataset.data_vars.items() if variable.dtype.kind in "fiu"}


def variables_of(path: Path, dataset: Any) -> dict[str, FileArray]:
    """The variables of numbers by name, and the coordinates of the largest one as x, y and z."""
    numeric = _numeric(dataset)
    main = max(numeric.values(), key=lambda variable: variable.ndim, default=None)
    names = dict(zip("xyz", () if main is None else main.dims, strict=False))
    lines = {letter: dataset[name] for letter, name in names.items() if name in dataset.coords}
    return {name: _array(path, variable) for name, variable in (numeric | lines).items()}


def read_xarray(path: Path, dataset: Any, layout: str) -> Recording:
    """Variables in time are channels, one per level; fields of the same grid and numbers of trajectories condition."""
    letters = letters_of(path, dataset)
    time, *space = [name for letter in "txyz" for name in letters if letters[name] == letter]
    rows = [name for name in letters if letters[name] == "b"]
    levels = [name for name in letters if letters[name] in COMPONENTS]
    points = {letters[name]: dataset.sizes[name] for name in space}
    numeric = _numeric(dataset)
    needed = {time, *space, *rows}
    states = [name for name, v in numeric.items() if needed <= set(v.dims) <= {*needed, *levels}]
    fields = [name for name, v in numeric.items() if set(v.dims) == set(space)]
    numbers = {name: v.values for name, v in numeric.items() if v.ndim and set(v.dims) == set(rows)}
    in_time = [name for name, v in numeric.items() if set(v.dims) - set(rows) in ({time}, {time, *space})]
    series = [name for name in in_time if name not in states]
    left = [name for name, v in numeric.items() if v.ndim and name not in (*states, *fields, *numbers, *series)]

    def slab(name: str) -> Slab:
        array, dimensions, unit = _array(path, numeric[name]), numeric[name].dims, numeric[name].attrs.get("units", "")
        own = [level for level in levels if level in dimensions]
        values = [dataset[level].values if level in dataset.coords else range(dataset.sizes[level]) for level in own]
        labels = [[f"{n:g}" if np.issubdtype(type(n), np.number) else str(n) for n in line] for line in values]
        on_grid = points if set(space) <= set(dimensions) else {}
        axes = "".join(letters[dimension] for dimension in dimensions)
        channels = (Channel("_".join([name, *place]), str(unit)) for place in product(*labels))
        return Slab(array, axes, on_grid, tuple(channels))

    dt, unit, times = times_of(dataset, time)
    return recording_of(
        *("xarray", (path,), [slab(name) for name in (*states, *fields)]),
        axes=tuple(axis_of(dataset, name) for name in space),
        scalars=numbers,
        series=[slab(name) for name in series],
        dt=dt,
        time_unit=unit,
        times=times,
        notes=tuple(f"{', '.join(n[:8])} {text}." for text, n in ((LEFT_OUT, left), (ONLY_FORCING, series)) if n),
    )


def letters_of(path: Path, dataset: Any) -> dict[str, str]:
    """A letter for each dimension of the largest variable: b where its points are trajectories, c d e channels."""
    kinds = {str(name): _kind_of_dimension(dataset, str(name)) for name in dataset.dims}
    numeric = _numeric(dataset).values()
    moving = [v for v in numeric if v.ndim > 1 and any(kinds[str(name)] == "time" for name in v.dims)]
    if not moving:
        sizes = {n: ", ".join(f"{d} {size}" for d, size in v.sizes.items()) for n, v in dataset.data_vars.items()}
        known = ", ".join([f"{name} ({size})" for name, size in sizes.items()][:8]) or "no variables"
        raise HeroError(f"{path} holds {known}, none of them in time and space; name the dimension of time `time`.")
    main = max(moving, key=lambda variable: (variable.ndim, variable.size))
    names = [str(name) for name in main.dims]
    time, rows = ([name for name in names if kinds[name] == kind] for kind in ("time", "row"))
    # Over latitude and longitude, levels are few and far apart: channels. In a box, z is the third axis.
    on_globe = any(kinds[name] == "horizontal" for name in names)
    levels = [name for kind in ["vertical"] * on_globe + ["channel"] for name in names if kinds[name] == kind]
    space = [name for name in names if name not in (*time, *rows, *levels)]
    if not 1 <= len(space) <= 3 or len(time) != 1 or len(rows) > 1 or len(levels) > len(COMPONENTS):
        raise HeroError(
            f"{path}: of the dimensions {', '.join(names)} of {main.name}, {', '.join(space) or 'none'} "
            "are space; select 1 to 3 of space, one of time and one of trajectories with xarray, and save that part."
        )
    letters = {"t": time, "xyz": space, "b": rows, COMPONENTS: levels}
    return {name: letter for word, names in letters.items() for name, letter in zip(names, word, strict=False)}


def times_of(dataset: Any, name: str) -> tuple[float, str, tuple[np.ndarray, ...]]:
    """(dt, its unit, `Recording.times`)."""
    if name not in dataset.coords:
        return 1.0, "", ()
    times = dataset[name].values
    if times.dtype.kind in "fiu":
        dt, found = time_step(times)
        return dt, str(dataset[name].attrs.get("units", "")).split(" since ")[0], found
    if times.dtype.kind in "mM":
        seconds = (times - np.zeros((), times.dtype)) / np.timedelta64(1, "s")
    elif times.size and all(hasattr(one, "calendar") for one in times):  # dates as of noleap are objects of cftime
        start = type(times[0])(1970, 1, 1)  # one for all files of a series
        seconds = np.array([(one - start).total_seconds() for one in times])
    else:
        return 1.0, "", ()
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
        step, width = np.abs(np.diff(points[:2])).sum(), abs(points[-1] - points[0])
        # 360 degrees, once: with or without the first meridian again at the end.
        periodic = bool(min(abs(width + step - 360), abs(width - 360)) < 0.1 * step)
    return Axis(name, points, periodic, units)
