"""Kept checkpoints: the same bits with and without them, and the landscape that is drawn from them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Call, assert_refused, tiny
from hero.data.windows import Context
from hero.evaluation.evaluate import evaluate
from hero.method.rollout import unroll
from hero.paper.landscape import Landscape
from hero.report.page.page import write_run_page
from hero.runs.checkpoint import load_kept, load_state, save_weights
from hero.runs.folder import Run, load_data
from hero.training.loop import train
from test_train import assert_same_run


def test_keeping_checkpoints_changes_no_bit_and_keeps_what_it_says(
    runs_dir: Path, data_dir: Path, finished: Path
) -> None:
    config = tiny(train__keep_every=4)
    run = train(config, runs_dir, data_dir)
    assert not (finished / "checkpoints").exists()
    assert_same_run(run, finished)
    assert Run(run).kept_steps == [4, 8, 12, 16, 20]
    model = config.build_operator()
    assert load_kept(Run(run).kept_file(8), model) == {}  # hero.start is 8: the first copy is made after this
    at_start = {name: value.clone() for name, value in model.state_dict().items()}
    lagged = load_kept(Run(run).kept_file(16), model)  # refreshed at 8 and 12
    assert lagged.keys() == at_start.keys()
    assert not all(torch.equal(lagged[name], at_start[name]) for name in lagged)
    state, lagged = load_state(run / "last" / "state.pt"), load_kept(Run(run).kept_file(20), model)
    assert all(torch.equal(value, state["model"][name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, state["strategy"]["lagged"][name]) for name, value in lagged.items())


def test_error_ratio() -> None:
    errors, final = ((0.1, 1.0, math.inf, 0.2, math.inf),), (0.1, 0.1, 0.5, math.inf, math.inf)
    (row,) = Landscape(run="x", final_step=30, steps=(10,), errors=errors, final_errors=final).log10_ratio
    assert row[:2] == pytest.approx([0, 1])
    assert (row[2], row[3]) == (math.inf, -math.inf)
    assert math.isnan(row[4])


def test_landscape_on_the_command_line(call: Call, runs_dir: Path, data_dir: Path) -> None:
    config = tiny(train__keep_every=5)
    run = train(config, runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    code, out, err = call("landscape", run.name, *folders)
    assert code == 0, err
    assert "times" in out
    content = json.loads((run / "landscape.json").read_text())
    assert content["steps"] == [5, 10, 15, 20]
    assert content["final_step"] in content["steps"]
    ratio = np.array(content["log10_ratio"])
    assert ratio.shape == (4, 100)
    assert (ratio[content["steps"].index(content["final_step"])] == 0).all()
    # The naive twin of one row.
    test = load_data(config, "test", data_dir, "cpu").states
    model = config.build_operator()
    load_kept(Run(run).kept_file(10), model)
    with torch.no_grad():
        tau = unroll(model, Context(test[:, :1]), 100).double()
    expected = (tau - test[:, 1:]).flatten(2).norm(dim=2) / test[:, 1:].double().flatten(2).norm(dim=2)
    assert content["errors"][1] == pytest.approx(expected.mean(dim=0).tolist(), rel=1e-5)

    assert (run / "figures" / "landscape.png").stat().st_size > 5_000
    evaluate(run, data_dir)
    write_run_page(run)
    assert "Checkpoint landscape" in (run / "report.html").read_text()


def test_a_run_without_kept_checkpoints_or_with_foreign_ones_is_refused(
    call: Call, runs_dir: Path, data_dir: Path
) -> None:
    run = train(tiny(train__steps=5), runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    assert_refused(call("landscape", run.name, *folders), "kept no checkpoints", "train.keep_every")
    save_weights(Run(run).kept_file(3), {"other": torch.zeros(2)}, {"step": 3})
    assert_refused(call("landscape", run.name, *folders), "another model")
    Run(run).kept_file(3).write_bytes(b"junk")
    assert_refused(call("landscape", run.name, *folders), "damaged")
