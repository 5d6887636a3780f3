"""NetCDF, and Zarr with named dimensions, through xarray: axes from CF attributes, packed integers decoded."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.formats.arrays import time_step
from hero.data.formats.cf import axis_of, kind_of_dimension, seconds_unit
from hero.data.formats.claims import members
from hero.data.recording import Channel, Recording, Trajectory
from hero.errors import HeroError, install_hint

PLACE = "channel"
"""The attribute of a variable that hero writes to a Zarr store: its place among the channels."""
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
"""First bytes of NetCDF 3."""


def is_netcdf(path: Path, head: bytes) -> bool:
    """Whether a file is NetCDF: the classic format, or HDF5 that a NetCDF library wrote or that has its scales."""
    if head[:4] in CLASSIC or not head.startswith(b"\x89HDF"):
        return head[:4] in CLASSIC
    with contextlib.suppress(OSError, RuntimeError, KeyError), h5py.File(path, "r") as file:
        return has_dimensions(file)
    return False


def has_dimensions(file: h5py.File) -> bool:
    """Whether an HDF5 file names the dimensions of its arrays as NetCDF does."""
    return "_NCProperties" in file.attrs or any(
        isinstance(item, h5py.Dataset) and item.attrs.get("CLASS") == b"DIMENSION_SCALE" for item in file.values()
    )


@contextlib.contextmanager
def opened_netcdf(path: Path) -> Iterator[Any]:
    """The xarray.Dataset of a NetCDF file; nothing is read but coordinates."""
    yield kept_dataset(path)


def kept_dataset(path: Path) -> Any:
    """The dataset of a file or a Zarr store; the last four stay open, per process."""
    return _dataset(path, path.stat().st_mtime_ns, os.getpid())


@functools.lru_cache(maxsize=4)
def _dataset(path: Path, changed: int, process: int) -> Any:
    try:
        import xarray
    except ImportError as error:
        raise HeroError(f"{path} needs xarray to be read; {install_hint('xarray')}.") from error
    arguments: dict[str, Any] = {"engine": _engine(path), "chunks": None, "cache": False}
    source: Any = path
    try:
        if arguments["engine"] == "zarr":
            source, arguments["consolidated"] = store_of(path), False
        try:
            opened = xarray.open_dataset(source, **arguments)
        except ValueError:  # a calendar or a unit of time that cannot be decoded: the numbers serve as well
            opened = xarray.open_dataset(source, decode_times=False, **arguments)
        return _ordered(opened) if arguments["engine"] == "zarr" else opened
    except HeroError:
        raise
    except Exception as error:  # each engine raises its own
        missing = isinstance(error, ImportError) or "unrecognized engine" in str(error)
        remedy = install_hint("xarray") if missing else "save it again, with named dimensions"
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HeroError(f"xarray cannot open {path} ({cause}); {remedy}.") from error


def _ordered(dataset: Any) -> Any:
    """The variables by their place, else by name: a Zarr store lists them as its folder happens to."""

    def place(name: Any) -> tuple[int, str]:
        found = dataset[name].attrs.get(PLACE)
        return (found if isinstance(found, int) else 0), str(name)

    return dataset[sorted(dataset.data_vars, key=place)]


def _engine(path: Path) -> str:
    if path.is_dir():
        return "zarr"
    with path.open("rb") as file:
        head = file.read(8)
    return "scipy" if head[:4] in CLASSIC else "zarr" if head.startswith(b"PK") else "h5netcdf"


def store_of(path: Path) -> Any:
    """The path of a folder, or the zip file opened as a store; from version 3.1, zarr refuses the codec pickle."""
    try:
        import zarr
    except ImportError as error:
        raise HeroError(f"{path} is a Zarr store; {install_hint('xarray')} to read it.") from error
    if not path.is_file():
        return path
    members(path)
    return zarr.storage.ZipStore(path, mode="r")


def describe_dataset(dataset: Any) -> str:
    """The variables with their dimensions."""
    listed = [f"{name} ({', '.join(f'{d} {n}' for d, n in v.sizes.items())})" for name, v in dataset.data_vars.items()]
    return ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "") or "no variables"


@dataclass(frozen=True)
class _Plan:
    """Where the states are in a dataset: its dimensions by meaning."""

    time: str
    space: tuple[str, ...]
    rows: tuple[str, ...]
    """Dimensions whose points are trajectories."""
    levels: tuple[str, ...]
    """Dimensions whose points are channels."""


def read_xarray(path: Path, dataset: Any, layout: str) -> Recording:
    """Variables in time are channels, one per level; others on the same grid are conditioning fields."""
    plan = _plan(path, dataset)
    channels, sources = _channels(dataset, plan)
    fields = [
        str(name)
        for name, variable in dataset.data_vars.items()
        if set(variable.dims) == set(plan.space) and variable.dtype.kind in "fiu"
    ]
    rows = list(np.ndindex(*(dataset.sizes[name] for name in plan.rows)))
    frames = dataset.sizes[plan.time]
    dt, unit, notes = _time(dataset, plan.time)
    used = {name for name, _ in sources} | set(fields)
    left = [str(name) for name, v in dataset.data_vars.items() if name not in used and v.dtype.kind in "fiu" and v.ndim]
    if left:
        notes = (
            *notes,
            f"{', '.join(left[:8])} are left out, because they are not on the grid of the other variables.",
        )
    return Recording(
        format="xarray",
        files=(path,),
        channels=channels,
        axes=tuple(axis_of(dataset, name) for name in plan.space),
        dt=dt,
        time_unit=unit,
        trajectories=[
            Trajectory(
                frames,
                functools.partial(_read, path, plan, sources, dict(zip(plan.rows, row, strict=True))),
                fields=functools.partial(_fields, path, plan.space, fields) if fields else None,
            )
            for row in rows
        ],
        field_names=tuple(fields),
        notes=notes,
    )


def _plan(path: Path, dataset: Any) -> _Plan:
    kinds = {str(name): kind_of_dimension(dataset, str(name)) for name in dataset.dims}
    moving = [
        variable
        for variable in dataset.data_vars.values()
        if variable.dtype.kind in "fiu" and any(kinds[name] == "time" for name in variable.dims) and variable.ndim > 1
    ]
    if not moving:
        raise HeroError(
            f"{path} holds {describe_dataset(dataset)}, and none of them varies in time and space; name the "
            "dimension of time `time`."
        )
    main = max(moving, key=lambda variable: (variable.ndim, variable.size))
    of = {kind: [str(name) for name in main.dims if kinds[name] == kind] for kind in set(kinds.values())}
    horizontal, vertical = of.get("horizontal", []), of.get("vertical", [])
    # Over latitude and longitude, levels are few and far apart: channels. In a box, z is the third axis.
    space = horizontal + of.get("space", [])
    levels = vertical if horizontal else []
    space = [str(name) for name in main.dims if name in space or (name in vertical and not horizontal)]
    if not 1 <= len(space) <= 3 or len(of["time"]) != 1:
        raise HeroError(
            f"{path}: {main.name} has the dimensions {', '.join(map(str, main.dims))}, of which "
            f"{', '.join(space) or 'none'} are space; hero reads 1 to 3 axes of space "
            "and one of time: select a part with xarray and save it."
        )
    return _Plan(of["time"][0], tuple(space), tuple(of.get("row", [])), (*levels, *of.get("channel", [])))


def _channels(dataset: Any, plan: _Plan) -> tuple[tuple[Channel, ...], list[tuple[str, dict[str, int]]]]:
    """The channels, and the variable and the level that each is read from."""
    channels: list[Channel] = []
    sources: list[tuple[str, dict[str, int]]] = []
    needed = {plan.time, *plan.space, *plan.rows}
    for name, variable in dataset.data_vars.items():
        dims = set(map(str, variable.dims))
        if variable.dtype.kind not in "fiu" or not needed <= dims or dims - needed - set(plan.levels):
            continue
        levels = [level for level in plan.levels if level in dims]
        for place in np.ndindex(*(dataset.sizes[level] for level in levels)):
            at = dict(zip(levels, place, strict=True))
            suffix = "".join(f"_{_label(dataset, level, i)}" for level, i in at.items())
            channels.append(Channel(f"{name}{suffix}", str(variable.attrs.get("units", ""))))
            sources.append((str(name), at))
    return tuple(channels), sources


def _label(dataset: Any, dimension: str, place: int) -> str:
    if dimension not in dataset.coords:
        return str(place)
    value = dataset[dimension].values[place]
    return f"{value:g}" if np.issubdtype(type(value), np.number) else str(value)


def _time(dataset: Any, name: str) -> tuple[float, str, tuple[str, ...]]:
    """(dt, its unit, notes)."""
    if name not in dataset.coords:
        return 1.0, "", ()
    times = dataset[name].values
    unit = str(dataset[name].attrs.get("units", "")).split(" since ")[0]
    if times.dtype.kind in "mM":
        seconds = (times - times[:1]) / np.timedelta64(1, "ns") * 1e-9
        dt, notes = time_step(seconds)
        per, unit = seconds_unit(dt)
        return dt / per, unit if times.size > 1 else "", notes
    if times.dtype.kind not in "fiu":
        return 1.0, "", ()
    dt, notes = time_step(times.astype(np.float64))
    return dt, unit, notes


def _read(
    path: Path,
    plan: _Plan,
    sources: Sequence[tuple[str, Mapping[str, int]]],
    row: Mapping[str, int],
    frames: slice,
    channels: Sequence[int],
) -> np.ndarray:
    dataset = kept_dataset(path)
    parts = [
        dataset[name].isel({**row, **level, plan.time: frames}).transpose(plan.time, *plan.space).values
        for name, level in (sources[channel] for channel in channels)
    ]
    return np.stack(parts, axis=1)


def _fields(path: Path, space: tuple[str, ...], names: Sequence[str]) -> np.ndarray:
    dataset = kept_dataset(path)
    return np.stack([dataset[name].transpose(*space).values for name in names])
