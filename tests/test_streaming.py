"""Data larger than `data.memory` stay in their file: the same numbers, read ahead by a thread, in bounded memory."""

import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SHORT
from foreign import pdebench
from hero.data.files import trajectories
from hero.data.files.handles import KEPT, close_hdf5
from hero.data.files.recording import Axis, Channel, Recording, Trajectory
from hero.data.files.selection import Part
from hero.data.files.trajectories import FileTrajectories
from hero.data.windows import AHEAD, Batches, Trajectories, seed_of
from hero.errors import HeroError
from hero.method.rollout_errors import rollout_errors
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import load_data
from hero.study.cost.count import describe
from test_files import waves as travelling

LAZY, WHOLE = 1e-7, 4.0
"""GB of data.memory."""
SMALL = {**SHORT, "strategy": "push_forward", "train.device": "cpu"}


def waves(count: int = 12) -> np.ndarray:
    """(trajectory, time, 1, x) with a mean."""
    return 3 + travelling(count, 9, 1, 16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pdebench(tmp_path / "waves.h5", waves())
    return tmp_path / "waves.h5"


def config_of(file: Path, memory: float, **settings: object) -> RunConfig:
    return make_config(overrides={**SMALL, "data.path": str(file), "data.memory": memory, **settings})


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hero-reads-ahead")]


def assert_same_batches(one: Batches, two: Batches, steps: range) -> None:
    with one.ahead(steps) as first, two.ahead(steps) as second:
        for a, b in zip(first, second, strict=True):
            assert a.step == b.step
            assert torch.equal(a.context.inputs(), b.context.inputs())
            assert torch.equal(a.truth, b.truth)
            assert torch.equal(a.index, b.index)
            assert torch.equal(torch.rand(3, generator=a.generator), torch.rand(3, generator=b.generator))


def test_batches_read_ahead_are_those_in_memory(file: Path) -> None:
    lazy, whole = (config_of(file, memory) for memory in (LAZY, WHOLE))
    one, two = load_data(lazy, "train", file.parent, "cpu"), load_data(whole, "train", file.parent, "cpu")
    assert (one.is_in_memory, two.is_in_memory) == (False, True)
    assert lazy.run_id() == whole.run_id()
    windows = lazy.windows(one)
    assert windows.per_epoch < 40  # so that the thread draws the order of several epochs
    assert_same_batches(windows, whole.windows(two), range(40))
    assert_same_batches(windows, whole.windows(two), range(13, 20))  # as after a resume
    for found, expected in zip(one.statistics(), two.statistics(), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(one.step_std(), two.step_std())
    assert not threads()


def test_moments_are_those_of_all_values() -> None:
    states = torch.from_numpy(waves())
    mean, std = Trajectories(states).statistics()[:2]
    values = states.double()
    assert torch.equal(mean, values.mean().float()[None])
    assert torch.allclose(std.double(), values.std()[None], rtol=1e-6)
    assert torch.allclose(Trajectories(states).step_std().double(), values.diff(dim=1).std()[None], rtol=1e-6)


def test_validation_and_test_stay_in_the_file_and_give_the_same_errors(file: Path) -> None:
    for name in ("val", "test"):
        lazy, whole = (load_data(config_of(file, memory), name, file.parent, "cpu") for memory in (LAZY, WHOLE))
        assert not lazy.is_in_memory
        one, two = (rollout_errors(lambda z: 0.9 * z.states[:, -1], data, 5, "cpu") for data in (lazy, whole))
        assert torch.equal(one["nrmse"], two["nrmse"])


def test_the_thread_ends_where_the_loop_breaks_off(file: Path) -> None:
    config = config_of(file, LAZY)
    windows = config.windows(load_data(config, "train", file.parent, "cpu"))

    def interrupted() -> None:
        with windows.ahead(range(1000)) as batches:
            next(batches)
            assert len(threads()) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not threads()


def test_a_damaged_window_stops_the_training_with_one_sentence(file: Path, tmp_path: Path) -> None:
    config = config_of(file, LAZY, **{"train.normalise": False})
    data = load_data(config, "train", tmp_path, "cpu")
    windows = config.windows(data)
    broken = data.kept[windows(5).index[0] // windows.starts].trajectory
    close_hdf5()
    with h5py.File(file, "r+") as content:
        content["tensor"][broken] = np.nan
    with pytest.raises(HeroError, match="is not finite in"), windows.ahead(range(9)) as all_:
        list(all_)
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(HeroError, match="may be incomplete"), windows.ahead(range(9)) as all_:
        list(all_)


def test_a_file_that_is_written_to_while_it_is_read_stops_the_training(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectories, "CHECK_SECONDS", 0.0)
    config = config_of(file, LAZY, **{"train.normalise": False})
    windows = config.windows(load_data(config, "train", tmp_path, "cpu"))
    close_hdf5()
    with h5py.File(file, "r+") as content:
        content["tensor"][...] *= 2  # finite, and of the same size
    with pytest.raises(HeroError, match="changed while it was read"), windows.ahead(range(9)) as all_:
        list(all_)


class Counted:
    """Trajectories in memory behind the interface of files; it counts reads, and fails where it is told to."""

    def __init__(self, states: np.ndarray, fields: np.ndarray) -> None:
        self.states, self.all_fields, self.reads, self.field_reads = states, fields, 0, 0
        self.failing = False

    def trajectory(self, number: int) -> Trajectory:
        def read(frames: slice, channels: object) -> np.ndarray:
            self.reads += 1
            if self.failing:
                raise ZeroDivisionError("by nothing")
            return self.states[number, frames]

        def fields() -> np.ndarray:
            self.field_reads += 1
            return self.all_fields[number]

        return Trajectory(self.states.shape[1], read, {}, fields)

    def trajectories(self, path: Path) -> FileTrajectories:
        count, frames, _, points = self.states.shape
        axes, runs = (Axis("x", np.arange(points)),), [self.trajectory(number) for number in range(count)]
        recording = Recording("toy", (path,), (Channel("u"),), axes, 1.0, runs, field_names=("mask",))
        return FileTrajectories(recording, [Part(n, 0, frames) for n in range(count)], ["mask"])


def test_fields_are_read_with_their_windows_and_never_more_than_a_few_batches_ahead(tmp_path: Path) -> None:
    states = waves(30)
    fields = np.random.default_rng(1).random((30, 1, 16)).astype(np.float32)
    source = Counted(states, fields)
    lazy = source.trajectories(tmp_path / "toy")
    whole = Trajectories(torch.from_numpy(states), torch.from_numpy(fields))
    assert source.field_reads == source.reads == 0
    one, two = Batches(lazy, 2, 4, seed=0, history=2), Batches(whole, 2, 4, seed=0, history=2)
    with one.ahead(range(100)) as batches:
        for _ in range(3):
            next(batches)
    assert source.field_reads <= 4 * (AHEAD + 3)
    assert source.reads <= 4 * (AHEAD + 3)
    assert_same_batches(one, two, range(20))
    for found, expected in zip(lazy.mu_moments(), whole.mu_moments(), strict=True):
        assert torch.equal(found, expected)
    part = lazy[3:5]
    assert torch.equal(part.states, whole.states[3:5])
    assert torch.equal(part.first(1).inputs(), whole[3:5].first(1).inputs())
    assert torch.equal(lazy.first(2).inputs(), whole.first(2).inputs())


def test_whatever_a_library_raises_becomes_one_sentence(tmp_path: Path) -> None:
    source = Counted(waves(), np.zeros((12, 1, 16)))
    windows = Batches(source.trajectories(tmp_path / "toy"), 2, 4, seed=0)
    with windows.ahead(range(10)) as batches:
        next(batches)
        source.failing = True
        with pytest.raises(HeroError, match=r"could not be read at update \d .*ZeroDivisionError: by nothing"):
            list(batches)
    assert not threads()


def test_described_memory_is_that_of_the_parts_in_use(file: Path) -> None:
    lazy, whole = (describe(config_of(file, memory)) for memory in (LAZY, WHOLE))
    assert lazy.streamed == ("train", "val", "test")
    assert whole.streamed == ()
    assert whole.memory["training data"] == whole.files["train"]
    batch = 4 * 4 * 3 * 16  # windows of 3 states
    assert lazy.memory["training data"] == (AHEAD + 1) * batch + KEPT * 2**20
    assert lazy.memory["validation data"] == lazy.files["val"]  # one part holds all of it


def numbered(trajectories: int, frames: int) -> torch.Tensor:
    """Data in which every value says where it is from: (trajectory, time, 1, 2)."""
    grid = torch.arange(trajectories)[:, None] * 1000.0 + torch.arange(frames)
    return grid[:, :, None, None].expand(-1, -1, 1, 2)


def test_the_papers_protocol_has_2300_windows_in_115_batches() -> None:
    windows = Batches(numbered(50, 51), unroll=5, batch=20, seed=0)
    assert windows.count == 2300
    assert windows.per_epoch == 115
    assert {len(windows(step).index) for step in range(115)} == {20}


@settings(max_examples=60, deadline=None)
@given(
    trajectories=st.integers(1, 5),
    unroll=st.integers(1, 6),
    extra=st.integers(1, 9),
    batch=st.integers(1, 17),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 3),
)
def test_each_epoch_has_every_window_exactly_once_and_no_batch_spans_two(
    trajectories: int, unroll: int, extra: int, batch: int, seed: int, epoch: int
) -> None:
    windows = Batches(numbered(trajectories, unroll + extra), unroll, batch, seed)
    first = epoch * windows.per_epoch
    parts = [windows(step) for step in range(first, first + windows.per_epoch)]
    starts = [(int(v) // 1000, int(v) % 1000) for part in parts for v in part.context.states[:, 0, 0, 0]]
    assert sorted(starts) == [(i, t) for i in range(trajectories) for t in range(extra)]
    sizes = [len(part.truth) for part in parts]
    assert sizes[:-1] == [batch] * (len(sizes) - 1)
    assert sizes[-1] == (trajectories * extra - 1) % batch + 1


def test_a_window_is_a_plain_slice_of_its_trajectory() -> None:
    data = torch.randn(3, 9, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    windows = Batches(data, unroll=3, batch=4, seed=7)
    slices = [data[i, t : t + 4] for i in range(3) for t in range(6)]
    for step in range(2 * windows.per_epoch):
        batch = windows(step)
        for row, number in enumerate(windows(step).index.tolist()):
            assert torch.equal(batch.context.states[row], slices[number][:1])
            assert torch.equal(batch.truth[row], slices[number][1:])
        assert batch.context.mu is None
        assert batch.step == step


def test_a_batch_depends_on_its_step_alone_not_on_what_was_drawn_before() -> None:
    data = numbered(4, 11)
    in_order = Batches(data, 5, 5, seed=3)
    forward = [(in_order(s).truth.clone(), torch.rand(3, generator=in_order(s).generator)) for s in range(20)]
    jumping = Batches(data, 5, 5, seed=3)
    for step in (19, 0, 7, 12, 6):
        batch = jumping(step)
        assert torch.equal(batch.truth, forward[step][0])
        assert torch.equal(torch.rand(3, generator=batch.generator), forward[step][1])


def test_seeds_and_epochs_differ_in_order_and_noise() -> None:
    data = numbered(4, 21)
    one, two = Batches(data, 5, 64, seed=0), Batches(data, 5, 64, seed=1)
    assert not torch.equal(one(0).index, two(0).index)
    assert not torch.equal(one(0).index, one(1).index)
    draws = [torch.rand(4, generator=w(s).generator) for w in (one, two) for s in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])


def test_seeds_from_names_are_fixed_numbers() -> None:
    # A change here changes every run; it must be deliberate.
    assert seed_of(0, "order", 0) == 822864071684415769
    assert seed_of(0, "noise", 0) != seed_of(0, "order", 0)
    assert 0 <= seed_of("x") < 2**63
