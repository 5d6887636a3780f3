"""The drawn rollout of a run as a moving picture: a GIF by Pillow, an MP4 by ffmpeg.

Fields are shown as truth, prediction and error side by side; a 1D state as curves, beside the error along the rollout.
Everything that stays is drawn once; a frame redraws only what moves.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image

from hero.console import progress_bar
from hero.errors import HeroError
from hero.files import write_atomic
from hero.report.figures.fields import ERROR_MAP, FIELD_MAP, GONE, Scaled, TaskInfo, scale_fields
from hero.report.figures.style import BLACK, ERROR_RANGE, ORANGE, VERMILION, new_figure
from hero.report.tables import format_number
from hero.runs.old import load_run, read_errors
from hero.runs.rollouts import Rollout, read_rollout

FORMATS = (".gif", ".mp4")
FRAMES = 100
"""A longer rollout is thinned to about as many frames."""
FASTEST = 50
"""Frames per second: viewers slow down a GIF that is faster."""
DPI = 100
"""Less than that of the figures: every pixel is stored a hundred times."""
PALETTE_FRAMES = 8
"""Frames from which the 256 colours of a GIF are chosen, the same for all so that nothing flickers."""

Draw = Callable[[int], np.ndarray]
"""Rollout step -> picture (height, width, 3) of bytes."""
Move = Callable[[int], None]


def animate(run: Path, out: Path | None = None, steps: int | None = None, fps: int = 12) -> Path:
    """Write the animation of a run's drawn rollout, of its first `steps` steps if given; returns the file."""
    out = out or run / "rollout.gif"
    if out.suffix.lower() not in FORMATS:
        raise HeroError(f"--out {out} is neither a GIF nor an MP4; give a name that ends in .gif or .mp4.")
    if not 1 <= fps <= FASTEST:
        raise HeroError(f"--fps {fps} cannot be played everywhere; choose 1 to {FASTEST}.")
    ffmpeg = find_ffmpeg() if out.suffix.lower() == ".mp4" else ""
    rollout = read_rollout(run)
    if rollout is None:
        raise HeroError(f"run {run.name} has no stored rollout; `hero evaluate {run.name}` writes it.")
    shown = shown_steps(len(rollout.truth), steps)
    errors = read_errors(run)["nrmse"][rollout.trajectory]
    draw = picture(rollout, errors, load_run(run).make_task())
    with progress_bar(out.name, len(shown)) as advance:
        if ffmpeg:
            data = mp4(frames(draw, shown, advance), fps, ffmpeg)
        else:
            data = gif(frames(draw, shown, advance), fps, palette(draw, shown))
    return write_atomic(out, data)


def shown_steps(length: int, steps: int | None) -> list[int]:
    """The rollout steps that become frames, first and last among them."""
    last = length if steps is None else steps
    if not 1 <= last <= length:
        raise HeroError(f"--steps {steps} is outside the stored rollout; choose 1 to {length}.")
    return np.linspace(1, last, min(last, FRAMES)).round().astype(int).tolist()


def frames(draw: Draw, steps: Sequence[int], advance: Callable[[], None]) -> Iterator[np.ndarray]:
    """The pictures of all steps, one at a time."""
    for step in steps:
        yield draw(step)
        advance()


def gif(pictures: Iterable[np.ndarray], fps: int, colours: Image.Image) -> bytes:
    """An endless GIF; its clock ticks in hundredths of a second."""
    first, *rest = (Image.fromarray(x).quantize(palette=colours, dither=Image.Dither.NONE) for x in pictures)
    buffer = io.BytesIO()
    duration = 10 * round(100 / fps)
    first.save(buffer, format="GIF", save_all=True, append_images=rest, duration=duration, loop=0, optimize=False)
    return buffer.getvalue()


def palette(draw: Draw, steps: Sequence[int]) -> Image.Image:
    """256 colours for all frames, chosen from a few of them."""
    chosen = np.linspace(0, len(steps) - 1, min(len(steps), PALETTE_FRAMES)).round().astype(int)
    return Image.fromarray(np.concatenate([draw(steps[i]) for i in chosen])).quantize(256)


def mp4(pictures: Iterable[np.ndarray], fps: int, ffmpeg: str) -> bytes:
    """H.264 that browsers and presentations play; odd sizes are padded, as it has even ones only."""
    pictures = iter(pictures)
    first = next(pictures)
    height, width, _ = first.shape
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
        target = Path(folder) / "rollout.mp4"
        source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -".split()
        encoded = ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        padded = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
        command = [ffmpeg, "-loglevel", "error", *source, *padded, *encoded, str(target)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=complaints)
        assert process.stdin is not None
        try:
            with process.stdin as pipe:
                pipe.write(first.tobytes())
                for x in pictures:
                    pipe.write(x.tobytes())
        except BrokenPipeError:
            pass  # ffmpeg has given up and says why
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").splitlines() or ["no reason given"]
            raise HeroError(f"ffmpeg failed ({lines[-1].strip()}); write a .gif, or pip install 'hero[video]'.")
        return target.read_bytes()


def find_ffmpeg() -> str:
    """The encoder of the extra `video`, else that of the system."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise HeroError("an MP4 needs ffmpeg; pip install 'hero[video]', install ffmpeg, or write a .gif.")
    return found


def picture(rollout: Rollout, errors: np.ndarray, task: TaskInfo) -> Draw:
    """What draws a frame; `errors` is the nRMSE of the whole field at each step."""
    scaled = scale_fields(rollout.truth[:, 0].astype(np.float64), rollout.prediction[:, 0].astype(np.float64))
    errors = np.where(np.isnan(errors), np.inf, errors)
    if scaled.truth.ndim == 2:
        figure = new_figure(9.0, 3.9)
        moving, move = _curves(figure, scaled, errors, task)
    else:
        figure = new_figure(9.6, 3.7)
        moving, move = _fields(figure, scaled, errors, task)
    where = f", slice {rollout.slice} in z" if rollout.slice is not None else ""
    title = figure.suptitle("step 1", fontsize=12)

    def move_all(step: int) -> None:
        move(step)
        time = f"t = {step * task.dt:g}"
        title.set_text(f"{task.title}{where}: step {step} ({time}), nRMSE {format_number(errors[step - 1])}")

    return _drawn(figure, [*moving, title], move_all)


def _drawn(figure: Figure, moving: Sequence[Artist], move: Move) -> Draw:
    """Draw all that stays once; a frame is that and the artists that move."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    move(1)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # as laid out now
    for artist in moving:
        artist.set_animated(True)
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)

    def draw(step: int) -> np.ndarray:
        canvas.restore_region(still)
        move(step)
        for artist in moving:
            figure.draw_artist(artist)
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    return draw


def _fields(figure: Figure, scaled: Scaled, errors: np.ndarray, task: TaskInfo) -> tuple[list[Artist], Move]:
    """Truth and prediction on one colour scale, and their difference on its own."""
    grid = figure.subplots(1, 3, sharex=True, sharey=True)
    parts = (scaled.truth, scaled.prediction, scaled.error)
    images = []
    for axes, name, field in zip(grid, ("truth", "prediction", "error"), parts, strict=True):
        limit, cmap = (scaled.error_limit, ERROR_MAP) if name == "error" else (scaled.limit, FIELD_MAP)
        images.append(_image(axes, field[0], limit, cmap, task.extent))
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("x")
    grid[0].set_ylabel("y")
    figure.colorbar(images[1], ax=list(grid[:2]), extend="both", label=scaled.unit, shrink=0.85)
    figure.colorbar(images[2], ax=grid[2], extend="both", label="prediction − truth", shrink=0.85)
    notes = [_diverged_note(axes) for axes in grid[1:]]

    def move(step: int) -> None:
        for image, field in zip(images, parts, strict=True):
            image.set_data(field[step - 1].T)
        for note in notes:
            note.set_visible(bool(np.isinf(errors[step - 1])))

    return [*images, *notes], move


def _image(axes: Axes, field: np.ndarray, limit: float, cmap: str, extent: float) -> AxesImage:
    colours = colormaps[cmap].with_extremes(bad=GONE)
    return axes.imshow(
        field.T, origin="lower", extent=(0, extent, 0, extent), cmap=colours, norm=Normalize(-limit, limit)
    )


def _curves(figure: Figure, scaled: Scaled, errors: np.ndarray, task: TaskInfo) -> tuple[list[Artist], Move]:
    """The state over space, and a marker on the error along the rollout."""
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    low, high = float(scaled.truth.min()), float(scaled.truth.max())
    margin = 0.25 * (high - low) or 1.0
    left.set(xlim=(0, task.extent), ylim=(low - margin, high + margin), xlabel="x", ylabel=scaled.unit)
    left.grid(alpha=0.25)
    x = np.arange(scaled.truth.shape[1]) * task.extent / scaled.truth.shape[1]
    (truth,) = left.plot(x, scaled.truth[0], color=BLACK, linewidth=1.8, label="truth")
    (prediction,) = left.plot(x, scaled.truth[0], color=ORANGE, linewidth=1.6, linestyle="--", label="prediction")
    left.legend(loc="upper right", fontsize=9)
    # An exploding prediction leaves the picture; drawn to its end it would overflow the renderer.
    bounds = (low - 20 * margin, high + 20 * margin)
    note = _diverged_note(left)
    heights = _error_curve(right, errors)
    (marker,) = right.plot([1], heights[:1], "o", color=VERMILION, markersize=7, clip_on=False)

    def move(step: int) -> None:
        truth.set_ydata(scaled.truth[step - 1])
        prediction.set_ydata(np.clip(scaled.prediction[step - 1], *bounds))
        note.set_visible(bool(np.isinf(errors[step - 1])))
        marker.set_data([step], [heights[step - 1]])

    return [truth, prediction, note, marker], move


def _error_curve(axes: Axes, errors: np.ndarray) -> np.ndarray:
    """Draw the error along the rollout; returns its heights, the top of the axis where the rollout has diverged."""
    visible = errors[np.isfinite(errors) & (errors > 0)]
    low, high = (visible.min() / 1.5, visible.max() * 1.5) if visible.size else ERROR_RANGE
    low, high = max(low, ERROR_RANGE[0]), min(max(high, low * 10), ERROR_RANGE[1])
    shown = np.clip(errors, low, high)
    axes.plot(np.arange(1, len(errors) + 1), shown, color=VERMILION, linewidth=1.4)
    axes.set(yscale="log", ylim=(low, high), xlabel="rollout step", ylabel="relative error (nRMSE)")
    axes.grid(alpha=0.25)
    lost = np.flatnonzero(np.isinf(errors))
    if lost.size:
        axes.axvspan(lost[0] + 1, len(errors), color=GONE, alpha=0.5, linewidth=0)
        axes.set_title(f"diverged at step {lost[0] + 1}", fontsize=10)
    return shown


def _diverged_note(axes: Axes) -> Artist:
    return axes.text(0.5, 0.5, "diverged", transform=axes.transAxes, ha="center", va="center", fontsize=12,
                     bbox={"facecolor": "white", "edgecolor": BLACK})  # fmt: skip
