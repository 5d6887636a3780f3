"""Rollouts in constant memory: the same numbers as at once, read back as a recording, and errors on the way."""

from __future__ import annotations

import shutil
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import SHORT, Call, assert_refused, tiny
from fakes import fake_card, untrained
from hero.data.files.recording import Axis
from hero.data.formats import open_recording
from hero.data.windows import Context, Trajectories
from hero.deploy import predict as module
from hero.deploy.exported import Exported
from hero.deploy.model_folder import Operator
from hero.deploy.outputs import RolloutHeader, create
from hero.deploy.predict import RolloutWriter, block_sizes, predict
from hero.errors import HeroError
from hero.method.rollout import rollout
from hero.method.rollout_errors import rollout_errors
from hero.runs.checkpoint import save_weights
from hero.runs.config import make_config
from hero.runs.folder import Run, load_data

HISTORY = {"train__history": 2, "train__bundle": 3, "data__test_steps": 101, "data__val_steps": 101}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tiny(**HISTORY), tmp_path_factory.mktemp("runs"))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 6 steps for two trajectories, and one trajectory per call."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 7 * 2 * 4 * 32)
    monkeypatch.setattr(module, "CALL_VALUES", 64)


def at_once(run: Path, data_dir: Path, steps: int, contiguous: bool = False) -> np.ndarray:
    """The rollout from the test states as they lie among the others, or copied: some processors round differently."""
    opened = Run(run)
    test = load_data(opened.config, "test", data_dir, "cpu")
    context = test.first(opened.config.train.history)
    context = Context(context.states.contiguous(), context.mu) if contiguous else context
    with torch.no_grad():
        step = opened.stepper(opened.operator("cpu"))
        return rollout(step, context, steps).numpy()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["u.h5", "u.nc", "u.zarr", "u.npz", "u.npy"])
def test_blocks_are_the_rollout(name: str, run: Path, data_dir: Path, tmp_path: Path) -> None:
    """20 steps are no multiple of the 6 of a block, nor these of the 3 steps that a call makes."""
    assert block_sizes((2, 20, 1, 32), 3) == (6, 6)
    result = predict(str(run), tmp_path, data_dir, steps=20, out=tmp_path / name)
    expected = at_once(run, data_dir, 20)
    assert (result.shape, result.diverged, result.complete) == ((2, 20, 1, 32), 0, True)
    recording = open_recording(tmp_path / name)
    found = np.stack([one.read(slice(None), [0]) for one in recording.trajectories])
    assert found.dtype == np.float32
    # To rounding: matrix products of some processors depend on where in memory a state lies.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    if name.endswith((".h5", ".nc", ".zarr")):
        source = Run(run).config.source
        assert [channel.name for channel in recording.channels] == ["u"]
        assert recording.dt == pytest.approx(source.dt)
        np.testing.assert_allclose(recording.axes[0].coordinates, np.arange(32) * source.extents[0] / 32, rtol=1e-6)
        assert recording.axes[0].periodic is True
    if name == "u.h5":
        with h5py.File(tmp_path / name) as file:
            assert (file.attrs["run"], file["u"].chunks) == (run.name, (1, 6, 1, 32))


@pytest.mark.usefixtures("small_blocks")
def test_errors_on_the_way_are_those_of_an_evaluation(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    opened = Run(run)
    test = load_data(opened.config, "test", data_dir, "cpu")
    expected = rollout_errors(opened.stepper(opened.operator("cpu")), test, 100, "cpu", 2)
    result = predict(str(run), tmp_path, data_dir, steps=130, out=tmp_path / "u.h5")
    assert result.errors.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(result.errors[name], values, rtol=1e-4, atol=1e-6)
    code, out, err = call("predict", run, "--data", data_dir, "--steps", 130, "--out", tmp_path / "u.h5")
    assert (code, err) == (0, "")
    for t in (1, 10, 100):
        assert f"nRMSE@{t}" in out
        assert f"{result.errors['nrmse'][:, t - 1].mean():.4g}" in out


EIGHT = {"task__resolution": 8, "task__cutoff": 1, "backbone__modes": 2}


def growing(context: Context) -> Tensor:
    return context.states[:, -1] * 10


def rolled(states: Tensor, steps: int, path: Path, step: Any = growing, **changes: Any) -> module.Prediction:
    operator = Operator(torch.nn.Identity(), file=Exported(fake_card(tiny(**EIGHT), **changes), step))
    return RolloutWriter(operator, Trajectories(states[:, None]), steps).into(path)


def test_rollouts_that_leave_the_range_of_the_training_data_are_counted(tmp_path: Path) -> None:
    """Each step adds 1 to channel a, whose range is 0 to 10: up to 11 is allowed."""

    def step(context: Context) -> Tensor:
        return context.states[:, -1] + torch.tensor([1.0, 0.0])[:, None]

    start = torch.zeros(3, 2, 8)
    start[2, 0] = 1.5
    for band, outside in ((((0.0, 10.0), (-1.0, 1.0)), [0, 1, 1, 3]), ((), [None] * 4)):
        changes = {"channels": 2, "channel_names": ("a", "b"), "band": band}
        found = [rolled(start, steps, tmp_path / "u.npy", step, **changes).outside for steps in (9, 10, 11, 16)]
        assert found == outside


def test_a_rollout_that_diverges_ends_there_and_keeps_the_finite_part(tmp_path: Path) -> None:
    """float32 ends at 3.4e38: from 1 there are 38 finite steps, from 1e8 there are 30."""
    both = torch.ones(2, 1, 8) * torch.tensor([1.0, 1e8])[:, None, None]
    result = rolled(both, 1000, tmp_path / "u.h5")
    assert (result.shape, result.diverged, result.complete) == ((2, 38, 1, 8), 2, False)
    with h5py.File(tmp_path / "u.h5") as file:
        u = file["u"][:]
    assert np.isfinite(u[0]).all()
    assert [int(np.isfinite(row).all(axis=(1, 2)).sum()) for row in u] == [38, 30]
    for name in ("u.npy", "u.zarr"):
        assert rolled(both, 1000, tmp_path / name).shape == (2, 38, 1, 8)
    assert np.array_equal(np.load(tmp_path / "u.npy"), u, equal_nan=True)
    assert open_recording(tmp_path / "u.zarr").trajectories[1].frames == 38
    # One that diverged does not end the others.
    factors = torch.tensor([1.0, 1e20])[:, None, None]
    result = rolled(torch.ones(2, 1, 8), 700, tmp_path / "u.h5", lambda context: context.states[:, -1] * factors)
    assert (result.shape, result.diverged, result.complete) == ((2, 700, 1, 8), 1, True)


def test_nothing_is_written_if_the_first_step_diverges(tmp_path: Path) -> None:
    (tmp_path / "u.h5").write_bytes(b"earlier")
    result = rolled(torch.full((1, 1, 8), 1e38), 10, tmp_path / "u.h5")
    assert (result.shape, result.diverged) == ((1, 0, 1, 8), 1)
    assert (tmp_path / "u.h5").read_bytes() == b"earlier"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["u.h5", "u.npz"])
def test_an_interrupt_keeps_the_blocks_before_it(name: str, tmp_path: Path) -> None:
    made = 0

    def step(context: Context) -> Tensor:
        nonlocal made
        made += 1
        if made == 600:
            raise KeyboardInterrupt
        return context.states[:, -1] + 1

    result = rolled(torch.zeros(1, 1, 8), 1000, tmp_path / name, step)
    assert (result.shape, result.interrupted, result.complete) == ((1, 512, 1, 8), True, False)
    (trajectory,) = open_recording(tmp_path / name).trajectories
    assert np.array_equal(trajectory.read(slice(None), [0])[:, 0, 0], np.arange(1, 513))


def test_the_command_tells_an_early_end(run: Path, data_dir: Path, tmp_path: Path, call: Call) -> None:
    weights = Run(run).config.build_operator().state_dict()
    copy = Path(shutil.copytree(run, tmp_path / "runs" / run.name))
    large = {name: 1e3 * value for name, value in weights.items()}
    save_weights(copy / "model.safetensors", large, {"step": 0, "val_gm100": "inf"})
    code, out, err = call("predict", copy, "--data", data_dir, "--steps", 90, "--out", tmp_path / "u.h5")
    assert (code, err) == (1, "")
    assert "2 of 2 trajectories left the finite range" in out


def test_memory_does_not_grow_with_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**16)
    peaks = []
    for steps in (80, 4000):
        tracemalloc.start()
        with create(tmp_path / "u.h5", (1, steps, 1, 512), about(512), 8) as output:
            for _ in range(0, steps, 8):
                output.append(np.zeros((1, 8, 1, 512), np.float32))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**18 < 4000 * 512 * 4 / 10
    # Blocks are bounded whatever the batch, unless one call makes more.
    for batch in (1, 3, 1000):
        chunk, block = block_sizes((batch, 10**6, 2, 16), 1)
        assert batch * block * 4 * 32 <= max(2**16, batch * 4 * 32)
        assert block % chunk == 0


def about(points: int, length: float = 1.0, periodic: bool = False, **changes: Any) -> RolloutHeader:
    axis = Axis("x", np.linspace(0, length, points, endpoint=not periodic), periodic)
    return RolloutHeader(**{"run": "r", "channels": ("u",), "axes": (axis,), "dt": 0.5, "history": 1} | changes)


def test_names_and_conditioning_survive_the_file(tmp_path: Path) -> None:
    mu = np.array([[1.5, 2.5], [3.5, 4.5]], np.float32)
    described = about(5, channels=("density", "x"), conditioning=("Re", "nu"), mu=mu)
    block = np.random.default_rng(0).standard_normal((2, 3, 2, 5)).astype(np.float32)
    for name in ("u.h5", "u.nc", "u.zarr"):
        with create(tmp_path / name, block.shape, described, 1) as output:
            output.append(block)
        recording = open_recording(tmp_path / name)
        found = np.stack([one.read(slice(None), [0, 1]) for one in recording.trajectories])
        assert np.array_equal(found, block)
        assert recording.channels[0].name == "density"
        assert recording.dt == 0.5
        np.testing.assert_allclose(recording.axes[0].coordinates, np.linspace(0, 1, 5))
        assert recording.channels[1].name == ("x" if name == "u.h5" else "x_")  # x is the axis in the others
        assert [one.scalars for one in recording.trajectories] == [{"Re": 1.5, "nu": 2.5}, {"Re": 3.5, "nu": 4.5}]
    with pytest.raises(ZeroDivisionError), create(tmp_path / "u.zarr", block.shape, described, 1):
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.h5", "u.nc", "u.zarr"]


def test_outputs_are_refused_before_the_rollout(
    run: Path, data_dir: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = call("predict", run, "--data", data_dir, "--steps", 10**8, "--out", tmp_path / "u.npz")
    assert_refused(result, "25.6 GB", "u.npz", "u.h5")
    (tmp_path / "u.zarr").mkdir()
    result = call("predict", run, "--data", data_dir, "--out", tmp_path / "u.zarr")
    assert_refused(result, "not a Zarr store", "--out")
    monkeypatch.setitem(sys.modules, "zarr", None)
    result = call("predict", run, "--data", data_dir, "--out", tmp_path / "v.zarr")
    assert_refused(result, "hero-operators[xarray]", ".h5")


def flow(path: Path, scalars: bool = True, seed: int = 0, points: int = 16) -> np.ndarray:
    """A file of four trajectories of two named channels on a grid, in the layout of hero's predictions."""
    generator = np.random.default_rng(seed)
    x = np.arange(points) * (2 * np.pi / points)
    mu = generator.uniform(1, 2, (4, 1)).astype(np.float32)
    t = 0.1 * np.arange(60)[:, None, None]
    phases = np.array([0.0, 1.0])[:, None]
    u = np.stack([np.sin(x - m * t + phases) for m in mu[:, 0]]).astype(np.float32)
    named = {"conditioning": ("speed",), "mu": mu} if scalars else {}
    described = about(points, 2 * np.pi, True, channels=("rho", "v"), dt=0.1, **named)
    with create(path, u.shape, described, 1) as output:
        output.append(u)
    return u


FILE_RUN = {**SHORT, "strategy": "one_step"}


@pytest.fixture(scope="module")
def file_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    folder = tmp_path_factory.mktemp("files")
    u = flow(folder / "flow.h5")
    settings = {"data.path": str(folder / "flow.h5"), "data.stride": 2, "data.coarsen": 2, "train.history": 2}
    config = make_config(overrides={**FILE_RUN, **settings, "data.fields": "v,rho"})
    assert config.source.conditioning == ("speed",)
    return untrained(config, folder), u


def test_a_recording_is_read_with_the_settings_of_the_run(
    file_run: tuple[Path, np.ndarray], tmp_path: Path, data_dir: Path
) -> None:
    run, u = file_run
    source = run.parent / "flow.h5"
    result = predict(str(run), tmp_path, data_dir, source, 40, tmp_path / "u.h5", trajectories=3)
    opened = Run(run)
    step = opened.stepper(opened.operator("cpu"))
    states = torch.from_numpy(np.ascontiguousarray(u[:3, ::2, ::-1, ::2]))
    mu = torch.tensor([[t.scalars["speed"]] for t in open_recording(source).trajectories[:3]]).float()
    with torch.no_grad():
        expected = rollout(step, Context(states[:, :2], mu), 40).numpy()
    with h5py.File(tmp_path / "u.h5") as file:
        assert np.array_equal(file["u"][:], expected)
    errors = rollout_errors(step, Trajectories(states, mu), 28, "cpu", 2)
    assert torch.equal(result.errors["nrmse"], errors["nrmse"])
    with pytest.raises(HeroError, match=r"`trajectories` 5 is not within the 4 of .*flow\.h5"):
        predict(str(run), tmp_path, data_dir, source, 40, tmp_path / "u.h5", trajectories=5)
    # A prediction is on the grid and at the dt of the run: it can start another one.
    again = predict(str(run), tmp_path, data_dir, tmp_path / "u.h5", 3, tmp_path / "v.h5")
    assert again.shape == (3, 3, 2, 8)
    with torch.no_grad():
        expected = rollout(step, Context(torch.from_numpy(expected[:, :2]), mu), 3).numpy()
    with h5py.File(tmp_path / "v.h5") as file:
        assert np.array_equal(file["u"][:], expected)


def altered(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with h5py.File(path, "a") as file:
            change(file)

    return write


def broken(file: h5py.File) -> None:
    file["u"][2, 0, 0, 4] = np.nan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (altered(lambda file: file.attrs.update(channels='["rho", "w"]')), ("rho, w", "v, rho")),
        (altered(lambda file: file.pop("mu")), ("conditioning", "speed")),
        (altered(lambda file: file["u"].resize((4, 1, 2, 16))), ("1 state", "starts from 2")),
        (lambda path: flow(path, points=20), ("10 points", "needs 8")),
        (altered(broken), ("not finite", "trajectory 2")),
    ],
)
def test_files_that_do_not_fit_are_refused(
    change: Any, words: tuple[str, ...], file_run: tuple[Path, np.ndarray], tmp_path: Path, call: Call
) -> None:
    path = Path(shutil.copy(file_run[0].parent / "flow.h5", tmp_path / "other.h5"))
    change(path)
    assert_refused(call("predict", file_run[0], "--from", path, "--out", tmp_path / "u.h5"), "other.h5", *words)
    assert not (tmp_path / "u.h5").exists()


def test_a_longer_array_is_a_recording_with_its_truth(run: Path, data_dir: Path, tmp_path: Path) -> None:
    test = load_data(Run(run).config, "test", data_dir, "cpu").states.numpy()
    np.save(tmp_path / "test.npy", test)
    first = predict(str(run), tmp_path, data_dir, tmp_path / "test.npy", 12, tmp_path / "u.npy")
    second = predict(str(run), tmp_path, data_dir, None, 12, tmp_path / "v.npy")
    assert np.array_equal(np.load(tmp_path / "u.npy"), at_once(run, data_dir, 12, contiguous=True))
    assert np.array_equal(np.load(tmp_path / "v.npy"), at_once(run, data_dir, 12))
    np.testing.assert_allclose(np.load(tmp_path / "u.npy"), np.load(tmp_path / "v.npy"), rtol=0, atol=1e-6)
    torch.testing.assert_close(first.errors["nrmse"], second.errors["nrmse"], rtol=1e-5, atol=0)
    np.save(tmp_path / "states.npy", test[:, :2])
    assert predict(str(run), tmp_path, data_dir, tmp_path / "states.npy", 2, tmp_path / "u.npy").errors == {}
