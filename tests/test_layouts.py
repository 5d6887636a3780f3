"""Every layout, written as its authors write it, is diagnosed and loaded; one of each kind goes through the flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foreign
import foreign_arrays
import hero
from conftest import Call
from hero.analysis.doctor import diagnose
from hero.data.formats import open_recording
from hero.report import doctor as tables
from hero.report.figures.doctor import figures
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from test_files import FNO, SMALL, settings, waves, write_pdearena, write_well
from test_formats_hdf5 import CASES, Case

Write = Callable[[Path], Any]
CLOUD = ["backbone.width=8", "backbone.heads=2"]


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


def case_of(case: Case) -> Write:
    """A file of a case of test_formats_hdf5, with states that move and enough of them to be split."""
    runs, frames = (1, 60) if case.one_run else (case.shape[0], 9)
    u = waves(runs, frames, *case.shape[2:])
    return lambda path: case.write(path, u[0] if case.one_run else u, *case.given)


LAYOUTS: dict[str, tuple[str, Write]] = {
    **{case.format: ("a.h5", case_of(case)) for case in CASES.values()},
    "well": ("a.hdf5", write_well),
    "pdearena": ("a.h5", write_pdearena),
    "dedalus": ("a_s1.h5", lambda p: foreign.dedalus(p, waves(1, 60, 3, 8, 6)[0])),
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
WHOLE_FLOW = ("pdebench", "well", "dedalus", "pinn", "npz", "netcdf", "cloud")
"""Several channels, conditioning and walls, one run, MATLAB, splits, packed numbers, scattered points."""


def check_flow(layout: tuple[str, Write], tmp_path: Path, call: Call, backbone: Sequence[str]) -> None:
    """Train, evaluate, predict and export on a file of the layout."""
    name, write = layout
    write(tmp_path / name)
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
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
    source = Run(run).config.source
    assert rolled.shape[1:] == (3, source.channels, *source.space)
    assert call("evaluate", run.name, *places)[0] == 0
    check_exports(run, places, call)


def check_doctor(path: Path) -> None:
    """The diagnosis, its tables and its pictures; what the command adds, which is to print and save, is in test_doctor.

    Few and short trajectories may be a problem, unknown ones are not.
    """
    recording = open_recording(path)
    found = diagnose(recording, str(path))
    assert found.trajectories == len(recording.trajectories)
    for table in (tables.facts_table(found), tables.channels_table(found), tables.findings_table(found)):
        assert table.rows
    assert {"fields", "energy"} <= set(figures(found, recording))


def check_exports(run: Path, places: tuple[object, ...], call: Call) -> None:
    """A model folder that rolls out as the run does, or, where it needs the points of its file, a .pt2 file.

    Tracing takes seconds and sees the operator alone, which is that of a benchmark or of test_files.
    """
    source, data = Run(run).config.source, Run(run).config.data
    if data.cloud or data.uneven:
        code, _, err = call("export", run.name, "--format", "torch", *places)
        assert code == 0, err
        return
    code, _, err = call("export", run.name, "--format", "folder", "--out", run / "model", *places)
    assert code == 0, err
    context = load_data(Run(run).config, "test", run.parent.parent / "data", "cpu").first(1)
    mu = context.mu if source.conditioning else None
    opened, original = (hero.load(path).rollout(context.states, 3, mu) for path in (run / "model", run))
    assert torch.equal(opened, original)
    assert opened.shape[1:] == (3, source.channels, *source.space)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_diagnosed_and_loaded(layout: str, tmp_path: Path) -> None:
    name, write = LAYOUTS[layout]
    write(tmp_path / name)
    check_doctor(tmp_path / name)
    backbone = CLOUD if layout == "cloud" else FNO
    config = make_config(overrides=[*SMALL, *backbone, "strategy=push_forward", f"data.path={tmp_path / name}"])
    for split in ("train", "val", "test"):
        data = load_data(config, split, tmp_path, "cpu")
        assert data.shape[2:] == (config.source.channels, *config.source.space)
        assert bool(data.states.isfinite().all())


@pytest.mark.parametrize("layout", WHOLE_FLOW)
def test_a_layout_of_each_kind_goes_through_the_whole_flow(layout: str, tmp_path: Path, call: Call) -> None:
    check_flow(LAYOUTS[layout], tmp_path, call, CLOUD if layout == "cloud" else FNO)
