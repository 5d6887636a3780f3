"""Rollouts in the forms that the scoring of APEBench and The Well reads.

Both begin with the given states, so that state t of the file is state t of the truth. APEBench takes arrays
(trajectory, time, channel, *space); The Well takes HDF5 with a dataset for each scalar, vector and tensor field.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.handles import close_hdf5
from hero.errors import HeroError, unknown_name
from hero.evaluation.outputs import ARRAYS, HDF5, About, InMemory, Output, check_output, disk_errors
from hero.files import replacing

HERO, APEBENCH, THE_WELL = "hero", "apebench", "the-well"
SUFFIXES = {APEBENCH: ARRAYS, THE_WELL: HDF5}
FORMATS = (HERO, *SUFFIXES)

Truth = Callable[[int], np.ndarray | None]
"""The first N states of the true trajectories; None where they are fewer."""


def check_format(format: str, path: Path) -> None:
    """Refuse an unknown format, and a name that does not fit it."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    suffixes = SUFFIXES.get(format)
    if suffixes and path.suffix not in suffixes:
        raise HeroError(f"{path} does not fit the format {format}; use a name that ends in {' or '.join(suffixes)}.")


class Continued:
    """The part of an output that follows the given states."""

    def __init__(self, output: Output, given: int) -> None:
        self.output, self.given, self.written = output, given, 0

    def append(self, block: np.ndarray) -> None:
        """Write the next steps."""
        self.output.append(block)
        self.written += block.shape[1]

    def cut(self, steps: int) -> None:
        """Keep the given states and the first `steps` steps."""
        self.output.cut(self.given + steps)
        self.written = steps


@contextlib.contextmanager
def create_for_benchmark(
    format: str, path: Path, shape: tuple[int, ...], about: About, given: np.ndarray, truth: Truth
) -> Iterator[Output]:
    """The output of a rollout of that shape, which follows the states `given` (trajectory, H, channel, *space)."""
    longer = (shape[0], given.shape[1] + shape[1], *shape[2:])
    check_output(path, longer)
    opened = _apebench(path, longer, truth) if format == APEBENCH else _the_well(path, longer, about)
    with opened as output:
        output.append(given)
        yield Continued(output, given.shape[1])


@contextlib.contextmanager
def _apebench(path: Path, shape: tuple[int, ...], truth: Truth) -> Iterator[Output]:
    """`prediction`, and `reference` where the truth is known; an .npy file holds the prediction alone."""
    output = InMemory(shape)
    yield output
    prediction, reference = output.values[:, : output.written], truth(output.written)
    with replacing(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, prediction, allow_pickle=False)
        else:
            known = {} if reference is None else {"reference": reference}
            np.savez(file, allow_pickle=False, prediction=prediction, **known)


class Fields:
    """The datasets of a file of The Well, each with the channels that are its components."""

    def __init__(self, datasets: Sequence[tuple[h5py.Dataset, slice]]) -> None:
        self.datasets, self.written = datasets, 0

    def append(self, block: np.ndarray) -> None:
        """Write the next states, (trajectory, steps, channel, *space)."""
        steps = slice(self.written, self.written + block.shape[1])
        last = np.moveaxis(block, 2, -1)
        with disk_errors():
            for dataset, channels in self.datasets:
                dataset[:, steps] = last[..., channels].reshape(*last.shape[:-1], *dataset.shape[last.ndim - 1 :])
        self.written += block.shape[1]

    def cut(self, steps: int) -> None:
        """Keep the first `steps` states."""
        for dataset, _ in self.datasets:
            dataset.resize(steps, axis=1)
        self.written = steps


@contextlib.contextmanager
def _the_well(path: Path, shape: tuple[int, ...], about: About) -> Iterator[Output]:
    if about.axes == ("point",):
        raise HeroError("The Well has no layout for scattered points; leave out --format.")
    with replacing(path) as temporary:
        with disk_errors():
            file = h5py.File(temporary, "w")
        try:
            with disk_errors():
                _describe(file, shape, about)
                output = Fields([*_fields(file, shape, about)])
            yield output
            output.cut(output.written)
            with disk_errors():
                times = about.dt * np.arange(output.written)
                _number(file["dimensions"], "time", times, time_varying=True)
        finally:
            with disk_errors():
                file.close()
        close_hdf5()  # an earlier file of this name may be open for reading


def _describe(file: h5py.File, shape: tuple[int, ...], about: About) -> None:
    """Grid, boundaries and the numbers of the conditioning."""
    count, _, _, *space = shape
    file.attrs.update(dataset_name=about.run, grid_type="cartesian", n_spatial_dims=len(space), n_trajectories=count)
    file.attrs["simulation_parameters"] = []
    dimensions, conditions = file.create_group("dimensions"), file.create_group("boundary_conditions")
    dimensions.attrs["spatial_dims"] = list(about.axes)
    for name, points, extent, periodic in zip(about.axes, space, about.extent, about.periodic, strict=True):
        _number(dimensions, name, np.linspace(0, extent, points, endpoint=not periodic))
        kind = "PERIODIC" if periodic else "OPEN"
        condition = conditions.create_group(f"{name}_{kind.lower()}")
        condition["mask"] = np.isin(np.arange(points), (0, points - 1))
        condition.attrs.update(bc_type=kind, associated_dims=[name], associated_fields=[])
        condition.attrs.update(sample_varying=False, time_varying=False)
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = [] if about.mu is None else list(about.conditioning)
    for name, values in zip(about.conditioning, () if about.mu is None else about.mu.T, strict=False):
        _number(scalars, name, values, sample_varying=True)


def _number(group: h5py.Group, name: str, values: np.ndarray, **varying: bool) -> None:
    group[name] = values.astype(np.float32)
    group[name].attrs.update({"sample_varying": False, "time_varying": False, **varying})


def _fields(file: h5py.File, shape: tuple[int, ...], about: About) -> Iterator[tuple[h5py.Dataset, slice]]:
    """A dataset for each field that the names of the channels tell of, with its channels."""
    count, frames, _, *space = shape
    groups = [file.create_group(f"t{order}_fields") for order in range(3)]
    listed: list[list[str]] = [[], [], []]
    for name, order, channels in fields_of(about.channels, about.axes):
        components = (len(space),) * order
        dataset = groups[order].create_dataset(
            name,
            (count, frames, *space, *components),
            np.float32,
            maxshape=(count, None, *space, *components),
            chunks=(1, 1, *space, *components),
        )
        dataset.attrs.update(sample_varying=True, time_varying=True, dim_varying=[True] * len(space))
        listed[order].append(name)
        yield dataset, channels
    for group, names in zip(groups, listed, strict=True):
        group.attrs["field_names"] = names


def fields_of(channels: Sequence[str], axes: Sequence[str]) -> list[tuple[str, int, slice]]:
    """Name, tensor order and channels of each field: on the axes x, y the channels u_x, u_y are the vector u."""
    found: list[tuple[str, int, slice]] = []
    place = 0
    while place < len(channels):
        for order in (2, 1, 0):
            ends = ["_" + "".join(letters) for letters in product(axes, repeat=order)] if order else [""]
            base = channels[place].removesuffix(ends[0])
            if list(channels[place : place + len(ends)]) == [base + end for end in ends] and base:
                found.append((base.replace("/", "_"), order, slice(place, place + len(ends))))
                place += len(ends)
                break
    return found


def stored_truth(frames: Callable[[slice], Any], known: int) -> Truth:
    """The truth of a rollout, where `frames` has it for all of `known` states."""
    return lambda count: frames(slice(count)).cpu().numpy() if count <= known else None
