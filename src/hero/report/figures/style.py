"""Colours, empty figures, and figures as files.

Every function that draws returns a new `Figure` and touches no global matplotlib state, so reports can be made from any
thread. The colours are by Okabe and Ito; they stay apart under the common forms of colour blindness.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from hero.files import write_atomic
from hero.method.candidates import CANDIDATES

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#8a8a8a"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
# Near methods lie on each other: through the gaps of the later line the earlier one is seen.
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
DPI = 130
PAPER_DPI = 300


def colours_of(names: Iterable[str]) -> dict[str, str]:
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def line_style(place: int) -> str:
    """The dashes of the line in this place; they shift where the colours repeat, so that ten lines stay apart."""
    return STYLES[(place + place // len(COLOURS)) % len(STYLES)]


def candidate_colours(names: Iterable[str]) -> dict[str, str]:
    """The colours of these candidates by their place in the registry, so that a candidate looks the same everywhere."""
    names = set(names)
    colours = colours_of([*CANDIDATES, *sorted(names - CANDIDATES.keys())])
    return {name: colour for name, colour in colours.items() if name in names}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path, dpi: int = DPI) -> Path:
    """Write a figure atomically as PNG or PDF, by the suffix of `path`; a repeated command gives the same bytes."""
    buffer, suffix = io.BytesIO(), path.suffix[1:]
    fix_layout(figure)
    with rc_context({"pdf.fonttype": 42}):  # TrueType: journals refuse the default, Type 3
        figure.savefig(buffer, format=suffix, dpi=dpi, metadata={"CreationDate": None} if suffix == "pdf" else None)
    return write_atomic(path, buffer.getvalue())


def fix_layout(figure: Figure) -> None:
    """Place the parts of a figure for good: this is most of the work of drawing, and each file would do it again."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)  # the placeholder that "none" puts there would cost another pass


def save_png_and_pdf(figure: Figure, folder: Path, name: str, dpi: int = DPI) -> None:
    for suffix in ("png", "pdf"):
        save(figure, folder / f"{name}.{suffix}", dpi)


def log_scale(axes: Axes, values: np.ndarray) -> None:
    """A logarithmic axis for the positive `values`, labelled 0.3, not 3 × 10⁻¹; between powers of ten if few."""
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    within_a_decade = values.max() < 10 * values.min()
    if within_a_decade:
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}") if within_a_decade else NullFormatter())


def whole_steps(axes: Axes) -> None:
    """Marks at whole numbers along the horizontal axis: there is no half step."""
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def plain(text: str) -> str:
    """Text of others in which dollar signs do not start formulas."""
    return text.replace("$", r"\$")


def safe_name(text: str) -> str:
    """Text of others as a part of the name of a file."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_")
