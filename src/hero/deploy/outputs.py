"""Rollouts written block by block, under a temporary name that is renamed at the end.

    with create(path, shape, about, chunk) as output:
        output.append(block)        # (trajectory, some steps, channel, *space)
        output.cut(steps)           # fewer than announced, after a stop

HDF5 and Zarr hold one block in memory at a time; .npz and .npy hold everything and are refused above `LARGEST`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from hero.data.files.handles import close_hdf5
from hero.data.formats.xarray import PLACE
from hero.errors import HeroError, install_hint
from hero.files import replacing

HDF5 = (".h5", ".hdf5")
ZARR = ".zarr"
ARRAYS = (".npz", ".npy")
OUTPUTS = (*HDF5, ZARR, *ARRAYS)
LARGEST = 2 * 10**9
"""Bytes of a rollout that is held in memory."""


@dataclass(frozen=True)
class RolloutHeader:
    """The description of a rollout in its file, so that it can be read as a recording."""

    run: str
    channels: tuple[str, ...]
    axes: tuple[str, ...]
    extent: tuple[float, ...]
    periodic: tuple[bool, ...]
    dt: float
    history: int
    conditioning: tuple[str, ...] = ()
    mu: np.ndarray | None = None
    """Numbers of the conditioning, (trajectory, p)."""


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
    with replacing(path) as temporary:
        with disk_errors():
            file = h5py.File(temporary, "w")
        try:
            with disk_errors():
                file.attrs.update({"run": about.run, "dt": about.dt, "history": about.history})
                for name in ("channels", "axes", "extent", "periodic", "conditioning"):
                    file.attrs[name] = json.dumps(getattr(about, name))
                if about.mu is not None:
                    file["mu"] = about.mu
                longest, chunks = (shape[0], None, *shape[2:]), (1, chunk, *shape[2:])
                u = file.create_dataset("u", shape, np.float32, maxshape=longest, chunks=chunks)
            output = InStores([u], together=True)
            yield output
            output.cut(output.written)
        finally:
            with disk_errors():
                file.close()
        close_hdf5()  # an earlier file of this name may be open for reading


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
        group.attrs.update({"run": about.run, "dt": about.dt, "channels": list(about.channels)})
        for axis, extent, periodic, points in zip(about.axes, about.extent, about.periodic, shape[3:], strict=True):
            _coordinate(group, axis, np.linspace(0, extent, points, endpoint=not periodic))
        arrays = [
            group.create_array(
                variable,
                shape=(*shape[:2], *shape[3:]),
                chunks=(1, chunk, *shape[3:]),
                dtype="float32",
                dimension_names=["trajectory", "time", *about.axes],
                attributes={PLACE: place},
            )
            for place, variable in enumerate(_variables(about))
        ]
        output = InStores(arrays, together=False)
        yield output
        output.cut(output.written)
        _coordinate(group, "time", about.dt * (about.history + np.arange(output.written)))
        _replace_folder(temporary, path)
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _coordinate(group: Any, name: str, values: np.ndarray) -> None:
    group.create_array(name, data=np.asarray(values, dtype=np.float64), dimension_names=[name])


def _variables(about: RolloutHeader) -> list[str]:
    """A variable for each channel; a name may neither be a path nor the name of an axis."""
    names = [re.sub(r"[^\w.+-]+", "_", name) for name in about.channels]
    return [f"{name}_" if name in ("time", "trajectory", *about.axes) else name for name in names]


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
