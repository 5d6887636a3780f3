"""Pictures and animations: axes as coordinates say, every channel, colours by its sign, masks and baselines.

What the page does with them in a browser is in test_page.py.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from conftest import SHORT, Call, assert_refused, tiny
from fakes import GRIDS, fake_rollout, fake_run, spectrum_of
from hero.data.files.recording import Axis
from hero.evaluation.evaluate import evaluate
from hero.report.figures import animation
from hero.report.figures.animation import FRAMES, animate, frames, picture, shown_steps
from hero.report.figures.runs import panel_chart, run_figures
from hero.report.figures.style import save
from hero.report.inputs import gather
from hero.report.listing import BASELINE_TITLES
from hero.report.page.page import write_run_page
from hero.report.panels import panels_of, results_of
from hero.report.views import SIGNED, UNSIGNED, Scale, View
from hero.runs.config import make_config
from hero.runs.folder import Run
from hero.runs.records import Metrics, Rollout, read_rollout
from hero.study.collect import Places, PlannedGroup, PlannedRow, read_rollouts
from hero.study.records import rollout_columns
from hero.training.loop import train

LAT, LON, STEPS = np.linspace(70.0, -70.0, 8), np.arange(12) * 30.0, 40
TRAINING = {**SHORT, "train.steps": 2, "data.rollout": 3}


def land() -> np.ndarray:
    """True where there is a temperature: not in two corners."""
    there = np.ones((len(LAT), len(LON)), bool)
    there[:2, :3] = there[-1, -5:] = False
    return there


def weather_run(folder: Path) -> Path:
    """A run on hourly temperature and wind with latitude from north to south; the file is gone afterwards.

    The wind blows from the west in the northernmost row alone.
    """
    xarray = pytest.importorskip("xarray")
    hours = np.arange(STEPS)[:, None, None]
    warmth = 280 + 10 * np.cos(np.deg2rad(LAT))[:, None] + 3 * np.cos(np.deg2rad(LON) - 0.3 * hours)
    wind = np.where(LAT[:, None] == LAT.max(), 8.0, -4.0) + np.sin(2 * np.deg2rad(LON) - 0.2 * hours)
    dims = ("time", "latitude", "longitude")
    variables = {
        "t2m": (dims, np.where(land(), warmth, np.nan), {"units": "K"}),
        "u10": (dims, wind, {"units": "m s-1"}),
    }
    axes = {
        "time": np.datetime64("2020-01-01", "ns") + np.arange(STEPS) * np.timedelta64(3600, "s"),
        "latitude": ("latitude", LAT, {"units": "degrees_north"}),
        "longitude": ("longitude", LON, {"units": "degrees_east"}),
    }
    path = folder / "weather.nc"
    xarray.Dataset(variables, axes).to_netcdf(path, engine="h5netcdf")
    found = train(make_config(overrides={**TRAINING, "data.path": str(path)}), folder / "runs", folder / "data")
    evaluate(found, folder / "data")
    path.unlink()
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weather_run(tmp_path_factory.mktemp("people"))


def rollout_of(run: Path) -> Rollout:
    return Run(run).rollout


def errors_of(run: Path) -> dict[str, np.ndarray]:
    with np.load(run / "errors.npz") as arrays:
        return dict(arrays)


def test_static_figures_have_every_channel(run: Path, tmp_path: Path) -> None:
    inputs = gather([run.name], run.parent)
    figures = dict(run_figures(inputs.runs[run.name]))
    assert {"fields_t2m", "fields_u10", "spectrum"} <= figures.keys()
    top = figures["fields_u10"].axes[0]
    (image,) = top.images
    assert image.get_array()[-1].min() > 0 > image.get_array()[:-1].max()  # north is up, drawn from below
    assert top.get_ylim()[0] < top.get_ylim()[1]
    assert top.get_ylabel().endswith("latitude [°N]")
    assert image.get_cmap().name == SIGNED
    masked = figures["fields_t2m"].axes[0]
    assert masked.images[0].get_cmap().name == UNSIGNED
    assert np.ma.getmaskarray(masked.images[0].get_array()).sum() == (~land()).sum()
    assert [text.get_text() for text in masked.texts] == []  # nothing diverged
    assert len([axes for axes in figures["spectrum"].axes if axes.lines]) == 2 * len({1, 3})
    (drawn,) = panels_of(inputs, results_of(inputs))
    for channel in ("", "t2m", "u10"):
        chart = panel_chart(drawn, channel)
        assert [curve.label for curve in chart.curves] == ["HERO", *BASELINE_TITLES.values()]
        assert chart.unit == "VRMSE"
    save(figures["fields_t2m"], tmp_path / "fields.png")


def test_the_page_of_peoples_data_has_channels_and_masks_and_no_paper(run: Path) -> None:
    page = write_run_page(run).read_text("utf-8").partition("<main>")[2].partition("</main>")[0]
    text = re.sub(r'(?m)^(size|protocol) = "\w+"$', "", re.sub("<[^>]+>", " ", page)).lower()
    assert "vrmse" in text
    assert re.findall(r"\b(ours|papers?|nrmse)\b", text) == []
    metrics = Metrics.read(run / "metrics.json")
    assert metrics.shortfalls  # two updates teach nothing
    assert "no better than doing nothing" in text


def test_spectra_are_of_each_channel_with_the_mask_filled(run: Path) -> None:
    found = rollout_of(run)
    for c in range(2):
        state = found.truth[1, c].astype(np.float64)
        state[np.isnan(state)] = np.nanmean(state)
        np.testing.assert_allclose(found.truth_spectrum[1, c], spectrum_of(state), rtol=1e-6)
    assert found.prediction_spectrum.shape == (3, 2, 4)


def test_an_animation_shows_the_named_channel(run: Path, call: Call) -> None:
    code, _, err = call("animate", run, "--channel", "u10", "--steps", 2)
    assert code == 0, err
    assert (run / "rollout_u10.gif").is_file()
    assert_refused(call("animate", run, "--channel", "u11"), "u11", "u10")


def test_a_group_has_a_row_for_keeping_the_first_state(run: Path) -> None:
    """It stands beside the methods: with their columns, but in no test and never the best."""
    config, metrics = Run(run).config, Metrics.read(run / "metrics.json")
    row = PlannedRow("FNO", "push_forward", "push_forward", (config,))
    columns = rollout_columns(config.scoring)
    places = Places(run.parent, run.parent, run.parent, scoring=config.scoring)
    (group,) = read_rollouts(PlannedGroup("weather, FNO", "weather", "fno", "", "", (row,)), columns, places)
    idle = metrics.baselines["persistence"]
    assert group.persistence == {
        column.key: idle.test[column.metric]
        for column in columns
        if column.split == "test" and column.metric in idle.test
    }
    assert group.persistence["vrmse@3"] == pytest.approx(float(errors_of(run)["persistence_vrmse"][:, 2].mean()))
    assert [one.label for one in group.rows] == ["FNO"]
    assert group.persistence_channels.keys() == group.rows[0].channels.keys() == {"t2m", "u10"}
    assert group.rows[0].shortfalls == tuple(metrics.shortfalls)


@pytest.mark.parametrize(
    ("axes", "across", "up"),
    [
        ((("latitude", 90, -90), ("longitude", 0, 350)), "longitude", "latitude"),
        ((("lat", -90, 90), ("lon", 0, 350)), "lon", "lat"),
        ((("longitude", 350, 0), ("latitude", 90, -90)), "longitude", "latitude"),
        ((("x", 0, 1), ("y", 0, 1)), "x", "y"),
        ((("y", 0, 1), ("x", 0, 1)), "x", "y"),
        ((("r", 0, 1), ("theta", 0, 1)), "r", "theta"),
        ((("depth", 0, 500), ("lat", -10, 10)), "lat", "depth"),
    ],
)
def test_axes_lie_and_stand_by_their_names(axes: Any, across: str, up: str) -> None:
    points = [Axis(name, np.linspace(first, last, n)) for (name, first, last), n in zip(axes, (5, 7), strict=True)]
    view = View.of(points)
    assert (view.across.label, view.up.label) == (across, up)
    values = np.stack(np.meshgrid(*(axis.coordinates for axis in points), indexing="ij"))
    shown = view.arranged(values)  # (axis, across, up)
    horizontal, vertical = (shown[[axis.name for axis in points].index(name)] for name in (across, up))
    assert (np.diff(horizontal, axis=0) > 0).all()
    falls = up == "depth"  # the surface is above
    assert (np.diff(vertical, axis=1) < 0 if falls else np.diff(vertical, axis=1) > 0).all()
    np.testing.assert_array_equal(horizontal[:, 0], view.across.points)
    np.testing.assert_array_equal(vertical[0], view.up.points)


def test_the_ratio_of_a_picture_is_that_of_its_lengths_where_units_agree() -> None:
    x, y = Axis("x", np.linspace(0, 4, 5), unit="m"), Axis("y", np.linspace(0, 2, 21), unit="m")
    assert View.of((x, y)).ratio == pytest.approx(5 / 2.1)
    assert View.of((x, Axis("p", y.coordinates, unit="hPa"))).ratio == pytest.approx(0.25)  # points, at most 4 to 1
    unknown = np.array([0.0, np.nan, 3.0])
    side = View.of((Axis("x", unknown),)).across
    assert not side.even
    assert side.drawn.tolist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-1.0, 2.0], (-2.0, 2.0, SIGNED)),
        ([270.0, np.nan, 300.0], (270.0, 300.0, UNSIGNED)),
        ([-1e-6, 5.0], (-1e-6, 5.0, UNSIGNED)),  # rounding is no sign
        ([-3.0, -1.0], (-3.0, -1.0, UNSIGNED)),
        ([0.0, 0.0], (0.0, 1.0, UNSIGNED)),
    ],
)
def test_colours_diverge_where_a_channel_changes_its_sign(values: list[float], expected: tuple[Any, ...]) -> None:
    assert Scale.of(np.array(values))[:3] == expected


def moving_run(folder: Path, task: str = "burgers", steps: int = 30, diverged_at: int | None = None) -> Path:
    """A run folder with what an evaluation leaves for the animation."""
    grid = {"task__resolution": GRIDS[task][0], "task__cutoff": 1, "backbone__modes": 4} if task != "burgers" else {}
    return fake_run(folder, tiny(task__name=task, **grid), *fake_rollout(task, steps, diverged_at))


def drawn(run: Path) -> tuple[Figure, animation.Moving]:
    rollout = Run(run).rollout
    return picture(Run(run), rollout)


@pytest.mark.parametrize("task", list(GRIDS))
def test_a_gif_has_a_frame_per_step_and_the_asked_for_speed(task: str, tmp_path: Path) -> None:
    path = animate(moving_run(tmp_path, task), steps=4, fps=20)
    assert path.name == "rollout.gif"
    with Image.open(path) as image:
        assert image.n_frames == 4
        assert image.info["loop"] == 0
        assert {frame.info["duration"] for frame in ImageSequence.Iterator(image)} == {50}
        assert image.width > 800
        shown = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    assert all((a != b).any() for a, b in itertools.pairwise(shown))
    assert [file.name for file in path.parent.rglob("*.tmp")] == []


def test_a_frame_is_what_drawing_everything_would_give(tmp_path: Path) -> None:
    """It has nothing of the frames before; truth and prediction are those of the file, on one scale."""
    run = moving_run(tmp_path, "decaying_turbulence")
    rollout = read_rollout(run)
    *_, last = frames(*drawn(run), steps=[9, 30, 2, 7], advance=lambda: None)
    figure, (_, show) = drawn(run)
    show(7)
    figure.canvas.draw()
    np.testing.assert_array_equal(np.asarray(last), np.asarray(figure.canvas.buffer_rgba())[..., :3])
    truth, prediction, error = (axes.images[0] for axes in figure.axes[:3])
    np.testing.assert_array_equal(truth.get_array(), rollout.truth[6, 0].T)
    np.testing.assert_array_equal(prediction.get_array(), rollout.prediction[6, 0].T)
    difference = rollout.prediction[6, 0].astype(np.float64) - rollout.truth[6, 0]
    np.testing.assert_array_equal(error.get_array(), difference.T)
    assert truth.get_clim() == prediction.get_clim()
    assert error.get_clim()[1] < truth.get_clim()[1]


@pytest.mark.parametrize("task", ["burgers", "decaying_turbulence"])
def test_a_diverged_rollout_says_so_from_its_step_on(task: str, tmp_path: Path) -> None:
    figure, (_, show) = drawn(moving_run(tmp_path, task, diverged_at=10))
    for step, lost in ((9, False), (10, True), (30, True)):
        show(step)
        assert figure.get_suptitle().endswith("diverged") == lost


def test_a_long_rollout_is_thinned_from_its_first_step_to_its_last() -> None:
    steps = shown_steps(1000, None)
    assert (steps[0], steps[-1], len(steps)) == (1, 1000, FRAMES)
    assert max(np.diff(steps)) - min(np.diff(steps)) <= 1
    assert shown_steps(30, None) == list(range(1, 31))
    assert shown_steps(200, 5) == [1, 2, 3, 4, 5]
    assert shown_steps(1, None) == [1]


def test_an_mp4_has_all_frames_and_even_sides(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    path = animate(moving_run(tmp_path), tmp_path / "film.mp4", steps=5, fps=10)
    count, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert count == 5
    assert seconds == pytest.approx(0.5, abs=0.11)
    reader = ffmpeg.read_frames(str(path))
    meta = next(reader)
    reader.close()
    assert meta["fps"] == 10
    assert all(side % 2 == 0 for side in meta["size"])
    assert meta["codec"] == "h264"


def test_the_command_writes_beside_the_run_or_where_told(call: Call, tmp_path: Path) -> None:
    run = moving_run(tmp_path / "runs", steps=3)
    code, _, err = call("animate", "burgers", "--runs", tmp_path / "runs")
    assert code == 0, err
    assert (run / "rollout.gif").is_file()
    code, _, err = call("animate", run, "--out", tmp_path / "new" / "a.GIF", "--steps", 2, "--fps", 5)
    assert code == 0, err
    with Image.open(tmp_path / "new" / "a.GIF") as image:
        assert (image.n_frames, image.info["duration"]) == (2, 200)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "film.avi"], ["film.avi", ".gif or .mp4"]),
        (["--steps", "31"], ["steps=31", "1 to 30"]),
        (["--steps", "0"], ["steps=0"]),
        (["--fps", "0"], ["fps=0", "1 to 50"]),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Call, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    run = moving_run(tmp_path / "runs")
    before = sorted(run.iterdir())
    assert_refused(call("animate", run, *arguments), *words)
    assert sorted(run.iterdir()) == before


def test_missing_files_and_a_missing_encoder_are_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = moving_run(tmp_path / "runs", steps=2)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert_refused(call("animate", run, "--out", tmp_path / "a.mp4"), "hero-operators[video]", ".gif")
    monkeypatch.undo()
    pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "ffmpeg"))
    assert_refused(call("animate", run, "--out", tmp_path / "a.mp4"), "no MP4")
    assert not (tmp_path / "a.mp4").exists()
    (run / "rollout.npz").unlink()
    assert_refused(call("animate", run), "no stored rollout", f"hero evaluate {run.name}")
