"""Folders in which a file is a state, XDMF, and files as simulations leave them, written by the libraries in use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from conftest import Call, Later, assert_refused
from foreign import refused
from foreign_arrays import matlab, states
from hero.analysis.doctor import diagnose
from hero.data.files.selection import resampled
from hero.data.formats import open_recording
from hero.results import Result
from test_files import FNO, SMALL, settings, through_the_flow, waves
from test_formats_arrays import whole


def points_of(u: np.ndarray) -> dict[str, np.ndarray]:
    """A state on a grid of 8 times 6 points as columns."""
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(8) / 8, np.arange(6) / 6, indexing="ij"))
    return {"x": x, "y": y, "height": u[0].ravel(), "speed": u[1].ravel()}


def write_csv(path: Path, u: np.ndarray) -> None:
    table = pytest.importorskip("pandas").DataFrame(points_of(u))
    table.sample(frac=1, random_state=0).to_csv(path, index=False)


def write_parquet(path: Path, u: np.ndarray) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas").DataFrame(points_of(u)).to_parquet(path)


def write_mesh(path: Path, u: np.ndarray) -> None:
    pytest.importorskip("vtkmodules")
    x, y, *_ = points_of(u).values()
    fields = {"height": u[0].ravel(), "speed": u[1].ravel()}
    write_points(path, np.stack([x, y, 0 * x], axis=1), fields)


def write_points(path: Path, points: np.ndarray, fields: dict[str, np.ndarray]) -> None:
    cells = [("vertex", np.arange(len(points))[:, None])]
    pytest.importorskip("meshio").write_points_cells(path, points, cells, fields)


def write_vti(path: Path, u: np.ndarray) -> None:
    pytest.importorskip("vtkmodules")
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkImageData
    from vtkmodules.vtkIOXML import vtkXMLImageDataWriter

    image = vtkImageData()
    image.SetDimensions(8, 6, 1)
    image.SetSpacing(1 / 8, 1 / 6, 1)
    for name, values in zip(("height", "speed"), u, strict=True):
        array = numpy_to_vtk(values.ravel(order="F"), deep=True)
        array.SetName(name)
        image.GetPointData().AddArray(array)
    writer = vtkXMLImageDataWriter()
    writer.SetFileName(str(path))
    writer.SetInputData(image)
    writer.Write()


def write_netcdf(path: Path, u: np.ndarray) -> None:
    xarray = pytest.importorskip("xarray")
    fields = {"height": (("x", "y"), u[0]), "speed": (("x", "y"), u[1])}
    xarray.Dataset(fields, {"x": np.arange(8) / 8, "y": np.arange(6) / 6}).to_netcdf(path, engine="h5netcdf")


def write_hdf5(path: Path, u: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["height"], file["speed"], file["x"], file["y"] = u[0], u[1], np.arange(8) / 8, np.arange(6) / 6


KINDS: dict[str, tuple[str, Callable[[Path, np.ndarray], object]]] = {
    "npy": (".npy", np.save),
    "npz": (".npz", lambda path, u: np.savez_compressed(path, height=u[0], speed=u[1])),
    "pt": (".pt", lambda path, u: torch.save(torch.from_numpy(u), path)),
    "mat": (".mat", lambda path, u: matlab.savemat(path, {"height": u[0], "speed": u[1]})),
    "h5": (".h5", write_hdf5),
    "nc": (".nc", write_netcdf),
    "csv": (".csv", write_csv),
    "parquet": (".parquet", write_parquet),
    "vtk": (".vtk", write_mesh),
    "vtu": (".vtu", write_mesh),
    "vti": (".vti", write_vti),
}


def write_states(folder: Path, kind: str, u: np.ndarray, run: str = "sim_{}", name: str = "t_{}") -> Path:
    ending, write = KINDS[kind]
    for b, trajectory in enumerate(u):
        (folder / run.format(b)).mkdir(parents=True, exist_ok=True)
        for t, state in enumerate(trajectory):
            write(folder / run.format(b) / f"{name.format(t)}{ending}", state)
    return folder


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_file_per_state(tmp_path: Path, kind: str) -> None:
    u = waves(2, 11, 2, 8, 6).astype("f8")
    recording = open_recording(write_states(tmp_path / "f", kind, u))
    assert np.array_equal(whole(recording), u)
    named = ["height", "speed"] if kind not in ("npy", "pt") else ["u0", "u1"]
    assert names_of(recording) == named
    assert np.array_equal(recording.trajectories[1].read(slice(2, 11, 4), [1]), u[1, 2:11:4, 1:])
    if kind in ("h5", "nc", "csv", "parquet", "vtk", "vtu", "vti"):
        np.testing.assert_allclose(recording.axes[1].coordinates, np.arange(6) / 6)
    assert any("trajectory, time" in note and "sim_{b}/t_{t}" in note for note in recording.notes)


def test_images_are_states(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    u = (127 + 100 * waves(1, 30, 1, 8, 6)[0, :, 0]).clip(0, 255).astype("u1")
    for t, state in enumerate(u):
        image.fromarray(state).save(tmp_path / f"frame{t}.png")
    assert np.array_equal(whole(open_recording(tmp_path))[0, :, 0], u)
    colours = np.stack([u, 255 - u, u // 2], axis=-1)
    (tmp_path / "rgb").mkdir()
    for t, state in enumerate(colours):
        image.fromarray(state).save(tmp_path / "rgb" / f"{t:04d}.png")
    recording = open_recording(tmp_path / "rgb")
    assert np.array_equal(whole(recording)[0], np.moveaxis(colours, -1, 1))
    refused(tmp_path / "frame0.png", "one state", "folder")


def test_scattered_points_are_a_cloud(tmp_path: Path) -> None:
    pytest.importorskip("vtkmodules")
    points = np.random.default_rng(0).random((9, 3))
    u = states(5, 9, 3)
    for t, velocity in enumerate(u):
        write_points(tmp_path / f"out.{t:04d}.vtu", points, {"velocity": velocity})
    recording = open_recording(tmp_path)
    assert names_of(recording) == ["velocity0", "velocity1", "velocity2"]
    assert np.array_equal(whole(recording)[0], np.moveaxis(u, -1, 1))
    assert np.array_equal(recording.points, points)  # type: ignore[arg-type]


def test_names_with_a_variable_are_channels(tmp_path: Path) -> None:
    u = waves(3, 12, 2, 8, 6)
    (tmp_path / "f").mkdir()
    for b, run in enumerate(u):
        np.save(tmp_path / "f" / f"traj_{b}_height.npy", run[:, 0])
        np.save(tmp_path / "f" / f"traj_{b}_vorticity.npy", run[:, 1])
    recording = open_recording(tmp_path / "f", "txy")
    assert names_of(recording) == ["height", "vorticity"]
    assert np.array_equal(whole(recording), u)
    (tmp_path / "f" / "traj_2_height.npy").unlink()
    refused(tmp_path / "f", "trajectory 2", "height 0, vorticity 1", layout="txy")
    (tmp_path / "g").mkdir()
    for place, letter in enumerate("xy"):
        np.savez(tmp_path / "g" / f"u_{letter}.npz", u=u[:, :, place : place + 1])
    recording = open_recording(tmp_path / "g")
    assert names_of(recording) == ["u_x", "u_y"]
    assert np.array_equal(whole(recording), u)


def test_a_variable_and_a_time_in_the_names(tmp_path: Path) -> None:
    u = waves(2, 12, 3, 8, 6)
    for b, run in enumerate(u):
        (tmp_path / f"sim_{b:03d}").mkdir()
        for t, state in enumerate(run):
            np.save(tmp_path / f"sim_{b:03d}" / f"velocity_{t:04d}.npy", state[:2])
            np.save(tmp_path / f"sim_{b:03d}" / f"pressure_{t:04d}.npy", state[2])
    recording = open_recording(tmp_path)
    assert names_of(recording) == ["pressure", "velocity_0", "velocity_1"]
    assert np.array_equal(whole(recording), u[:, :, [2, 0, 1]])
    only = open_recording(tmp_path, "sim_{b}/pressure_{t}.npy xy")
    assert np.array_equal(whole(only), u[:, :, 2:])
    assert any("24 others are not read" in note for note in only.notes)
    refused(tmp_path, "no file fits", layout="run{b}/{t}.npy")
    refused(tmp_path, "not understood", layout="{b}/{time}.npy")
    (tmp_path / "sim_001" / "pressure_0003.npy").unlink()
    refused(tmp_path, "pressure 11, velocity 12", "data.layout='sim_{b}/{c}_{t}.npy'")


def test_uneven_times_are_interpolated_where_the_user_says_so(tmp_path: Path, call: Call) -> None:
    folder = write_states(tmp_path / "f", "npy", waves(1, 40, 2, 8, 6), run="")
    (folder / "t_7.npy").unlink()
    given = open_recording(folder)
    even = resampled(given, 0.5)
    values, times = given.trajectories[0].read(slice(None), [0, 1]), given.times[0]
    expected = np.stack([np.interp(0.5 * np.arange(79), times, line) for line in values.reshape(39, -1).T], axis=1)
    assert even.trajectories[0].frames == 79
    for part in (slice(0, 79), slice(11, 20, 3), slice(78, 79)):
        found = even.trajectories[0].read(part, [0, 1])
        np.testing.assert_allclose(found.reshape(len(found), -1), expected[part], atol=1e-12)
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    assert call("train", folder, *settings(*SMALL, *FNO, "data.resample=1", "data.rollout=2"), *places)[0] == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert call("predict", run, "--input", folder, "--steps", 2, "--out", tmp_path / "next.npy", *places)[0] == 0
    np.savez(tmp_path / "g.npz", u=waves(3, 9, 1, 8))
    assert_refused(call("train", tmp_path / "g.npz", *settings("data.resample=1")), "data.resample")


def test_only_two_states_are_opened_before_they_are_read(tmp_path: Path) -> None:
    u = waves(1, 40, 1, 8, 6)
    folder = write_states(tmp_path / "f", "npy", u, run="")
    np.save(folder / "t_20.npy", np.zeros((1, 8, 7)))
    (folder / "t_21.npy").write_bytes(b"nothing")
    recording = open_recording(folder)
    assert np.array_equal(recording.trajectories[0].read(slice(0, 20), [0]), u[0, :20])
    refused(lambda: recording.trajectories[0].read(slice(19, 21), [0]), "t_20.npy", "(1, 8, 7)", "(1, 8, 6)")
    refused(lambda: recording.trajectories[0].read(slice(21, 22), [0]), "t_21.npy")
    np.save(folder / "t_39.npy", np.zeros((1, 8, 7)))
    refused(folder, "(1, 8, 7)")


def test_dates_in_names_are_times(tmp_path: Path) -> None:
    u = states(4, 8, 6)
    for t, state in enumerate(u):
        np.save(tmp_path / f"sst_2020-02-{27 + t:02d}.npy" if t < 3 else tmp_path / "sst_2020-03-01.npy", state)
    recording = open_recording(tmp_path)
    assert np.array_equal(whole(recording)[0, :, 0], u)
    assert (recording.dt, recording.time_unit) == (1, "d")


def write_months(folder: Path, u: np.ndarray, months: list[str]) -> None:
    xarray = pytest.importorskip("xarray")
    folder.mkdir()
    days = np.datetime64("2001-01-01") + np.arange(len(u))
    for month in months:
        kept = days.astype("datetime64[M]") == np.datetime64(month)
        axes = {"time": days[kept].astype("datetime64[ns]"), "y": np.arange(6.0), "x": np.arange(8.0)}
        data = xarray.Dataset({"sst": (("time", "y", "x"), u[kept])}, axes)
        data.to_netcdf(folder / f"sst_{month}.nc", engine="h5netcdf")


def test_monthly_files_are_one_series(tmp_path: Path) -> None:
    u = waves(1, 90, 1, 6, 8)[0, :, 0]
    write_months(tmp_path / "whole", u, ["2001-01", "2001-02", "2001-03"])
    recording = open_recording(tmp_path / "whole")
    assert np.array_equal(whole(recording)[0, :, 0], u)
    assert (recording.dt, recording.time_unit) == (1, "d")
    assert any("3 files" in note and "one trajectory" in note for note in recording.notes)
    assert len(open_recording(tmp_path / "whole", "sst_{b}.nc").trajectories) == 3
    write_months(tmp_path / "gap", u, ["2001-01", "2001-03"])
    found = diagnose(open_recording(tmp_path / "gap"), str(tmp_path / "gap"))
    assert ["from 1 to 29 d" in one.text for one in found.problems] == [True]


def test_a_state_that_ends_one_file_and_begins_the_next_counts_once(tmp_path: Path) -> None:
    u = states(21, 8)
    for part in range(2):
        kept = slice(10 * part, 10 * part + 11)
        np.savez(tmp_path / f"part{part}.npz", u=u[kept], t=0.5 * np.arange(21)[kept], x=np.arange(8), heat=u[kept, 0])
    recording = open_recording(tmp_path)
    assert np.array_equal(whole(recording)[0, :, 0], u)
    assert np.array_equal(recording.trajectories[0].read(slice(3, 20, 4), [0])[:, 0], u[3:20:4])
    assert np.array_equal(recording.trajectories[0].series["heat"](slice(8, 13)), u[8:13, 0])
    assert recording.dt == 0.5


def test_decisions_in_reading_are_listed_before_training_and_in_python(tmp_path: Path, call: Call) -> None:
    folder = write_states(tmp_path / "f", "npy", waves(3, 12, 2, 8, 6))
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    code, out, err = call("train", folder, *settings(*SMALL, *FNO), *places)
    assert code == 0, err
    result = Result(next((tmp_path / "runs").iterdir()), tmp_path / "data")
    assert any("sim_{b}/t_{t}.npy" in note for note in result.notes)
    assert [note for note in result.notes if (out + err).count(f"note: {note}") != 1] == []


def test_a_folder_of_nothing_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "read.me").write_text("words")
    refused(tmp_path, "read.me")


def foam_file(path: Path, kind: str, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"FoamFile {{ version 2.0; format ascii; class {kind}; object {path.name}; }}\n{body}\n")


def write_foam(case: Path, u: np.ndarray, n: int) -> None:
    """A case as OpenFOAM writes it: a row of n cells; u is (time, cell), a pressure."""
    foam_file(case / "system" / "controlDict", "dictionary", "startTime 0; endTime 1; deltaT 0.5;")
    corners = [(x / n, y, z) for x in range(n + 1) for y in (0, 1) for z in (0, 1)]
    walls = [[4 * i, 4 * i + 1, 4 * i + 3, 4 * i + 2] for i in range(n + 1)]
    sides = [(0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    outer = [(i, [4 * i + k for k in side]) for i in range(n) for side in sides]
    inner = [(i - 1, walls[i][::-1]) for i in range(1, n)]
    faces = [*inner, (0, walls[0]), (n - 1, walls[n][::-1]), *outer]
    mesh = case / "constant" / "polyMesh"
    rows = {
        "points": ("vectorField", [f"({x:g} {y} {z})" for x, y, z in corners]),
        "faces": ("faceList", [f"4({' '.join(map(str, face))})" for _, face in faces]),
        "owner": ("labelList", [str(cell) for cell, _ in faces]),
        "neighbour": ("labelList", [str(cell + 1) for cell, _ in inner]),
    }
    for name, (kind, lines) in rows.items():
        foam_file(mesh / name, kind, f"{len(lines)}\n(\n" + "\n".join(lines) + "\n)")
    patch = f"walls {{ type wall; nFaces {len(faces) - len(inner)}; startFace {len(inner)}; }}"
    foam_file(mesh / "boundary", "polyBoundaryMesh", f"1\n(\n{patch}\n)")
    for time, state in enumerate(u):
        values = "\n".join(f"{value:.17g}" for value in state)
        field = f"dimensions [0 2 -2 0 0 0 0];\ninternalField nonuniform List<scalar>\n{n}\n(\n{values}\n)\n;\n"
        foam_file(
            case / f"{0.5 * time:g}" / "p", "volScalarField", field + "boundaryField { walls { type calculated; } }"
        )


def test_openfoam_cases_are_trajectories(tmp_path: Path) -> None:
    pytest.importorskip("vtkmodules")
    u = waves(3, 12, 1, 8)[:, :, 0]
    for b, run in enumerate(u):
        write_foam(tmp_path / "f" / f"case_{b}", run, 8)
    recording = open_recording(tmp_path / "f")
    np.testing.assert_allclose(whole(recording)[:, :, 0], u, rtol=1e-6)
    assert (names_of(recording), recording.dt) == (["p"], 0.5)
    np.testing.assert_allclose(recording.axes[0].coordinates, (np.arange(8) + 0.5) / 8, rtol=1e-6)
    foam_file(tmp_path / "f" / "case_0" / "0" / "p", "volScalarField", '#include "/etc/passwd"')
    refused(tmp_path / "f", "includes other files")


meshio = Later("meshio")
TIMES = 0.1 * np.arange(9)


def wave(x: np.ndarray, t: float) -> np.ndarray:
    return np.sin(2 * np.pi * (x - 0.3 * t))


def write_quads(path: Path, points: np.ndarray, cells: np.ndarray, in_cells: bool = False) -> None:
    """As meshio writes time series: the mesh once, the states with their times, arrays in HDF5."""
    corners = points[cells].mean(axis=1)
    with contextlib.chdir(path.parent), meshio.xdmf.TimeSeriesWriter(path) as writer:
        writer.write_points_cells(points, [("quad", cells)])
        for t in TIMES:
            if in_cells:
                writer.write_data(t, cell_data={"u": [wave(corners[:, 0], t)]})
            else:
                velocity = np.stack([wave(points[:, 0], t), points[:, 1], 0 * points[:, 1]], axis=1)
                writer.write_data(t, point_data={"u": wave(points[:, 0], t), "v": velocity})


def mesh_of(nx: int, ny: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a grid in a shuffled order, and its quads."""
    x, y = np.meshgrid(np.linspace(0, 1, nx), np.linspace(0, 2, ny), indexing="ij")
    order = np.random.default_rng(0).permutation(nx * ny)
    place = np.argsort(order).reshape(nx, ny)
    quads = np.stack([place[:-1, :-1], place[1:, :-1], place[1:, 1:], place[:-1, 1:]], axis=-1).reshape(-1, 4)
    points = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1)[order]
    return points, quads


def states_of(path: Path, frames: slice = slice(None)) -> tuple[list[str], np.ndarray]:
    found = open_recording(path)
    names = [channel.name for channel in found.channels]
    return names, found.trajectories[0].read(frames, list(range(len(names))))


@pytest.mark.parametrize("in_cells", [False, True])
def test_a_mesh_that_fills_a_grid_is_one(in_cells: bool, tmp_path: Path) -> None:
    write_quads(tmp_path / "run.xdmf", *mesh_of(7, 5), in_cells)
    found = open_recording(tmp_path / "run.xdmf")
    assert (found.format, found.dt) == ("xdmf", pytest.approx(0.1))
    assert found.space == ((6, 4) if in_cells else (7, 5))
    names, u = states_of(tmp_path / "run.xdmf", slice(2, 5))
    x = found.axes[0].coordinates
    for k, t in enumerate(TIMES[2:5]):
        np.testing.assert_allclose(
            u[k, names.index("u")], np.broadcast_to(wave(x, t)[:, None], found.space), atol=1e-12
        )
    assert (names[0] == "u", len(names)) == (True, 1 if in_cells else 4)


def test_scattered_points_of_xdmf_are_a_cloud(tmp_path: Path) -> None:
    points, quads = mesh_of(7, 5)
    points[:, :2] += 0.02 * np.random.default_rng(1).standard_normal((35, 2))
    write_quads(tmp_path / "run.xdmf", points, quads)
    found = open_recording(tmp_path / "run.xdmf")
    np.testing.assert_allclose(found.points, points[:, :2])
    names, u = states_of(tmp_path / "run.xdmf")
    np.testing.assert_allclose(u[3, names.index("u")], wave(points[:, 0], TIMES[3]), atol=1e-12)


REGULAR = """<?xml version="1.0" ?>
<!DOCTYPE Xdmf SYSTEM "Xdmf.dtd" []>
<Xdmf Version="2.0"><Domain><Grid GridType="Collection" CollectionType="Temporal">{}</Grid></Domain></Xdmf>"""
STATE = """<Grid GridType="Uniform"><Time Value="{t}"/>
<Topology TopologyType="2DCoRectMesh" Dimensions="6 16"/>
<Geometry GeometryType="ORIGIN_DXDY">
<DataItem Dimensions="2">0 0</DataItem><DataItem Dimensions="2">0.5 0.0625</DataItem></Geometry>
<Attribute Name="temperature" Center="Node">
<DataItem Format="HDF" Dimensions="6 16">{file}:/s{k}</DataItem></Attribute></Grid>"""


def write_regular(folder: Path, trajectory: int = 0, file: str = "") -> Path:
    name = f"run{trajectory}"
    with h5py.File(folder / f"{name}.h5", "w") as stored:
        for k, t in enumerate(TIMES):
            stored[f"s{k}"] = wave(np.arange(16) / 16 + 0.1 * trajectory, t) + np.zeros((6, 1))
    grids = "".join(STATE.format(t=t, k=k, file=file or f"{name}.h5") for k, t in enumerate(TIMES))
    (folder / f"{name}.xdmf").write_text(REGULAR.format(grids))
    return folder / f"{name}.xdmf"


def test_regular_grids_of_a_folder_are_trajectories(tmp_path: Path) -> None:
    for trajectory in range(2):
        write_regular(tmp_path, trajectory)
    found = open_recording(tmp_path)
    assert (len(found.trajectories), found.channels[0].name) == (2, "temperature")
    assert {axis.name: axis.points for axis in found.axes} == {"x": 16, "y": 6}
    u = found.trajectories[1].read(slice(3, 4), [0])[0, 0, :, 0]
    np.testing.assert_allclose(u, wave(np.arange(16) / 16 + 0.1, TIMES[3]), atol=1e-12)


@pytest.mark.parametrize("file", ["../elsewhere.h5", "missing.h5", "/etc/hostname"])
def test_arrays_elsewhere_are_refused(file: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "elsewhere.h5", "w") as stored:
        stored["s0"] = np.zeros((6, 16))
    refused(write_regular(tmp_path / "in", file=file), file)


def test_entities_are_refused(tmp_path: Path) -> None:
    path = write_regular(tmp_path)
    path.write_text(path.read_text().replace("[]", '[<!ENTITY a "aaaaaaaaaa">]'))
    refused(path, "entities")


def names_of(recording: object) -> list[str]:
    return [channel.name for channel in recording.channels]  # type: ignore[attr-defined]


def test_fields_that_share_axes_are_channels_by_name(tmp_path: Path, call: Call) -> None:
    u = waves(4, 9, 3, 8, 6)
    axes = {"x": np.arange(8.0), "y": np.arange(6.0), "t": 0.5 * np.arange(9)}
    file = tmp_path / "f.npz"
    fields = {"temperature": u[:, :, 0], "wind": np.moveaxis(u[:, :, 1:], 2, -1), "hill": u[0, 0, 0]}
    others = {"reynolds": [1.0, 2, 3, 4], "seed": np.arange(4), "spectrum": np.ones((4, 9))}
    np.savez(file, **fields, **others, **axes)
    recording = open_recording(file)
    assert names_of(recording) == ["temperature", "wind_0", "wind_1"]
    assert np.array_equal(whole(recording), u)
    assert recording.dt == 0.5
    assert [dict(run.scalars) for run in recording.trajectories] == [{"reynolds": n} for n in (1.0, 2, 3, 4)]
    assert recording.field_names == ("hill",)
    assert np.array_equal(recording.trajectories[1].fields()[0], u[0, 0, 0])  # type: ignore[misc]
    assert any("Not used: seed (4,), spectrum (4, 9)" in note for note in recording.notes)
    config = through_the_flow(file, tmp_path, call).config
    assert config.source.conditioning == ("reynolds", "hill")
    assert config.source.channel_names == ("temperature", "wind_0", "wind_1")


@pytest.mark.parametrize("kind", ["mat", "struct", "h5", "groups"])
def test_named_fields_of_matlab_and_hdf5(tmp_path: Path, kind: str) -> None:
    u, x, t = states(9, 2, 8, seed=3), np.linspace(0, 1, 8), 0.1 * np.arange(9)
    fields = {"Ca": u[:, 0], "Cb": u[:, 1], "x": x, "t": t, "nu": 0.5}
    path = tmp_path / "f.dat"
    if kind in ("mat", "struct"):
        matlab.savemat(tmp_path / "f.mat", {"run": fields} if kind == "struct" else fields, do_compression=True)
        path = tmp_path / "f.mat"
    else:
        with h5py.File(path, "w") as file:
            for group in ("run_a", "run_b") if kind == "groups" else ("",):
                for name, values in fields.items():
                    file[f"{group}/fields/{name}" if group else name] = values
    recording = open_recording(path)
    assert names_of(recording) == ["Ca", "Cb"]
    assert np.array_equal(whole(recording), np.stack([u] * len(recording.trajectories)))
    assert len(recording.trajectories) == (2 if kind == "groups" else 1)
    assert recording.dt == pytest.approx(0.1)
    assert np.array_equal(recording.axes[0].coordinates, x)
    assert recording.trajectories[0].scalars == {"nu": 0.5}


def test_velocity_and_pressure_are_no_poseidon_file(tmp_path: Path) -> None:
    u = states(3, 7, 3, 8, 8)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["velocity"], file["pressure"] = u[:, :, :2], u[:, :, 2]
    recording = open_recording(tmp_path / "f.h5")
    assert names_of(recording) == ["pressure", "velocity_0", "velocity_1"]
    assert np.array_equal(whole(recording), u[:, :, [2, 0, 1]])


def test_complex_fields_are_two_channels(tmp_path: Path) -> None:
    u = waves(1, 30, 2, 12)[0].astype("f8")
    psi = u[:, 0] + 1j * u[:, 1]
    x, t = np.arange(12.0)[None], np.arange(30.0)[:, None]
    matlab.savemat(tmp_path / "nls.mat", {"uu": psi.T, "x": x, "t": t})
    np.save(tmp_path / "nls.npy", psi)
    with h5py.File(tmp_path / "nls.h5", "w") as file:
        file["psi"], file["t"] = psi, t[:, 0]
    for name, base, layout in (("nls.mat", "uu", ""), ("nls.npy", "u", "tx"), ("nls.h5", "psi", "tx")):
        recording = open_recording(tmp_path / name, layout)
        assert names_of(recording) == [f"{base}_real", f"{base}_imag"]
        assert np.array_equal(whole(recording)[0], u)
        assert any("complex" in note for note in recording.notes)


def test_an_imaginary_part_of_rounding_is_dropped_and_said(tmp_path: Path) -> None:
    u, x, t = waves(1, 60, 1, 16)[0, :, 0], np.arange(16.0), np.arange(60.0)
    matlab.savemat(tmp_path / "kdv.mat", {"usol": (u + 2e-6j * u).T, "x": x, "t": t})
    recording = open_recording(tmp_path / "kdv.mat")
    assert np.array_equal(whole(recording)[0, :, 0], u)
    assert any("rounding" in note for note in recording.notes)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_flattened_grids_are_unfolded(tmp_path: Path, dtype: str) -> None:
    u = states(3, 9, 2, 5, 4, seed=4).astype(dtype)
    np.save(tmp_path / "f.npy", u[:, :, 0].reshape(3, 9, 20))
    recording = open_recording(tmp_path / "f.npy", "b t (x=5 y=4)")
    assert recording.space == (5, 4)
    assert np.array_equal(whole(recording)[:, :, 0], u[:, :, 0].real)
    part = recording.trajectories[2].read(slice(1, 8, 3), [0])
    assert np.array_equal(part[:, 0], u[2, 1:8:3, 0].real)
    np.savez(tmp_path / "f.npz", a=u[:, :, 0].reshape(27, 20), b=u[:, :, 1].reshape(27, 20), mu=np.ones((3, 2)))
    recording = open_recording(tmp_path / "f.npz", "(b=3 t=9)(x=5 y=4)")
    assert np.array_equal(whole(recording), u.real)
    for layout in ("bt(x=5 y=5)", "bt(x y)", "b(x=5 y=4)"):
        refused(tmp_path / "f.npy", "(3, 9, 20)", "as in 'b t (x=21 y=21)'", layout=layout)


def test_flattened_states_go_through_the_flow(tmp_path: Path, call: Call) -> None:
    np.save(tmp_path / "f.npy", waves(10, 8, 1, 8, 6).reshape(10, 8, 48))
    run = through_the_flow(tmp_path / "f.npy", tmp_path, call, "data.layout=b t (x=8 y=6)")
    assert run.config.source.space == (8, 6)
    (tmp_path / "sim").mkdir()
    for frame in range(9):
        np.save(tmp_path / "sim" / f"u_{frame}.npy", states(48, seed=frame))
    recording = open_recording(tmp_path / "sim", "u_{t}.npy (x=8 y=6)")
    assert np.array_equal(whole(recording)[0, 5, 0], states(48, seed=5).reshape(8, 6))


@pytest.mark.parametrize("command", ["doctor", "train"])
def test_a_file_without_space_is_refused_in_one_sentence(tmp_path: Path, call: Call, command: str) -> None:
    np.savez(tmp_path / "ode.npz", t=0.1 * np.arange(25), u=states(25, 3))
    code, _, err = call(command, tmp_path / "ode.npz")
    assert code == 2
    assert "no axis of space" in err
    assert "data.layout=tx" in err


def test_staggered_grids_are_averaged_to_cells(tmp_path: Path) -> None:
    u, v, p = states(7, 9, 6), states(7, 8, 7, seed=1), states(7, 8, 6, seed=2)
    axes = {"x": np.arange(8.0), "y": np.arange(6.0), "t": np.arange(7.0)}
    np.savez(tmp_path / "f.npz", u=u, v=v, p=p, **axes)
    recording = open_recording(tmp_path / "f.npz")
    assert names_of(recording) == ["u", "v", "p"]
    expected = np.stack([(u[:, 1:] + u[:, :-1]) / 2, (v[:, :, 1:] + v[:, :, :-1]) / 2, p], axis=1)
    assert np.array_equal(whole(recording)[0], expected)
    assert sum("faces" in note for note in recording.notes) == 2
    np.savez(tmp_path / "g.npz", u=p, w=states(8, 8, 6), **axes)  # one state more is no staggered grid
    assert names_of(open_recording(tmp_path / "g.npz")) == ["u"]
    np.savez(tmp_path / "h.npz", train=states(4, 7, 8), test=states(5, 6, 8))  # nor are splits of other sizes
    assert [one.frames for one in open_recording(tmp_path / "h.npz", "btx").trajectories] == [7] * 4 + [6] * 5
