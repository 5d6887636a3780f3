"""The table and the figure of `hero probe`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hero.method.candidates import CANDIDATES
from hero.paper.theory import Probe, ProbePoint
from hero.report.figures.style import BLACK, GREY, MARKERS, candidate_colours, new_figure
from hero.report.inputs import Analysis
from hero.report.listing import titles_of
from hero.report.tables import MISSING, Column, Row, Table, Text, format_number


def _applies(holds: bool | None) -> str:
    return "not needed" if holds is None else "applies" if holds else "does not apply"


PROBE_LINES: Sequence[tuple[str, str, Callable[..., str]]] = (
    ("long-horizon risk J_L", "risk", format_number),
    ("‖∇J_L‖", "slope_norm", format_number),
    ("weight λ", "weight", format_number),
    ("activation α, mean", "alpha_mean", format_number),
    ("activation α, std", "alpha_std", format_number),
    ("usefulness a, mean", "a_mean", format_number),
    ("usefulness a, std", "a_std", format_number),
    ("windows with a > 0", "a_positive", lambda share: f"{100 * share:.3g} %"),
    ("cos(g_i, ∇J_L), mean", "cosine_mean", format_number),
    ("Cov(α, a)", "covariance", format_number),
    ("Corr(α, a)", "correlation", lambda r: MISSING if math.isnan(r) else f"{r:+.3f}"),
    (
        "  95 % interval",
        "correlation_interval",
        lambda ends: MISSING if math.isnan(ends[0]) else "{:+.2f} to {:+.2f}".format(*ends),
    ),
    ("⟨∇J_L, d⁰⟩", "along_standard", format_number),
    ("⟨∇J_L, d^H⟩", "decomposition.left", "{:.6e}".format),
    ("(1+λᾱ)⟨∇J_L, d⁰⟩ − λ Cov", "decomposition.right", "{:.6e}".format),
    ("  difference", "decomposition.residual", "{:.0e}".format),
    ("reweighting adds descent", "effect", lambda x: MISSING if math.isnan(x) else f"{100 * x:+.2g} %"),
    ("corollary 1 (preserves)", "preserves", _applies),
    ("corollary 2 (corrects)", "corrects", _applies),
    ("descent margin γ", "finite_step.gamma", format_number),
    ("‖d^H‖", "finite_step.direction_norm", format_number),
    ("smoothness L̂", "finite_step.smoothness", format_number),
    ("largest rate γ / (L̂ D²)", "finite_step.rate", format_number),
    ("steps to 0.9 J_L, at most", "finite_step.entry_bound", lambda x: f"{x:.0f}" if math.isfinite(x) else MISSING),
    ("one step: promised fall", "finite_step.promised_decrease", format_number),
    ("one step: measured fall", "finite_step.measured_decrease", format_number),
)
"""Label, attribute of `ProbePoint` and form of each line."""


def probe_table(probe: Probe) -> Table:
    """The quantities of the theory, a column for each checkpoint."""
    columns = [Column("Quantity", words=True), *(Column(f"step {point.step}") for point in probe.checkpoints)]
    rows = [
        Row([Text(label), *(Text(show(attrgetter(name)(point))) for point in probe.checkpoints)])
        for label, name, show in PROBE_LINES
    ]
    note = "docs/method/theory.md says what each line means and does not prove."
    return Table("All numbers of the probe", columns, rows, [note], folded=True)


def probe_figure(points: Sequence[ProbePoint]) -> Figure:
    """α against a, one panel per checkpoint, with the correlation, the regression line and the zero line of a."""
    across = min(len(points), 3)
    down = -(-len(points) // across)
    figure = new_figure(max(5.2, 4.1 * across), 0.9 + 3.5 * down)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, point in zip(panels, points, strict=False):
        _scatter(axes, point)
    for axes in panels[len(points) :]:
        axes.set_visible(False)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle("Does history give more weight to windows that matter for the long horizon?", fontsize=11)
    return figure


def _scatter(axes: Axes, point: ProbePoint) -> None:
    alpha, a = np.array(point.per_window.alpha), np.array(point.per_window.a)
    selected = np.array(point.per_window.selected)
    colours = candidate_colours(point.per_window.selected)
    for i, (name, title) in enumerate(titles_of(CANDIDATES, point.per_window.selected).items()):
        of = selected == name
        axes.scatter(alpha[of], a[of], s=16, color=colours[name], marker=MARKERS[i % len(MARKERS)], alpha=0.65,
                     linewidths=0, label=f"reference: {title}")  # fmt: skip
    axes.axhline(0, color=BLACK, linewidth=1.0, linestyle="--", label="a = 0")
    r, (low, high) = point.correlation, point.correlation_interval
    if not math.isnan(r):
        ends = np.array([alpha.min(), alpha.max()])
        slope = point.covariance / point.alpha_std**2
        axes.plot(ends, a.mean() + slope * (ends - alpha.mean()), color=GREY, linewidth=1.6, label="regression")
    interval = "" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
    verdict = "α is constant" if math.isnan(r) else f"r = {r:+.2f}{interval}"
    axes.set_title(f"step {point.step}: {verdict}", fontsize=10)
    axes.set(xlabel="activation α", ylabel="usefulness a = ⟨∇J_L, g⟩")
    axes.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.06)
    axes.grid(alpha=0.25)


PROBE = Analysis(
    Probe,
    "The theory, measured",
    "One point per validation window: its activation α, the weight that history gives it, against its usefulness a, "
    "the inner product of its gradient with the gradient of the long-horizon risk. History helps to first order where "
    "the points rise to the right. In brackets a 95 % interval of the correlation.",
    lambda found, config: probe_figure(found.checkpoints),
    lambda found: [point.conclusion for point in found.checkpoints],
    probe_table,
)
