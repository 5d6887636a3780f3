"""The Well: fields of tensor order 0, 1 and 2, which vary with trajectory, time and each axis or not, as they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.files.handles import opened_hdf5
from hero.data.files.recording import Axis, Channel, Recording
from hero.data.formats.arrays import Slab, recording_of
from hero.data.formats.folders import join
from hero.data.formats.hdf5.datasets import array_of, dataset_of, differing_rows, first_row, is_dataset, numbers, words
from hero.errors import HeroError

BOUNDARY = {"wall": 0.0, "open": 1.0, "periodic": 2.0}


def is_well(file: h5py.File) -> bool:
    """Dimensions and fields of order 0."""
    return isinstance(file.get("dimensions"), h5py.Group) and isinstance(file.get("t0_fields"), h5py.Group)


def read_well(path: Path, file: h5py.File, layout: str) -> Recording:
    """One file; `join_well` makes one recording of several."""
    dimensions = file["dimensions"]
    names = words(dimensions.attrs.get("spatial_dims", [name for name in "xyz" if name in dimensions]))
    grids = [dataset_of(dimensions, name) for name in names]
    times = dataset_of(dimensions, "time")
    frames, count = times.shape[-1], int(file.attrs.get("n_trajectories", 0)) or _count(file)
    space = {letter: grid.shape[-1] for letter, grid in zip("xyz", grids, strict=False)}
    slabs = []
    for order in range(3):
        for field in _listed(file.get(f"t{order}_fields")):
            array = array_of(path, file[f"t{order}_fields"], field)
            letters = _axes(path, file[array.name], order, count, frames, space)
            labels = ["_".join(filter(None, [field, "".join(d)])) for d in product(names, repeat=order)]
            slabs.append(Slab(array, letters, space, tuple(map(Channel, labels))))
    if not any("t" in slab.axes for slab in slabs):
        raise HeroError(f"{path} is steady, no field varies in time; choose a file of trajectories.")
    table, notes = _scalars(file, count, frames)
    ends = boundaries(file, names)
    notes += [
        f"The axis {name} is not periodic: {' and '.join(dict.fromkeys(kind or 'unknown' for kind in ends[name]))}."
        for name in names
        if not set(ends[name]) <= {"periodic", ""}
    ]
    axes = tuple(
        Axis(name, first_row(grid), None if "" in ends[name] else set(ends[name]) == {"periodic"})
        for name, grid in zip(names, grids, strict=True)
    )
    notes += differing_rows(dimensions, names)
    return recording_of(
        *("well", (path,), slabs, axes), count=count, clock=times[...], scalars=table, notes=tuple(notes)
    )


def _listed(group: Any) -> list[str]:
    """The datasets of a group, in the order that it gives."""
    if not isinstance(group, h5py.Group):
        return []
    return [name for name in words(group.attrs.get("field_names", list(group))) if name in group]


def _count(file: h5py.File) -> int:
    first = _listed(file["t0_fields"])
    return dataset_of(file["t0_fields"], first[0]).shape[0] if first else 1


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
        values = dataset_of(file["scalars"], name)
        in_time = values.shape in {(frames,), (count, frames)} and values.shape != (count,)
        if values.attrs.get("time_varying", in_time):
            left_out.append(name)
        else:
            table[name] = np.broadcast_to(np.asarray(values[()], np.float64).reshape(-1), (count,)).tolist()
    parameters = words(file.attrs.get("simulation_parameters", []))
    known = {name: file.attrs[name] for name in parameters if name in file.attrs and name not in (*table, *left_out)}
    table |= {name: [value] * count for name, value in numbers(known).items()}
    return table, [f"The numbers {', '.join(left_out)} vary in time and are left out."] if left_out else []


def boundaries(file: h5py.File, names: Sequence[str]) -> dict[str, list[str]]:
    """The kind of boundary at both ends of each axis; "" where the file does not say."""
    ends = {name: ["", ""] for name in names}
    conditions = file.get("boundary_conditions")
    found = conditions.values() if isinstance(conditions, h5py.Group) else ()
    for condition in (item for item in found if isinstance(item, h5py.Group)):
        kind = words(condition.attrs.get("bc_type", "open"))[0].lower()
        along = [name for name in words(condition.attrs.get("associated_dims", [])) if name in ends]
        known = is_dataset(condition, "mask") and condition["mask"].dtype.kind in "biu"
        mask = condition["mask"][...] if known else np.ones((2,) * len(along), bool)
        for axis, name in enumerate(along):
            for end in (0, -1):
                edge = mask.take(end, axis=axis) if mask.ndim == len(along) else mask
                # A wall covers the whole edge; a part that is open or periodic decides otherwise.
                if edge.all() if kind == "wall" else edge.any():
                    ends[name][end] = kind
    return ends


def join_well(recordings: Sequence[Recording]) -> Recording:
    """One recording; the kinds of boundary that differ between files become conditioning numbers."""
    names = [axis.name for axis in recordings[0].axes]
    kinds = []
    for recording in recordings:
        with opened_hdf5(recording.files[0]) as file:
            ends = boundaries(file, names)
        each = [(name, end, kind) for name in names for end, kind in zip(("low", "high"), ends[name], strict=True)]
        kinds.append({f"boundary_{name}_{end}": BOUNDARY.get(kind, -1.0) for name, end, kind in each})
    differing = [name for name in kinds[0] if len({kind[name] for kind in kinds}) > 1]
    told = []
    for recording, kind in zip(recordings, kinds, strict=True):
        added = {name: kind[name] for name in differing}
        trajectories = [replace(one, scalars={**one.scalars, **added}) for one in recording.trajectories]
        told.append(replace(recording, trajectories=trajectories))
    return join(told)
