"""Layouts of each kind, written as their authors write them, are diagnosed, loaded and go through the flow.

That each layout is read back bit for bit is in test_formats_hdf5.py and test_formats_arrays.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foreign
import hero
from conftest import Call
from hero.analysis.doctor import diagnose
from hero.data.formats import open_recording
from hero.report.doctor import figures
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from test_files import FNO, SMALL, settings, waves, write_pdearena, write_well

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


LAYOUTS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "conditioning and walls": ("a.hdf5", write_well),
    "splits": ("a.h5", write_pdearena),
    "one run": ("a_s1.h5", lambda path: foreign.dedalus(path, waves(1, 60, 3, 8, 6)[0])),
    "packed numbers": ("a.nc", write_netcdf),
    "points": ("a.npz", write_cloud),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_of_each_kind_is_diagnosed_and_loaded(layout: str, tmp_path: Path) -> None:
    """Few and short trajectories may be a problem, unknown ones are not."""
    name, write = LAYOUTS[layout]
    write(tmp_path / name)
    recording = open_recording(tmp_path / name)
    found = diagnose(recording, str(tmp_path / name))
    assert found.trajectories == len(recording.trajectories)
    assert {"fields", "energy"} <= set(figures(found, recording))
    backbone = CLOUD if layout == "points" else FNO
    config = make_config(overrides=[*SMALL, *backbone, "strategy=push_forward", f"data.path={tmp_path / name}"])
    for split in ("train", "val", "test"):
        data = load_data(config, split, tmp_path, "cpu")
        assert data.shape[2:] == (config.source.channels, *config.source.space)
        assert bool(data.states.isfinite().all())


@pytest.mark.parametrize("layout", ["conditioning and walls", "points"])
def test_they_go_through_the_whole_flow(layout: str, tmp_path: Path, call: Call) -> None:
    """Train, evaluate, predict and export: a model folder, or, where it needs the points of its file, a .pt2 file."""
    (name, write), backbone = LAYOUTS[layout], CLOUD if layout == "points" else FNO
    write(tmp_path / name)
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    code, out, err = call("train", tmp_path / name, "--strategy", "push_forward", *settings(*SMALL, *backbone), *places)
    assert (code, "GM4" in out) == (0, True), err
    (run,) = (tmp_path / "runs").iterdir()
    source, data = Run(run).config.source, Run(run).config.data
    assert call("evaluate", run.name, *places)[0] == 0
    code, _, err = call("predict", run.name, "--steps", 3, "--out", tmp_path / "out.npy", *places)
    assert code == 0, err
    assert np.load(tmp_path / "out.npy").shape[1:] == (3, source.channels, *source.space)
    kind, file = ("torch", run / "model.pt2") if data.cloud else ("folder", run / "model")
    code, _, err = call("export", run.name, "--format", kind, "--out", file, *places)
    assert code == 0, err
    if kind == "folder":
        context = load_data(Run(run).config, "test", tmp_path / "data", "cpu").first(1)
        opened, original = (hero.load(path).rollout(context.states, 3, context.mu) for path in (file, run))
        assert torch.equal(opened, original)
