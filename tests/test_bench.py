"""`python -m benchmarks`: every participant really runs, in its own process, on tiny work; no test times it."""

from __future__ import annotations

import json
import math
import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.limits import least_bytes, limit_of
from benchmarks.participant import Workload
from benchmarks.peers import compare
from benchmarks.speed_files import keep_speed, read_speed
from benchmarks.speed_page import filled
from hero.files import write_json

pytestmark = pytest.mark.skipif(not (find_spec("jax") and find_spec("neuralop")), reason="the peers are missing")

TRAINING = Workload("training", 1, points=16, width=3, modes=4, depth=1, batch=2, steps=2)
INFERENCE = Workload("inference", 1, points=16, width=3, modes=4, depth=1, batch=3, steps=4)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One real run of all participants, with the shortest turns, read back from its file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.peers.ROUND_SECONDS", 0.0)
        patch.setattr("benchmarks.peers.SETTLE_SECONDS", 0.0)
        measured = compare([TRAINING, INFERENCE], rounds=1, threads=1, eager=True)
    file = write_json(tmp_path_factory.mktemp("bench") / "out.json", measured)
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def test_all_participants_run_the_same_work(result: dict[str, Any]) -> None:
    for kind in ("training", "inference"):
        rows = result[kind]
        assert [row["participant"] for row in rows] == ["hero", "neuralop", "apebench"]
        assert not any("failed" in row for row in rows)
        assert {row["parameters"] for row in rows} == {2 * 9 * 4 + 9 + 3 + 6 + 4}
        for row in rows:
            for name in ("median_seconds", "prepare_seconds", "limit_seconds", "resident_bytes", "flops", "bytes"):
                assert 0 < row[name] < math.inf, name
            assert row["median_seconds"] == statistics.median(row["seconds"])
            assert row["ratio_to_hero"] == row["median_seconds"] / rows[0]["median_seconds"]
            assert row["bound_by"] in ("GEMM", "memory")


def test_the_machine_is_measured_in_the_same_run(result: dict[str, Any]) -> None:
    machine = result["machine"]
    assert machine["threads"] == 1
    assert 0 < machine["gemm_gflops"] < math.inf
    assert 0 < machine["bandwidth_gbs"] < math.inf
    assert {"torch", "jax", "neuraloperator", "pdequinox", "trainax"} <= set(machine["versions"])


def test_least_traffic_by_hand() -> None:
    # 2 states of 8 points, width 3: a field is 2·3·8 floats = 192 bytes; 2 blocks in each of 5 calls; 10 parameters.
    work = Workload("training", 1, points=8, width=3, modes=2, depth=2, batch=2, steps=5)
    assert least_bytes(work, 10) == 10 * 5 * 192 + 8 * 40
    # At inference a field passes twice, and a state of 64 bytes is written in each call.
    rollout = Workload("inference", 1, points=8, width=3, modes=2, depth=2, batch=2, steps=5)
    assert least_bytes(rollout, 10) == 10 * 2 * 192 + 5 * 64 + 40


def test_the_slower_of_two_limits_binds() -> None:
    work = Workload("training", 1, points=8, width=3, modes=2, depth=2, batch=2, steps=5)
    machine = {"gemm_gflops": 1.0, "bandwidth_gbs": 1.0}
    traffic = least_bytes(work, 10) / 1e9
    assert limit_of(work, 0, 10, machine)["limit_seconds"] == pytest.approx(traffic)
    assert limit_of(work, 0, 10, machine)["bound_by"] == "memory"
    assert limit_of(work, 10**6, 10, machine)["limit_seconds"] == pytest.approx(1e-3)
    assert limit_of(work, 10**6, 10, machine)["bound_by"] == "GEMM"


def test_a_measurement_keeps_its_other_parts_and_fills_the_page(tmp_path: Path) -> None:
    keep_speed("updates", "2", [], tmp_path)
    assert main(["updates", "--dims", "1", "--eager", "--rounds", "1", "--threads", "1", "--out", str(tmp_path)]) == 0
    parts = read_speed("updates", tmp_path)
    assert list(parts) == ["2", "1"]
    assert parts["1"]["rows"][0]["ratio"] == 1.0
    keep_speed("updates", "2", parts["1"]["rows"], tmp_path)
    made = filled("<!-- begin updates -->\n<!-- end updates -->\n<!-- begin sizes -->\n<!-- end sizes -->\n", tmp_path)
    assert [line[:4] for line in made.splitlines() if line.endswith(") |")] == ["| 1D", "| 2D"]
    assert "not run" in made.split("begin sizes")[1]
    assert filled(made, tmp_path) == made


@pytest.mark.parametrize(
    ("arguments", "word"), [(["peers", "--rounds", "0"], "--rounds"), (["memory", "memory.txt"], "memory.txt")]
)
def test_mistakes_are_told(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert word in capsys.readouterr().err


def test_the_command_measures_memory_and_draws_it(tmp_path: Path) -> None:
    figure, numbers = tmp_path / "memory.png", tmp_path / "memory.json"
    assert main(["memory", str(figure), "--dims", "1", "--json", str(numbers)]) == 0
    assert figure.stat().st_size > 0
    rows = json.loads(numbers.read_text())
    kept = {recompute: [row["bytes"] for row in rows if row["recompute"] == recompute] for recompute in (False, True)}
    assert kept[False] == sorted(kept[False])
    assert kept[True][-1] < kept[False][-1] / 5
