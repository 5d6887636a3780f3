"""Animations of a rollout, read back by Pillow and ffmpeg."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from conftest import Call, assert_refused, tiny
from fakes import GRIDS, fake_rollout, fake_run
from hero.report.figures import animation
from hero.report.figures.animation import FRAMES, animate, frames, picture, shown_steps
from hero.runs.folder import Run
from hero.runs.records import read_rollout


def stored(folder: Path, task: str = "burgers", steps: int = 30, diverged_at: int | None = None) -> Path:
    """A run folder with what an evaluation leaves for the animation."""
    grid = {"task__resolution": GRIDS[task][0], "task__cutoff": 1, "backbone__modes": 4} if task != "burgers" else {}
    return fake_run(folder, tiny(task__name=task, **grid), *fake_rollout(task, steps, diverged_at))


def drawn(run: Path) -> tuple[Figure, animation.Moving]:
    rollout = Run(run).rollout
    return picture(Run(run), rollout)


@pytest.mark.parametrize("task", list(GRIDS))
def test_a_gif_has_a_frame_per_step_and_the_asked_for_speed(task: str, tmp_path: Path) -> None:
    path = animate(stored(tmp_path, task), steps=4, fps=20)
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
    run = stored(tmp_path, "decaying_turbulence")
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
    figure, (_, show) = drawn(stored(tmp_path, task, diverged_at=10))
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
    path = animate(stored(tmp_path), tmp_path / "film.mp4", steps=5, fps=10)
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
    run = stored(tmp_path / "runs", steps=3)
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
    run = stored(tmp_path / "runs")
    before = sorted(run.iterdir())
    assert_refused(call("animate", run, *arguments), *words)
    assert sorted(run.iterdir()) == before


def test_missing_files_and_a_missing_encoder_are_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path / "runs", steps=2)
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
