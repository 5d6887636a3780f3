"""Run folders of earlier versions, kept by `versions/make.py`: this version continues and reports them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import Call
from hero.runs.checkpoint import load_state, read_weights
from hero.runs.folder import Run
from test_train import same
from versions.make import machine

KEPT = Path(__file__).parent / "versions"
RUNS = sorted(path.parent for path in KEPT.glob("*/finished/*/config.toml"))


@pytest.fixture(params=RUNS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A finished run of an earlier version, in a copy of the whole version."""
    version = request.param.parents[1]
    shutil.copytree(version, tmp_path / version.name)
    return tmp_path / version.name / "finished" / request.param.name


def is_this_machine(version: Path) -> bool:
    """Whether a continued run has the same bits: other versions of torch and other processors round in other ways.

    Folders of versions up to 0.2.0 do not name their processor.
    """
    return bool(json.loads((version / "machine.json").read_text()) == machine())


def assert_close(found: Any, expected: Any) -> None:
    """Equal to rounding, through nested containers; times are left out."""
    if isinstance(expected, dict):
        assert found.keys() >= expected.keys()  # optimizers hold more of their settings now
        for key in expected.keys() - {"seconds"}:
            assert_close(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5)
    else:
        assert found == expected


@pytest.mark.usefixtures("foresight")
def test_it_is_continued_to_the_same_weights(finished: Path, call: Call) -> None:
    version, run = finished.parents[1], finished.parents[1] / "stopped" / finished.name
    before = load_state(run / "last" / "state.pt")["step"]
    assert 0 < before < Run(run).config.train.steps
    data = version / "data"
    stored = {path.name: path.read_bytes() for path in data.iterdir()}
    code, out, _ = call("train", "--resume", run, "--data", data)
    assert code == 0
    assert f"resuming {run.name} after update {before} of" in out
    assert Run(run).status == "finished"
    assert {path.name: path.read_bytes() for path in data.iterdir()} == stored  # read, not solved again
    assert_close(load_state(run / "last" / "state.pt"), load_state(finished / "last" / "state.pt"))
    weights, expected = (read_weights(path / "model.safetensors") for path in (run, finished))
    assert_close(weights[0], expected[0])
    if is_this_machine(version):
        assert same(load_state(run / "last" / "state.pt"), load_state(finished / "last" / "state.pt"))
        assert same(weights, expected)


@pytest.mark.usefixtures("foresight")
def test_its_results_are_reported_as_they_were(finished: Path, call: Call) -> None:
    stored = json.loads((finished / "metrics.json").read_text())
    run = Run(finished)
    assert run.metrics.test == {name: float(value) for name, value in stored["test"].items()}
    assert run.rollout is not None
    assert run.log.notice is None
    code, out, err = call("runs", "--runs", finished.parent)
    assert (code, err) == (0, "")
    assert out.count("finished") == len(list(finished.parent.iterdir()))
    page = finished.parents[1] / "page.html"
    assert call("report", finished.name, "--runs", finished.parent, "--out", page)[0] == 0
    assert finished.name in page.read_text()
    assert call("evaluate", finished, "--data", finished.parents[1] / "data")[0] == 0
    again = Run(finished).metrics
    assert again.test == pytest.approx(run.metrics.test, rel=1e-5)
    assert list(again.baselines) == ["persistence", "mean"]  # which these versions did not measure
    if is_this_machine(finished.parents[1]):
        assert again.test == run.metrics.test
