"""HDF5 formats: what is read back from a file in each layout is what was written, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

import foreign
from foreign import T_STEP, grid, refused, states
from hero.data import Split, get_task, load_split, split_path
from hero.data.files import handles
from hero.data.files.recording import Recording
from hero.data.formats import FORMATS, open_recording


def check(recording: Recording, u: np.ndarray, names: str) -> None:
    """All trajectories equal `u` (trajectory, time, channel, *space), whole and in parts."""
    assert [channel.name for channel in recording.channels] == names.split()
    assert recording.space == u.shape[3:]
    assert [trajectory.frames for trajectory in recording.trajectories] == [u.shape[1]] * len(u)
    some = [u.shape[2] - 1, 0]
    for trajectory, run in zip(recording.trajectories, u, strict=True):
        whole = trajectory.read(slice(None), range(u.shape[2]))
        assert whole.dtype == u.dtype
        np.testing.assert_array_equal(whole, run)
        np.testing.assert_array_equal(trajectory.read(slice(1, 6, 2), some), run[1:6:2, some])
        assert trajectory.read(slice(2, 2), [0]).shape == (0, 1, *u.shape[3:])


class Case(NamedTuple):
    """A file of a layout, and the facts to be found in it."""

    format: str
    channels: str
    shape: tuple[int, ...]
    write: Callable[..., object]
    given: tuple[object, ...] = ()  # arguments of `write` after the path and the states
    dt: float = 1.0
    axes: str = "x y"
    one_run: bool = False  # a file has one trajectory
    tests: int = 0  # trajectories of the test set, at the beginning
    scalars: Mapping[str, float] = MappingProxyType({})  # of the last trajectory
    fields: Mapping[str, np.ndarray] = MappingProxyType({})


SPEED, FORCE = states((3, 8, 8), 1), states((3, 2, 8, 6), 1)
FORCES = {"force_x": FORCE[:, 0], "force_y": FORCE[:, 1]}
BETA: dict[str, Any] = {"dt": T_STEP, "scalars": {"beta": 0.1}, "tests": 2}
CFD: dict[str, Any] = {"dt": T_STEP, "scalars": {"eta": 0.01, "zeta": 0.02, "M": 0.5}, "tests": 1}
GROUPS: dict[str, Any] = {"dt": T_STEP, "scalars": {"k": 9.5}, "tests": 1}
RUN: dict[str, Any] = {"one_run": True, "axes": "y x"}
NU: dict[str, Any] = {"dt": T_STEP, "scalars": {"nu": 5.0}}
V = "velocity_x velocity_y"
CASES = {
    "pdebench 1D": Case("pdebench", "u", (21, 7, 1, 16), foreign.pdebench, axes="x", **BETA),
    "pdebench 2D": Case("pdebench", "u", (21, 7, 1, 8, 6), foreign.pdebench, **BETA),
    "pdebench 3D": Case("pdebench", "u", (21, 7, 1, 6, 5, 4), foreign.pdebench, axes="x y z", **BETA),
    "CFD": Case("pdebench", "density pressure Vx Vy", (10, 5, 4, 8, 6), foreign.pdebench_cfd, **CFD),
    "groups 1D": Case("pdebench-groups", "u0 u1", (10, 5, 2, 12), foreign.pdebench_groups, axes="x", **GROUPS),
    "groups 2D": Case("pdebench-groups", "u0 u1", (10, 5, 2, 8, 6), foreign.pdebench_groups, **GROUPS),
    "pdebench-incompressible": Case(
        *("pdebench-incompressible", f"{V} particles", (3, 5, 3, 8, 6), foreign.pdebench_incompressible, (FORCE,)),
        dt=T_STEP,
        fields=FORCES,
    ),
    "pdearena": Case(
        *("pdearena", "u vx vy", (3, 5, 3, 8, 6), foreign.pdearena, ("train", np.arange(3.0))),
        dt=T_STEP,
        scalars={"buo_y": 2.0},
    ),
    "poseidon NS": Case("poseidon", V, (3, 7, 2, 8, 8), foreign.poseidon, ("velocity",)),
    "poseidon tracer": Case("poseidon", f"{V} tracer", (3, 7, 3, 8, 8), foreign.poseidon, ("velocity",)),
    "poseidon CE": Case("poseidon", f"density {V} pressure", (3, 7, 4, 8, 8), foreign.poseidon, ("data",)),
    "poseidon two": Case("poseidon", "u0 u1", (3, 7, 2, 8, 8), foreign.poseidon, ("solution",)),
    "poseidon one": Case("poseidon", "u", (3, 7, 1, 8, 8), foreign.poseidon, ("solution",)),
    "wave": Case("poseidon", "u", (3, 7, 1, 8, 8), foreign.poseidon, ("solution", SPEED), fields={"c": SPEED}),
    "realpdebench": Case("realpdebench", "p u v", (1, 6, 3, 8, 5), foreign.realpdebench, **RUN),
    "combustion": Case("realpdebench", "u0 u1 u2", (1, 6, 3, 8, 5), foreign.realpdebench, (False,), **RUN),
    "bubbleml": Case("bubbleml", "temperature velx vely dfun pressure", (1, 6, 5, 8, 4), foreign.bubbleml, **RUN),
    "era5": Case("era5", "field0 field1 field2", (1, 6, 3, 5, 8), foreign.era5, **RUN),
    "dpot": Case("dpot", "u0 u1", (3, 5, 2, 8, 8), foreign.dpot),
    "dpot run": Case("dpot", "u0 u1", (1, 5, 2, 8, 8), foreign.dpot, one_run=True),
    "pbdl": Case("pbdl", "density velocity_X", (11, 12, 2, 8, 6), foreign.pbdl, **NU),
    "pbdl by frame": Case("pbdl", "density velocity_X", (11, 12, 2, 8, 6), foreign.pbdl, (True,), **NU),
}


@pytest.mark.parametrize("name", CASES)
def test_layout(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    u = states(case.shape)
    case.write(tmp_path / "a.h5", u[0] if case.one_run else u, *case.given)
    recording = open_recording(tmp_path / "a.h5")
    check(recording, u[:, :, [2, 0, 1]] if case.channels == "p u v" else u, case.channels)  # a file sorts its datasets
    assert (recording.format, recording.dt, recording.notes) == (case.format, case.dt, ())
    assert len(recording.times) == (case.dt == T_STEP and case.format != "pbdl")  # which has a time step and no times
    for times in recording.times:
        np.testing.assert_allclose(times, np.broadcast_to(foreign.times(case.shape[1]), times.shape))
    assert [axis.name for axis in recording.axes] == case.axes.split()
    assert dict(recording.trajectories[-1].scalars) == case.scalars
    others = "train" if case.format == "pdearena" else ""
    splits = [trajectory.split for trajectory in recording.trajectories]
    assert splits == ["test"] * case.tests + [others] * (len(u) - case.tests)
    assert recording.field_names == tuple(case.fields)
    for row, trajectory in enumerate(recording.trajectories if case.fields else ()):
        np.testing.assert_array_equal(trajectory.fields(), [values[row] for values in case.fields.values()])
    for axis in recording.axes if case.format in ("pdebench", "pdebench-groups", "pdearena", "bubbleml") else ():
        np.testing.assert_allclose(axis.coordinates, grid(axis.points), rtol=1e-6)


def test_every_format_of_hdf5_is_tested_here() -> None:
    elsewhere = {"hero", "prediction", "well", "dedalus", "matlab73", "lagrangebench", "array"}  # below, test_predict
    assert {name for name, form in FORMATS.items() if form.container == "hdf5"} == elsewhere | {
        case.format for case in CASES.values()
    }


@pytest.mark.parametrize(("name", "count"), [("realpdebench", 3), ("dpot run", 11), ("era5", 2)])
def test_folder_of_runs_in_the_order_of_its_numbers(tmp_path: Path, name: str, count: int) -> None:
    case = CASES[name]
    u = states((count, *case.shape[1:]))
    for index, run in enumerate(u):
        case.write(tmp_path / f"data_{index}.h5", run, *case.given)
    check(open_recording(tmp_path), u[:, :, [2, 0, 1]] if name == "realpdebench" else u, case.channels)


WELL_CHANNELS = "scalar profile velocity_x velocity_y stress_xx stress_xy stress_yx stress_yy"


def well_states(count: int = 3, seed: int = 0) -> np.ndarray:
    u = states((count, 6, 8, 8, 5), seed)
    u[:, :, 1] = u[:, :, 1, :1]  # the field `profile` does not vary along x
    return u


def write_well(path: Path, u: np.ndarray, **settings: object) -> dict[str, np.ndarray]:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"density": states((len(u), 8, 5), 1), "mask": states((8, 5), 2), "number": states((len(u),), 3)}
    foreign.well(path, u, **parts, **settings)
    return parts


@pytest.mark.parametrize("keep_axes", [True, False])
@pytest.mark.parametrize("complete", [True, False])
def test_well(tmp_path: Path, complete: bool, keep_axes: bool) -> None:
    u = well_states()
    parts = write_well(tmp_path / "a.hdf5", u, complete=complete, keep_axes=keep_axes)
    recording = open_recording(tmp_path / "a.hdf5")
    check(recording, u, WELL_CHANNELS)
    assert recording.dt == T_STEP
    np.testing.assert_allclose(recording.times, [foreign.times(6)])
    assert [axis.periodic for axis in recording.axes] == [True, False]
    assert recording.field_names == ("density", "mask")
    for index, trajectory in enumerate(recording.trajectories):
        np.testing.assert_array_equal(trajectory.fields(), [parts["density"][index], parts["mask"]])
        assert dict(trajectory.scalars) == {"number": parts["number"][index], "common": 7, "viscosity": 0.125}
    assert len(recording.notes) == 2


def test_well_as_its_own_loader_reads_it(tmp_path: Path) -> None:
    the_well = pytest.importorskip("the_well.data")
    write_well(tmp_path / "toy/data/train/a.hdf5", well_states())
    recording = open_recording(tmp_path / "toy")
    oracle = the_well.WellDataset(path=str(tmp_path / "toy/data/train"), n_steps_input=5, n_steps_output=1)
    assert [name for order in range(3) for name in oracle.metadata.field_names[order]] == WELL_CHANNELS.split()
    for index, trajectory in enumerate(recording.trajectories):
        sample = oracle[index]
        read = np.moveaxis(trajectory.read(slice(None), range(8)), 1, -1)
        np.testing.assert_array_equal(read[:5], sample["input_fields"])
        np.testing.assert_array_equal(read[5:], sample["output_fields"])
        np.testing.assert_array_equal(np.moveaxis(trajectory.fields(), 0, -1), sample["constant_fields"])
        ours = [trajectory.scalars[name] for name in oracle.metadata.constant_scalar_names]
        np.testing.assert_array_equal(ours, sample["constant_scalars"])
        both = {0: "wall", 1: "open", 2: "periodic"}
        kinds = [{both[int(end)] for end in ends} for ends in sample["boundary_conditions"]]
        assert [kind == {"periodic"} for kind in kinds] == [axis.periodic for axis in recording.axes]


def test_well_folder_has_splits(tmp_path: Path) -> None:
    parts = {"test": well_states(1, 2), "train": well_states(3), "valid": well_states(2, 1)}
    for split, u in parts.items():
        kinds = ("PERIODIC", "open") if split == "test" else ("PERIODIC", "WALL")
        write_well(tmp_path / f"toy/data/{split}/a.h5", u, kinds=kinds)
    (tmp_path / "toy/stats.yaml").write_text("mean: 0\n")
    recording = open_recording(tmp_path / "toy")
    check(recording, np.concatenate(list(parts.values())), WELL_CHANNELS)
    assert [trajectory.split for trajectory in recording.trajectories] == ["test", *["train"] * 3, *["val"] * 2]
    assert [axis.periodic for axis in recording.axes] == [True, False]


@pytest.mark.parametrize("in_one_file", [True, False])
def test_pdearena_splits(tmp_path: Path, in_one_file: bool) -> None:
    parts = {split: states((n + 1, 5, 3, 8, 6), n) for n, split in enumerate(("test", "train", "valid"))}
    for split, u in parts.items():
        foreign.pdearena(tmp_path / f"NS_{split}.h5", u, split, np.arange(len(u), dtype="f8"))
    if in_one_file:
        with h5py.File(tmp_path / "NS_test.h5", "r+") as file:
            for split in ("train", "valid"):
                with h5py.File(tmp_path / f"NS_{split}.h5") as other:
                    other.copy(split, file)
    recording = open_recording(tmp_path / "NS_test.h5" if in_one_file else tmp_path)
    check(recording, np.concatenate(list(parts.values())), "u vx vy")
    assert [trajectory.split for trajectory in recording.trajectories] == ["test", *["train"] * 2, *["val"] * 3]
    assert [trajectory.scalars["buo_y"] for trajectory in recording.trajectories] == [0, 0, 1, 0, 1, 2]


def test_dedalus_sets_follow_each_other(tmp_path: Path) -> None:
    run = states((12, 3, 8, 6), dtype="f8")
    for number, (start, stop) in {2: (5, 9), 10: (9, 12), 1: (0, 5)}.items():
        foreign.dedalus(tmp_path / f"snapshots_s{number}.h5", run[start:stop], start)
    recording = open_recording(tmp_path)
    check(recording, run[None], "p u_x u_y")
    assert (recording.dt, len(recording.notes)) == (T_STEP, 2)
    np.testing.assert_array_equal(recording.axes[1].coordinates, grid(6))
    for frames in (slice(3, 11, 3), slice(-4, None), slice(8, 10)):
        np.testing.assert_array_equal(recording.trajectories[0].read(frames, [2]), run[frames, 2:])


def test_own_file(tmp_path: Path) -> None:
    task, split = get_task("burgers", {"resolution": 16, "viscosity": [1e-3, 1e-2]}), Split("val", 2, 3, seed=0)
    u = load_split(task, split, tmp_path).numpy()
    path = split_path(task, split, tmp_path)
    recording = open_recording(path)
    check(recording, u, "u")
    assert recording.dt == task.dt
    assert recording.axes[0].periodic
    assert np.allclose(np.diff(recording.axes[0].coordinates), task.extent / 16)
    assert {trajectory.split for trajectory in recording.trajectories} == {"val"}
    assert len({trajectory.scalars["viscosity"] for trajectory in recording.trajectories}) == 2  # each drew its own
    handles.close_hdf5()
    with h5py.File(path, "r+") as file:
        del file["mu"]
        file.create_group("mu").attrs["names"] = ["viscosity"]
    refused(path, "mu")


def test_matlab73(tmp_path: Path) -> None:
    u, complex_u = states((9, 16), dtype="f8"), states((9, 16), dtype="f8") * (1 + 1e-12j)
    for values in (u, complex_u):
        foreign.matlab73(tmp_path / "a.mat", {"usol": values.T, "x": grid(16)[None], "t": foreign.times(9)[None]})
        recording = open_recording(tmp_path / "a.mat")
        check(recording, u[None, :, None], "u")
        assert recording.dt == T_STEP
        handles.close_hdf5()


def pbdl_by_frame(path: Path, u: np.ndarray) -> None:
    foreign.pbdl(path, u, by_frame=True)


@pytest.mark.parametrize(
    ("write", "shape", "name", "values", "words"),
    [
        (foreign.pdebench, (3, 1, 1, 8, 8), "nu", states((3, 8, 8)), ("tensor (3, 1, 8, 8)",)),  # Darcy
        (foreign.pdebench, (3, 5, 1, 8), "tensor", np.full((3, 5, 8), b"text", object), ("tensor", "object")),
        (foreign.pdebench_cfd, (3, 5, 4, 8, 8), "Vy", None, ("Vy", "group")),
        (foreign.pdebench_cfd, (3, 5, 4, 8, 8), "Vy", states((3, 4, 8, 8)), ("(3, 5, 8, 8)", "Vy (3, 4, 8, 8)")),
        (foreign.pdebench_groups, (3, 5, 2, 8, 8), "0001/data", states((5, 8, 8, 1)), ("0001/data (5, 8, 8, 1)",)),
        (pbdl_by_frame, (3, 5, 2, 8, 6), "sims/sim1/3", states((8, 6, 1)), ("sims/sim1/3 (8, 6, 1)",)),
    ],
)
def test_a_dataset_that_does_not_fit_is_named(
    tmp_path: Path,
    write: Callable[..., None],
    shape: tuple[int, ...],
    name: str,
    values: np.ndarray | None,
    words: tuple[str, ...],
) -> None:
    write(tmp_path / "a.h5", states(shape))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        if name in file:
            del file[name]
        if values is None:
            file.create_group(name)
        else:
            file[name] = values
    refused(tmp_path / "a.h5", *words)


def test_layouts_without_trajectories_are_named(tmp_path: Path) -> None:
    foreign.particles(tmp_path / "particles.h5")
    refused(tmp_path / "particles.h5", "LagrangeBench")
    with h5py.File(tmp_path / "poisson.h5", "w") as file:
        file["source"], file["solution"] = states((3, 8, 8)), states((3, 8, 8), 1)
    refused(tmp_path / "poisson.h5", "solution (3, 8, 8)")
    with h5py.File(tmp_path / "unknown.h5", "w") as file:
        for index in range(20):
            file[f"group{index:02d}/thing"] = states((3, 8, 8))
    refused(tmp_path / "unknown.h5", "group00/thing (3, 8, 8)", "data.layout")
    assert len(open_recording(tmp_path / "unknown.h5", "txy").trajectories) == 20
    (tmp_path / "superblock.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    refused(tmp_path / "superblock.h5")


def test_folder_of_two_resolutions_names_two_files(tmp_path: Path) -> None:
    foreign.pdebench(tmp_path / "a.h5", states((3, 5, 1, 8)))
    foreign.pdebench(tmp_path / "b.h5", states((3, 5, 1, 16)))
    refused(tmp_path, "a.h5", "b.h5", "x: 8", "x: 16")
    (tmp_path / "b.h5").unlink()
    foreign.era5(tmp_path / "c.h5", states((5, 2, 8, 8)))
    refused(tmp_path, "a.h5", "c.h5", "pdebench", "era5")


def test_truncated_after_opening(tmp_path: Path) -> None:
    foreign.pdebench(tmp_path / "a.h5", states((3, 50, 1, 64)))
    recording = open_recording(tmp_path / "a.h5")
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[: len(content) // 2])
    refused(lambda: recording.trajectories[2].read(slice(None), [0]), "a.h5")


def test_truncated_anywhere(tmp_path: Path) -> None:
    write_well(tmp_path / "a.h5", well_states())
    content = (tmp_path / "a.h5").read_bytes()
    for length in range(8, len(content), len(content) // 20):
        (tmp_path / "b.h5").write_bytes(content[:length])
        refused(tmp_path / "b.h5")


def many_files(folder: Path, count: int) -> tuple[Recording, np.ndarray]:
    u = states((count, 6, 2, 4, 5))
    for index, run in enumerate(u):
        foreign.era5(folder / f"{index}.h5", run)
    return open_recording(folder), u


def test_few_files_stay_open_and_reads_of_threads_do_not_mix(tmp_path: Path) -> None:
    recording, u = many_files(tmp_path, 2 * handles.KEPT)
    wrong = []

    def read_all(seed: int) -> None:
        for index in np.random.default_rng(seed).permutation(len(u)):
            if not np.array_equal(recording.trajectories[index].read(slice(1, 4), [1]), u[index, 1:4, 1:]):
                wrong.append(index)

    threads = [threading.Thread(target=read_all, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert handles._dataset.cache_info().currsize <= handles.KEPT


def _read_in_child(recording: Recording, index: int) -> np.ndarray:
    return recording.trajectories[index].read(slice(None), [0, 1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_read_after_a_fork(tmp_path: Path) -> None:
    recording, u = many_files(tmp_path, 2)
    recording.trajectories[0].read(slice(None), [0])  # so that the parent has an open file
    with multiprocessing.get_context("fork").Pool(1) as pool:
        read = pool.starmap(_read_in_child, [(recording, 0), (recording, 1)])
    np.testing.assert_array_equal(read, u)
