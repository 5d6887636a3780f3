"""The drawn rollout of a run as a moving picture: a GIF by Pillow, an MP4 by ffmpeg.

Fields are shown as truth, prediction and error side by side; a 1D state as curves, next to the error along the rollout.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from hero.console import progress_bar
from hero.errors import HeroError, install_hint
from hero.files import write_atomic
from hero.method.metrics import Scoring
from hero.report.figures.charts import STEPS, Chart, Curve
from hero.report.figures.curves import draw_errors
from hero.report.figures.fields import draw_pictures, name_axis, time_text
from hero.report.figures.style import BLACK, ORANGE, VERMILION, fix_layout, new_figure, plain, safe_name
from hero.report.tables import format_number
from hero.report.views import GREY, Scaled, View, channel_number, scale_channel
from hero.runs.folder import Run
from hero.runs.rollouts import Rollout

logging.getLogger("matplotlib.animation").setLevel(logging.ERROR)  # ffmpeg's complaint is in our own error

FORMATS = (".gif", ".mp4")
FRAMES = 100
"""A longer rollout is thinned to about as many frames."""
FASTEST = 50
"""Frames per second: viewers slow down a GIF that is faster."""
DPI = 100
"""Lower than in figures: every pixel is stored a hundred times."""

Move = Callable[[int], None]
"""Show a rollout step."""


def animate(
    run: Path, out: Path | None = None, steps: int | None = None, fps: int = 12, channel: str | None = None
) -> Path:
    """Write the animation of a run's drawn rollout, of its first `steps` steps if given; returns the file.

    It shows the named `channel`, by default the first.
    """
    out = out or run / f"rollout{f'_{safe_name(channel)}' if channel else ''}.gif"
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise HeroError(f"{out} is neither a GIF nor an MP4; use a name that ends in .gif or .mp4.")
    if not 1 <= fps <= FASTEST:
        raise HeroError(f"fps={fps} cannot be played everywhere; choose 1 to {FASTEST}.")
    ffmpeg = find_ffmpeg() if suffix == ".mp4" else ""
    opened = Run(run)
    rollout = opened.rollout
    if rollout is None:
        raise HeroError(f"run {run.name} has no stored rollout; `hero evaluate {run.name}` writes it.")
    source = opened.config.source
    if source.cloud:
        raise HeroError(
            f"run {run.name} is on scattered points, and animations show grids; draw what `hero predict` writes."
        )
    number = channel_number(source, channel)
    shown = shown_steps(len(rollout.truth), steps)
    figure, move = picture(opened, rollout, number)
    writer: AbstractMovieWriter = PillowWriter(fps)
    if ffmpeg:
        writer = FFMpegWriter(fps, codec="h264", extra_args=["-crf", "18", "-pix_fmt", "yuv420p"])
    film = FuncAnimation(figure, move, shown, init_func=list, cache_frame_data=False)
    with tempfile.TemporaryDirectory() as folder, progress_bar(out.name, len(shown)) as advance:
        target = Path(folder) / f"rollout{suffix}"
        try:
            with rc_context({"animation.ffmpeg_path": ffmpeg}):
                film.save(target, writer, dpi=DPI, progress_callback=lambda *_: advance())
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr or "no reason given").strip().splitlines()
            reason = f"ffmpeg failed ({lines[-1]})"
            raise HeroError(f"{reason}; write a .gif, or {install_hint('video')}.") from None
        return write_atomic(out, target.read_bytes())


def shown_steps(length: int, steps: int | None) -> list[int]:
    """The rollout steps that become frames, first and last among them."""
    last = length if steps is None else steps
    if not 1 <= last <= length:
        raise HeroError(f"steps={steps} is outside the stored rollout; choose 1 to {length}.")
    return np.linspace(1, last, min(last, FRAMES)).round().astype(int).tolist()


def find_ffmpeg() -> str:
    """The encoder of the extra `video`, else the one on the system."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise HeroError(f"an MP4 needs ffmpeg; {install_hint('video')}, install ffmpeg, or write a .gif.")
    return found


def picture(run: Run, rollout: Rollout, channel: int = 0) -> tuple[Figure, Move]:
    """The figure of a channel of a run's drawn rollout, and the function that shows a step in it."""
    source, scoring = run.config.source, run.config.scoring
    view = View.of(source.axes)
    scaled = scale_channel(rollout, source, channel, view)
    errors = run.errors.of_channel(channel)[rollout.trajectory]
    errors = np.where(np.isnan(errors), np.inf, errors)
    size = (9.6, 1.5 + 2.2 / max(view.ratio, 0.5)) if view.up else (9.0, 3.9)
    figure = new_figure(*size)
    notes, move = _fields(figure, scaled, view) if view.up else _lines(figure, scaled, view, errors, scoring)
    where = f", {source.channel_names[channel]}" if source.channels > 1 else ""
    where += f", slice {rollout.slice} along the last axis" if rollout.slice is not None else ""
    title = figure.suptitle("step 1", fontsize=12)

    def show(step: int) -> None:
        move(step)
        for note in notes:
            note.set_visible(bool(np.isinf(errors[step - 1])))
        number = format_number(errors[step - 1])
        at = f"step {step} (t = {time_text(source, step)})"
        title.set_text(plain(f"{source.title}{where}: {at}, {scoring.title} {number}"))

    show(1)
    fix_layout(figure)  # as it is now, so that nothing jumps
    return figure, show


def _fields(figure: Figure, scaled: Scaled, view: View) -> tuple[list[Text], Move]:
    """Truth and prediction on one colour scale, and their difference on its own; the notes that one has diverged."""
    first = [part._replace(field=part.field[0]) for part in scaled.parts]
    grid, images = draw_pictures(figure, [first], view)

    def move(step: int) -> None:
        for image, part in zip(images, scaled.parts, strict=True):
            image.set_data(part.field[step - 1].T)

    return [*map(_diverged_note, grid[0, 1:])], move


def _lines(figure: Figure, scaled: Scaled, view: View, errors: np.ndarray, scoring: Scoring) -> tuple[list[Text], Move]:
    """The state over space, and a marker on the error along the rollout."""
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    true, predicted = scaled.truth.field, scaled.prediction.field
    low, high = float(np.nanmin(true)), float(np.nanmax(true))
    margin = 0.25 * (high - low) or 1.0
    ends = view.across.start, view.across.end
    left.set(xlim=ends, ylim=(low - margin, high + margin), ylabel=plain(scaled.truth.scale.label))
    name_axis(left, "x", view.across)
    left.grid(alpha=0.25)
    x = view.across.drawn
    (truth,) = left.plot(x, true[0], color=BLACK, linewidth=1.8, label="truth")
    (prediction,) = left.plot(x, true[0], color=ORANGE, linewidth=1.6, linestyle="--", label="prediction")
    left.legend(loc="upper right", fontsize=9)
    # An exploding prediction leaves the picture; drawn to its end it would overflow the renderer.
    bounds = (low - 20 * margin, high + 20 * margin)
    curve = Curve("error", np.arange(1, len(errors) + 1), errors, colour=VERMILION)
    draw_errors(right, Chart("", [curve], STEPS, scoring.title, log=True))
    heights = np.clip(errors, *right.get_ylim())
    (marker,) = right.plot([1], heights[:1], "o", color=VERMILION, markersize=7, clip_on=False)
    lost = np.flatnonzero(np.isinf(errors))
    if lost.size:
        right.axvspan(lost[0] + 1, len(errors), color=GREY, alpha=0.5, linewidth=0)
        right.set_title(f"diverged at step {lost[0] + 1}", fontsize=10)

    def move(step: int) -> None:
        truth.set_ydata(true[step - 1])
        prediction.set_ydata(np.clip(predicted[step - 1], *bounds))
        marker.set_data([step], [heights[step - 1]])

    return [_diverged_note(left)], move


def _diverged_note(axes: Axes) -> Text:
    return axes.text(0.5, 0.5, "diverged", transform=axes.transAxes, ha="center", va="center", fontsize=12,
                     bbox={"facecolor": "white", "edgecolor": BLACK})  # fmt: skip
