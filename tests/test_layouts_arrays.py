"""Every layout of arrays, NetCDF and folders, written as its authors write it, goes through the whole flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foreign_arrays
from conftest import Call
from test_files import FNO, waves
from test_layouts import Write, check_flow


def write_netcdf(path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    u = waves(1, 60, 1, 12, 8)[0, :, 0]
    axes = {"time": 0.5 * np.arange(60), "y": np.arange(12.0), "x": np.arange(8.0)}
    packed = {"temperature": {"dtype": "i2", "scale_factor": 1e-3, "add_offset": 0.0, "_FillValue": -32768}}
    data = xarray.Dataset({"temperature": (("time", "y", "x"), u, {"units": "K"})}, axes)
    data.to_netcdf(path, engine="h5netcdf", encoding=packed)


def write_cloud(path: Path) -> None:
    rng = np.random.default_rng(1)
    x, phase = rng.random((40, 2)), rng.uniform(0, 6, (6, 1, 1))
    u = np.sin(2 * np.pi * x[:, 0] + phase - 0.3 * np.arange(8)[:, None])[:, :, None]
    np.savez(path, coords=x, u=u.astype("f4"), dt=0.1)


LAYOUTS: dict[str, tuple[str, Write]] = {
    "fno": ("a.mat", lambda p: foreign_arrays.write_fno(p, waves(6, 8, 1, 8, 6)[:, :, 0], with_start=False)),
    "pinn": (
        "a.mat",
        lambda p: foreign_arrays.write_pinn(
            p, waves(1, 60, 1, 12)[0, :, 0], np.arange(12.0), 0.1 * np.arange(60), "usol t", transposed=False
        ),
    ),
    "neuralop": (
        "a.pt",
        lambda p: foreign_arrays.write_neuralop(
            p, waves(6, 8, 1, 12)[:, 0, 0].astype("f8"), waves(6, 8, 1, 12)[:, :, 0].astype("f8"), 0.01
        ),
    ),
    "cfdbench": (
        "cases",
        lambda p: foreign_arrays.write_cfdbench(
            p, [(u, {"density": 1.0 + i}) for i, u in enumerate(waves(6, 8, 2, 8, 6))]
        ),
    ),
    "npy": ("a.npy", lambda p: np.save(p, waves(6, 8, 2, 8, 6))),
    "npz": (
        "a.npz",
        lambda p: np.savez(p, train=waves(6, 8, 1, 12), valid=waves(2, 8, 1, 12), test=waves(2, 8, 1, 12)),
    ),
    "netcdf": ("a.nc", write_netcdf),
    "cloud": ("a.npz", write_cloud),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_goes_through_the_whole_flow(layout: str, tmp_path: Path, call: Call) -> None:
    backbone = ["backbone.width=8", "backbone.heads=2"] if layout == "cloud" else FNO
    check_flow(LAYOUTS[layout], tmp_path, call, backbone)
