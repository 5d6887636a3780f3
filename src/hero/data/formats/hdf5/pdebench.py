"""PDEBench: `tensor`, the fields of CFD, numbered groups, and incompressible Navier-Stokes.

The first tenth of the trajectories is its test set. Times may have one entry more than there are states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py

from hero.data.formats.arrays import channels_of, time_step
from hero.data.formats.hdf5.axes import SPACE, grid_axes, length_of, order_axes, space_of
from hero.data.formats.hdf5.slabs import Fields, Slab, States, coordinates, dataset_of, is_dataset, numbers, slabs_of
from hero.data.recording import Channel, Recording, Trajectory
from hero.errors import HeroError

TEST_SHARE = 10
CFD = ("density", "pressure", "Vx", "Vy", "Vz")
NUMBERS_OF_CONFIG = re.compile(r"^\s*(\w+)\s*:\s*([-+\d.][-+\d.eE]*)\s*$", re.MULTILINE)


def is_pdebench(file: h5py.File) -> bool:
    """`tensor` with coordinates, or density, pressure and velocities."""
    known = "x-coordinate" in file
    return known and (is_dataset(file, "tensor", (3, 4, 5)) or all(is_dataset(file, name) for name in CFD[:3]))


def read_pdebench(path: Path, file: h5py.File, layout: str) -> Recording:
    """`tensor` or the fields of CFD, (trajectory, time, *space)."""
    names = ["tensor"] if "tensor" in file else [name for name in CFD if name in file]
    shape = dataset_of(file, names[0]).shape
    letters = SPACE[: len(shape) - 2]
    if "nu" in file and shape[1] == 1:
        raise HeroError(f"{path} is Darcy flow, which is steady; choose a file of trajectories in time.")
    given = {
        letter: dataset_of(file, f"{letter}-coordinate")[...] for letter in letters if f"{letter}-coordinate" in file
    }
    lengths = {letter: {len(values)} for letter, values in given.items()}
    times = dataset_of(file, "t-coordinate")[...] if "t-coordinate" in file else None
    if times is not None:
        lengths["t"] = {len(times), len(times) - 1}
    axes = order_axes(path, file[names[0]], layout, f"bt{letters}", lengths)
    space, frames = space_of(axes, shape), length_of("t", axes, shape)
    slabs = slabs_of(file, path, names, axes, space)
    dt, notes = time_step(None if times is None else times[:frames])
    channels = [Channel("u" if name == "tensor" else name) for name in names]
    grid = grid_axes(space, [given.get(letter) for letter in letters])
    return Recording(
        "pdebench",
        (path,),
        tuple(channels),
        grid,
        dt,
        _trajectories(slabs, length_of("b", axes, shape), frames, numbers(file.attrs)),
        notes=notes,
    )


def _trajectories(
    slabs: Sequence[Slab], count: int, frames: int, scalars: Mapping[str, float], fields: Sequence[Slab] = ()
) -> list[Trajectory]:
    return [
        Trajectory(
            frames,
            States(tuple(slab.of(index) for slab in slabs)),
            scalars,
            Fields(tuple(slab.of(index) for slab in fields)) if fields else None,
            "test" if index < count // TEST_SHARE else "",
        )
        for index in range(count)
    ]


def is_incompressible(file: h5py.File) -> bool:
    """Velocity, tracer particles and a force."""
    return (
        is_dataset(file, "velocity", (5,)) and is_dataset(file, "particles", (5,)) and is_dataset(file, "force", (4,))
    )


def read_incompressible(path: Path, file: h5py.File, layout: str) -> Recording:
    """Velocity and particles (trajectory, time, x, y, component); the force conditions them."""
    shape = dataset_of(file, "velocity").shape
    times = coordinates(file, ["t"], shape[1])
    axes = order_axes(
        path, file["velocity"], layout, "btxyc", {"c": {2}} | ({"t": {len(times)}} if times is not None else {})
    )
    space = space_of(axes, shape)
    slabs = slabs_of(file, path, ["velocity", "particles"], axes, space)
    force = slabs_of(file, path, ["force"], axes.replace("t", ""), space)
    dt, notes = time_step(times)
    channels = (Channel("velocity_x"), Channel("velocity_y"), *channels_of("particles", slabs[1].components))
    trajectories = _trajectories(slabs, shape[axes.index("b")], shape[axes.index("t")], numbers(file.attrs), force)
    return Recording(
        "pdebench-incompressible",
        (path,),
        channels,
        grid_axes(space),
        dt,
        trajectories,
        field_names=("force_x", "force_y"),
        notes=notes,
    )


def is_grouped(file: h5py.File) -> bool:
    """Groups 0000, 0001, ... with data and grid."""
    first = file.get(_groups(file)[0]) if _groups(file) else None
    return is_dataset(first, "data", (3, 4, 5)) and isinstance(file.get(f"{_groups(file)[0]}/grid"), h5py.Group)


def _groups(file: h5py.File) -> list[str]:
    return sorted((name for name in file if name.isdecimal()), key=int)


def read_grouped(path: Path, file: h5py.File, layout: str) -> Recording:
    """A trajectory per group, (time, *space, channel)."""
    names = _groups(file)
    shape = dataset_of(file[names[0]], "data").shape
    letters = SPACE[: len(shape) - 2]
    grid = {letter: dataset_of(file[names[0]]["grid"], letter)[...] for letter in (*letters, "t")}
    axes = order_axes(
        path, file[names[0]]["data"], layout, f"t{letters}c", {letter: {len(values)} for letter, values in grid.items()}
    )
    space, frames = space_of(axes, shape), length_of("t", axes, shape)
    other = next((name for name in names if dataset_of(file[name], "data").shape != shape), None)
    if other is not None:
        raise HeroError(
            f"{path}: the shapes of the groups {names[0]} {shape} and {other} {file[other]['data'].shape} differ; "
            "split the file by shape."
        )
    slabs = [slabs_of(file, path, [f"{name}/data"], axes, space) for name in names]
    scalars = _varying([_configured(file[name]) for name in names])
    trajectories = [
        Trajectory(frames, States(slab), numbers_here, split="test" if index < len(names) // TEST_SHARE else "")
        for index, (slab, numbers_here) in enumerate(zip(slabs, scalars, strict=True))
    ]
    dt, notes = time_step(grid["t"])
    channels = channels_of("u", slabs[0][0].components)
    given = grid_axes(space, [grid[letter] for letter in letters])
    return Recording("pdebench-groups", (path,), channels, given, dt, trajectories, notes=notes)


def _configured(group: h5py.Group) -> dict[str, float]:
    """The numbers in the YAML text of a group's attribute `config`; a seed is none of them."""
    text = group.attrs.get("config", "")
    lines = NUMBERS_OF_CONFIG.findall(text.decode() if isinstance(text, bytes) else str(text))
    found = {}
    for name, number in lines:
        if "seed" not in name:
            try:
                found[name] = float(number)
            except ValueError:
                continue
    return found


def _varying(tables: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The numbers that differ between trajectories: the others say nothing about them."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    varying = [name for name in names if len({table[name] for table in tables}) > 1]
    return [{name: table[name] for name in varying} for table in tables]
