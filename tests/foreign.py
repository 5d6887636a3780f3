"""Writes tiny HDF5 files in the layouts of others, from states (trajectory, time, channel, *space)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from hero.data.formats import open_recording
from hero.errors import HeroError

T_STEP = 0.25


def refused(opened: Path | Callable[[], object], *words: str, layout: str = "") -> None:
    """A file, or what `opened` reads, is refused in one sentence that names the file and holds `words`."""
    with pytest.raises(HeroError) as caught:
        open_recording(opened, layout) if isinstance(opened, Path) else opened()
    sentence = str(caught.value)
    assert "\n" not in sentence
    named = (opened.name,) if isinstance(opened, Path) and not layout else ()
    assert [word for word in (*named, *words) if word not in sentence] == [], sentence


def states(shape: tuple[int, ...], seed: int = 0, dtype: str = "f4") -> np.ndarray:
    """Noise, so that no two entries are equal."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def times(count: int) -> np.ndarray:
    """Equal steps of `T_STEP`."""
    return np.arange(count) * T_STEP


def grid(points: int) -> np.ndarray:
    """Cell centres in [0, 1]."""
    return (np.arange(points) + 0.5) / points


def channels_last(u: np.ndarray) -> np.ndarray:
    """(trajectory, time, *space, channel)."""
    return np.moveaxis(u, 2, -1)


def pdebench(path: Path, u: np.ndarray) -> None:
    """`tensor`, with times that have one entry too many; float32 throughout."""
    with h5py.File(path, "w") as file:
        file["tensor"] = u[:, :, 0]
        file["t-coordinate"] = times(u.shape[1] + 1).astype("f4")
        for name, points in zip("xyz", u.shape[3:], strict=False):
            file[f"{name}-coordinate"] = grid(points).astype("f4")
        file.attrs["beta"] = 0.1


def pdebench_cfd(path: Path, u: np.ndarray) -> None:
    """A dataset per field."""
    with h5py.File(path, "w") as file:
        for index, name in enumerate(["density", "pressure", "Vx", "Vy", "Vz"][: u.shape[2]]):
            file[name] = u[:, :, index]
        file["t-coordinate"] = times(u.shape[1] + 1).astype("f4")
        for name, points in zip("xyz", u.shape[3:], strict=False):
            file[f"{name}-coordinate"] = grid(points).astype("f4")
        file.attrs.update({"eta": 0.01, "zeta": 0.02, "M": 0.5})


def pdebench_groups(path: Path, u: np.ndarray) -> None:
    """A group per trajectory, with a configuration in YAML."""
    with h5py.File(path, "w") as file:
        for index, run in enumerate(channels_last(u)):
            group = file.create_group(f"{index:04d}")
            group["data"] = run
            group["grid/t"] = times(u.shape[1]).astype("f4")
            for name, points in zip("xyz", u.shape[3:], strict=False):
                group[f"grid/{name}"] = grid(points).astype("f4")
            group.attrs["config"] = f"sim:\n  Du: 1.0e-3\n  k: {0.5 + index}\n  seed: {index}\n  name: diff-react\n"


def pdebench_incompressible(path: Path, u: np.ndarray, force: np.ndarray) -> None:
    """Velocity and particles; force is (trajectory, 2, x, y)."""
    with h5py.File(path, "w") as file:
        file["velocity"], file["particles"] = channels_last(u[:, :, :2]), channels_last(u[:, :, 2:])
        file["force"] = np.moveaxis(force, 1, -1)
        file["t"] = np.broadcast_to(times(u.shape[1]), u.shape[:2]).astype("f4")


def well(
    path: Path,
    u: np.ndarray,
    *,
    density: np.ndarray,
    mask: np.ndarray,
    number: np.ndarray,
    kinds: tuple[str, str] = ("PERIODIC", "wall"),
    complete: bool = True,
    keep_axes: bool = True,
) -> None:
    """2D: channels of `u` are a scalar, a vector and a tensor; the field `profile` varies in time and y only.

    Without `complete`, attributes are missing or one text, as in real files. With `keep_axes`, the axis along which
    `profile` does not vary has one entry, as the_well's own loader expects.
    """
    count, frames, _, *space = u.shape
    last = channels_last(u)
    with h5py.File(path, "w") as file:
        file.attrs.update(dataset_name="toy", grid_type="cartesian", n_spatial_dims=2, n_trajectories=count)
        file.attrs["simulation_parameters"] = ["viscosity"]
        file.attrs["viscosity"] = 0.125
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, values in {"time": times(frames), "x": np.linspace(0, 1, space[0]), "y": grid(space[1])}.items():
            dimensions[name] = values.astype("f4")
            if complete:
                dimensions[name].attrs.update(sample_varying=False, time_varying=name == "time")
        conditions = file.create_group("boundary_conditions")
        for name, kind, points in zip("xy", kinds, space, strict=True):
            condition = conditions.create_group(f"{name}_{kind}")
            ends = np.zeros(points, bool)
            ends[[0, -1]] = True
            condition["mask"] = ends
            condition.attrs.update(bc_type=kind, associated_dims=[name] if complete else name, associated_fields=[])
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["number", "common", "clock"]
        for name, values, by_run, in_time in (
            ("number", number, True, False),
            ("common", np.float32(7), False, False),
            ("clock", times(frames).astype("f4"), False, True),
        ):
            scalars[name] = values
            scalars[name].attrs.update(sample_varying=by_run, time_varying=in_time)
        everywhere = {"sample_varying": True, "time_varying": True, "dim_varying": [True, True]}
        fields = {
            0: {
                "scalar": (last[..., 0], everywhere),
                "density": (density, {**everywhere, "time_varying": False}),
                "profile": (
                    last[:, :, :1, :, 1] if keep_axes else last[:, :, 0, :, 1],
                    {**everywhere, "dim_varying": [False, True]},
                ),
                "mask": (mask, {"sample_varying": False, "time_varying": False, "dim_varying": [True, True]}),
            },
            1: {"velocity": (last[..., 2:4], everywhere)},
            2: {"stress": (last[..., 4:8].reshape(count, frames, *space, 2, 2), everywhere)},
        }
        for order, named in fields.items():
            group = file.create_group(f"t{order}_fields")
            group.attrs["field_names"] = list(named)
            for name, (values, attributes) in named.items():
                group[name] = values
                told = attributes if complete else {"dim_varying": attributes["dim_varying"]}
                group[name].attrs.update(told)


def pdearena(path: Path, u: np.ndarray, split: str, buoyancy: np.ndarray) -> None:
    """A group of one split, with u, vx, vy."""
    count, frames, _, *space = u.shape
    with h5py.File(path, "w") as file:
        group = file.create_group(split)
        for index, name in enumerate(["u", "vx", "vy"]):
            group[name] = u[:, :, index]
        group["t"] = np.broadcast_to(times(frames), (count, frames))
        for name, points in zip("xy", space, strict=True):
            group[name] = np.broadcast_to(grid(points), (count, points))
        for name in ("dt", "dx", "dy"):
            group[name] = np.full(count, T_STEP)
        group["buo_y"] = buoyancy


def poseidon(path: Path, u: np.ndarray, name: str, speed: np.ndarray | None = None) -> None:
    """`velocity`, `data` or `solution`; the latter without an axis for its only channel."""
    with h5py.File(path, "w") as file:
        file[name] = u[:, :, 0] if name == "solution" and u.shape[2] == 1 else u
        if speed is not None:
            file["c"] = speed


def realpdebench(path: Path, run: np.ndarray, named: bool = True) -> None:
    """One run (time, channel, y, x): datasets u, v, p, or one with channels last."""
    with h5py.File(path, "w") as file:
        if named:
            for index, name in enumerate(["u", "v", "p"][: run.shape[1]]):
                file[f"measured_data/{name}"] = run[:, index]
        else:
            file["measured_data"] = np.moveaxis(run, 1, -1)


def dpot(path: Path, u: np.ndarray) -> None:
    """(trajectory, x, y, time, channel), or the same of one run."""
    order = (0, 3, 4, 1, 2) if u.ndim == 5 else (2, 3, 0, 1)
    with h5py.File(path, "w") as file:
        file["data"] = u.transpose(order)


def pbdl(path: Path, u: np.ndarray, by_frame: bool = False) -> None:
    """A dataset per simulation, or per frame with the fields last."""
    with h5py.File(path, "w") as file:
        sims = file.create_group("sims")
        sims.attrs.update({"PDE": "wave", "Fields Scheme": "ab", "Constants": ["nu"], "Dt": T_STEP})
        sims.attrs["Fields"] = ["density", "velocity X"]
        file["norm_fields_sca_mean"] = np.zeros((u.shape[2], *(1,) * (u.ndim - 3)))
        for index, run in enumerate(u):
            name = f"sims/sim{index}"
            if by_frame:
                for frame, state in enumerate(run):
                    file[f"{name}/{frame}"] = np.moveaxis(state, 0, -1)
            else:
                file[name] = run
            file[name].attrs["nu"] = 0.5 * index


def bubbleml(path: Path, run: np.ndarray) -> None:
    """One run (time, channel, y, x); x and y are as large as the fields."""
    _, _, rows, columns = run.shape
    with h5py.File(path, "w") as file:
        for index, name in enumerate(["temperature", "velx", "vely", "dfun", "pressure"]):
            file[name] = run[:, index]
        file["x"] = np.broadcast_to(grid(columns), run[:, 0].shape)
        file["y"] = np.broadcast_to(grid(rows)[:, None], run[:, 0].shape)


def dedalus(path: Path, run: np.ndarray, start: int = 0) -> None:
    """A set of one run (time, channel, x, y): the scalar p, the vector u, and an average that is on no grid."""
    frames, _, *space = run.shape
    with h5py.File(path, "w") as file:
        file.attrs["handler_name"] = "snapshots"
        scales = {"sim_time": times(frames + start)[start:], "x_hash_ab": grid(space[0]), "y_hash_cd": grid(space[1])}
        for name, values in scales.items():
            file[f"scales/{name}"] = values
            file[f"scales/{name}"].make_scale(name.partition("_hash")[0])
        for name, values in {"p": run[:, 0], "u": run[:, 1:3], "mean": run[:, 0].mean((1, 2), keepdims=True)}.items():
            task = file.create_dataset(f"tasks/{name}", data=values)
            task.attrs.update(grid_space=[True, True], constant=[name == "mean"] * 2)
            labels = ["t", "", "x", "y"] if name == "u" else ["t", "x", "y"]
            for dimension, label in zip(task.dims, labels, strict=True):
                dimension.label = label
                known = {"t": "sim_time", "x": "x_hash_ab", "y": "y_hash_cd"}.get(label)
                if known and not (name == "mean" and label != "t"):
                    dimension.attach_scale(file[f"scales/{known}"])


def era5(path: Path, run: np.ndarray) -> None:
    """One run (time, channel, latitude, longitude)."""
    with h5py.File(path, "w") as file:
        file["fields"] = run


def particles(path: Path) -> None:
    """LagrangeBench."""
    with h5py.File(path, "w") as file:
        file["00000/position"] = states((10, 5, 2))
        file["00000/particle_type"] = np.zeros(5, int)


def matlab73(path: Path, variables: dict[str, np.ndarray]) -> None:
    """Variables as MATLAB shows them: a user block of 512 bytes, axes in reverse, complex numbers as pairs."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in variables.items():
            turned = values.T
            if np.iscomplexobj(values):
                pairs = np.empty(turned.shape, [("real", "f8"), ("imag", "f8")])
                pairs["real"], pairs["imag"] = turned.real, turned.imag
                turned = pairs
            file[name] = turned
            file[name].attrs["MATLAB_class"] = np.bytes_(b"double")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
