"""The doctor: each finding has a crafted recording, next to a clean one; operators that blow up, copy and drift."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import Call, assert_refused, tiny
from hero.console import console
from hero.data.recording import Axis, Channel, Recording, Trajectory
from hero.data.windows import Context
from hero.evaluation import doctor_scan
from hero.evaluation.anatomy import Bands, split_modes
from hero.evaluation.doctor import Diagnosis, diagnose
from hero.evaluation.doctor_findings import Finding
from hero.evaluation.doctor_measures import shell_power
from hero.evaluation.doctor_run import RunDiagnosis, Shells, Trained, Whole, examine
from hero.method.geometry import Geometry
from hero.method.rollout import as_stepper
from hero.report import doctor as tables
from hero.report.figures.doctor import figures
from hero.report.figures.doctor_run import run_figure
from hero.runs.checkpoint import read_weights, save_weights
from hero.training.loop import train

POINTS = 32


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
    scalars: Sequence[dict[str, float]] = (),
    **more: Any,
) -> Recording:
    """A recording of arrays in memory."""

    def reader(u: np.ndarray) -> Callable[[slice, Sequence[int]], np.ndarray]:
        return lambda frames, channels: u[frames][:, list(channels)]

    space = states[0].shape[2:]
    axes = coordinates or [np.linspace(0, 1, n, endpoint=False) for n in space]
    given: dict[str, Any] = {
        "format": "memory",
        "files": (),
        "channels": tuple(Channel(f"u{i}") for i in range(states[0].shape[1])),
        "axes": tuple(Axis("xyz"[i], x, periodic) for i, x in enumerate(axes)),
        "dt": 0.1,
        "trajectories": [
            Trajectory(len(u), reader(u), scalars[i] if scalars else {}, split=splits[i] if splits else "")
            for i, u in enumerate(states)
        ],
    }
    return Recording(**given | more)


def asked(recording: Recording, kind: str) -> Finding:
    """The one finding of a kind."""
    (found,) = [one for one in diagnose(recording, "waves.h5").findings if one.kind == kind]
    return found


def test_clean_waves_are_fit_and_every_question_is_answered_with_ok() -> None:
    found = diagnose(recorded(waves()), "waves.h5")
    assert {one.mark for one in found.findings} == {"ok"}
    assert not found.problems
    assert found.command == "hero train waves.h5"
    assert (found.trajectories, found.frames, found.space, found.read_share) == (12, (30, 30), (POINTS,), 1)
    (channel,) = found.channels
    u = waves()
    assert [channel.low, channel.high] == [u.min(), u.max()]
    assert [channel.mean, channel.std] == pytest.approx([u.mean(), u.std()], abs=1e-12)
    (axis,) = found.axes
    assert (axis.points, axis.periodic, axis.known) == (POINTS, True, True)
    assert axis.extent == pytest.approx(1)
    expected = np.linalg.norm(np.diff(u, axis=1), axis=(2, 3)) / np.linalg.norm(u[:, :-1], axis=(2, 3))
    assert found.change == pytest.approx(np.median(expected.mean(axis=1)))
    assert found.energy == pytest.approx(np.square(u).mean(axis=(0, 2, 3)))


def test_the_numbers_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    u = np.concatenate([waves() + 1e4, 1e-3 * waves(seed=1)], axis=2)
    whole = diagnose(recorded(u), "x")
    monkeypatch.setattr(doctor_scan, "BLOCK_BYTES", 7 * 2 * POINTS * 8)
    parts = diagnose(recorded(u), "x")
    for a, b, values in zip(whole.channels, parts.channels, u.swapaxes(0, 2), strict=True):
        assert a.std == pytest.approx(values.std(), rel=1e-9)
        assert b.std == pytest.approx(values.std(), rel=1e-9)
    assert parts.change == pytest.approx(whole.change)
    assert parts.findings == whole.findings


def test_a_large_file_is_sampled_evenly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_scan, "BLOCK_BYTES", 10 * POINTS * 8)
    monkeypatch.setattr(doctor_scan, "READ_BYTES", 120 * POINTS * 4)
    u = waves()
    u[7] = u[2]
    found = diagnose(recorded(u), "waves.h5")
    assert 0.3 < found.read_share < 0.4
    assert found.channels[0].std == pytest.approx(u.std(), rel=0.2)
    assert [one.kind for one in found.problems] == ["duplicates"]
    assert any(row.cells[0].text == "read" for row in tables.facts_table(found).rows)


def test_nan_is_located() -> None:
    u = np.concatenate([waves(), waves(seed=1)], axis=2)
    u[3, 7, 1, 5] = math.nan
    u[4, 2, 0, 0] = math.inf
    found = asked(recorded(u), "finite")
    assert found.mark == "problem"
    assert "2 frames, first in trajectory 3, frame 7, channel u1" in found.text


def with_constant_channel() -> Recording:
    u = waves()
    return recorded(np.concatenate([u, np.full_like(u, 3.0)], axis=2))


def off_by_one() -> Recording:
    return recorded(waves(), coordinates=[np.linspace(0, 1, POINTS + 1)])


def doubled() -> Recording:
    u = waves()
    return recorded(
        np.concatenate([u, u[..., :1]], axis=-1), periodic=None, coordinates=[np.linspace(0, 1, POINTS + 1)]
    )


def with_jump() -> Recording:
    u = waves(frames=60, speed=0.02)
    return recorded(np.delete(u, range(20, 45), axis=1))


def decaying() -> Recording:
    return recorded(waves() * np.exp(-0.3 * np.arange(30))[:, None, None])


def growing() -> Recording:
    return recorded(waves() * np.exp(0.3 * np.arange(30))[:, None, None])


def with_mixed_scales() -> Recording:
    return recorded(np.concatenate([waves(), 1e3 * waves(seed=1)], axis=2))


def noisy() -> Recording:
    return recorded(waves() + 0.3 * np.random.default_rng(0).normal(size=waves().shape))


def unlike() -> Recording:
    """Frames without relation to each other."""
    return recorded(waves(trajectories=12 * 30).reshape(12, 30, 30, 1, POINTS)[:, :, 0])


CASES: dict[str, tuple[str, str, Callable[[], Recording], str]] = {
    "constant channel": ("constant channel", "note", with_constant_channel, "data.fields=u0"),
    "all constant": ("constant channel", "problem", lambda: recorded(np.ones((12, 9, 1, 8))), ""),
    "steady": ("steady", "problem", lambda: recorded(waves(speed=0)), ""),
    "one steady": ("steady", "note", lambda: recorded([*waves(11), waves(1, seed=3, speed=0)[0]]), ""),
    "off by one": ("coordinates", "problem", off_by_one, ""),
    "uneven grid": ("coordinates", "note", lambda: recorded(waves(), coordinates=[np.linspace(0, 1, POINTS) ** 2]), ""),
    "doubled": ("end points", "note", doubled, ""),
    "jump": ("time step", "note", with_jump, ""),
    "two frames": ("length", "problem", lambda: recorded(waves(frames=2)), ""),
    "short": ("length", "note", lambda: recorded(waves(frames=4)), "train.unroll=3"),
    "unequal": ("length", "note", lambda: recorded([*waves(11), waves(1, 20, seed=3)[0]]), ""),
    "scales": ("scales", "note", with_mixed_scales, "train.normalise=true"),
    "offset": ("scales", "note", lambda: recorded(waves() + 100), "train.normalise=true"),
    "decay": ("decay", "note", decaying, ""),
    "growth": ("decay", "note", growing, ""),
    "few": ("trajectories", "note", lambda: recorded(waves(3)), ""),
    "one": ("trajectories", "note", lambda: recorded(waves(1)), ""),
    "noise": ("resolution", "note", noisy, ""),
    "slow": ("step size", "note", lambda: recorded(waves(frames=120, speed=0.002)), "data.stride=5"),
    "far apart": ("step size", "note", unlike, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_each_finding(case: str) -> None:
    kind, mark, make, setting = CASES[case]
    found = diagnose(make(), "waves.h5")
    (one,) = [finding for finding in found.findings if finding.kind == kind]
    assert one.mark == mark, one
    assert one.advice
    assert bool(found.problems) == (mark == "problem")
    if setting:
        key, _, value = setting.partition("=")
        assert found.settings[key] == value


def test_duplicates_are_a_problem_without_splits_and_a_note_within_one() -> None:
    u = waves()
    u[7] = u[2]
    assert asked(recorded(u), "duplicates").mark == "problem"
    assert "7 is 2" in asked(recorded(u), "duplicates").text
    split = ["train"] * 10 + ["test"] * 2
    assert asked(recorded(u, split), "duplicates").mark == "note"
    assert asked(recorded(u, split), "leakage").mark == "ok"
    u[7, -1] += 1e-3  # equal at first, different at the end
    assert asked(recorded(u), "duplicates").mark == "ok"


def test_leakage_across_splits() -> None:
    split = ["train"] * 10 + ["test"] * 2
    same = waves()
    same[11] = same[4]
    found = asked(recorded(same, split), "leakage")
    assert found.mark == "problem"
    assert "11 (test) is 4 (train)" in found.text
    long = waves(frames=55)
    cut = [*long[:10, :30], long[3, 25:], waves(1, seed=5)[0]]
    found = asked(recorded(cut, split), "leakage")
    assert found.mark == "problem"
    assert "10 (test) shares 5 frames with 3 (train), whose frame 25 is its frame 0" in found.text


def test_one_initial_state_with_other_parameters_is_only_noted() -> None:
    u = waves()
    u[10, 0] = u[3, 0]
    found = diagnose(recorded(u, ["train"] * 10 + ["test"] * 2), "x")
    assert not found.problems
    assert [one.kind for one in found.findings if one.mark == "note"] == ["overlap"]


def test_states_that_are_constant_in_space_are_no_leak() -> None:
    u = waves()
    u[:, 0] = 0
    assert not diagnose(recorded(u, ["train"] * 10 + ["test"] * 2), "x").problems


@pytest.mark.parametrize("periodic", [True, False])
def test_the_spectrum_of_a_known_wave(periodic: bool) -> None:
    n = 24
    i = np.arange(n)
    wave = 3 * np.cos(2 * np.pi * 5 * i / n) if periodic else 3 * np.cos(np.pi * 10 * (i + 0.5) / n)
    power = shell_power(wave[None], [periodic], [1.0])[0]
    assert power.shape == (n // 2 + 1 if periodic else n // 2,)
    assert power[5] == pytest.approx(9 / 2)
    assert np.delete(power, 5).max() < 1e-20


def test_the_spectrum_of_an_oblong_box_counts_waves_of_its_longest_axis() -> None:
    x, y = np.meshgrid(np.arange(32) / 32, np.arange(16) / 16, indexing="ij")
    power = shell_power(np.cos(2 * np.pi * (3 * x + 2 * y))[None], [True, True], [2.0, 1.0])[0]
    assert len(power) == 17
    assert power.argmax() == 5  # (3, 2 · 2)
    assert power[5] == pytest.approx(0.5)
    mixed = shell_power(np.random.default_rng(0).normal(size=(2, 6, 8)), [False, True], [1.0, 1.0])
    assert mixed.shape[0] == 2


@pytest.mark.parametrize("growth", [1.25, 1.1, 1.0])
def test_the_growth_rate_of_a_linear_map(growth: float) -> None:
    """Ten pairs of trajectories on their own orbits, whose small difference grows by a known factor per step."""
    base = waves(10, 40)
    rng = np.random.default_rng(1)
    other = base + 1e-3 * rng.normal(size=(10, 1, 1, POINTS)) * growth ** np.arange(40)[:, None, None]
    found = diagnose(recorded(np.concatenate([base, other])), "x").growth
    assert found is not None
    assert found.pairs >= 5
    assert found.rate == pytest.approx(math.log(growth), rel=0.2, abs=1e-6)
    assert found.doubling == pytest.approx(math.log(2) / found.rate) if found.rate > 0 else math.inf


def test_no_close_pairs_is_an_answer() -> None:
    found = diagnose(recorded(waves(4)), "x")
    assert found.growth is None
    assert any("no close pairs" in row.cells[1].text for row in tables.facts_table(found).rows)


def test_periodicity_is_read_from_the_data_where_the_file_says_nothing() -> None:
    ramp = waves() + np.linspace(0, 30, POINTS)
    (axis,) = diagnose(recorded(waves(), periodic=None), "x").axes
    assert axis.periodic
    found = diagnose(recorded(ramp, periodic=None), "x")
    assert not found.axes[0].periodic
    assert "--backbone" in found.command
    found = diagnose(doubled(), "x")
    assert (found.axes[0].periodic, found.axes[0].points, found.axes[0].known) == (True, POINTS, False)
    assert found.axes[0].extent == pytest.approx(1)
    assert found.spectrum is not None
    assert found.spectrum.upper_share < 1e-20  # a point too many would smear the waves


def test_conditioning_splits_and_notes_are_shown(tmp_path: Path) -> None:
    recording = recorded(
        waves(),
        ["train"] * 10 + ["test"] * 2,
        scalars=[{"nu": 0.1 * i} for i in range(12)],
        notes=("The reader decided something.",),
        channels=(Channel("height", "m"),),
        time_unit="s",
    )
    found = diagnose(recording, "waves.h5")
    shown = {row.cells[0].text: row.cells[1].text for row in tables.facts_table(found).rows}
    assert shown["number nu"] == "0 to 1.1, 12 values"
    assert shown["splits"] == "train 10, test 2"
    assert shown["note"] == "The reader decided something."
    assert shown["time step"] == "0.1 s"
    assert Diagnosis.read(found.write(tmp_path / "found.json")) == found
    assert tables.verdict(found)[-1] == "hero train waves.h5"


def test_the_command_prints_draws_and_exits_by_the_problems(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    u = waves()
    np.save("good.npy", u)
    code, out, err = call("doctor", "good.npy", "--json", "good.json")
    assert code == 0, err
    assert "fit for training" in out
    assert out.rstrip().endswith("hero train good.npy")
    assert {path.stem for path in Path("doctor-good").iterdir()} == {"fields", "energy", "spectrum"}
    assert Diagnosis.read(Path("good.json")).trajectories == 12
    np.save("swapped.npy", u.transpose(0, 3, 1, 2))
    code, out, err = call("doctor", "swapped.npy", "--layout", "bxtc", "--out", "pictures")
    assert code == 0, err
    assert out.rstrip().endswith("hero train swapped.npy --set data.layout=bxtc")
    assert Path("pictures/fields.png").is_file()
    u[2, 3] = math.nan
    np.save("bad.npy", u)
    code, out, _ = call("doctor", "bad.npy")
    assert code == 1
    assert "not fit for training: solve 1 problem first (finite)" in out
    assert_refused(call("doctor", "missing.npy"), "missing.npy")


def test_the_document_shows_the_output_of_its_command(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", 116)
    monkeypatch.setenv("COLUMNS", "116")  # as on a screen
    text = (Path(__file__).parent.parent / "docs" / "howto" / "doctor.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec(compile(block, "doctor.md", "exec", dont_inherit=True), {})
    code, out, err = call("doctor", "waves.npy")
    assert code == 0, err
    (shown,) = re.findall(r"^```\n(waves.npy\n.*?)\n```", text, re.M | re.S)
    assert "\n".join(line.rstrip() for line in out.splitlines()).strip() == shown


@pytest.mark.parametrize("space", [(16,), (12, 10), (8, 6, 10)])
def test_pictures_of_every_dimension(space: tuple[int, ...]) -> None:
    u = np.random.default_rng(0).normal(size=(3, 8, 2, *space))
    u[0, 3, 0] = math.nan
    recording = recorded(u)
    drawn = figures(diagnose(recording, "x"), recording)
    assert {"fields", "energy", "spectrum"} <= set(drawn)
    drawn["fields"].canvas.draw()  # the others are the same in every dimension, and the command saves them


def test_a_point_cloud_has_no_spectrum_and_its_own_backbone() -> None:
    points = np.random.default_rng(0).uniform(size=(POINTS, 2))
    recording = dataclasses.replace(recorded(waves()), axes=(Axis("point", np.arange(POINTS)),), points=points)
    found = diagnose(recording, "cloud.h5")
    assert found.spectrum is None
    assert found.command == "hero train cloud.h5 --backbone transolver"
    figures(found, recording)["fields"].canvas.draw()


def linear(growth: float, defect: float = 0.0, wave: int = 3) -> tuple[Trained, Bands]:
    """u_{n+1} = u_n shifted by one point, and an operator that multiplies one wave by `growth` and adds to it."""
    data = torch.from_numpy(waves(4, 60))[:, :1].float()
    data = torch.stack([data[:, 0].roll(n, dims=-1) for n in range(60)], dim=1)
    bands = split_modes((POINTS,))

    def step(context: Context) -> Tensor:
        u = context.states[:, -1].roll(1, dims=-1)
        modes = torch.fft.rfft(u)
        modes[..., wave] = growth * modes[..., wave] + defect * POINTS
        return torch.fft.irfft(modes, n=POINTS)

    return Trained(step, torch.nn.Identity(), data, None, 1, 2, torch.device("cpu")), bands


def test_an_operator_that_amplifies_one_wave_is_said_to_blow_up_there() -> None:
    trained, bands = linear(1.3, 1e-3)
    found = examine(trained, bands, "amplifier", "relative")
    assert found.outcome == "blow-up"
    assert "blows up" in found.verdict
    assert "train.unroll=4 or train.noise=0.01" in found.verdict
    assert found.labels[found.worst_band] == "3"
    assert found.amplification == pytest.approx(1.3, rel=0.05)
    assert found.energy > 10
    # The split is exact for a linear map: the carried part is the old error of one wave times its growth.
    assert found.carried[0] == pytest.approx(0, abs=1e-6)
    assert found.carried[-1] > 100 * found.defects[0]
    assert not found.idle


def test_an_operator_that_only_adds_defects_drifts_by_new_ones() -> None:
    trained, bands = linear(1.0, 0.01)
    found = examine(trained, bands, "adder", "relative")
    assert found.outcome == "drift"
    assert found.defects[0] == pytest.approx(found.errors[0], rel=1e-4)
    assert found.amplification == pytest.approx(1, rel=1e-3)
    assert found.failed_step is not None
    assert found.energy < 10


def test_an_exact_operator_is_accurate_and_a_copy_is_static() -> None:
    trained, bands = linear(1.0)
    assert examine(trained, bands, "exact", "relative").outcome == "accurate"
    copy = dataclasses.replace(trained, step=lambda context: context.states[:, -1] * (1 + 1e-4))
    found = examine(copy, bands, "copy", "relative")
    assert found.outcome == "static"
    assert "data.stride" in found.verdict
    assert found.change < 0.01
    damped = dataclasses.replace(trained, step=lambda context: 0.4 * context.states[:, -1] + 0.1)
    found = examine(damped, bands, "damped", "relative")
    assert found.outcome == "static"
    assert found.amplification == pytest.approx(0.4, rel=0.01)
    assert "forgets its input" in found.verdict


def test_a_rollout_that_overflows_at_once_is_told_as_well() -> None:
    trained, bands = linear(1.0)
    gone = dataclasses.replace(trained, step=lambda context: context.states[:, -1] * math.inf)
    found = examine(gone, bands, "gone", "relative")
    assert (found.outcome, found.diverged, found.diverged_step) == ("blow-up", 4, 1)
    run_figure(found).canvas.draw()
    assert tables.run_table(found).rows


def test_parameters_without_gradient_are_named() -> None:
    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Conv1d(1, 1, 1), torch.nn.Conv1d(1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + 0 * self.unused(x)

    trained, bands = linear(1.0)
    model = Part()
    found = examine(dataclasses.replace(trained, step=as_stepper(model), model=model), bands, "part", "relative")
    assert found.idle == ("unused.weight", "unused.bias")
    assert "2 parameters have no gradient (unused.weight, unused.bias)" in found.verdict


def test_the_command_on_a_run_and_on_one_with_scaled_weights(runs_dir: Path, data_dir: Path, call: Call) -> None:
    run = train(tiny(strategy="push_forward"), runs_dir, data_dir)
    folders = ("--runs", runs_dir, "--data", data_dir)
    code, out, err = call("doctor", run.name, *folders)
    assert code == 0, err
    found = RunDiagnosis.read(run / "doctor.json")
    assert found.verdict in out
    assert not found.idle
    assert len(found.errors) == 100
    assert (run / "figures" / "doctor.png").is_file()

    weights, about = read_weights(run / "model.safetensors")
    save_weights(run / "model.safetensors", {name: 5 * w for name, w in weights.items()}, about)
    code, out, err = call("doctor", run, *folders)
    assert code == 0, err
    found = RunDiagnosis.read(run / "doctor.json")
    assert found.outcome == "blow-up"
    assert found.amplification > 1.02
    assert "The rollout blows up" in out
    assert "train.unroll=10" in out
    assert_refused(call("doctor", "nothing", *folders), "there is no run 'nothing'")


def test_bands_of_a_grid_with_ends_hold_all_energy() -> None:
    bands = Shells.of(Geometry((12, 9), periodic=(False, True)))
    u = torch.randn(3, 2, 12, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bands.energies(u).sum(dim=1), u.square().flatten(1).sum(dim=1))
    wave = torch.cos(math.pi * 4 * (torch.arange(12, dtype=torch.float64) + 0.5) / 12)[None, None, :, None].expand(
        1, 1, 12, 9
    )
    energies = bands.energies(wave)[0]
    assert bands.limits[int(energies.argmax())] == (2, 2)  # four half waves
    assert float(energies.max() / energies.sum()) == pytest.approx(1)
    trained, _ = linear(1.3, 1e-3)
    assert examine(trained, Whole(), "cloud", "relative").labels == ["all"]
