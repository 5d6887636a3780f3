"""HDF5 layouts that need code of their own: The Well, Dedalus 3 and PBDL.

The Well has fields of tensor order 0, 1 and 2, which say along what they vary. Dedalus has `tasks/<field>` with
labelled axes and scales attached; sets of one run follow each other in time. PBDL has simulations `sims/sim0`,
`sims/sim1`, .., each a dataset or a group with a dataset per time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.recording import Axis, Channel, Recording
from hero.data.formats.arrays import stacked
from hero.data.formats.hdf5 import layouts as hdf5
from hero.data.formats.slabs import COMPONENTS, Slab, axes_of, channels_of, layout_of, length_of, recording_of, space_of
from hero.errors import HeroError

TIMES = "scales/sim_time"  # times of Dedalus


def is_well(file: h5py.File) -> bool:
    """Dimensions and fields of order 0."""
    return isinstance(file.get("dimensions"), h5py.Group) and isinstance(file.get("t0_fields"), h5py.Group)


def read_well(path: Path, file: h5py.File, layout: str) -> Recording:
    dimensions = file["dimensions"]
    names = hdf5.words(dimensions.attrs.get("spatial_dims", [name for name in "xyz" if name in dimensions]))
    grids = [hdf5.dataset_of(dimensions, name) for name in names]
    times = hdf5.dataset_of(dimensions, "time")
    first = _listed(file["t0_fields"])
    counted = hdf5.dataset_of(file["t0_fields"], first[0]).shape[0] if first else 1
    frames, count = times.shape[-1], int(file.attrs.get("n_trajectories", counted))
    space = {letter: grid.shape[-1] for letter, grid in zip("xyz", grids, strict=False)}
    slabs = []
    for order in range(3):
        for field in _listed(file.get(f"t{order}_fields")):
            array = hdf5.array_of(path, file[f"t{order}_fields"], field)
            letters = _axes(path, file[array.name], order, count, frames, space)
            labels = ["_".join(filter(None, [field, "".join(d)])) for d in product(names, repeat=order)]
            slabs.append(Slab(array, letters, space, tuple(map(Channel, labels))))
    if not any("t" in slab.axes for slab in slabs):
        raise HeroError(f"{path} is steady, no field varies in time; choose a file of trajectories.")
    table, notes = _scalars(file, count, frames)
    axes = []
    for (name, kinds), grid in zip(_boundaries(file, names).items(), grids, strict=True):
        axes.append(Axis(name, hdf5.first_row(grid), kinds == {"periodic"} if kinds else None))
        if kinds - {"periodic"}:
            notes.append(f"The axis {name} is not periodic: {' and '.join(sorted(kinds))}.")
    return recording_of(
        *("well", (path,), slabs, tuple(axes)), count=count, clock=times[...], scalars=table, notes=tuple(notes)
    )


def _listed(group: Any) -> list[str]:
    """The datasets of a group, in the order that it gives."""
    if not isinstance(group, h5py.Group):
        return []
    return [name for name in hdf5.words(group.attrs.get("field_names", list(group))) if name in group]


def _axes(path: Path, field: h5py.Dataset, order: int, count: int, frames: int, space: Mapping[str, int]) -> str:
    """The letters of a field's axes, from its attributes, else from its shape."""
    varying = np.atleast_1d(field.attrs.get("dim_varying", np.ones(len(space), bool)))
    along = [(letter, n) for (letter, n), varies in zip(space.items(), varying, strict=False) if varies]
    kept = [(letter, n if varies else 1) for (letter, n), varies in zip(space.items(), varying, strict=False)]
    components = [(letter, len(space)) for letter in "cd"[:order]]
    leads: tuple[list[tuple[str, int]], ...] = ([("b", count), ("t", frames)], [("t", frames)], [("b", count)], [])
    # An axis along which a field does not vary is missing, or has one entry: files of both kinds exist.
    for lead, inner in product(leads, (along, kept)):
        letters, shape = zip(*lead, *inner, *components, strict=True) if lead or inner or components else ((), ())
        varies = "b" in letters, "t" in letters
        told = field.attrs.get("sample_varying", varies[0]), field.attrs.get("time_varying", varies[1])
        if field.shape == shape and told == varies:
            return "".join(letters)
    raise HeroError(
        f"{path}: {field.name} has the shape {field.shape}, which is not {count} trajectories of {frames} times on "
        f"{'x'.join(map(str, space.values()))} points as its attributes say; check the file."
    )


def _scalars(file: h5py.File, count: int, frames: int) -> tuple[dict[str, list[float]], list[str]]:
    """Numbers per trajectory, and notes; the numbers may be 0-d, (trajectory), (time) or (trajectory, time)."""
    table: dict[str, list[float]] = {}
    left_out = []
    for name in _listed(file.get("scalars")):
        values = hdf5.dataset_of(file["scalars"], name)
        in_time = values.shape in {(frames,), (count, frames)} and values.shape != (count,)
        if values.attrs.get("time_varying", in_time):
            left_out.append(name)
        else:
            table[name] = np.broadcast_to(np.asarray(values[()], np.float64).reshape(-1), (count,)).tolist()
    parameters = hdf5.words(file.attrs.get("simulation_parameters", []))
    known = {name: file.attrs[name] for name in parameters if name in file.attrs and name not in (*table, *left_out)}
    table |= {name: [value] * count for name, value in hdf5.numbers(known).items()}
    return table, [f"The numbers {', '.join(left_out)} vary in time and are left out."] if left_out else []


def _boundaries(file: h5py.File, names: Sequence[str]) -> dict[str, set[str]]:
    """The kinds of boundary at the ends of each axis, as far as the file says."""
    kinds: dict[str, set[str]] = {name: set() for name in names}
    conditions = file.get("boundary_conditions")
    found = conditions.values() if isinstance(conditions, h5py.Group) else ()
    for condition in (item for item in found if isinstance(item, h5py.Group)):
        kind = hdf5.words(condition.attrs.get("bc_type", "open"))[0].lower()
        along = [name for name in hdf5.words(condition.attrs.get("associated_dims", [])) if name in kinds]
        known = hdf5.is_dataset(condition, "mask") and condition["mask"].dtype.kind in "biu"
        mask = condition["mask"][...] if known else np.ones((2,) * len(along), bool)
        for axis, name in enumerate(along):
            edges = [mask.take(end, axis=axis) if mask.ndim == len(along) else mask for end in (0, -1)]
            # A wall covers the whole edge; a part that is open or periodic decides otherwise.
            kinds[name] |= {kind} if any(edge.all() if kind == "wall" else edge.any() for edge in edges) else set()
    return kinds


def is_dedalus(file: h5py.File) -> bool:
    """Tasks and the scale of time."""
    return isinstance(file.get("tasks"), h5py.Group) and hdf5.is_dataset(file, TIMES, (1,))


def read_dedalus(path: Path, file: h5py.File, layout: str) -> Recording:
    """The fields on the largest grid; others, such as averages, are left out with a note."""
    tasks = {name: hdf5.dataset_of(file["tasks"], name) for name in file["tasks"]}
    full = max(map(_space, tasks.values()), key=lambda space: (len(space), math.prod(space.values())))
    fields = {name: task for name, task in tasks.items() if _space(task) == full}
    scales = {dim.label: dim for dim in next(iter(fields.values())).dims}  # the coordinates attached to each axis
    lines = {name: scales[name][0][...] if len(scales[name]) else np.arange(points) for name, points in full.items()}
    grid = tuple(Axis(name, np.asarray(line, np.float64)) for name, line in lines.items())
    slabs = []
    for name, task in fields.items():
        if not np.all(task.attrs.get("grid_space", True)):
            raise HeroError(f"{path}: the task {name} holds coefficients; save it with layout='g'.")
        named, unnamed, space = iter("xyz"), iter(COMPONENTS), dict(zip("xyz", full.values(), strict=False))
        axes = "".join("t" if dim.label == "t" else next(named if dim.label else unnamed) for dim in task.dims)
        components = [n for n, letter in zip(task.shape, axes, strict=True) if letter in COMPONENTS]
        parts = product(*(full if n == len(full) else map(str, range(n)) for n in components))
        channels = tuple(Channel("_".join(filter(None, [name, "".join(part)]))) for part in parts)
        slabs.append(Slab(hdf5.array_of(path, file["tasks"], name), axes, space, channels))
    left_out = [name for name in tasks if name not in fields]
    notes = (f"The tasks {', '.join(left_out)} are on another grid and left out.",) if left_out else ()
    return recording_of(
        "dedalus", (path,), slabs, grid, clock=hdf5.first_row(hdf5.dataset_of(file, TIMES)), notes=notes
    )


def _space(task: h5py.Dataset) -> dict[str, int]:
    """Points of the axes of space by name: the first axis is time, axes without a label are components."""
    return {dim.label: n for dim, n in zip(task.dims, task.shape, strict=True) if dim.label not in {"", "t"}}


def is_pbdl(file: h5py.File) -> bool:
    """A group `sims` with sim0 in it."""
    return isinstance(file.get("sims"), h5py.Group) and bool(_simulations(file))


def _simulations(file: h5py.File) -> list[str]:
    names = [name for name in file["sims"] if name[:3] == "sim" and name[3:].isdecimal()]
    return sorted(names, key=lambda name: int(name[3:]))


def read_pbdl(path: Path, file: h5py.File, layout: str) -> Recording:
    """A trajectory per simulation; its attributes are constants of the equation."""
    sims = file["sims"]
    fields = hdf5.words(sims.attrs.get("Fields", []))
    parts = {name: _parts(sims, name) for name in _simulations(file)}
    first = next(iter(parts.values()))[0]
    by_frame = "/" in first
    axes = _axes_of_simulations(path, file, hdf5.dataset_of(sims, first), "" if by_frame else "t", len(fields), layout)
    one = hdf5.array_of(path, sims, first)
    named, count = tuple(Channel(label.replace(" ", "_")) for label in fields), length_of("c", axes, one.shape)
    channels = named if len(named) == count else channels_of("u", count)
    space, dt, runs = space_of(axes, one.shape), hdf5.numbers(sims.attrs).get("Dt", 1.0), list[Recording]()
    for name, names in parts.items():
        arrays = hdf5.arrays_of(path, sims, names, axes, free="")
        hdf5.check_lengths(one, axes, arrays[0], axes, free="t")
        array = stacked(lambda one: one, arrays, arrays[0]) if by_frame else arrays[0]
        slab = Slab(array, "t" * by_frame + axes, space, channels)
        scalars = {constant: [value] for constant, value in hdf5.numbers(sims[name].attrs).items()}
        runs.append(recording_of("pbdl", (path,), [slab], axes_of(space, {}), scalars=scalars, dt=dt))
    return replace(runs[0], trajectories=[run for part in runs for run in part.trajectories])


def _parts(sims: h5py.Group, name: str) -> list[str]:
    """The datasets of a simulation: its own, or one per time."""
    if not isinstance(sims[name], h5py.Group):
        return [name]
    times = sorted((time for time in sims[name] if time.isdecimal() and hdf5.is_dataset(sims[name], time)), key=int)
    return [f"{name}/{time}" for time in times]


def _axes_of_simulations(path: Path, file: h5py.File, data: h5py.Dataset, time: str, fields: int, layout: str) -> str:
    """Fields come before space, or after it where only that fits the number of fields."""
    statistics = file.get("norm_fields_sca_mean")
    known = statistics.shape[0] if isinstance(statistics, h5py.Dataset) and statistics.ndim else fields
    space, before, after = "xyz"[: data.ndim - len(time) - 1], data.shape[len(time)], data.shape[-1]
    if known and before != known == after:
        return f"{time}{space}c"
    if layout:
        return layout_of(layout, data.shape, {}, name=data.name, path=path)
    if known and before != known:
        raise HeroError(f"{path}: no axis of {data.name} {data.shape} is the {known} fields; set data.layout=tcxy.")
    return f"{time}c{space}"
