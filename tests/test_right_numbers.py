"""`hero train` on files of other people: channels of other scales, offsets, a mask; and what it prints is so.

Every story trains some seconds, predicts the test set to a file, and computes the printed numbers again with numpy.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Call, set_options
from hero.data.formats import open_recording
from hero.runs.folder import Run, load_data

QUICK: dict[str, Any] = {"backbone.width": 12, "backbone.modes": 6, "backbone.depth": 2, "train.batch": 16}
QUICK |= {"train.lr": 5e-3, "train.steps": 300, "train.validate_every": 300, "train.compile": "false"}


def vrmse(made: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The script: RMSE over the standard deviation of the truth where it has values, (step, channel)."""
    errors = np.zeros(made.shape[:3])
    for j, t, c in np.ndindex(*errors.shape):
        valid = ~np.isnan(true[j, t, c])
        a, b = made[j, t, c][valid].astype(float), true[j, t, c][valid].astype(float)
        errors[j, t, c] = np.sqrt(np.mean((a - b) ** 2) / np.var(b))
    return errors.mean(axis=0)


@dataclass(frozen=True)
class Story:
    """A file, its channels, and its states (trajectory, time, channel, *space) with NaN at masked points."""

    path: Path
    channels: tuple[str, ...]
    test: np.ndarray
    settings: dict[str, Any]


def travelling(rng: np.random.Generator, count: int, frames: int, space: tuple[int, ...], speed: float) -> np.ndarray:
    """A few Fourier modes that move: (trajectory, time, *space), mean 0 and standard deviation about 1."""
    grids = np.meshgrid(*(np.arange(n) * 2 * np.pi / n for n in space), indexing="ij")
    t = np.arange(frames).reshape(1, -1, *(1,) * len(space))
    found = np.zeros((count, frames, *space))
    for k in (1, 2):
        phase, size = rng.uniform(0, 6.3, (count, 1, *(1,) * len(space))), rng.uniform(0.5, 1, (count, 1))
        wave = np.cos(k * sum(grids) - k * speed * t + phase)
        found += size.reshape(-1, *(1,) * (len(space) + 1)) * wave / k
    return found


def two_waves(folder: Path) -> Story:
    """Velocity of order 1 and pressure 1e5 ± 1e3, each with its own speed, in splits of an .npz file."""
    rng = np.random.default_rng(0)
    velocity, pressure = (travelling(rng, 28, 25, (32,), speed) for speed in (0.35, 0.25))
    u = np.stack([velocity, 1e5 + 1e3 * pressure], axis=2).astype(np.float32)
    np.savez(folder / "waves.npz", train=u[:20], val=u[20:24], test=u[24:])
    settings = {"data.layout": "btcx", "data.channels": "velocity,pressure"}
    return Story(folder / "waves.npz", ("velocity", "pressure"), u[24:], settings)


def temperature(folder: Path) -> Story:
    """Hourly temperature in K on land: a gradient to the poles, a day that moves with the sun, and weather."""
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(2)
    hours, latitude, longitude = np.arange(300), np.linspace(-66, 66, 12), np.arange(16) * 22.5
    sun = np.cos(2 * np.pi * (hours[:, None, None] / 24 + longitude / 360))
    weather = travelling(rng, 1, 300, (12, 16), 0.1)[0]
    kelvin = 300 - 30 * np.sin(np.radians(latitude))[:, None] ** 2 + 6 * sun + 2 * weather
    ocean = rng.uniform(size=(12, 16)) < 0.45
    kelvin = np.where(ocean, np.nan, kelvin).astype(np.float32)
    axes = {
        "time": ("time", hours * 3600.0, {"units": "s"}),
        "latitude": ("latitude", latitude, {"units": "degrees_north"}),
        "longitude": ("longitude", longitude, {"units": "degrees_east"}),
    }
    variable = (("time", "latitude", "longitude"), kelvin, {"units": "K"})
    xarray.Dataset({"t2m": variable}, axes).to_netcdf(folder / "t2m.nc", engine="h5netcdf")
    u = kelvin[None, :, None]
    return Story(folder / "t2m.nc", ("t2m",), u[:, 270:], {})


STORIES = {"waves": two_waves, "temperature": temperature}


def trained(story: Story, folder: Path, call: Call, **more: Any) -> tuple[Run, str]:
    """The run of `hero train FILE`, and what the command prints."""
    settings = {**QUICK, **story.settings, **more}
    places = ("--runs", folder / "runs", "--data", folder / "data")
    code, out, err = call("train", story.path, "--strategy", "one_step", *set_options(settings), *places)
    assert (code, err) == (0, "")
    (run,) = (folder / "runs").glob("*/metrics.json")
    return Run(run.parent), out


def predicted(run: Run, folder: Path, call: Call) -> np.ndarray:
    """The rollouts of `hero predict RUN` from the test states, read from their file."""
    out = folder / "made.h5"
    steps = run.config.split("test").steps
    code, _, err = call("predict", run.path, "--data", folder / "data", "--steps", steps, "--out", out)
    assert (code, err) == (0, "")
    recording = open_recording(out)
    return np.stack([one.read(slice(None), range(len(recording.channels))) for one in recording.trajectories])


def rollouts_of(story: Story, steps: int) -> np.ndarray:
    """The test trajectories cut into rollouts of equal length, as `data.rollout` says."""
    length = steps + 1
    parts = [one[first : first + length] for one in story.test for first in range(0, len(one) - length + 1, length)]
    return np.stack(parts)


@pytest.mark.parametrize("name", STORIES)
def test_training_beats_persistence_in_every_channel_and_says_what_numpy_says(
    name: str, tmp_path: Path, call: Call
) -> None:
    story = STORIES[name](tmp_path)
    run, out = trained(story, tmp_path, call)
    numbers, steps = run.metrics, run.config.split("test").steps
    true = rollouts_of(story, steps)
    made = predicted(run, tmp_path, call)
    assert made.shape == true[:, 1:].shape
    assert np.array_equal(np.isnan(made), np.isnan(true[:, 1:]))

    errors = vrmse(made, true[:, 1:])
    still = vrmse(np.repeat(true[:, :1], steps, axis=1), true[:, 1:])
    state = load_data(run.config, "train", tmp_path / "data", "cpu").states.double().mean(dim=(0, 1)).numpy()
    mean = vrmse(np.broadcast_to(state, made.shape), true[:, 1:])
    assert tuple(numbers.channels) == story.channels
    for c, channel in enumerate(story.channels):
        assert errors[0, c] < still[0, c], channel
        for step in (1, steps):
            key = f"vrmse@{step}"
            assert numbers.channels[channel][key] == pytest.approx(errors[step - 1, c], rel=1e-4)
            for baseline, expected in (("persistence", still), ("mean", mean)):
                found = numbers.baselines[baseline].channels[channel][key]
                assert found == pytest.approx(expected[step - 1, c], rel=1e-4)
    for step in (1, steps):
        assert numbers.test[f"vrmse@{step}"] == pytest.approx(errors[step - 1].mean(), rel=1e-4)
        assert numbers.baselines["mean"].test[f"vrmse@{step}"] == pytest.approx(mean[step - 1].mean(), rel=1e-4)
    assert [one for one in numbers.shortfalls if one.baseline == "persistence"] == []
    printed = table_of(out)
    for step in (1, steps):
        row = [errors[step - 1].mean(), still[step - 1].mean(), mean[step - 1].mean()]
        assert printed[f"VRMSE@{step}"] == pytest.approx(row, rel=6e-3)
    if len(story.channels) > 1:
        for c, channel in enumerate(story.channels):
            assert printed[channel][1] == pytest.approx(errors[0, c], rel=6e-3)
            assert printed[channel][-2:] == pytest.approx([still[0, c], mean[-1, c]], rel=6e-3)


def table_of(out: str) -> dict[str, list[float]]:
    """The numbers at the end of each printed row by the words before them."""
    found = {}
    for line in out.splitlines():
        if row := re.fullmatch(r"\s*(\S.*?)((?:\s+(?:-?[\d.]+(?:e[+-]?\d+)?|–))+)\s*", line):
            found[row[1]] = [float(cell) for cell in row[2].split() if cell != "–"]
    return found


def test_a_run_that_learned_nothing_says_so(tmp_path: Path, call: Call) -> None:
    """Almost no learning rate: the weights stay where they began, and no number calls that a success."""
    story = two_waves(tmp_path)
    run, out = trained(story, tmp_path, call, **{"train.lr": 1e-12, "train.steps": 2, "train.validate_every": 2})
    numbers = run.metrics
    found = {(one.baseline, one.channel) for one in numbers.shortfalls}
    assert {("persistence", "velocity"), ("persistence", "pressure")} <= found
    assert numbers.test["skilful_step"] == 0
    assert "stable_step" not in numbers.test
    (line,) = [line for line in out.splitlines() if "no better than doing nothing" in line]
    assert line.strip().startswith("warning: ")
    # nRMSE, which stays available by name, would call this error small.
    assert numbers.test["nrmse@1"] < 0.05


def test_the_norm_of_the_paper_on_a_file(tmp_path: Path, call: Call) -> None:
    """`train.norm=joint`: nRMSE over all channels in physical units, with its names, and no channel of its own."""
    story = two_waves(tmp_path)
    more = {"train.norm": "joint", "train.steps": 20, "train.validate_every": 20}
    run, _ = trained(story, tmp_path, call, **more)
    numbers = run.metrics
    made, true = predicted(run, tmp_path, call), story.test
    for step in (1, 24):
        error, size = made[:, step - 1].astype(float) - true[:, step], true[:, step].astype(float)
        rows = [np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(error, size, strict=True)]
        assert numbers.test[f"nrmse@{step}"] == pytest.approx(np.mean(rows), rel=1e-4)
    assert numbers.channels == {}
    assert {"gm24", "stable_step", "correlation_time"} <= numbers.test.keys()
    assert not any(name.startswith("vrmse") for name in numbers.test)
    records = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert any("val_gm24" in record for record in records)
