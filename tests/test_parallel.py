"""Several processes of torchrun train one run: the trace of one process, resumes on other numbers, a lost process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator

from conftest import TINY
from forked import LOOPBACK, PLACES, listening_places
from hero.data.windows import Batches
from hero.files import write_atomic
from hero.parallel import draw, sharing
from hero.ranks import Ranks
from hero.runs.checkpoint import read_weights
from hero.runs.config import make_config
from hero.runs.log import read_lines
from hero.training.journal import Progress
from hero.training.loop import train

STEPS = 14
SHORT = {"train.steps": STEPS, "train.validate_every": STEPS, "train.checkpoint_every": 7}
RELATIVE = {"hero.start": 3, "hero.refresh": 4, "hero.warmup": 5}
# Batches of 5 are shares of 2 and 3; the last of an epoch of 24 windows has 4.
CASES: dict[str, dict[str, Any]] = {
    "one_step": {},
    "push_forward": {"train.noise": 0.05, "train.ema": 0.9},
    "hero": RELATIVE,
    "fixed_weight": {**RELATIVE, "train.loss": "balanced"},
    "refiner": {},
}
VALUES = {name: {**TINY, **SHORT, "strategy": name, **case} for name, case in CASES.items()}

MANY = """
import json, os, sys
from pathlib import Path
from hero.runs.config import make_config
from hero.study.worker import main
from hero.training.loop import train
whole, lost, data, cases = map(json.loads, sys.argv[1:])
for values in cases:
    train(make_config(overrides=values), Path(whole), Path(data))
os.environ["HERO_FAULT"] = "after-line log.jsonl:10"  # only the first process writes lines, and kills itself then
main(lost, data)
"""
LAUNCH = "import sys; from hero.study.worker import launch; launch(*sys.argv[1:])"


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in read_lines(run / "log.jsonl") if "loss" in record]


def assert_same_to_rounding(run: Path, expected: Path) -> None:
    assert len(losses(run)) == STEPS
    assert losses(run) == pytest.approx(losses(expected), rel=3e-6)
    found = read_weights(run / "model.safetensors")[0]
    for name, tensor in read_weights(expected / "model.safetensors")[0].items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> dict[str, Path]:
    """Every case by one process."""
    runs = tmp_path_factory.mktemp("one")
    return {name: train(make_config(overrides=values), runs, data_dir) for name, values in VALUES.items()}


class Said(NamedTuple):
    """Folders of the whole and of the lost runs, how the processes ended, and where they listened."""

    whole: Path
    lost: Path
    code: int
    out: str
    err: str
    places: set[str]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Said:
    """Every case as a worker of a sweep with two processes trains it, one resumed; then a run that loses a process."""

    def interrupt(progress: Progress) -> None:
        if progress.step == 9:
            raise KeyboardInterrupt

    whole, lost = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("lost")
    with pytest.raises(KeyboardInterrupt):
        train(make_config(overrides=VALUES["push_forward"]), whole, data_dir, callbacks=[interrupt])
    folder, config = tmp_path_factory.mktemp("script"), make_config(overrides=VALUES["hero"])
    (folder / "many.py").write_text(MANY)
    write_atomic(lost / config.run_id() / "config.toml", config.to_toml().encode())
    given = map(json.dumps, (str(whole), str(lost / config.run_id()), str(data_dir), list(VALUES.values())))
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        worker = subprocess.Popen([sys.executable, "-c", LAUNCH, "2", str(folder / "many.py"), *given],
                                  stdin=subprocess.PIPE, stdout=out, stderr=err)  # fmt: skip
        places: set[str] = set()
        while worker.poll() is None:
            places.update(listening_places(worker.pid) if PLACES.is_file() else ())
            time.sleep(0.2)
    return Said(whole, lost, worker.returncode, *((folder / name).read_text() for name in ("out", "err")), places)


def test_two_processes_have_the_trace_of_one_also_after_a_resume(
    one_process: dict[str, Path], two_processes: Said
) -> None:
    """Numbers that are drawn for a batch or averaged over it would show: noise, perturbations, weights of modes."""
    assert two_processes.out.count("after update 7 of 14") == 1, two_processes.err  # one of the processes prints
    for run in one_process.values():
        assert_same_to_rounding(two_processes.whole / run.name, run)


def test_a_lost_process_stops_the_rest_and_one_process_continues(
    one_process: dict[str, Path], two_processes: Said, data_dir: Path
) -> None:
    assert two_processes.code
    assert two_processes.err.count("hero: another process of this run has ended") == 1
    run = two_processes.lost / one_process["hero"].name
    assert len(losses(run)) == 10
    assert losses(run) == pytest.approx(losses(one_process["hero"])[:10], rel=3e-6)
    train(make_config(overrides=VALUES["hero"]), two_processes.lost, data_dir)
    assert_same_to_rounding(run, one_process["hero"])


@pytest.mark.skipif(not PLACES.is_file(), reason="this system does not list its sockets")
def test_processes_of_a_sweep_listen_on_this_machine_alone(two_processes: Said) -> None:
    """Under torchrun as it comes, a port is open on all interfaces."""
    assert {place.rpartition(":")[0] for place in two_processes.places} == {LOOPBACK}


@pytest.mark.parametrize("count", [2, 3, 8])
def test_shares_make_up_every_batch_and_its_draws(count: int) -> None:
    data = torch.arange(4 * 9 * 2.0).reshape(4, 9, 1, 2)
    whole = Batches(data, 3, 5, seed=0)
    for step in range(whole.per_epoch):  # the last batch has 4 windows of 24, fewer than 8 processes
        batch = whole(step)
        drawn = torch.randn(len(batch.truth), 3, generator=Generator().manual_seed(1))
        rows, weights = [], []
        for rank in range(count):
            part = Batches(data, 3, 5, seed=0, ranks=Ranks(rank, count))(step)
            assert torch.equal(part.share.index, batch.index)
            with sharing(part.share):
                mine = draw(torch.randn, (len(part.truth), 3), generator=Generator().manual_seed(1))
            weights.append(part.share.weigh(torch.ones(())))
            if part.share.count:
                rows.append(torch.cat([part.truth.flatten(1), part.index[:, None], mine], dim=1))
            else:
                assert len(part.truth) == 1  # a row to compute with, which counts nothing
                assert weights[-1] == 0
        expected = torch.cat([batch.truth.flatten(1), batch.index[:, None], drawn], dim=1)
        assert torch.equal(torch.cat(rows), expected)
        assert sum(weights) == pytest.approx(1)
