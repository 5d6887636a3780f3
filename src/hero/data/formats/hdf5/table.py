"""The HDF5 layouts that `read_layout` reads, in the order in which they are asked: those that say more come earlier."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import h5py
import numpy as np

from hero.data.files.recording import SPELLINGS, Axis, Channel, Recording
from hero.data.formats.hdf5.layouts import Layout, dataset_of, is_dataset, named, of_attributes, words
from hero.data.formats.slabs import axes_of
from hero.data.tasks.task import NUMERICS

OURS = "btcx btcxy btcxyz"
POSEIDON = {
    "velocity": "velocity_x velocity_y tracer",
    "data": "density velocity_x velocity_y pressure tracer",
    "solution": "u",
}
STEPS = ("t", "x", "y", "z", "dt", "dx", "dy", "dz")  # datasets of PDEArena about time and grid
NUMBER_OF_CONFIG = re.compile(r"^\s*(\w+)\s*:\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$", re.MULTILINE)


def _facts_of_task(file: h5py.File, recording: Recording) -> Recording:
    """A periodic box; the coefficients of the task and the ones that every trajectory drew condition it."""
    settings = json.loads(file.attrs["settings"])
    common = {n: float(v) for n, v in settings.items() if n not in NUMERICS and isinstance(v, int | float)}
    names = words(file["mu"].attrs["names"]) if "mu" in file else []
    axes = [
        replace(axis, coordinates=np.arange(axis.points) * (settings["extent"] / axis.points), periodic=True)
        for axis in recording.axes
    ]
    recording = _with_mu(file, recording, names)
    split = str(file.attrs.get("split", ""))
    runs = [replace(one, scalars=common | dict(one.scalars), split=split) for one in recording.trajectories]
    return replace(recording, axes=tuple(axes), dt=float(settings["dt"]), trajectories=runs)


def _facts_of_prediction(file: h5py.File, recording: Recording) -> Recording:
    """Names, axes and dt as `hero predict` wrote them."""
    told = {name: json.loads(file.attrs[name]) for name in ("channels", "axes", "extent", "periodic", "conditioning")}
    facts = zip(told["axes"], told["extent"], told["periodic"], recording.space, strict=True)
    axes = [
        Axis(name, np.linspace(0, extent, points, endpoint=not periodic), None if name == "point" else periodic)
        for name, extent, periodic, points in facts
    ]
    channels = tuple(map(Channel, told["channels"]))
    recording = _with_mu(file, recording, told["conditioning"])
    return replace(recording, channels=channels, axes=tuple(axes), dt=float(file.attrs["dt"]))


def _with_mu(file: h5py.File, recording: Recording, names: list[str]) -> Recording:
    """The numbers of the conditioning, in `mu` (trajectory, number) where there are any."""
    if "mu" not in file:
        return recording
    scalars = [dict(zip(names, row.tolist(), strict=True)) for row in dataset_of(file, "mu")[...]]
    runs = zip(recording.trajectories, scalars, strict=True)
    return replace(recording, trajectories=[replace(one, scalars=numbers) for one, numbers in runs])


def _groups(file: h5py.File) -> list[str]:
    """The names 0000, 0001, ... in the order of their numbers."""
    return sorted((name for name in file if name.isdecimal()), key=int)


def is_particles(file: h5py.File) -> bool:
    """Positions and types of particles, in numbered groups (LagrangeBench)."""
    first = next((file.get(name) for name in file if name.isdecimal()), None)
    return is_dataset(first, "position", (3,)) and is_dataset(first, "particle_type")


def _of_configs(file: h5py.File, count: int) -> list[dict[str, float]]:
    """The numbers in the YAML text of each group's attribute `config` that differ between groups; no seeds."""
    texts = [words(file[name].attrs.get("config", ""))[0] for name in _groups(file)]
    tables = [{name: float(n) for name, n in NUMBER_OF_CONFIG.findall(text) if "seed" not in name} for text in texts]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    varying = [name for name in common if len({table[name] for table in tables}) > 1]
    return [{name: table[name] for name in varying} for table in tables]


def _splits(file: h5py.File) -> list[tuple[str, h5py.Group]]:
    """The groups of PDEArena, if the file has nothing else."""
    known = all(name in SPELLINGS and is_dataset(item, "t") for name, item in file.items())
    return [(SPELLINGS[name], item) for name, item in file.items()] if known else []


def _of_datasets(group: h5py.Group, count: int) -> list[dict[str, float]]:
    """Datasets of one number for each trajectory."""
    names = [name for name in group if name not in STEPS and is_dataset(group, name, (1,))]
    table = {name: group[name][...] for name in names if group[name].shape == (count,)}
    return [{name: float(values[index]) for name, values in table.items()} for index in range(count)]


def _only(file: h5py.File) -> list[str]:
    """The dataset of Poseidon and DPOT, which may share its name; its square tells which two axes are space."""
    found = [name for name in POSEIDON if is_dataset(file, name, (3, 4, 5))]
    same = {(*file[name].shape[:2], *file[name].shape[-2:]) for name in found}
    others = [data for name, data in file.items() if name not in found and is_dataset(file, name, (4, 5))]
    beside = [data for data in others if (*data.shape[:2], *data.shape[-2:]) in same]  # channels too, by their names
    return found if len(found) == 1 and not beside else []


def _is_square(data: h5py.Dataset, first: int) -> bool:
    """Whether two neighbouring axes have one length, which is more than channels have."""
    return data.shape[first] == data.shape[first + 1] > 1


def _space_last(file: h5py.File) -> bool:
    (name,) = _only(file)
    few = file[name].ndim == 5 and file[name].shape[2] <= len(POSEIDON[name].split())
    known = name == "solution" or (few and (name == "velocity" or not _is_square(file[name], 1)))
    return known and _is_square(file[name], -2)


def _space_first(file: h5py.File) -> bool:
    (name,) = _only(file)
    data = file[name]
    return name == "data" and not _is_square(data, -2) and _is_square(data, data.ndim - 4)


def _measured(file: h5py.File) -> list[str]:
    """One dataset, or those in a group that are as large as u."""
    group = file.get("measured_data")
    if is_dataset(group, "u", (3,)):
        return [f"measured_data/{name}" for name in group if getattr(group[name], "shape", 0) == group["u"].shape]
    return named("measured_data")(file)


def _bubble_axes(file: h5py.File, recording: Recording) -> Recording:
    """The datasets x and y are as large as the fields and say along which axis they grow."""
    if not (is_dataset(file, "x", (3,)) and is_dataset(file, "y", (3,))):
        return recording
    first = np.asarray(file["x"][0], np.float64)
    names = "xy" if np.ptp(first[:, 0]) > np.ptp(first[0]) else "yx"
    given = {"x": file[names[0]][0, :, 0], "y": file[names[1]][0, 0, :]}
    return replace(recording, axes=axes_of(dict(zip("xy", recording.space, strict=True)), given, names))


LAYOUTS = {
    "hero": Layout(
        "hero",
        named("u"),
        OURS,
        fits=lambda file: {"settings", "solver_version"} <= set(file.attrs),
        complete=_facts_of_task,
    ),
    "prediction": Layout(
        "hero, predicted",
        named("u"),
        OURS,
        fits=lambda file: {"run", "channels"} <= set(file.attrs),
        complete=_facts_of_prediction,
    ),
    "pdebench": Layout(
        "PDEBench",
        lambda file: named("tensor")(file) or named("density pressure Vx", "Vy Vz")(file),
        "btx btxy btxyz",
        {"tensor": "u"},
        fits=lambda file: "x-coordinate" in file,
        times=("t-coordinate",),
        grid="{}-coordinate",
        scalars=of_attributes,
        test_share=10,
        steady=True,
    ),
    "pdebench-incompressible": Layout(
        "PDEBench, incompressible",
        named("velocity particles"),
        "btxyc",
        {"velocity": "velocity_x velocity_y"},
        fits=lambda file: is_dataset(file, "force", (4,)) and file["velocity"].shape[-1] == 2,
        fields={"force": "force_x force_y"},
        scalars=of_attributes,
        test_share=10,
    ),
    "pdebench-groups": Layout(
        "PDEBench, one group per trajectory",
        lambda file: [f"{name}/data" for name in _groups(file)],
        "txc txyc txyzc",
        {"data": "u"},
        fits=lambda file: isinstance(file.get(f"{_groups(file)[0]}/grid"), h5py.Group),
        times=("grid/t",),
        grid="grid/{}",
        scalars=_of_configs,
        runs=True,
        test_share=10,
    ),
    "pdearena": Layout(
        "PDEArena",
        lambda group: [name for name in group if is_dataset(group, name, (3, 4, 5))],
        "btx btxy btxyz",
        grid="{}",
        scalars=_of_datasets,
        groups=_splits,
    ),
    "bubbleml": Layout(
        "BubbleML",
        named("temperature velx vely dfun", "pressure"),
        "txy",
        axis_names="yx",
        scalars=of_attributes,
        complete=_bubble_axes,
    ),
    "realpdebench": Layout(
        "RealPDEBench", _measured, "txy txyc", {"measured_data": "u"}, axis_names="yx", scalars=of_attributes
    ),
    "era5": Layout(
        "PhysicsNeMo ERA5", named("fields"), "tcxy", {"fields": "field"}, axis_names="yx", scalars=of_attributes
    ),
    "poseidon": Layout(
        "Poseidon", _only, "bxy btxy btcxy", POSEIDON, fits=_space_last, grid="{}", fields={"c": "c"}, steady=True
    ),
    "dpot": Layout("DPOT", _only, "xytc bxytc", {"data": "u"}, fits=_space_first, grid="{}"),
}
