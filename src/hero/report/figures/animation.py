"""The drawn rollout of a run as a moving picture: a GIF by Pillow, an MP4 by ffmpeg.

Fields are shown as truth, prediction and error side by side, a 1D state as curves; the title has the error. Of each
frame only the artists that move are drawn, on top of everything else, which is drawn once.
"""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from hero.console import progress_bar
from hero.data.files.checks import spread
from hero.errors import HeroError, install_hint, reason_of, unknown_name
from hero.files import write_atomic
from hero.report.figures.fields import draw_pictures, name_axis, time_text
from hero.report.figures.style import BLACK, ORANGE, fix_layout, new_figure, plain, safe_name
from hero.report.tables import format_number
from hero.report.views import Scaled, View, scale_channel
from hero.runs.folder import Run
from hero.runs.records import Rollout

FRAMES = 100  # a longer rollout is thinned to about as many frames
FASTEST = 50  # frames per second: viewers slow down a GIF that is faster
DPI = 100  # lower than in figures: every pixel is stored a hundred times

Moving = tuple[list[Artist], Callable[[int], None]]
"""The artists that change from step to step, and the function that makes them show a step."""


def animate(
    run: Path, out: Path | None = None, steps: int | None = None, fps: int = 12, channel: str | None = None
) -> Path:
    """Write the animation of the first `steps` steps of a run's drawn rollout, by default all, of its first channel."""
    out = out or run / f"rollout{f'_{safe_name(channel)}' if channel else ''}.gif"
    suffix = out.suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise HeroError(f"{out} is neither a GIF nor an MP4; use a name that ends in .gif or .mp4.")
    if not 1 <= fps <= FASTEST:
        raise HeroError(f"fps={fps} cannot be played everywhere; choose 1 to {FASTEST}.")
    opened = Run(run)
    rollout, source = opened.rollout, opened.config.source
    if rollout is None:
        raise HeroError(f"run {run.name} has no stored rollout; `hero evaluate {run.name}` writes it.")
    if source.cloud:
        raise HeroError(
            f"run {run.name} is on scattered points, and animations show grids; draw what `hero predict` writes."
        )
    if channel is not None and channel not in source.channel_names:
        raise unknown_name(f"channel of {source.title}:", channel, source.channel_names)
    shown = shown_steps(len(rollout.truth), steps)
    figure, moving = picture(opened, rollout, source.channel_names.index(channel) if channel else 0)
    with progress_bar(out.name, len(shown)) as advance:
        drawn = frames(figure, moving, shown, advance)
        return write_atomic(out, mp4(drawn, fps) if suffix == ".mp4" else gif(drawn, fps))


def shown_steps(length: int, steps: int | None) -> list[int]:
    """The rollout steps that become frames, first and last among them."""
    last = length if steps is None else steps
    if not 1 <= last <= length:
        raise HeroError(f"steps={steps} is outside the stored rollout; choose 1 to {length}.")
    return [1 + place for place in spread(last, FRAMES)]


def frames(figure: Figure, moving: Moving, steps: Sequence[int], advance: Callable[[], None]) -> Iterator[Image.Image]:
    artists, show = moving
    for artist in artists:
        artist.set_animated(True)  # left out of the background
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    background = canvas.copy_from_bbox(figure.bbox)
    for step in steps:
        show(step)
        canvas.restore_region(background)
        for artist in artists:
            figure.draw_artist(artist)
        yield Image.fromarray(np.array(canvas.buffer_rgba())).convert("RGB")
        advance()


def gif(drawn: Iterator[Image.Image], fps: int) -> bytes:
    """The bytes of a GIF that repeats for ever."""
    buffer = io.BytesIO()
    next(drawn).save(buffer, "GIF", save_all=True, append_images=drawn, duration=round(1000 / fps), loop=0)
    return buffer.getvalue()


def mp4(drawn: Iterator[Image.Image], fps: int) -> bytes:
    """The bytes of an MP4 that every player shows: its sides are even."""
    first = next(drawn)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "rollout.mp4"
        try:
            import imageio_ffmpeg

            writer = imageio_ffmpeg.write_frames(str(target), first.size, fps=fps, quality=8, macro_block_size=2)
            writer.send(None)  # starts it
            for one in itertools.chain([first], drawn):
                writer.send(one.tobytes())
            writer.close()
            return target.read_bytes()
        except (ImportError, RuntimeError, OSError) as error:
            hint = f"{install_hint('video')}, or write a .gif."
            raise HeroError(f"no MP4 was made ({reason_of(error)}); {hint}") from None


def picture(run: Run, rollout: Rollout, channel: int = 0) -> tuple[Figure, Moving]:
    """The figure of a channel of a run's drawn rollout at step 1, and what moves in it."""
    source, scoring = run.config.source, run.config.scoring
    view = View.of(source.axes)
    scaled = scale_channel(rollout, source, channel, view)
    errors = run.errors.of_channel(channel)[rollout.trajectory]
    errors = np.where(np.isnan(errors), np.inf, errors)
    figure = new_figure(*((9.6, 1.5 + 2.2 / max(view.ratio, 0.5)) if view.up else (8.4, 3.9)))
    figure.set_dpi(DPI)
    artists, move = (_fields if view.up else _lines)(figure, scaled, view)
    where = f", {source.channel_names[channel]}" if source.channels > 1 else ""
    where += f", slice {rollout.slice} along the last axis" if rollout.slice is not None else ""
    title = figure.suptitle("step 1", fontsize=12)

    def show(step: int) -> None:
        move(step)
        error = errors[step - 1]
        said = f"{scoring.title} {format_number(error)}" if np.isfinite(error) else "diverged"
        title.set_text(plain(f"{source.title}{where}: step {step} (t = {time_text(source, step)}), {said}"))

    show(1)
    fix_layout(figure)  # as it is now, so that nothing jumps
    return figure, ([*artists, title], show)


def _fields(figure: Figure, scaled: Scaled, view: View) -> Moving:
    """Truth and prediction on one colour scale, and their difference on its own."""
    first = [part._replace(field=part.field[0]) for part in scaled[:3]]
    _, images = draw_pictures(figure, [first], view)

    def move(step: int) -> None:
        for image, part in zip(images, scaled[:3], strict=True):
            image.set_data(part.field[step - 1].T)

    edges = [spine for image in images for spine in image.axes.spines.values()]
    return [*images, *edges], move  # a field would hide half of its frame


def _lines(figure: Figure, scaled: Scaled, view: View) -> Moving:
    """The state over space."""
    axes, true = figure.subplots(), scaled.truth.field
    low, high = float(np.nanmin(true)), float(np.nanmax(true))
    margin = 0.25 * (high - low) or 1.0
    # An exploding prediction leaves the picture; drawn to its end it would overflow the renderer.
    predicted = np.clip(scaled.prediction.field, low - 20 * margin, high + 20 * margin)
    axes.set(xlim=(view.across.start, view.across.end), ylim=(low - margin, high + margin))
    axes.set_ylabel(plain(scaled.truth.scale.label))
    name_axis(axes, "x", view.across)
    axes.grid(alpha=0.25)
    x = view.across.drawn
    (truth,) = axes.plot(x, true[0], color=BLACK, linewidth=1.8, label="truth")
    (prediction,) = axes.plot(x, true[0], color=ORANGE, linewidth=1.6, linestyle="--", label="prediction")
    axes.legend(loc="upper right", fontsize=9)

    def move(step: int) -> None:
        truth.set_ydata(true[step - 1])
        prediction.set_ydata(predicted[step - 1])

    return [truth, prediction], move
