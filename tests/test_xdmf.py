"""XDMF beside HDF5: meshes that fill a grid, clouds, regular grids, and what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from conftest import Later
from foreign import refused
from hero.data.formats import open_recording

meshio = Later("meshio")
TIMES = 0.1 * np.arange(9)


def wave(x: np.ndarray, t: float) -> np.ndarray:
    return np.sin(2 * np.pi * (x - 0.3 * t))


def write_mesh(path: Path, points: np.ndarray, cells: np.ndarray, in_cells: bool = False) -> None:
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


def states(path: Path, frames: slice = slice(None)) -> tuple[list[str], np.ndarray]:
    found = open_recording(path)
    names = [channel.name for channel in found.channels]
    return names, found.trajectories[0].read(frames, list(range(len(names))))


@pytest.mark.parametrize("in_cells", [False, True])
def test_a_mesh_that_fills_a_grid_is_one(in_cells: bool, tmp_path: Path) -> None:
    write_mesh(tmp_path / "run.xdmf", *mesh_of(7, 5), in_cells)
    found = open_recording(tmp_path / "run.xdmf")
    assert (found.format, found.dt) == ("xdmf", pytest.approx(0.1))
    assert found.space == ((6, 4) if in_cells else (7, 5))
    names, u = states(tmp_path / "run.xdmf", slice(2, 5))
    x = found.axes[0].coordinates
    for k, t in enumerate(TIMES[2:5]):
        np.testing.assert_allclose(
            u[k, names.index("u")], np.broadcast_to(wave(x, t)[:, None], found.space), atol=1e-12
        )
    assert (names[0] == "u", len(names)) == (True, 1 if in_cells else 4)


def test_scattered_points_are_a_cloud(tmp_path: Path) -> None:
    points, quads = mesh_of(7, 5)
    points[:, :2] += 0.02 * np.random.default_rng(1).standard_normal((35, 2))
    write_mesh(tmp_path / "run.xdmf", points, quads)
    found = open_recording(tmp_path / "run.xdmf")
    np.testing.assert_allclose(found.points, points[:, :2])
    names, u = states(tmp_path / "run.xdmf")
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
