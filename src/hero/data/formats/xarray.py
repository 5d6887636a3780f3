"""NetCDF, and Zarr as a folder or a zip file, through xarray: axes from CF attributes, packed integers decoded.

Zarr arrays whose dimensions have no names are arrays by name, as in .npz files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import damage_reported
from hero.data.files.recording import Recording
from hero.data.formats.arrays import COMPONENTS, FileArray, Slab, recording_of
from hero.data.formats.cf import axis_of, letters_of, level_channels, times_of
from hero.data.formats.claims import check_chunk, members
from hero.data.formats.named import read_named
from hero.data.formats.tables import needs

PLACE = "channel"
"""The attribute of a variable that hero writes: its place among the channels."""
PREDICTED = "hero predict"
"""The attribute `source` of a file that hero writes."""
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
"""First bytes of NetCDF 3."""
LEFT_OUT = "are left out, because they are not on the grid of the other variables"
ONLY_FORCING = "are used only as forcing, where data.forcing names them"


def has_dimensions(file: h5py.File) -> bool:
    """Whether an HDF5 file names the dimensions of its arrays as NetCDF does."""
    return (
        "_NCProperties" in file.attrs
        or is_prediction(file)
        or any(
            isinstance(item, h5py.Dataset) and item.attrs.get("CLASS") == b"DIMENSION_SCALE" for item in file.values()
        )
    )


def is_prediction(file: h5py.File) -> bool:
    """Whether an HDF5 file is a NetCDF file that hero wrote, whatever layout the names of its variables suggest."""
    return file.attrs.get("source") == PREDICTED


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def open_dataset(path: Path) -> Any:
    """The xarray.Dataset of a NetCDF file or a Zarr store, of which coordinates are read; the last four stay open."""
    return _dataset(path, path.stat().st_mtime_ns, os.getpid())


@lru_cache(maxsize=4)
def _dataset(path: Path, changed: int, process: int) -> Any:
    engine = _engine(path)
    for module in ("xarray", engine):
        needs(path, module, "xarray")
    import xarray

    arguments: dict[str, Any] = {"engine": engine, "chunks": None, "cache": False}
    arguments |= {"consolidated": False} if engine == "zarr" else {}
    source = _store(path) if engine == "zarr" else path
    try:
        opened = xarray.open_dataset(source, **arguments)
    except ValueError:  # a calendar or a unit of time that cannot be decoded: the numbers serve as well
        opened = xarray.open_dataset(source, decode_times=False, **arguments)
    return _ordered(opened) if engine == "zarr" else opened


def _engine(path: Path) -> str:
    if path.is_dir():
        return "zarr"
    with path.open("rb") as file:
        head = file.read(8)
    return "scipy" if head[:4] in CLASSIC else "zarr" if head.startswith(b"PK") else "h5netcdf"


def _ordered(dataset: Any) -> Any:
    """The variables by their place, else by name: a Zarr store lists them as its folder happens to."""
    places = {name: variable.attrs.get(PLACE) for name, variable in dataset.data_vars.items()}
    return dataset[sorted(places, key=lambda name: (places[name] if isinstance(places[name], int) else 0, str(name)))]


def _store(path: Path) -> Any:
    """The path of a folder, or the zip file opened as a store; from version 3.1, zarr refuses the codec pickle."""
    import zarr

    if not path.is_file():
        return path
    members(path)
    return zarr.storage.ZipStore(path, mode="r")


def _opened_zarr(path: Path) -> Any:
    needs(path, "zarr", "xarray")
    import zarr

    return zarr.open(_store(path), mode="r")


def open_zarr(path: Path) -> Any:
    """An xarray.Dataset, or a dict of arrays where dimensions have no names."""
    opened = _opened_zarr(path)
    arrays = {"": opened} if hasattr(opened, "shape") else dict(opened.arrays())
    for name, array in arrays.items():
        check_chunk(path, name, math.prod(array.chunks) * array.dtype.itemsize)
    if arrays and all(map(_has_names, arrays.values())):
        return open_dataset(path)
    return {n or "u": FileArray(_read_zarr, path, n, array.shape, array.dtype) for n, array in arrays.items()}


def _has_names(array: Any) -> bool:
    return "_ARRAY_DIMENSIONS" in array.attrs or getattr(array.metadata, "dimension_names", None) is not None


def _read_zarr(path: Path, name: str, index: Any) -> np.ndarray:
    """A part of an array of a store, "" where the store is the array."""
    with damage_reported(path, (Exception,)):
        opened = _opened_zarr(path)
        return np.asarray((opened[name] if name else opened)[index])


def read_zarr(path: Path, content: Any, layout: str) -> Recording:
    """The trajectories of a store."""
    if isinstance(content, dict):  # a dataset is a mapping, but no dict
        return read_named(path, content, layout, form="zarr")
    return read_xarray(path, content, layout)


def _read_variable(rows: Mapping[str, int], dimensions: Sequence[str], path: Path, name: str, index: Any) -> np.ndarray:
    """A part of a variable; where there are rows, the first place is one trajectory among all of their points."""
    variable = open_dataset(path)[name]
    if rows:
        place, *index = index
        points = map(int, np.unravel_index(place, tuple(rows.values())))
        variable = variable.isel(dict(zip(rows, points, strict=True)), missing_dims="ignore")
    return variable.transpose(*dimensions)[tuple(index)].values


def _array(path: Path, variable: Any, rows: Mapping[str, int] | None = None) -> FileArray:
    """A variable whose dimensions of trajectories, where it has any, are one axis at the beginning."""
    rows = rows if rows and set(rows) & set(variable.dims) else {}
    others = [name for name in variable.dims if name not in rows]
    shape = (*([math.prod(rows.values())] if rows else []), *(variable.sizes[name] for name in others))
    return FileArray(partial(_read_variable, rows, others), path, str(variable.name), shape, variable.dtype)


def variables_of(path: Path, dataset: Any) -> dict[str, FileArray]:
    """The variables of numbers by name, and the coordinates of the largest one as x, y and z."""
    numeric = {str(name): v for name, v in dataset.data_vars.items() if v.dtype.kind in "fiu"}
    main = max(numeric.values(), key=lambda variable: variable.ndim, default=None)
    names = dict(zip("xyz", () if main is None else main.dims, strict=False))
    lines = {letter: dataset[name] for letter, name in names.items() if name in dataset.coords}
    return {name: _array(path, variable) for name, variable in (numeric | lines).items()}


def read_xarray(path: Path, dataset: Any, layout: str) -> Recording:
    """Variables in time are channels, one per level; fields of the same grid and numbers of trajectories condition."""
    letters = letters_of(path, dataset)
    time, *space = [name for letter in "txyz" for name in letters if letters[name] == letter]
    rows = {name: dataset.sizes[name] for name in letters if letters[name] == "b"}
    levels = [name for name in letters if letters[name] in COMPONENTS]
    points = {letters[name]: dataset.sizes[name] for name in space}
    numeric = {str(name): v for name, v in dataset.data_vars.items() if v.dtype.kind in "fiu"}
    needed = {time, *space, *rows}
    states = [name for name, v in numeric.items() if needed <= set(v.dims) <= {*needed, *levels}]
    fields = [name for name, v in numeric.items() if set(v.dims) == set(space)]
    numbers = {n: v.transpose(*rows).values.ravel() for n, v in numeric.items() if v.ndim and set(v.dims) == set(rows)}
    in_time = [name for name, v in numeric.items() if set(v.dims) - set(rows) in ({time}, {time, *space})]
    series = [name for name in in_time if name not in states]
    left = [name for name, v in numeric.items() if v.ndim and name not in (*states, *fields, *numbers, *series)]

    def slab(name: str) -> Slab:
        array, dimensions = _array(path, numeric[name], rows), numeric[name].dims
        others = "".join(letters[dimension] for dimension in dimensions if dimension not in rows)
        axes = "b" * (len(array.shape) > len(others)) + others
        on_grid = points if set(space) <= set(dimensions) else {}
        return Slab(array, axes, on_grid, tuple(level_channels(dataset, name, levels)))

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
