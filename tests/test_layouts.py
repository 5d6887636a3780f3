"""Every layout of HDF5, written as its authors write it, goes through doctor, train, evaluate, predict and export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from hero.report import doctor as tables
from hero.report.figures.doctor import figures
from hero.runs.folder import Run, load_data
from test_files import FNO, SMALL, settings, waves, write_pdearena, write_well

Write = Callable[[Path], Any]

LAYOUTS: dict[str, tuple[str, Write]] = {
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
}


def check_flow(layout: tuple[str, Write], tmp_path: Path, call: Call, backbone: Sequence[str] = FNO) -> None:
    """Doctor, train, evaluate, predict and export on a file of the layout."""
    name, write = layout
    write(tmp_path / name)
    places = ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    check_doctor(tmp_path / name)
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
def test_every_layout_goes_through_the_whole_flow(layout: str, tmp_path: Path, call: Call) -> None:
    check_flow(LAYOUTS[layout], tmp_path, call)
