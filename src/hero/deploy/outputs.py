"""Rollouts written block by block, under a temporary name that is renamed at the end, and what they say of themselves.

    with create(path, shape, about, chunk) as output:
        output.append(block)        # (trajectory, some steps, channel, *space)
        output.written = steps      # fewer than announced, after a stop

HDF5, NetCDF and Zarr hold one block in memory at a time; .npz and .npy hold everything and are refused above `LARGEST`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import close_hdf5
from hero.data.files.recording import Axis
from hero.data.files.selection import length_of
from hero.data.formats.xarray import PERIODIC, PLACE, PREDICTED, is_zarr
from hero.errors import HeroError, install_hint, optional
from hero.files import replacing

HDF5 = (".h5", ".hdf5")
NETCDF = ".nc"
ZARR = ".zarr"
ARRAYS = (".npz", ".npy")
OUTPUTS = (*HDF5, NETCDF, ZARR, *ARRAYS)
LARGEST = 2 * 10**9  # bytes of a rollout that is held in memory


Labelled = tuple[tuple[str, ...], np.ndarray, dict[str, Any]]
"""Dimensions, numbers along them and attributes, as xarray takes them."""


@dataclass(frozen=True)
class RolloutHeader:
    """The description of a rollout in its file, so that it can be read as a recording."""

    run: str
    channels: tuple[str, ...]
    axes: tuple[Axis, ...]
    dt: float
    history: int
    conditioning: tuple[str, ...] = ()
    mu: np.ndarray | None = None  # numbers of the conditioning, (trajectory, p)
    units: tuple[str, ...] = ()
    time_unit: str = ""
    positions: np.ndarray | None = None  # coordinates of a point cloud, (points, d)

    @property
    def dims(self) -> list[str]:
        return ["trajectory", "time", *(axis.name for axis in self.axes)]

    def labels(self, trajectories: int, steps: int) -> dict[str, Labelled]:
        """The coordinates of the dimensions, then the numbers and positions that belong to a rollout."""
        time = self.dt * (self.history + np.arange(steps))
        found: dict[str, Labelled] = {
            "trajectory": (("trajectory",), np.arange(trajectories, dtype=np.int32), {}),
            "time": (("time",), time, {"units": self.time_unit} if self.time_unit else {}),
        }
        for axis in self.axes:
            told: dict[str, Any] = {"units": axis.unit} if axis.unit else {}
            told |= {} if axis.periodic is None or axis.name == "point" else {PERIODIC: int(axis.periodic)}
            found[axis.name] = (axis.name,), axis.coordinates, told
        positions = () if self.positions is None else zip("xyz", self.positions.T, strict=False)
        found |= {name: (("point",), values, {}) for name, values in positions}
        numbers = () if self.mu is None else zip(self.conditioning, self.mu.T, strict=True)
        return found | {name: (("trajectory",), values, {}) for name, values in numbers if name not in found}

    def variables(self, taken: Collection[str]) -> dict[str, dict[str, Any]]:
        """The attributes of a variable for each channel, whose name is neither a path nor one of those `taken`."""
        names = [re.sub(r"[^\w.+-]+", "_", name) for name in self.channels]
        units = self.units or ("",) * len(names)
        return {
            f"{name}_" if name in taken else name: {PLACE: place} | ({"units": unit} if unit else {})
            for place, (name, unit) in enumerate(zip(names, units, strict=True))
        }

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes of a NetCDF file or a Zarr store."""
        return {"Conventions": "CF-1.8", "source": PREDICTED, "run": self.run, "history_states": self.history}


def as_dataset(rollout: np.ndarray, about: RolloutHeader) -> Any:
    """An xarray.Dataset of a rollout (trajectory, time, channel, *space), with a variable for each channel."""
    xarray = optional("xarray", f"`as_xarray` needs xarray; {install_hint('xarray')}.")
    labels = about.labels(*rollout.shape[:2])
    variables = zip(about.variables(labels).items(), np.moveaxis(rollout, 2, 0), strict=True)
    data: dict[str, Any] = {name: (about.dims, values, told) for (name, told), values in variables}
    coordinates = {name: labels.pop(name) for name in about.dims}
    return xarray.Dataset(data | labels, coordinates, about.facts)


def check_output(path: Path, shape: tuple[int, ...]) -> None:
    """Refuse a name of another format, and a rollout that is too large for it, before anything is computed."""
    if path.suffix not in OUTPUTS:
        raise HeroError(f"predictions cannot be written as {path}; use a name that ends in {', '.join(OUTPUTS)}.")
    size = 4 * math.prod(shape)
    if path.suffix in ARRAYS and size > LARGEST:
        raise HeroError(
            f"a rollout of {size / 1e9:.1f} GB does not fit {path.name}, which is held in memory up to "
            f"{LARGEST / 1e9:g} GB; write {path.with_suffix('.h5').name} instead."
        )
    if path.suffix == ZARR:
        _zarr(path)
        if path.exists() and not is_zarr(path):
            raise HeroError(f"{path} exists and is not a Zarr store; use another `out`.")


@dataclass
class Output:
    """Arrays that are filled along time: one with all channels, or one for each."""

    arrays: list[Any]
    together: bool
    written: int = 0  # steps that count

    def append(self, block: np.ndarray) -> None:
        """Write the next steps, (trajectory, steps, channel, *space)."""
        steps = slice(self.written, self.written + block.shape[1])
        with disk_errors():
            for channel, array in enumerate(self.arrays):
                array[:, steps] = block if self.together else block[:, :, channel]
        self.written += block.shape[1]

    def cut(self) -> None:
        """Drop the steps that do not count."""
        for array in self.arrays:
            array.resize((array.shape[0], self.written, *array.shape[2:]))


@contextlib.contextmanager
def create(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    """The output of a rollout of that shape; `chunk` steps of a trajectory are stored together.

    It appears under its name when the block ends without an error.
    """
    check_output(path, shape)
    if path.suffix in ARRAYS:
        output = Output([np.empty(shape, np.float32)], together=True)
        yield output
        made = output.arrays[0][:, : output.written]
        with replacing(path) as temporary, temporary.open("wb") as file:
            if path.suffix == ".npy":
                np.save(file, made, allow_pickle=False)
            else:
                np.savez(file, allow_pickle=False, prediction=made)
    elif path.suffix == ZARR:
        yield from _store(path, shape, about, chunk)
    else:
        yield from _hdf5(path, shape, about, chunk)


def _hdf5(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    named = path.suffix == NETCDF
    with replacing(path) as temporary:
        with disk_errors():
            file = h5py.File(temporary, "w", track_order=named)
        try:
            with disk_errors():
                output = _variables_in(file, shape, about, chunk) if named else _dataset_in(file, shape, about, chunk)
            yield output
            with disk_errors():
                output.cut()
                if named:
                    _attach_scales(file, output.arrays, about.dims, about.labels(shape[0], output.written))
        finally:
            with disk_errors():
                file.close()
        close_hdf5()  # an earlier file of this name may be open for reading


def _dataset_in(file: h5py.File, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Output:
    file.attrs.update({"run": about.run, "dt": about.dt, "history": about.history})
    told = {
        "channels": about.channels,
        "axes": [axis.name for axis in about.axes],
        "extent": [length_of(axis.coordinates, bool(axis.periodic)) for axis in about.axes],
        "periodic": [bool(axis.periodic) for axis in about.axes],
        "conditioning": about.conditioning,
    }
    file.attrs.update({name: json.dumps(value) for name, value in told.items()})
    if about.mu is not None:
        file["mu"] = about.mu
    longest, chunks = (shape[0], None, *shape[2:]), (1, chunk, *shape[2:])
    return Output([file.create_dataset("u", shape, np.float32, maxshape=longest, chunks=chunks)], together=True)


def _variables_in(file: h5py.File, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Output:
    """A variable for each channel, as in NetCDF 4."""
    file.attrs.update(about.facts)
    (rows, steps), space, arrays = shape[:2], shape[3:], []
    sizes: dict[str, Any] = {"shape": (rows, steps, *space), "maxshape": (rows, None, *space)}
    for name, told in about.variables(about.labels(rows, steps)).items():
        arrays.append(file.create_dataset(name, dtype=np.float32, chunks=(1, chunk, *space), **sizes))
        arrays[-1].attrs.update(told)
    return Output(arrays, together=False)


def _attach_scales(file: h5py.File, arrays: list[Any], dims: list[str], labels: Mapping[str, Labelled]) -> None:
    """Coordinates as the dimension scales by which NetCDF names dimensions."""
    for name, ((along,), values, told) in labels.items():
        made = file.create_dataset(name, data=values)
        made.attrs.update(told)
        if name in dims:
            made.make_scale(name)
        else:
            made.dims[0].attach_scale(file[along])
    for array in arrays:
        for place, name in enumerate(dims):
            array.dims[place].attach_scale(file[name])


def _store(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    """A Zarr store, written in a folder beside `path`, to which an earlier one moves before it is deleted."""
    sizes = {"shape": (*shape[:2], *shape[3:]), "chunks": (1, chunk, *shape[3:]), "dtype": "float32"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
            group = _zarr(path).open_group(f"{beside}/new", mode="w", attributes=about.facts)
            variables = about.variables(about.labels(*shape[:2]))
            arrays = [
                group.create_array(name, **sizes, dimension_names=about.dims, attributes=told)
                for name, told in variables.items()
            ]
            output = Output(arrays, together=False)
            yield output
            output.cut()
            for name, (along, values, told) in about.labels(shape[0], output.written).items():
                group.create_array(name, data=values, dimension_names=along, attributes=told)
            with warnings.catch_warnings(action="ignore"):  # that the format does not have it yet; xarray looks for it
                _zarr(path).consolidate_metadata(group.store)
            if path.exists():
                os.replace(path, f"{beside}/earlier")
            os.replace(f"{beside}/new", path)
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions."
        ) from error


def _zarr(path: Path) -> Any:
    return optional("zarr", f"{path} needs zarr to be written; {install_hint('xarray')}, or write .h5.")


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """HDF5 reports a disk that fills up as a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(next(iter(str(error).splitlines()), "HDF5")) from error
