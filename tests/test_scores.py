"""Scores of files, of anybody's function, and of a run on other data: each equals the slow way, and slips are told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Call, assert_refused, tiny
from fakes import untrained
from hero.data.formats import open_recording
from hero.deploy.outputs import create
from hero.deploy.predict import predict
from hero.evaluation import foreign
from hero.evaluation.elsewhere import OtherMetrics, evaluate_on
from hero.evaluation.foreign import Score, score_files, score_model
from hero.method.metrics import Scoring, summarise
from hero.method.norm import Norm
from hero.method.rollout_errors import rollout_errors
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data
from test_predict import FILE_RUN, about, flow


def stored(path: Path, u: np.ndarray, **changes: Any) -> Path:
    """Trajectories (trajectory, time, channel, x) in a file that names its channels."""
    with create(path, u.shape, about(u.shape[-1], **changes), 1) as output:
        output.append(u)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, np.ndarray, np.ndarray]:
    """A truth of two channels, and a prediction of it that also has the given state, channels the other way round."""
    generator = np.random.default_rng(0)
    truth = generator.standard_normal((3, 12, 2, 7)).astype(np.float32)
    made = (truth + 0.05 * np.arange(12)[:, None, None] * generator.standard_normal(truth.shape)).astype(np.float32)
    files = (
        stored(tmp_path / "made.h5", np.ascontiguousarray(made[:, :, ::-1]), channels=("b", "a")),
        stored(tmp_path / "truth.h5", truth, channels=("a", "b")),
    )
    return *files, made, truth


def naive(made: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Some of the metrics by loops, in float64, over all steps."""
    rows, joint = [], []
    for u_hat, u in zip(made.astype(np.float64), truth.astype(np.float64), strict=True):
        states = list(zip(u_hat, u, strict=True))
        joint.append([np.sqrt(((a - b) ** 2).sum()) / (np.sqrt((b**2).sum()) + 1e-12) for a, b in states])
        each = [[np.sqrt(((a - b) ** 2).mean() / b.var()) for a, b in zip(*pair, strict=True)] for pair in states]
        rows.append([np.mean(channels) for channels in each])
    count, found = len(rows[0]), {"diverged": 0.0}
    stable = [next((t for t, e in enumerate(row) if e > 0.1), count) for row in joint]
    found["stable_step_from_0"] = float(np.mean(stable))
    for measure, values, gm in (("nrmse", joint, "gm"), ("vrmse", rows, "vrmse_gm")):
        found |= {f"{measure}@{t}": float(np.mean([row[t - 1] for row in values])) for t in (1, count)}
        found[f"{gm}{count}"] = float(np.mean([np.exp(np.mean([math.log(e + 1e-12) for e in row])) for row in values]))
    return found


@pytest.mark.parametrize("block", [1, 2**22])
def test_two_files_are_scored_as_by_hand(
    block: int, pair: tuple[Path, Path, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "BLOCK_VALUES", block * 14)
    made_file, truth_file, made, truth = pair
    found = score_files(made_file, truth_file)[0]
    expected = naive(made[:, 1:], truth[:, 1:])
    assert (found.trajectories, found.steps, found.horizon) == (3, 11, 11)
    assert not {"gm11", "stable_step_from_0"} & found.metrics.keys()
    for name in expected.keys() & found.metrics.keys():
        value = expected[name]
        # VRMSE adds 1e-7 of the variance
        assert found.metrics[name] == pytest.approx(value, rel=1e-7 if name.startswith("vrmse") else 1e-9), name
    assert found.score[0] == found.metrics["vrmse@1"]
    assert list(found.channels) == ["a", "b"]
    for c, numbers in enumerate(found.channels.values()):
        error = naive(made[:, 1:, c : c + 1], truth[:, 1:, c : c + 1])
        assert numbers["vrmse@11"] == pytest.approx(error["vrmse@11"], rel=1e-7)
    first = np.repeat(truth[:, :1], 11, axis=1)
    assert found.baselines["persistence"]["vrmse@11"] == pytest.approx(naive(first, truth[:, 1:])["vrmse@11"], rel=1e-7)


def test_where_a_prediction_begins(pair: tuple[Path, Path, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    made_file, truth_file, made, truth = pair
    whole = score_files(made_file, truth_file)[0].metrics
    assert 0 < whole["skilful_step"] <= 11
    # One state less: it begins at step 1, as a rollout of `hero predict` does.
    later = stored(tmp_path / "later.h5", made[:, 1:], channels=("a", "b"))
    assert score_files(later, truth_file)[0].metrics == whole
    # Equal lengths and another first state: every state is predicted.
    other = stored(tmp_path / "other.h5", made[:, 1:], channels=("a", "b"))
    cut = stored(tmp_path / "cut.h5", truth[:, 1:], channels=("a", "b"))
    # Without the state before there is no persistence to compare with.
    assert score_files(other, cut)[0].metrics == {k: v for k, v in whole.items() if k != "skilful_step"}
    # Other lengths need the place.
    short = stored(tmp_path / "short.h5", made[:, 3:7], channels=("a", "b"))
    found = score_files(short, truth_file, offset=3)[0]
    assert found.steps == 4
    assert found.metrics["nrmse@4"] == pytest.approx(naive(made[:, 3:7], truth[:, 3:7])["nrmse@4"], rel=1e-9)


@pytest.mark.parametrize("land", [np.nan, -9999])
def test_masks_and_divergence(land: float, tmp_path: Path) -> None:
    """Land is NaN in the truth from the start and counts in neither; NaN elsewhere in the prediction is divergence."""
    generator = np.random.default_rng(1)
    truth = generator.standard_normal((2, 6, 1, 9)).astype(np.float32)
    made = truth + np.float32(0.01)
    made[1, 3, 0, 5] = np.nan
    truth[..., :2] = land
    files = stored(tmp_path / "m.h5", made[:, 1:]), stored(tmp_path / "t.h5", truth)
    score = score_files(*files)[0]
    assert score.metrics["diverged"] == 1
    expected = naive(made[:, 1:3, :, 2:], truth[:, 1:3, :, 2:])
    assert score.score[1] == pytest.approx(expected["vrmse@2"], rel=1e-6)
    assert score.metrics["nrmse@1"] == pytest.approx(expected["nrmse@1"], rel=1e-6)
    assert score.score[2] == math.inf


def test_a_prediction_of_a_run_scores_as_its_evaluation(tmp_path: Path, data_dir: Path) -> None:
    config = tiny()
    run = untrained(config, tmp_path)
    predict(str(run), tmp_path, data_dir, steps=100, out=tmp_path / "u.h5")
    test = load_data(config, "test", data_dir, "cpu")
    np.save(tmp_path / "truth.npy", test.states.numpy())
    errors = rollout_errors(Run(run).stepper(Run(run).operator("cpu")), test, 100, "cpu", norm=Norm(by_channel=True))
    found = score_files(tmp_path / "u.h5", tmp_path / "truth.npy")[0]
    expected = summarise(errors, Scoring(100, "vrmse"))
    assert {name: value for name, value in found.metrics.items() if name != "skilful_step"} == expected
    plain = rollout_errors(Run(run).stepper(Run(run).operator("cpu")), test, 100, "cpu")
    assert found.metrics["nrmse@100"] == summarise(plain)["nrmse@100"]


@pytest.mark.parametrize(
    ("shape", "channels", "words"),
    [
        ((3, 12, 2, 8), "ab", ("has 8", "has 7 points", "resample")),
        ((2, 12, 2, 7), "ab", ("has 2", "has 3 trajectories")),
        ((3, 12, 2, 7), "ac", ("channels a, c", "needs a, b")),
        ((3, 12, 1, 7), "u", ("channels u", "needs a, b")),
        ((3, 5, 2, 7), "ab", ("5 states", "has 12", "--offset")),
    ],
)
def test_files_that_do_not_fit(
    shape: tuple[int, ...], channels: str, words: tuple[str, ...], pair: Any, tmp_path: Path, call: Call
) -> None:
    other = stored(tmp_path / "other.h5", np.zeros(shape, np.float32), channels=tuple(channels))
    assert_refused(call("evaluate", "--prediction", other, "--truth", pair[1]), "other.h5", "truth.h5", *words)


def test_the_command_on_two_files(pair: tuple[Path, Path, np.ndarray, np.ndarray], tmp_path: Path, call: Call) -> None:
    files = ("--prediction", pair[0], "--truth", pair[1])
    for wrong, words in (
        (files[:2], "--truth"),
        ((*files, "--offset", 12), "--offset 12"),
        (("run", *files), "RUN"),
        ((*files, "--set", "data.stride=2"), "data.stride"),
        ((*files, "--figure", tmp_path / "e.txt"), ".png"),
        (("run", "--offset", 1), "--offset"),
        (("run", "--steps", 1), "--steps"),
        (("--model", "a:b"), "--model needs data"),
    ):
        assert_refused(call("evaluate", *wrong), words)
    code, out, err = call("evaluate", *files, "--json", tmp_path / "s.json", "--figure", tmp_path / "e.png")
    assert (code, err) == (0, "")
    expected = score_files(pair[0], pair[1])[0]
    assert Score.read(tmp_path / "s.json") == expected
    assert f"{expected.metrics['vrmse_gm11']:.4g}" in out
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")


CODE = """
import torch
calls = []
def still(u):
    calls.append(tuple(u.shape))
    return u[:, -1:]
def fails(u):
    raise ValueError("no such thing")
def wrong(u):
    return u[..., :3]
def none(u):
    return None
number = 3
class Half(torch.nn.Module):
    def forward(self, u):
        return 0.5 * u
class Needs(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger_model.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


SMALL = {"task.name": "burgers", "task.resolution": 32, "task.substeps": 1, "data.test_trajectories": 2}
SMALL |= {"data.test_steps": 100, "data.val_steps": 100}
OPTIONS = [part for key, value in SMALL.items() if key != "task.name" for part in ("--set", f"{key}={value}")]


@pytest.mark.usefixtures("stranger")
def test_any_function_or_module_is_scored(data_dir: Path, tmp_path: Path, call: Call) -> None:
    test = load_data(tiny(), "test", data_dir, "cpu").states.numpy()
    found = score_model("stranger_model:still", SMALL, data_dir, steps=20)[0]
    expected = naive(np.repeat(test[:, :1], 20, axis=1), test[:, 1:21])
    for name, value in expected.items():
        if not name.startswith("vrmse"):
            assert found.metrics[name] == pytest.approx(value, rel=1e-9), name
    half = score_model("stranger_model:Half", SMALL, data_dir, steps=3)[0]
    factors = 0.5 ** np.arange(1, 4)[:, None, None]
    assert half.metrics["nrmse@3"] == pytest.approx(naive(test[:, :1] * factors, test[:, 1:4])["nrmse@3"], rel=1e-6)
    two = score_model("stranger_model:still", SMALL, data_dir, steps=5, history=2)[0]
    assert two.metrics["nrmse@5"] == pytest.approx(
        naive(np.repeat(test[:, 1:2], 5, axis=1), test[:, 2:7])["nrmse@5"], rel=1e-9
    )
    arguments = ("burgers", "--model", "stranger_model:still", "--steps", 20, "--data", data_dir, *OPTIONS)
    code, _, err = call("evaluate", *arguments, "--json", tmp_path / "s.json")
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "s.json").read_text())["metrics"] == found.metrics


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stranger_model:fails", ("fails on states of shape (2, 1, 32)", "no such thing")),
        ("stranger_model:wrong", ("(2, 1, 3)", "not the next state", "(2, 1, 32)")),
        ("stranger_model:none", ("None and not the next state",)),
        ("stranger_model:number", ("int",)),
        ("stranger_model:Needs", ("without arguments", "width")),
        ("stranger_model", ("package.module:",)),
    ],
)
def test_functions_that_do_not_fit(name: str, words: tuple[str, ...], data_dir: Path, call: Call) -> None:
    assert_refused(call("evaluate", "burgers", "--model", name, "--data", data_dir, *OPTIONS), *words)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tiny(), tmp_path_factory.mktemp("runs"))


def test_another_split_and_another_grid_of_a_benchmark(run: Path, data_dir: Path, call: Call) -> None:
    config = tiny()
    step = Run(run).stepper(Run(run).operator("cpu"))
    found, errors = evaluate_on(run, data_dir, split="val")
    expected = rollout_errors(step, load_data(config, "val", data_dir, "cpu"), 100, "cpu")
    assert torch.equal(errors["nrmse"], expected["nrmse"])
    assert found.metrics == summarise(expected)
    assert OtherMetrics.read(run / "evaluations" / "val.json") == found
    code, out, err = call("evaluate", run, "--data", data_dir, "--set", "task.resolution=48")
    assert (code, err) == (0, "")
    assert "evaluations/task.resolution_48.json" in out.replace("\n", "")
    train, _ = evaluate_on(run, data_dir, {"data.train_trajectories": 2}, "train")
    assert (train.trajectories, train.steps, train.horizon) == (2, 10, 10)
    assert not (run / "metrics.json").exists()


def test_another_file_of_another_grid(tmp_path: Path, data_dir: Path) -> None:
    """Channels come by name, and an FNO takes any grid."""
    flow(tmp_path / "flow.h5")
    settings = {**FILE_RUN, "data.path": str(tmp_path / "flow.h5"), "data.fields": "v,rho", "data.stride": 2}
    config = make_config(overrides=settings)
    run = untrained(config, tmp_path / "runs")
    flow(tmp_path / "other.h5", seed=3, points=24)
    found, errors = evaluate_on(run, data_dir, {"data.path": str(tmp_path / "other.h5")}, "val")
    expected_config = make_config(overrides={**settings, "data.path": str(tmp_path / "other.h5")})
    data = load_data(expected_config, "val", data_dir, "cpu")
    assert data.shape[3] == 24
    step = Run(run).stepper(Run(run).operator("cpu"))
    expected = rollout_errors(step, data, data.shape[1] - 1, "cpu")
    assert torch.equal(errors["nrmse"], expected["nrmse"])
    (kept,) = (run / "evaluations").glob("*.json")
    assert kept.name.startswith("other-val-")
    assert OtherMetrics.read(kept) == found
    same, _ = evaluate_on(run, data_dir, {"data.stride": 3})
    assert same.steps < open_recording(tmp_path / "flow.h5").trajectories[0].frames // 3


def test_data_that_do_not_fit_a_run(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    flow(tmp_path / "flow.h5", scalars=False)
    many_modes = untrained(tiny(backbone__modes=16), tmp_path / "runs")  # which need 32 points
    for model, change, words in (
        (run, "--set=train.lr=1", "train.lr"),
        (run, "--split=tset", "'tset'"),
        (run, f"--set=data.path={tmp_path / 'flow.h5'}", "channels rho, v"),
        (run, f"--set=data.path={tmp_path / 'no.h5'}", "no.h5"),
        (run, "--set=task.viscositi=1", "viscosity"),
        (many_modes, "--set=task.resolution=16", "cannot be evaluated on 16"),
    ):
        assert_refused(call("evaluate", model, "--data", data_dir, change), words)
