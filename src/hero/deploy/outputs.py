"""Rollouts written block by block, under a temporary name that is renamed at the end.

    with create(path, shape, about, chunk) as output:
        output.append(block)        # (trajectory, some steps, channel, *space)
        output.cut(steps)           # fewer than announced, after a stop

HDF5, NetCDF and Zarr hold one block in memory at a time; .npz and .npy hold everything and are refused above `LARGEST`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from hero.data.files.handles import close_hdf5
from hero.deploy.header import Labelled, RolloutHeader
from hero.errors import HeroError, install_hint
from hero.files import replacing

HDF5 = (".h5", ".hdf5")
NETCDF = ".nc"
ZARR = ".zarr"
ARRAYS = (".npz", ".npy")
OUTPUTS = (*HDF5, NETCDF, ZARR, *ARRAYS)
LARGEST = 2 * 10**9
"""Bytes of a rollout that is held in memory."""


class Output(Protocol):
    """A file that is being written."""

    written: int
    """Steps so far."""

    def append(self, block: np.ndarray) -> None:
        """Write the next steps, (trajectory, steps, channel, *space)."""

    def cut(self, steps: int) -> None:
        """Keep the first `steps` steps."""


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
        if path.exists() and not any((path / name).is_file() for name in ("zarr.json", ".zgroup")):
            raise HeroError(f"{path} exists and is not a Zarr store; use another `out`.")


@contextlib.contextmanager
def create(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    """The output of a rollout of that shape; `chunk` steps of a trajectory are stored together.

    It appears under its name when the block ends without an error.
    """
    check_output(path, shape)
    if path.suffix in ARRAYS:
        yield from _arrays(path, shape)
    elif path.suffix == ZARR:
        yield from _store(path, shape, about, chunk)
    else:
        yield from _hdf5(path, shape, about, chunk)


class InMemory:
    """Everything, until it is written at once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.values, self.written = np.empty(shape, np.float32), 0

    def append(self, block: np.ndarray) -> None:
        self.values[:, self.written : self.written + block.shape[1]] = block
        self.written += block.shape[1]

    def cut(self, steps: int) -> None:
        self.written = steps


def _arrays(path: Path, shape: tuple[int, ...]) -> Iterator[Output]:
    output = InMemory(shape)
    yield output
    values = output.values[:, : output.written]
    with replacing(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, values, allow_pickle=False)
        else:
            np.savez(file, allow_pickle=False, prediction=values)


class InStores:
    """Arrays in a file that grow in time: one with all channels, or one for each."""

    def __init__(self, arrays: list[Any], together: bool) -> None:
        self.arrays, self.together, self.written = arrays, together, 0

    def append(self, block: np.ndarray) -> None:
        steps = slice(self.written, self.written + block.shape[1])
        with disk_errors():
            for channel, array in enumerate(self.arrays):
                array[:, steps] = block if self.together else block[:, :, channel]
        self.written += block.shape[1]

    def cut(self, steps: int) -> None:
        for array in self.arrays:
            if array.shape[1] != steps:
                array.resize((array.shape[0], steps, *array.shape[2:]))
        self.written = steps


def _hdf5(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    named = path.suffix == NETCDF
    with replacing(path) as temporary:
        with disk_errors():
            file = h5py.File(temporary, "w", track_order=named)
        try:
            with disk_errors():
                output = _variables_in(file, shape, about, chunk) if named else _dataset_in(file, shape, about, chunk)
            yield output
            output.cut(output.written)
            if named:
                with disk_errors():
                    _attach_scales(file, output, about.labels((*shape[:1], output.written, *shape[2:])))
        finally:
            with disk_errors():
                file.close()
        close_hdf5()  # an earlier file of this name may be open for reading


def _dataset_in(file: h5py.File, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> InStores:
    """All channels in one dataset."""
    file.attrs.update({"run": about.run, "dt": about.dt, "history": about.history})
    for name in ("channels", "axes", "extent", "periodic", "conditioning"):
        file.attrs[name] = json.dumps(getattr(about, name))
    if about.mu is not None:
        file["mu"] = about.mu
    longest, chunks = (shape[0], None, *shape[2:]), (1, chunk, *shape[2:])
    return InStores([file.create_dataset("u", shape, np.float32, maxshape=longest, chunks=chunks)], together=True)


def _variables_in(file: h5py.File, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> InStores:
    """A variable for each channel, as in NetCDF 4."""
    file.attrs.update(about.facts)
    (rows, steps), space, arrays = shape[:2], shape[3:], []
    sizes: dict[str, Any] = {"shape": (rows, steps, *space), "maxshape": (rows, None, *space)}
    for name, told in about.variables(about.labels(shape)).items():
        arrays.append(file.create_dataset(name, dtype=np.float32, chunks=(1, chunk, *space), **sizes))
        arrays[-1].attrs.update(told)
    return InStores(arrays, together=False)


def _attach_scales(file: h5py.File, output: InStores, labels: Mapping[str, Labelled]) -> None:
    """Coordinates as the dimension scales by which NetCDF names dimensions."""
    dims = [name for name, label in labels.items() if label.dims == (name,)]
    for name, label in labels.items():
        made = file.create_dataset(name, data=label.values)
        made.attrs.update(label.attributes)
        if name in dims:
            made.make_scale(name)
        else:
            made.dims[0].attach_scale(file[label.dims[0]])
    for array in output.arrays:
        for place, name in enumerate(dims):
            array.dims[place].attach_scale(file[name])


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """HDF5 reports a disk that fills up as a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(next(iter(str(error).splitlines()), "HDF5")) from error


def _store(path: Path, shape: tuple[int, ...], about: RolloutHeader, chunk: int) -> Iterator[Output]:
    zarr = _zarr(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        group = zarr.open_group(temporary, mode="w")
        group.attrs.update({**about.facts, "dt": about.dt, "channels": list(about.channels)})
        dims = [name for name, label in about.labels(shape).items() if label.dims == (name,)]
        arrays = [
            group.create_array(
                variable,
                shape=(*shape[:2], *shape[3:]),
                chunks=(1, chunk, *shape[3:]),
                dtype="float32",
                dimension_names=dims,
                attributes=told,
            )
            for variable, told in about.variables(about.labels(shape)).items()
        ]
        output = InStores(arrays, together=False)
        yield output
        output.cut(output.written)
        for name, label in about.labels((*shape[:1], output.written, *shape[2:])).items():
            group.create_array(name, data=label.values, dimension_names=list(label.dims), attributes=label.attributes)
        _replace_folder(temporary, path)
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(temporary: Path, path: Path) -> None:
    earlier = temporary.with_suffix(".old")
    if path.exists():
        os.replace(path, earlier)
    os.replace(temporary, path)
    shutil.rmtree(earlier, ignore_errors=True)


def _zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise HeroError(f"{path} needs zarr to be written; {install_hint('xarray')}, or write .h5.") from error
    return zarr
