"""Readers of HDF5 files: what is read back from a file in each layout is what was written, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import foreign
from foreign import T_STEP, grid, states
from hero.data import Split, get_task, handles, load_split, split_path
from hero.data.formats import open_recording
from hero.data.recording import Recording
from hero.errors import HeroError


def check(recording: Recording, u: np.ndarray, names: list[str]) -> None:
    """All trajectories equal `u` (trajectory, time, channel, *space), whole and in parts."""
    assert [channel.name for channel in recording.channels] == names
    assert recording.space == u.shape[3:]
    assert [trajectory.frames for trajectory in recording.trajectories] == [u.shape[1]] * len(u)
    for trajectory, run in zip(recording.trajectories, u, strict=True):
        whole = trajectory.read(slice(None), range(len(names)))
        assert whole.dtype == u.dtype
        np.testing.assert_array_equal(whole, run)
        some = [len(names) - 1, 0]
        np.testing.assert_array_equal(trajectory.read(slice(1, 6, 2), some), run[1:6:2, some])
        assert trajectory.read(slice(2, 2), [0]).shape == (0, 1, *u.shape[3:])


@pytest.mark.parametrize("space", [(16,), (8, 6), (6, 5, 4)])
def test_pdebench(tmp_path: Path, space: tuple[int, ...]) -> None:
    u = states((21, 7, 1, *space))
    foreign.pdebench(tmp_path / "a.hdf5", u)
    recording = open_recording(tmp_path / "a.hdf5")
    check(recording, u, ["u"])
    assert recording.format == "pdebench"
    assert recording.dt == T_STEP
    np.testing.assert_array_equal(recording.axes[0].coordinates, grid(space[0]).astype("f4"))
    assert [trajectory.split for trajectory in recording.trajectories] == ["test"] * 2 + [""] * 19
    assert recording.trajectories[5].scalars == {"beta": 0.1}


def test_pdebench_cfd(tmp_path: Path) -> None:
    u = states((10, 5, 4, 8, 6))
    foreign.pdebench_cfd(tmp_path / "a.hdf5", u)
    recording = open_recording(tmp_path / "a.hdf5")
    check(recording, u, ["density", "pressure", "Vx", "Vy"])
    assert dict(recording.trajectories[0].scalars) == {"eta": 0.01, "zeta": 0.02, "M": 0.5}
    assert [trajectory.split for trajectory in recording.trajectories].count("test") == 1


@pytest.mark.parametrize("space", [(12,), (8, 6)])
def test_pdebench_groups(tmp_path: Path, space: tuple[int, ...]) -> None:
    u = states((10, 5, 2, *space))
    foreign.pdebench_groups(tmp_path / "a.h5", u)
    recording = open_recording(tmp_path / "a.h5")
    check(recording, u, ["u0", "u1"])
    assert recording.dt == T_STEP
    assert [dict(trajectory.scalars) for trajectory in recording.trajectories] == [{"k": 0.5 + n} for n in range(10)]
    assert [trajectory.split for trajectory in recording.trajectories] == ["test"] + [""] * 9


def test_pdebench_incompressible(tmp_path: Path) -> None:
    u, force = states((3, 5, 3, 8, 6)), states((3, 2, 8, 6), seed=1)
    foreign.pdebench_incompressible(tmp_path / "a.h5", u, force)
    recording = open_recording(tmp_path / "a.h5")
    check(recording, u, ["velocity_x", "velocity_y", "particles"])
    assert recording.dt == T_STEP
    assert recording.field_names == ("force_x", "force_y")
    for trajectory, expected in zip(recording.trajectories, force, strict=True):
        assert trajectory.fields is not None
        np.testing.assert_array_equal(trajectory.fields(), expected)


WELL_CHANNELS = ["scalar", "profile", "velocity_x", "velocity_y", "stress_xx", "stress_xy", "stress_yx", "stress_yy"]


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
    assert [axis.periodic for axis in recording.axes] == [True, False]
    assert recording.field_names == ("density", "mask")
    for index, trajectory in enumerate(recording.trajectories):
        assert trajectory.fields is not None
        np.testing.assert_array_equal(trajectory.fields(), [parts["density"][index], parts["mask"]])
        assert dict(trajectory.scalars) == {"number": parts["number"][index], "common": 7, "viscosity": 0.125}
    assert any("clock" in note for note in recording.notes)
    assert any("y is not periodic: wall" in note for note in recording.notes)


def test_well_as_its_own_loader_reads_it(tmp_path: Path) -> None:
    the_well = pytest.importorskip("the_well.data")
    u = well_states()
    write_well(tmp_path / "toy/data/train/a.hdf5", u)
    recording = open_recording(tmp_path / "toy")
    oracle = the_well.WellDataset(path=str(tmp_path / "toy/data/train"), n_steps_input=5, n_steps_output=1)
    assert [name for order in range(3) for name in oracle.metadata.field_names[order]] == WELL_CHANNELS
    for index, trajectory in enumerate(recording.trajectories):
        sample = oracle[index]
        read = np.moveaxis(trajectory.read(slice(None), range(8)), 1, -1)
        np.testing.assert_array_equal(read[:5], sample["input_fields"])
        np.testing.assert_array_equal(read[5:], sample["output_fields"])
        assert trajectory.fields is not None
        np.testing.assert_array_equal(np.moveaxis(trajectory.fields(), 0, -1), sample["constant_fields"])
        ours = [trajectory.scalars[name] for name in oracle.metadata.constant_scalar_names]
        np.testing.assert_array_equal(ours, sample["constant_scalars"])
        both = {0: "wall", 1: "open", 2: "periodic"}
        kinds = [{both[int(end)] for end in ends} for ends in sample["boundary_conditions"]]
        assert [kind == {"periodic"} for kind in kinds] == [axis.periodic for axis in recording.axes]


def test_well_folder_has_splits_and_numbers_for_boundaries_that_differ(tmp_path: Path) -> None:
    parts = {"train": well_states(3), "valid": well_states(2, 1), "test": well_states(1, 2)}
    for split, u in parts.items():
        kinds = ("PERIODIC", "open") if split == "test" else ("PERIODIC", "WALL")
        write_well(tmp_path / f"toy/data/{split}/a.h5", u, kinds=kinds)
    (tmp_path / "toy/stats.yaml").write_text("mean: 0\n")
    recording = open_recording(tmp_path / "toy")
    order = {"test": parts["test"], "train": parts["train"], "valid": parts["valid"]}
    check(recording, np.concatenate(list(order.values())), WELL_CHANNELS)
    assert [trajectory.split for trajectory in recording.trajectories] == ["test", *["train"] * 3, *["val"] * 2]
    boundary = [trajectory.scalars["boundary_y_low"] for trajectory in recording.trajectories]
    assert boundary == [1, 0, 0, 0, 0, 0]
    assert "boundary_x_low" not in recording.scalar_names


def test_pdearena_files_per_split(tmp_path: Path) -> None:
    parts = {
        "test": states((2, 5, 3, 8, 6), 0),
        "train": states((3, 5, 3, 8, 6), 1),
        "valid": states((1, 5, 3, 8, 6), 2),
    }
    for split, u in parts.items():
        foreign.pdearena(tmp_path / f"NS_{split}.h5", u, split, np.arange(len(u), dtype="f8"))
    recording = open_recording(tmp_path)
    check(recording, np.concatenate(list(parts.values())), ["u", "vx", "vy"])
    assert [trajectory.split for trajectory in recording.trajectories] == [*["test"] * 2, *["train"] * 3, "val"]
    assert [trajectory.scalars for trajectory in recording.trajectories[2:5]] == [{"buo_y": n} for n in range(3)]
    assert recording.dt == T_STEP
    np.testing.assert_array_equal(recording.axes[1].coordinates, grid(6))


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("velocity", ["velocity_x", "velocity_y"]),
        ("velocity", ["velocity_x", "velocity_y", "tracer"]),
        ("data", ["density", "velocity_x", "velocity_y", "pressure"]),
        ("solution", ["u"]),
        ("solution", ["u0", "u1"]),
    ],
)
def test_poseidon(tmp_path: Path, name: str, channels: list[str]) -> None:
    u = states((3, 7, len(channels), 8, 8))
    foreign.poseidon(tmp_path / "a.nc", u, name)
    recording = open_recording(tmp_path / "a.nc")
    assert recording.format == "poseidon"
    check(recording, u, channels)


def test_poseidon_wave_is_conditioned_by_its_speed(tmp_path: Path) -> None:
    u, speed = states((3, 7, 1, 8, 8)), states((3, 8, 8), 1)
    foreign.poseidon(tmp_path / "a.nc", u, "solution", speed)
    recording = open_recording(tmp_path / "a.nc")
    check(recording, u, ["u"])
    assert recording.field_names == ("c",)
    read = recording.trajectories[2].fields
    assert read is not None
    np.testing.assert_array_equal(read(), speed[2][None])


@pytest.mark.parametrize("named", [True, False])
def test_realpdebench_folder(tmp_path: Path, named: bool) -> None:
    u = states((3, 6, 3, 8, 5))
    for index, run in enumerate(u):
        foreign.realpdebench(tmp_path / f"{index}.h5", run, named)
    recording = open_recording(tmp_path)
    if named:
        u = u[:, :, [2, 0, 1]]  # the file lists its datasets by name: p, u, v
    check(recording, u, ["p", "u", "v"] if named else ["u0", "u1", "u2"])
    assert [axis.name for axis in recording.axes] == ["y", "x"]


def test_dpot(tmp_path: Path) -> None:
    u = states((3, 5, 2, 8, 8))
    foreign.dpot(tmp_path / "a.hdf5", u)
    check(open_recording(tmp_path / "a.hdf5"), u, ["u0", "u1"])


def test_dpot_folder_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    u = states((11, 5, 2, 8, 8))
    for index, run in enumerate(u):
        foreign.dpot(tmp_path / f"data_{index}.hdf5", run)
    check(open_recording(tmp_path), u, ["u0", "u1"])


@pytest.mark.parametrize("by_frame", [True, False])
def test_pbdl(tmp_path: Path, by_frame: bool) -> None:
    u = states((11, 12, 2, 8, 6))
    foreign.pbdl(tmp_path / "a.hdf5", u, by_frame)
    recording = open_recording(tmp_path / "a.hdf5")
    check(recording, u, ["density", "velocity_X"])
    assert recording.dt == T_STEP
    assert recording.trajectories[10].scalars == {"nu": 5.0}


def test_bubbleml(tmp_path: Path) -> None:
    run = states((6, 5, 8, 4), dtype="f8")
    foreign.bubbleml(tmp_path / "a.hdf5", run)
    recording = open_recording(tmp_path / "a.hdf5")
    check(recording, run[None], ["temperature", "velx", "vely", "dfun", "pressure"])
    assert [axis.name for axis in recording.axes] == ["y", "x"]
    np.testing.assert_array_equal(recording.axes[0].coordinates, grid(8))
    np.testing.assert_array_equal(recording.axes[1].coordinates, grid(4))


def test_dedalus_sets_follow_each_other(tmp_path: Path) -> None:
    run = states((12, 3, 8, 6), dtype="f8")
    for number, (start, stop) in {2: (5, 9), 10: (9, 12), 1: (0, 5)}.items():
        foreign.dedalus(tmp_path / f"snapshots_s{number}.h5", run[start:stop], start)
    recording = open_recording(tmp_path)
    check(recording, run[None], ["p", "u_x", "u_y"])
    assert recording.dt == T_STEP
    assert any("mean" in note for note in recording.notes)
    np.testing.assert_array_equal(recording.axes[1].coordinates, grid(6))
    for frames in (slice(3, 11, 3), slice(-4, None), slice(8, 10)):
        np.testing.assert_array_equal(recording.trajectories[0].read(frames, [2]), run[frames, 2:])
    foreign.dedalus(tmp_path / "snapshots_s11.h5", run[:5], 3)
    with pytest.raises(HeroError, match="overlap"):
        open_recording(tmp_path)


def test_era5_has_a_trajectory_per_file(tmp_path: Path) -> None:
    u = states((2, 6, 3, 5, 8))
    for year, run in zip((1979, 1980), u, strict=True):
        foreign.era5(tmp_path / f"{year}.h5", run)
    check(open_recording(tmp_path), u, ["field0", "field1", "field2"])


def test_own_file(tmp_path: Path) -> None:
    task, split = get_task("burgers", {"resolution": 16}), Split("val", 2, 3, seed=0)
    u = load_split(task, split, tmp_path).numpy()
    recording = open_recording(split_path(task, split, tmp_path))
    check(recording, u, ["u"])
    assert recording.dt == task.dt
    assert recording.axes[0].periodic
    assert np.allclose(np.diff(recording.axes[0].coordinates), task.extent / 16)
    assert {trajectory.split for trajectory in recording.trajectories} == {"val"}


def test_matlab73(tmp_path: Path) -> None:
    u, complex_u = states((9, 16), dtype="f8"), states((9, 16), dtype="f8") * (1 + 1e-12j)
    for values in (u, complex_u):
        foreign.matlab73(tmp_path / "a.mat", {"usol": values.T, "x": grid(16)[None], "t": foreign.times(9)[None]})
        recording = open_recording(tmp_path / "a.mat")
        check(recording, u[None, :, None], ["u"])
        assert recording.dt == T_STEP
        handles.close_hdf5()


def test_array_with_a_layout(tmp_path: Path) -> None:
    u = states((3, 5, 2, 8, 6))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/inside"] = u.transpose(3, 0, 1, 4, 2)
        file["note"] = "text"
    check(open_recording(tmp_path / "a.h5", "xbtyc"), u, ["inside0", "inside1"])
    with pytest.raises(HeroError, match=r"data\.layout"):
        open_recording(tmp_path / "a.h5")
    with pytest.raises(HeroError, match="'xbc'"):
        open_recording(tmp_path / "a.h5", "xbc")


def test_order_of_axes_comes_from_lengths(tmp_path: Path) -> None:
    u = states((3, 7, 1, 16))
    foreign.pdebench(tmp_path / "a.h5", u)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["tensor"]
        file["tensor"] = u[:, :, 0].transpose(2, 0, 1)
    check(open_recording(tmp_path / "a.h5"), u, ["u"])
    handles.close_hdf5()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["tensor"]
        file["tensor"] = u[:, :, 0, :9]
    with pytest.raises(HeroError, match=r"cannot be told.*data\.layout"):
        open_recording(tmp_path / "a.h5")


def test_uneven_times_are_noted(tmp_path: Path) -> None:
    foreign.pdebench(tmp_path / "a.h5", states((3, 7, 1, 16)))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["t-coordinate"][3] = 0.9
    assert any("uniform" in note for note in open_recording(tmp_path / "a.h5").notes)


def darcy(path: Path) -> None:
    foreign.pdebench(path, states((3, 1, 1, 8, 8)))
    with h5py.File(path, "r+") as file:
        file["nu"] = states((3, 8, 8))


def poisson(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["source"], file["solution"] = states((3, 8, 8)), states((3, 8, 8), 1)


def unknown(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for index in range(20):
            file[f"group{index:02d}/thing"] = states((3, 8, 8))


def group_for_dataset(path: Path) -> None:
    foreign.pdebench_cfd(path, states((3, 5, 4, 8, 8)))
    with h5py.File(path, "r+") as file:
        del file["Vy"]
        file.create_group("Vy")


def objects(path: Path) -> None:
    foreign.pdebench(path, states((3, 5, 1, 8)))
    with h5py.File(path, "r+") as file:
        del file["tensor"]
        file.create_dataset("tensor", (3, 5, 8), h5py.string_dtype())


def truncated(path: Path) -> None:
    foreign.pdebench(path, states((3, 50, 1, 64)))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty_superblock(path: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (darcy, "steady"),
        (poisson, "steady"),
        (foreign.particles, "particles"),
        (unknown, r"group00/thing \(3, 8, 8\) float32, .*group07/thing \(3, 8, 8\) float32, \.\.\."),
        (group_for_dataset, "Vy .* is a group"),
        (objects, "holds object"),
        (truncated, "copy or download"),
        (empty_superblock, "copy or download"),
    ],
)
def test_refused_in_a_sentence(tmp_path: Path, write: Callable[[Path], None], words: str) -> None:
    write(tmp_path / "a.h5")
    with pytest.raises(HeroError, match=words) as caught:
        open_recording(tmp_path / "a.h5")
    assert "\n" not in str(caught.value)
    assert "a.h5" in str(caught.value)


def test_folder_of_two_resolutions_names_two_files(tmp_path: Path) -> None:
    foreign.pdebench(tmp_path / "a.h5", states((3, 5, 1, 8)))
    foreign.pdebench(tmp_path / "b.h5", states((3, 5, 1, 16)))
    with pytest.raises(HeroError, match=r"a\.h5 and .*b\.h5 have different grids, \(x: 8\) and \(x: 16\)"):
        open_recording(tmp_path)
    (tmp_path / "b.h5").unlink()
    foreign.era5(tmp_path / "c.h5", states((5, 2, 8, 8)))
    with pytest.raises(HeroError, match="different layouts, pdebench and era5"):
        open_recording(tmp_path)


def test_truncated_after_opening(tmp_path: Path) -> None:
    foreign.pdebench(tmp_path / "a.h5", states((3, 50, 1, 64)))
    recording = open_recording(tmp_path / "a.h5")
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[: len(content) // 2])
    with pytest.raises(HeroError, match="copy or download"):
        recording.trajectories[2].read(slice(None), [0])


def test_truncated_anywhere(tmp_path: Path) -> None:
    write_well(tmp_path / "a.h5", well_states())
    content = (tmp_path / "a.h5").read_bytes()
    for length in range(8, len(content), len(content) // 20):
        (tmp_path / "b.h5").write_bytes(content[:length])
        with pytest.raises(HeroError, match="copy or download"):
            open_recording(tmp_path / "b.h5")


def test_fields_of_different_lengths(tmp_path: Path) -> None:
    foreign.pdebench_cfd(tmp_path / "a.h5", states((3, 5, 4, 8, 8)))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["Vy"]
        file["Vy"] = states((3, 4, 8, 8))
    with pytest.raises(HeroError, match=r"density \(3, 5, 8, 8\) and Vy \(3, 4, 8, 8\) differ"):
        open_recording(tmp_path / "a.h5")


def test_times_that_differ_between_trajectories_are_noted(tmp_path: Path) -> None:
    u = states((3, 5, 3, 8, 6))
    foreign.pdearena(tmp_path / "a.h5", u, "train", np.zeros(3))
    assert not open_recording(tmp_path / "a.h5").notes
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["train/t"][1] += 1  # a later start is no difference
    assert not open_recording(tmp_path / "a.h5").notes
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["train/t"][1] *= 2
    assert any("t differ between trajectories" in note for note in open_recording(tmp_path / "a.h5").notes)


def test_netcdf_that_no_layout_fits_is_read_by_its_dimensions(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    u = states((7, 8, 6))
    places = {"time": foreign.times(7), "y": grid(8), "x": grid(6)}
    xarray.Dataset({"height": (("time", "y", "x"), u)}, places).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    recording = open_recording(tmp_path / "a.nc")
    assert recording.format == "xarray"
    read = recording.trajectories[0].read(slice(None), [0])
    np.testing.assert_array_equal(
        read[:, 0], u if [axis.name for axis in recording.axes] == ["y", "x"] else u.swapaxes(1, 2)
    )


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
    assert len(handles._handles) == handles.KEPT
    assert all(handle.file for handle in handles._handles.values())  # a closed file is false


def _read_in_child(recording: Recording, index: int) -> np.ndarray:
    return recording.trajectories[index].read(slice(None), [0, 1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_read_after_a_fork(tmp_path: Path) -> None:
    recording, u = many_files(tmp_path, 2)
    recording.trajectories[0].read(slice(None), [0])  # so that the parent has an open file
    with multiprocessing.get_context("fork").Pool(1) as pool:
        read = pool.starmap(_read_in_child, [(recording, 0), (recording, 1)])
    np.testing.assert_array_equal(read, u)


def test_a_recording_can_be_sent_to_another_process(tmp_path: Path) -> None:
    recording, u = many_files(tmp_path, 2)
    sent = pickle.loads(pickle.dumps(recording))
    np.testing.assert_array_equal(sent.trajectories[1].read(slice(None), [1]), u[1, :, 1:])


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    first, second = states((2, 6, 2, 4, 5))
    foreign.era5(tmp_path / "a.h5", first)
    foreign.era5(tmp_path / "b.h5", second)
    recording = open_recording(tmp_path / "a.h5")
    check(recording, first[None], ["field0", "field1"])
    os.replace(tmp_path / "b.h5", tmp_path / "a.h5")
    check(recording, second[None], ["field0", "field1"])
