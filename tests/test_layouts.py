"""Every layout, written as its authors write it, goes through doctor, train, evaluate, predict and export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foreign
import foreign_arrays
from conftest import Call
from hero.runs.folder import Run
from test_files import FNO, SMALL, settings, waves, write_pdearena, write_well


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


LAYOUTS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "pdebench": ("a.hdf5", lambda p: foreign.pdebench(p, waves(10, 8, 1, 12))),
    "pdebench_cfd": ("a.h5", lambda p: foreign.pdebench_cfd(p, waves(6, 8, 4, 8, 6))),
    "pdebench_groups": ("a.h5", lambda p: foreign.pdebench_groups(p, waves(6, 8, 2, 8, 6))),
    "pdebench_incompressible": (
        "a.h5",
        lambda p: foreign.pdebench_incompressible(p, waves(6, 8, 3, 8, 6), waves(6, 1, 2, 8, 6)[:, 0]),
    ),
    "well": ("a.hdf5", write_well),
    "pdearena": ("a.h5", write_pdearena),
    "poseidon": (
        "a.nc",
        lambda p: foreign.poseidon(p, waves(6, 8, 1, 8, 8), "solution", waves(6, 1, 1, 8, 8)[:, 0, 0]),
    ),
    "dpot": ("a.hdf5", lambda p: foreign.dpot(p, waves(6, 9, 2, 8, 8))),
    "pbdl": ("a.hdf5", lambda p: foreign.pbdl(p, waves(6, 8, 2, 8, 6))),
    "realpdebench": ("a.h5", lambda p: foreign.realpdebench(p, waves(1, 60, 2, 8, 6)[0])),
    "bubbleml": ("a.hdf5", lambda p: foreign.bubbleml(p, waves(1, 60, 5, 8, 6)[0])),
    "dedalus": ("a_s1.h5", lambda p: foreign.dedalus(p, waves(1, 60, 3, 8, 6)[0])),
    "era5": ("2018.h5", lambda p: foreign.era5(p, waves(1, 60, 2, 8, 6)[0])),
    "matlab73": (
        "a.mat",
        lambda p: foreign.matlab73(p, {"u": waves(1, 60, 1, 12)[0, :, 0], "t": np.arange(60.0), "x": np.arange(12.0)}),
    ),
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
    name, write = LAYOUTS[layout]
    write(tmp_path / name)
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    code, out, err = call("doctor", tmp_path / name, "--out", tmp_path / "doctor")
    assert code in (0, 1), err  # few and short trajectories may be a problem, unknown ones are not
    backbone = ["backbone.width=8", "backbone.heads=2"] if layout == "cloud" else FNO
    code, out, err = call("train", tmp_path / name, "--strategy", "push_forward", *settings(*SMALL, *backbone), *places)
    assert code == 0, err
    assert "GM4" in out
    (run,) = (tmp_path / "runs").iterdir()
    metrics = Run(run).metrics
    assert metrics is not None
    assert np.isfinite(metrics.test["nrmse@1"])
    assert (run / "report.html").stat().st_size > 10_000
    code, out, err = call("predict", run.name, "--steps", 3, "--out", tmp_path / "out.npy", *places)
    assert code == 0, err
    rolled = np.load(tmp_path / "out.npy")
    config = Run(run).config
    assert rolled.shape[1:] == (3, config.make_source().channels, *config.make_source().space)
    assert call("evaluate", run.name, *places)[0] == 0
    code, out, err = call("export", run.name, "--format", "torch", *places)
    assert code == 0, err
