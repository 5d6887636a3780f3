"""The doctor: each finding has a crafted recording, next to a clean one; operators that blow up, copy and drift."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import Call, assert_refused, tiny
from hero.analysis import scan as doctor_scan
from hero.analysis.doctor import Diagnosis, diagnose
from hero.analysis.doctor_run import RunDiagnosis, examine
from hero.analysis.findings import Finding
from hero.data import SPLITS, load_trajectories
from hero.data.files import checks
from hero.data.files.checks import UnfitError, tidy
from hero.data.files.recording import Axis, Recording
from hero.data.formats import open_recording
from hero.data.trajectories import Context, Trajectories
from hero.evaluation.evaluate import evaluate
from hero.evaluation.measure import Subject
from hero.method.domain import Box
from hero.method.domain.bands import Bands, GridBands, OneBand, split_modes
from hero.method.domain.transform import shell_power
from hero.report import doctor as tables
from hero.report.doctor import run_figure
from hero.runs.checkpoint import read_weights, save_weights
from hero.runs.config import RECOMMENDED, make_config
from hero.runs.folder import Run
from hero.training.loop import train
from test_data_checks import recording_of

POINTS = 32
SQUEEZED = np.linspace(0, 1, POINTS) ** 2


def waves(trajectories: int = 12, frames: int = 30, seed: int = 0, speed: float = 0.2) -> np.ndarray:
    """Travelling waves on a periodic axis, (trajectory, time, 1, x), smooth and without a mean."""
    rng = np.random.default_rng(seed)
    k, t, x = np.arange(1, 5), np.arange(frames)[:, None, None], np.arange(POINTS)[:, None] * 2 * np.pi / POINTS
    states = [
        (rng.normal(size=4) * np.cos(k * x - speed * k * t + rng.uniform(0, 6, 4)) / k).sum(-1)
        for _ in range(trajectories)
    ]
    return np.stack(states)[:, :, None]


def recorded(
    states: Sequence[np.ndarray] | np.ndarray,
    splits: Sequence[str] = (),
    periodic: bool | None = True,
    coordinates: Sequence[np.ndarray] | None = None,
) -> Recording:
    """A recording of arrays in memory."""
    axes = coordinates or [np.linspace(0, 1, n, endpoint=False) for n in states[0].shape[2:]]
    named = [Axis("xyz"[i], x, periodic) for i, x in enumerate(axes)]
    return dataclasses.replace(recording_of(states, named, splits), dt=0.1, files=())


def asked(recording: Recording, kind: str) -> Finding:
    """The one finding of a kind."""
    (found,) = [one for one in diagnose(recording, "waves.h5").findings if one.kind == kind]
    return found


def test_clean_waves_are_fit_and_every_question_is_answered_with_ok() -> None:
    found = diagnose(recorded(waves()), "waves.h5")
    assert {one.mark for one in found.findings} == {"ok"}
    assert found.command == "hero train waves.h5"
    assert (found.trajectories, found.frames, found.space, found.read_share) == (12, (30, 30), (POINTS,), 1)
    (axis,) = found.axes
    assert (axis.points, axis.periodic, axis.known, axis.extent) == (POINTS, True, True, pytest.approx(1))


def twin(u: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """The numbers of `u` (trajectory, time, channel, *space) on valid points, written the slow way."""
    numbers: dict[str, Any] = {name: [] for name in ("low", "high", "mean", "std")}
    energies, bends, steps = np.zeros(u.shape[:2]), np.zeros(u[:, 2:, 0, 0].shape), np.zeros(u[:, 1:, 0, 0].shape)
    for c in range(u.shape[2]):
        values = u[:, :, c, mask[c]]  # (trajectory, time, valid point)
        mean, std = values.mean(), values.std()
        for name, value in zip(numbers, (values.min(), values.max(), mean, std), strict=True):
            numbers[name].append(value)
        steps += np.square(np.diff(values, axis=1) / std).mean(axis=-1) / u.shape[2]
        bends += np.square(np.diff(values, 2, axis=1) / std).mean(axis=-1) / u.shape[2]
        energies += np.square((values - mean) / std).mean(axis=-1) / u.shape[2]
    return {
        **numbers,
        "change": np.median(np.sqrt(steps).mean(axis=1)),
        "energy": energies.mean(axis=0),
        "frequency": np.sqrt(bends.mean() / steps.mean()),
    }


def test_numbers_are_those_of_valid_points_about_the_mean_of_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    u = np.concatenate([waves() + 300, 1e-3 * waves(seed=1) - 7], axis=2)
    mask = np.ones((2, POINTS), bool)
    mask[0, 5:22], mask[1, :3] = False, False
    holes = np.where(mask, u, np.nan)
    expected = twin(u, mask)
    for frames in (100, 7, 2):
        monkeypatch.setattr(doctor_scan, "BLOCK_BYTES", frames * 2 * POINTS * 8)
        found = diagnose(recorded(holes), "x")
        assert not found.problems
        for name in ("low", "high", "mean", "std"):
            assert [getattr(one, name) for one in found.channels] == pytest.approx(expected[name], rel=1e-9)
        assert [one.masked for one in found.channels] == [17, 3]
        assert found.change == pytest.approx(expected["change"], rel=1e-6)
        assert found.energy == pytest.approx(expected["energy"], rel=1e-6)
        scanned = doctor_scan.scan(tidy(recorded(holes)), {})
        assert scanned.frequency() == pytest.approx(expected["frequency"], rel=1e-6)


def test_a_large_file_is_sampled_evenly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_scan, "BLOCK_BYTES", 10 * POINTS * 8)
    monkeypatch.setattr(doctor_scan, "READ_BYTES", 120 * POINTS * 4)
    u = waves()
    u[7] = u[2]
    found = diagnose(recorded(u), "waves.h5")
    assert 0.3 < found.read_share < 0.4
    assert found.channels[0].std == pytest.approx(u.std(), rel=0.2)
    assert [one.kind for one in found.findings if one.mark == "warning"] == ["duplicates"]
    assert any(row.cells[0].text == "read" for row in tables.facts_table(found).rows)


def doubled() -> Recording:
    u = np.concatenate([waves(), waves()[..., :1]], axis=-1)
    return recorded(u, periodic=None, coordinates=[np.linspace(0, 1, POINTS + 1)])


def shaped(envelope: float) -> Recording:
    return recorded(waves() * np.exp(envelope * np.arange(30))[:, None, None])


CONSTANT = np.concatenate([waves(), np.full_like(waves(), 3.0)], axis=2)
NOISY = waves() + 0.3 * np.random.default_rng(0).normal(size=waves().shape)
UNLIKE = waves(trajectories=12 * 30).reshape(12, 30, 30, 1, POINTS)[:, :, 0]  # frames without relation to each other
GAP = np.delete(waves(frames=60, speed=0.02), range(20, 45), axis=1)

CASES: dict[str, tuple[str, str, Callable[[], Recording]]] = {
    "data.fields=u0": ("constant channel", "note", lambda: recorded(CONSTANT)),
    "one steady": ("steady", "note", lambda: recorded([*waves(11), waves(1, seed=3, speed=0)[0]])),
    "most steady": ("steady", "warning", lambda: recorded([*waves(4), *waves(8, seed=3, speed=0)])),
    "uneven grid": ("coordinates", "note", lambda: recorded(waves(), periodic=False, coordinates=[SQUEEZED])),
    "uneven periodic grid": ("coordinates", "problem", lambda: recorded(waves(), coordinates=[SQUEEZED])),
    "jump": ("jump", "warning", lambda: recorded(GAP)),
    "decay": ("decay", "note", lambda: shaped(-0.3)),
    "growth": ("decay", "note", lambda: shaped(0.3)),
    "few": ("trajectories", "note", lambda: recorded(waves(3))),
    "one": ("trajectories", "note", lambda: recorded(waves(1))),
    "noise": ("resolution", "note", lambda: recorded(NOISY)),
    "data.stride=5": ("step size", "note", lambda: recorded(waves(frames=120, speed=0.002))),
    "far apart": ("step size", "note", lambda: recorded(UNLIKE)),
}
"""Named by the setting that is advised, if there is one."""


@pytest.mark.parametrize("case", CASES)
def test_each_finding(case: str) -> None:
    kind, mark, make = CASES[case]
    found = diagnose(make(), "waves.h5")
    (one,) = [finding for finding in found.findings if finding.kind == kind]
    assert one.mark == mark, one
    assert one.advice
    assert bool(found.problems) == (mark == "problem")
    if "=" in case:
        assert found.settings == dict([case.split("=")])
        assert f"hero train waves.h5 --set {case}" in one.advice


SPLIT = ["train"] * 10 + ["test"] * 2


def test_duplicates_are_a_warning_without_splits_and_a_note_within_one_and_leakage_across_splits() -> None:
    u = waves()
    u[7] = u[2]
    assert asked(recorded(u), "duplicates").mark == "warning"
    assert "7 shares 30 frames with 2" in asked(recorded(u), "duplicates").text
    assert asked(recorded(u, SPLIT), "duplicates").mark == "note"
    assert asked(recorded(u, SPLIT), "leakage").mark == "ok"
    long = waves(frames=55)
    cut = [*long[:10, :30], long[3, 25:], waves(1, seed=5)[0]]
    found = asked(recorded(cut, SPLIT), "leakage")
    assert found.mark == "warning"
    assert "10 (test) shares 5 frames with 3 (train), whose frame 25 is its frame 0" in found.text


@pytest.mark.parametrize("common", ["initial", "constant in space"])
def test_states_in_common_that_are_no_leak(common: str) -> None:
    """Runs from one state with other parameters, and states that any two runs may share."""
    u = waves()
    if common == "initial":
        u[10, 0] = u[3, 0]
    else:
        u[:, 0] = 0
    found = diagnose(recorded(u, SPLIT), "x")
    assert {one.mark for one in found.findings if one.kind in ("leakage", "duplicates")} == {"ok"}


@pytest.mark.parametrize("periodic", [True, False])
def test_the_spectrum_of_a_known_wave(periodic: bool) -> None:
    n = 24
    i = np.arange(n)
    wave = 3 * np.cos(2 * np.pi * 5 * i / n) if periodic else 3 * np.cos(np.pi * 10 * (i + 0.5) / n)
    power = shell_power(wave[None], [periodic], [1.0])[0][0]
    assert power.shape == (n // 2 + 1 if periodic else n // 2,)
    np.testing.assert_allclose(power, np.where(np.arange(len(power)) == 5, 9 / 2, 0), atol=1e-20)
    # In an oblong box, waves of the longest axis are counted.
    x, y = np.meshgrid(np.arange(32) / 32, np.arange(16) / 16, indexing="ij")
    power = shell_power(np.cos(2 * np.pi * (3 * x + 2 * y))[None], [True, True], [2.0, 1.0])[0][0]
    assert (len(power), power.argmax(), power[5]) == (17, 5, pytest.approx(0.5))  # (3, 2 · 2)


def test_periodicity_is_read_from_the_data_where_the_file_says_nothing() -> None:
    ramp = waves() + np.linspace(0, 30, POINTS)
    (axis,) = diagnose(recorded(waves(), periodic=None), "x").axes
    assert axis.periodic
    found = diagnose(recorded(ramp, periodic=None), "x")
    assert not found.axes[0].periodic
    assert found.command == "hero train x"  # an FNO pads an axis with ends
    found = diagnose(doubled(), "x")
    assert (found.axes[0].periodic, found.axes[0].points, found.axes[0].known) == (True, POINTS, False)
    assert found.axes[0].extent == pytest.approx(1)
    assert found.spectrum.upper_share < 1e-20  # a point too many would smear the waves


def test_a_stride_keeps_the_waves_of_a_day() -> None:
    """A day of 1 K on a map of 40 K changes little from hour to hour; a stride towards 5 % would miss it."""
    hours, x = np.arange(24 * 40)[:, None, None], 2 * np.pi * np.arange(POINTS) / POINTS
    u = 285 + 40 * np.cos(x) + np.cos(2 * np.pi * hours / 24 - x)
    found = diagnose(recorded([u]), "x")
    assert found.change < 0.01
    assert 24 / int(found.settings["data.stride"]) >= 2 * np.pi


def npz(**changes: Any) -> Callable[[Path], Path]:
    """A writer of an .npz file of waves, with some arrays changed."""

    def write(folder: Path) -> Path:
        arrays = {"u": np.concatenate([waves(), waves(seed=1)], axis=2).astype("f4"), **changes}
        np.savez(folder / "a.npz", **{name: array for name, array in arrays.items() if array is not None})
        return folder / "a.npz"

    return write


def changed(place: tuple[Any, ...], value: Any, more: tuple[Any, ...] = (), other: Any = 0) -> Callable[[Path], Path]:
    """The same with values in some places."""
    u = np.concatenate([waves(), waves(seed=1)], axis=2)
    u[place] = value
    if more:
        u[more] = other
    return npz(u=u)


def moving_mask() -> np.ndarray:
    u = waves(frames=20)
    for frame in range(20):
        u[:, frame, :, frame : frame + 4] = np.nan
    return u


UNEVEN = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 31))
ALTERNATING = np.cumsum([0.0, *[0.1, 0.2] * 15])

FILES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "clean": (npz(), ()),
    "a constant channel": (changed((slice(None), slice(None), 1), 3.0), ()),
    "slow": (npz(u=waves(frames=120, speed=0.002)), ()),
    "a mask": (changed((..., slice(5, 9)), np.nan), ()),
    "two frames": (npz(u=waves(frames=2)), ("length",)),
    "fifteen frames of one": (npz(u=waves(1, 15)), ("split",)),
    "one to train": (npz(u=None, train=waves(1), test=waves(1, seed=5)), ("split",)),
    "none to train": (npz(u=None, test=waves()), ("split",)),
    "steady": (npz(u=waves(speed=0)), ("steady",)),
    "stray NaN": (changed((3, 7, 1, 5), np.nan), ("finite",)),
    "an empty channel": (changed((slice(None), slice(None), 1), np.nan), ("empty channel",)),
    "nothing": (changed((...,), np.nan), ("empty channel",)),
    "a mask that moves": (npz(u=moving_mask()), ("mask",)),
    "a mask and a stray NaN": (changed((..., slice(5, 9)), np.nan, (4, 11, 0, 20), np.nan), ("mask",)),
    "a mask with a hole": (changed((..., slice(5, 9)), np.nan, (4, 11, 0, 6), 1.0), ("mask",)),
    "unsorted": (npz(x=np.roll(np.arange(float(POINTS)), 5)), ("coordinates",)),
    "uneven times": (npz(t=UNEVEN[:30]), ("time step",)),
    "alternating times": (npz(t=ALTERNATING[:30]), ("time step",)),
    "uneven times, empty channel": (
        npz(u=np.concatenate([waves(), np.full_like(waves(), np.nan)], axis=2), t=ALTERNATING[:30]),
        ("time step", "empty channel"),
    ),
}


def begin(path: Path, typed: Sequence[str] = ()) -> None:
    """All that `hero train` does before its first update: HeroError where it refuses the file."""
    config = make_config(RECOMMENDED, overrides=[f"data.path={path}", *typed])
    for split in SPLITS:
        load_trajectories(config.source, config.split(split), path.parent)


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_fit_exactly_if_training_takes_it(case: str, tmp_path: Path) -> None:
    """Training refuses with the first problem that the doctor shows; every command that the doctor prints trains."""
    write, kinds = FILES[case]
    path = write(tmp_path)
    found = diagnose(open_recording(path), str(path))
    assert tuple(one.kind for one in found.problems) == kinds
    assert (found.baselines is None) == bool(kinds)
    commands = [f"hero train{text}" for one in found.findings for text in one.advice.split("hero train")[1:]]
    if kinds:
        with pytest.raises(UnfitError) as refused:
            make_config(RECOMMENDED, overrides=[f"data.path={path}"])
        assert refused.value.kind == kinds[0]
        assert refused.value.text in found.problems[0].text
        assert bool(commands) == (set(kinds) <= {"time step", "empty channel"} and case != "nothing")
    else:
        begin(path)
        commands.append(found.command)
    for command in commands:
        first, second, file, *options = shlex.split(command)
        assert (first, second, file) == ("hero", "train", str(path))
        assert set(options[::2]) <= {"--set"}
        begin(path, options[1::2])


def test_what_a_full_reading_alone_finds_stops_training_before_its_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file a sample is checked before training; the doctor reads it all, and so does training."""
    monkeypatch.setattr(checks, "SAMPLED_VALUES", 1000)
    path = changed((3, 8, 1, 5), np.nan)(tmp_path)
    make_config(overrides={"data.path": str(path)})
    (one,) = diagnose(open_recording(path), str(path)).problems
    with pytest.raises(UnfitError, match="trajectory 3 is not finite in u1 at frame 8") as refused:
        begin(path)
    assert one.kind == refused.value.kind == "finite"
    assert refused.value.text in one.text


@pytest.mark.parametrize("case", ["a mask", "slow"])
def test_the_last_line_trains_and_its_baselines_are_those_of_the_run(
    case: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = FILES[case][0](tmp_path).name
    code, out, err = call("doctor", path, "--json", "found.json")
    assert code == 0, err
    hero_, *words = shlex.split(out.rstrip().splitlines()[-1])
    assert hero_ == "hero"
    quick = ("train.steps=2", "train.compile=false", "backbone.width=4", "backbone.modes=2")
    config = make_config(RECOMMENDED, overrides=[f"data.path={path}", *words[3::2], *quick])
    run = train(config, tmp_path / "runs", tmp_path / "data")
    evaluate(run, tmp_path / "data")
    metrics, found = Run(run).metrics, Diagnosis.read(Path("found.json")).baselines
    for name, curve, tolerance in (("persistence", found.persistence, 1e-6), ("mean", found.mean, 2e-2)):
        for step, value in zip(found.steps, curve, strict=True):
            assert value == pytest.approx(metrics.baselines[name].test[f"vrmse@{step}"], rel=tolerance)


def test_the_command_prints_draws_and_exits_by_the_problems(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    u = waves()
    np.save("swapped.npy", u.transpose(0, 3, 1, 2))
    code, out, err = call("doctor", "swapped.npy", "--layout", "bxtc", "--out", "pictures")
    assert code == 0, err
    assert out.rstrip().endswith("hero train swapped.npy --set data.layout=bxtc")
    assert {path.stem for path in Path("pictures").iterdir()} == {"fields", "energy", "spectrum"}
    u[2, 3] = math.nan
    np.save("bad.npy", u)
    code, out, _ = call("doctor", "bad.npy")
    assert (code, "finite" in out) == (1, True)
    assert_refused(call("doctor", "missing.npy"), "missing.npy")


def linear(growth: float, defect: float = 0.0, wave: int = 3) -> tuple[Subject, GridBands]:
    """u_{n+1} = u_n shifted by one point, and an operator that multiplies one wave by `growth` and adds to it."""
    data = torch.from_numpy(waves(4, 60))[:, :1].float()
    data = torch.stack([data[:, 0].roll(n, dims=-1) for n in range(60)], dim=1)
    bands = split_modes((POINTS,))

    def step(context: Context) -> Tensor:
        u = context.states[:, -1].roll(1, dims=-1)
        modes = torch.fft.rfft(u)
        modes[..., wave] = growth * modes[..., wave] + defect * POINTS
        return torch.fft.irfft(modes, n=POINTS)

    return Subject(step, Trajectories(data)), bands


def copying(factor: float, offset: float = 0.0) -> tuple[Subject, GridBands]:
    """An operator that keeps the state, times a factor."""
    trained, bands = linear(1.0)
    return dataclasses.replace(trained, step=lambda context: factor * context.states[:, -1] + offset), bands


def examined(subject: Subject, bands: Bands) -> RunDiagnosis:
    """The diagnosis of an operator that a run with an unroll of two steps would have trained."""
    return examine(subject, bands, "operator", tiny(train__unroll=2).train, ["u"])


OPERATORS: dict[str, tuple[tuple[Subject, GridBands], str, float, str]] = {
    "amplifies a wave": (linear(1.3, 1e-3), "blow-up", 1.3, "train.unroll=4"),
    "adds defects": (linear(1.0, 0.01), "drift", 1.0, "train.loss=balanced"),
    "is exact": (linear(1.0), "accurate", 1.0, "hero evaluate"),
    "copies": (copying(1 + 1e-4), "static", 1.0, "data.stride"),
    "damps": (copying(0.4, 0.1), "static", 0.4, "train.history=2"),
    "overflows at once": (copying(math.inf), "blow-up", math.inf, "train.noise"),
}
"""Operator, outcome, growth of a small difference, and the remedy."""


@pytest.mark.parametrize("name", OPERATORS)
def test_what_an_operator_does_is_found_and_advised(name: str) -> None:
    (subject, bands), outcome, growth, remedy = OPERATORS[name]
    found = examined(subject, bands)
    assert (found.outcome, remedy in found.verdict) == (outcome, True), found.verdict
    assert found.amplification == pytest.approx(growth, rel=0.05)
    assert (found.energy > 10) == (outcome == "blow-up")
    if name == "amplifies a wave":  # the carried part is the old error of one wave times its growth
        assert "in the modes 3." in found.verdict
        assert found.carried[0] == pytest.approx(0, abs=1e-6)
        assert found.carried[-1] > 100 * found.defects[0]
    elif name == "adds defects":
        assert found.defects[0] == pytest.approx(found.errors[0], rel=1e-4)
    elif name == "overflows at once":
        assert (found.diverged, found.diverged_step) == (4, 1)
        run_figure(found).canvas.draw()
        assert tables.run_table(found).rows


def test_the_command_on_a_run_with_scaled_weights(runs_dir: Path, data_dir: Path, call: Call) -> None:
    run = train(tiny(strategy="push_forward"), runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    weights, about = read_weights(run / "model.safetensors")
    save_weights(run / "model.safetensors", {name: 5 * w for name, w in weights.items()}, about)
    code, out, err = call("doctor", run, *folders)
    assert code == 0, err
    found = RunDiagnosis.read(run / "doctor.json")
    assert (found.outcome, len(found.errors)) == ("blow-up", 100)
    assert found.verdict in out
    assert (run / "figures" / "doctor.png").is_file()
    assert_refused(call("doctor", "nothing", *folders), "'nothing'")


def test_bands_of_a_grid_with_ends_hold_all_energy() -> None:
    bands = Box((12, 9), periodic=(False, True)).bands()
    u = torch.randn(3, 2, 12, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bands.energies(u).sum(dim=1), u.square().flatten(1).sum(dim=1))
    wave = torch.cos(math.pi * 4 * (torch.arange(12, dtype=torch.float64) + 0.5) / 12)[None, None, :, None].expand(
        1, 1, 12, 9
    )
    energies = bands.energies(wave)[0]
    assert bands.limits[int(energies.argmax())] == (2, 2)  # four half waves
    assert float(energies.max() / energies.sum()) == pytest.approx(1)
    trained, _ = linear(1.3, 1e-3)
    assert examined(trained, OneBand()).labels == ["all"]
