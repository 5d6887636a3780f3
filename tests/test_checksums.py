"""Bit rot: whatever bit flips in a file of hero, it loads as the same values or is refused by name."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Call, assert_refused, tiny
from hero.data import load_split, split_path
from hero.data.files.handed import store_arrays
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.files import DIGITS, MARK, NEAR, UNSEALED, is_whole, sealed
from hero.runs.checkpoint import load_state, read_weights
from hero.runs.config import OF_RUN, make_config
from hero.runs.folder import Run
from hero.training.loop import train
from test_train import assert_same_run

CONFIG = tiny(train__steps=4, train__validate_every=2, train__checkpoint_every=2, train__keep_every=3)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    run = train(CONFIG, tmp_path_factory.mktemp("original"), data_dir)
    evaluate(run, data_dir)
    return run


@pytest.fixture
def run(original: Path, data_dir: Path, tmp_path: Path) -> Path:
    """A copy of the run and of its data, to be damaged."""
    shutil.copytree(data_dir, tmp_path / "data")
    return Path(shutil.copytree(original, tmp_path / "runs" / original.name))


def data_of(run: Path) -> Path:
    return split_path(CONFIG.source.task, CONFIG.split("train"), run.parents[1] / "data")


def errors_of(run: Path) -> Any:
    errors = Run(run).errors
    return {**errors.test, "val": errors.val}


READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "data": (data_of, lambda run: load_split(CONFIG.source.task, CONFIG.split("train"), data_of(run).parent)),
    "weights": (lambda run: run / "model.safetensors", lambda run: read_weights(run / "model.safetensors")),
    "kept": (lambda run: Run(run).kept_file(3), lambda run: read_weights(Run(run).kept_file(3))),
    "state": (lambda run: run / "last/state.pt", lambda run: load_state(run / "last/state.pt")),
    "metrics": (lambda run: run / "metrics.json", lambda run: Run(run).stored_metrics),
    "errors": (lambda run: run / "errors.npz", errors_of),
    "rollout": (lambda run: run / "rollout.npz", lambda run: Run(run).rollout),
    "config": (lambda run: run / "config.toml", lambda run: Run(run).config.run_id()),
}


def bits(value: Any) -> Any:
    """`value` with bytes for arrays, which can be compared."""
    if isinstance(value, torch.Tensor | np.ndarray):
        array = value if isinstance(value, np.ndarray) else value.numpy()
        return array.dtype, array.shape, array.tobytes()
    if isinstance(value, dict):
        return [(name, bits(part)) for name, part in value.items()]
    return [bits(part) for part in value] if isinstance(value, list | tuple) else value


def flips(path: Path) -> Iterator[int]:
    """Bits of a file, one of which is flipped at a time."""
    whole, draw = path.read_bytes(), random.Random(0)
    for bit in (draw.randrange(8 * len(whole)) for _ in range(40)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield bit
    path.write_bytes(whole)


@pytest.mark.parametrize("kind", READERS)
def test_no_flipped_bit_loads_as_another_value(kind: str, run: Path) -> None:
    place, read = READERS[kind]
    path, refused = place(run), 0
    values = bits(read(run))
    for bit in flips(path):
        try:
            assert bits(read(run)) == values, f"bit {bit}"
        except HeroError as error:
            refused += kind == "config" or path.name in str(error)
    assert refused > 30  # most bits carry values, and sentences name the file
    path.write_bytes(path.read_bytes().replace(MARK, b"?" * len(MARK)))
    if kind == "config":
        assert bits(read(run)) == values  # it also has the id
    else:
        with pytest.raises(HeroError, match="damaged"):  # without a checksum nobody knows
            read(run)


def test_a_flipped_bit_of_a_log_costs_a_line_at_most(run: Path) -> None:
    log = Run(run).log
    records = [*log.training, *log.validation]
    for _ in flips(run / "log.jsonl"):
        found = Run(run).log
        kept = [*found.training, *found.validation]
        assert all(record in records for record in kept)
        assert len(kept) >= len(records) - 2  # a flipped end of a line costs two


def test_a_configuration_that_was_cut_is_not_filled_with_defaults(run: Path) -> None:
    path = run / "config.toml"
    lines = path.read_text().splitlines(keepends=True)
    assert lines[0].startswith(f"{OF_RUN}{run.name} ")
    refused = 0
    for start in (0, 1):  # with and without the line that has the id
        for stop in range(start, len(lines), 1 + 6 * start):
            path.write_text("".join(lines[start:stop]))
            try:
                assert Run(run).config.run_id() == run.name, f"cut to {stop} lines"
            except HeroError:
                refused += 1
    assert refused > 80


def test_the_listing_verifies_the_updates_of_a_configuration(call: Call, run: Path) -> None:
    path = run / "config.toml"
    path.write_text(path.read_text().replace("\nsteps = 4\n", "\nsteps = 6\n"))
    code, out, err = call("runs", "--runs", run.parent)
    assert (code, "unreadable" in out) == (0, True)
    assert f"{path} is damaged or was edited" in err
    assert_refused(call("evaluate", run.name, "--runs", run.parent), str(path), run.name, "--config")


def test_a_renamed_run_is_known_by_the_id_inside_and_settings_that_decide_nothing_may_be_edited(run: Path) -> None:
    renamed = run.rename(run.with_name("burgers-fno-hero-s0-01234567"))
    assert Run(renamed).config == CONFIG
    assert Run(renamed).status == "finished"
    path = renamed / "config.toml"
    path.write_text(path.read_text().replace("keep_every = 3", "keep_every = 2"))
    assert Run(renamed).config.train.keep_every == 2
    path.write_text(path.read_text().partition("\n")[2])
    with pytest.raises(HeroError, match="is damaged or was edited"):
        _ = Run(renamed).config


def test_a_damaged_last_checkpoint_leaves_the_one_before(call: Call, run: Path, original: Path) -> None:
    state = run / "last" / "state.pt"
    state.write_bytes(state.read_bytes()[:-1])
    code, out, _ = call("train", "--resume", run.name, "--runs", run.parent, "--data", run.parents[1] / "data")
    assert code == 0
    assert f"the checkpoint {state} is damaged: continuing from the one before it, of update 2" in out
    assert_same_run(run, original)
    assert Run(run).status == "finished"


def test_damaged_best_weights_are_written_again_from_the_last_checkpoint(call: Call, run: Path, original: Path) -> None:
    path, folders = run / "model.safetensors", ("--runs", run.parent, "--data", run.parents[1] / "data")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert Run(run).status == "not evaluated"
    assert_refused(call("evaluate", run.name, *folders), str(path), "hero train --resume")
    assert call("train", "--resume", run.name, *folders)[0] == 0
    assert path.read_bytes() == (original / path.name).read_bytes()
    assert Run(run).status == "finished"


@pytest.mark.parametrize("several", [False, True])
def test_arrays_of_a_session_are_verified_to_the_last_and_stored_again(several: bool, tmp_path: Path) -> None:
    u = np.random.default_rng(0).normal(size=(4, 12, 1, 16384)).astype(np.float32)  # more than a fingerprint covers
    given: Any = {"u": u, "x": np.arange(16384) / 16384} if several else u
    config = make_config(overrides=store_arrays(given, tmp_path))
    assert config.source.files.recording.files
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(HeroError, match=f"{path.name} is damaged"):
        _ = config.source.files.recording
    store_arrays(given, tmp_path)
    assert path.read_bytes() == whole
    assert config.source.files.recording.files


@pytest.mark.parametrize("place", ["start", "end"])
def test_the_checksum_covers_files_of_many_blocks(place: str) -> None:
    filling = np.random.default_rng(0).bytes(3 * 2**20 + 5)
    data = sealed(UNSEALED.encode() + filling if place == "start" else filling + UNSEALED.encode())
    assert is_whole(data)
    at = data.index(MARK) + len(MARK)
    assert data[at : at + DIGITS] != b"0" * DIGITS
    for byte in (0, 1, NEAR, 2**20 - 1, 2**20, 2**21, len(data) - 1):
        damaged = bytearray(data)
        damaged[byte] ^= 1
        assert not is_whole(bytes(damaged))
