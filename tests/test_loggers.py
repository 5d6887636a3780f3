"""Loggers with the real packages: what they hold is the log, once, and the run is the same with and without them."""

from __future__ import annotations

import json
import math
import signal
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conftest import Call, Later, assert_refused, hero, options, tiny
from hero.files import json_line
from hero.runs.folder import Run
from hero.runs.log import read_lines
from hero.training import loggers
from hero.training.loggers import Loggers, chosen_loggers, numbers
from hero.training.loop import resume, train
from test_resume import last_step
from test_train import assert_same_run

pytestmark = pytest.mark.skipif(not all(map(find_spec, loggers.LOGGERS)), reason="a logger is not installed")
mlflow = Later("mlflow")

Series = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def quiet_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the light client has no database
    monkeypatch.delenv(loggers.VARIABLE, raising=False)
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # children have a service of their own, which dies with them


def of_log(run: Path) -> Series:
    """What log.jsonl says, by name."""
    series: Series = defaultdict(list)
    for record in read_lines(run / "log.jsonl"):
        for name, value in numbers(record).items():
            series[name].append((record["step"], value))
    return dict(series)


def of_tensorboard(run: Path) -> Series:
    """What TensorBoard shows of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def records_of(path: Path) -> Iterator[Any]:
    """The protobuf records of a .wandb file: after seven bytes a LevelDB log, whose blocks hold 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, payload = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        payload += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(payload)
            yield record
            payload = b""


def of_wandb(run: Path) -> Series:
    """What would be uploaded to W&B: the history of the one offline run in the folder."""
    (path,) = (run / "wandb").glob("offline-run-*/*.wandb")
    assert path.name == f"run-{run.name}.wandb"
    series: Series = defaultdict(list)
    for record in records_of(path):
        row = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                series[name].append((int(row["_step"]), float(json.loads(value))))
    return dict(series)


def of_mlflow(run: Path) -> Series:
    """What MLflow shows of a run."""
    client = mlflow.MlflowClient()
    number = client.get_experiment_by_name("hero").experiment_id
    (found,) = client.search_runs([number], f"tags.hero_run = '{run.name}'")
    assert found.data.params["train.steps"] == str(Run(run).config.train.steps)
    history = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: sorted((record.step, record.value) for record in records) for name, records in history.items()}


def assert_same_series(found: Series, expected: Series) -> None:
    assert found.keys() == expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        values = [value for _, value in points]
        assert [value for _, value in found[name]] == pytest.approx(values, rel=1e-6), name  # TensorBoard has float32


def test_loggers_hold_the_log_and_change_neither_id_nor_weights(
    runs_dir: Path, data_dir: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(loggers.VARIABLE, "tensorboard,wandb,mlflow")
    run = train(tiny(), runs_dir, data_dir)
    assert run.name == finished.name
    assert_same_run(run, finished)
    expected = of_log(run)
    assert [step for step, _ in expected["training/loss"]] == list(range(1, 21))
    assert [step for step, _ in expected["validation/val_gm100"]] == [5, 10, 15, 20]
    assert_same_series(of_tensorboard(run), expected)
    assert_same_series(of_wandb(run), expected)
    assert_same_series(of_mlflow(run), expected)


def test_the_configuration_goes_along(runs_dir: Path, data_dir: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(tiny(train__steps=2), runs_dir, data_dir, log=["tensorboard", "wandb"])
    start = EventAccumulator(str(run / "tensorboard")).Reload().SummaryMetadata("_hparams_/session_start_info")
    assert b"optimizer.beta1" in start.plugin_data.content
    (path,) = (run / "wandb").glob("offline-run-*/*.wandb")
    stored, until = dict[str, str](), time.monotonic() + 60
    while "train" not in stored and time.monotonic() < until:  # wandb's own process writes the file in its time
        updates = [part.update for record in records_of(path) for part in (record.run.config, record.config)]
        stored = {item.key: item.value_json for update in updates for item in update}
    assert json.loads(stored["train"])["steps"] == 2
    assert json.loads(stored["strategy"]) == "hero"


def test_after_a_kill_and_a_resume_every_step_is_there_once(runs_dir: Path, data_dir: Path) -> None:
    changes = {"train__steps": 40, "train__validate_every": 20, "train__checkpoint_every": 16}
    run = runs_dir / tiny(**changes).run_id()
    command = ["train", "burgers", "--strategy", "hero", *options(**changes), "--runs", runs_dir, "--data", data_dir]
    code, *_ = hero(
        *command, "--log", "tensorboard", "--log", "wandb,mlflow", env={"HERO_FAULT": "after-line log.jsonl:25"}
    )
    assert (code, last_step(run)) == (-signal.SIGKILL, 24)  # one line is of a validation
    resume(run, data_dir, log=["tensorboard", "wandb", "mlflow"])
    expected = of_log(run)
    assert [step for step, _ in expected["training/loss"]] == list(range(1, 41))
    assert_same_series(of_tensorboard(run), expected)
    assert_same_series(of_wandb(run), expected)
    kept, times = of_mlflow(run), ("training/steps_per_second", "training/seconds")  # of repeated steps, the first
    assert_same_series(*({name: series[name] for name in series if name not in times} for series in (kept, expected)))


def test_a_diverged_validation_is_logged_as_infinite(tmp_path: Path) -> None:
    found = Loggers()
    (tmp_path / "log.jsonl").write_text(json_line({"step": 5, "val_gm100": math.inf, "val_diverged": 2}))
    found.add("tensorboard", tmp_path, tiny())
    found.record({"step": 10, "val_gm100": math.inf, "val_diverged": 1, "device": "cpu", "compiled": True})
    found.close()
    assert of_tensorboard(tmp_path) == {
        "validation/val_gm100": [(5, math.inf), (10, math.inf)],
        "validation/val_diverged": [(5, 2.0), (10, 1.0)],
    }


def test_a_logger_that_cannot_start_stops_the_run_before_training(
    runs_dir: Path, data_dir: Path, tmp_path: Path, finished: Path
) -> None:
    nowhere = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "",
               "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}  # fmt: skip
    command = ["train", "burgers", "--strategy", "hero", *options(), "--log", "wandb", "--runs", runs_dir]
    code, out, err = hero(*command, "--data", data_dir, env=nowhere)  # wandb keeps the mode of its first run
    said = [line for line in err.splitlines() if not line.startswith("wandb: ")]
    assert_refused((code, out, "\n".join(said)), "the logger wandb cannot start", "WANDB_MODE=offline")
    assert "step 5/20" not in out
    assert not (runs_dir / finished.name).exists()


def test_a_logger_that_breaks_says_so_once_and_the_others_go_on(
    runs_dir: Path, data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(loggers.TensorBoard):
        def record(self, step: int, values: Any) -> None:
            raise OSError("no space left on device")

    monkeypatch.setitem(loggers.LOGGERS, "wandb", Full)
    run = train(tiny(), runs_dir, data_dir, log=["wandb", "tensorboard"])
    assert capsys.readouterr().out.count("the logger wandb failed (OSError: no space left on device)") == 1
    assert last_step(run) == 20
    assert of_tensorboard(run).keys() == of_log(run).keys()


def test_unknown_and_missing_loggers_are_refused_before_anything_is_made(
    call: Call, runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["train", "burgers", "--strategy", "hero", *options(), "--runs", runs_dir, "--data", data_dir]
    assert_refused(call(*command, "--log", "tensorbord"), "unknown logger 'tensorbord'", "tensorboard")
    monkeypatch.setenv(loggers.VARIABLE, "csv")
    assert_refused(call(*command), "unknown logger 'csv'")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert_refused(call(*command, "--log", "tensorboard"), "pip install 'hero-operators[tensorboard]'")
    assert not runs_dir.exists()


def test_names_come_from_the_argument_and_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loggers.VARIABLE, "wandb, tensorboard")
    assert chosen_loggers(None) == ["wandb", "tensorboard"]
    assert chosen_loggers([]) == []
    assert chosen_loggers(["tensorboard,wandb", "wandb"]) == ["tensorboard", "wandb"]
