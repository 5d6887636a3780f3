"""Tables and figures of the two analyses of a finished run: the probe of the theory and the checkpoint landscape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich.table import Table

from hero.report.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, new_figure
from hero.report.tables import MISSING, format_number

CANDIDATES = {
    "lag": ("lagged operator", BLUE, "o"),
    "perturbed": ("perturbed", ORANGE, "^"),
    "self": ("itself", GREEN, "s"),
}
MARKED_STEPS = (40, 100, 160)
"""The dashed lines of the paper's figure."""
COLOUR_LIMITS = (0.1, 2.0)
"""Least and largest |log10 ratio| at the ends of the colour bar: an exploded checkpoint must not bleach the others."""

DIVERGED = "#4d4d4d"

Row = Mapping[str, Any]


def probe_table(rows: Sequence[Row]) -> Table:
    """One column per checkpoint, one line per quantity of the theory."""
    table = Table(title="The theory, measured", caption="docs/theory.md says what each line means and does not prove")
    table.add_column("quantity", overflow="fold")
    for row in rows:
        table.add_column(f"step {row['step']}", justify="right", no_wrap=True)
    for section in _lines():
        for label, show in section:
            table.add_row(label, *(show(row) for row in rows))
        table.add_section()
    return table


def probe_lines() -> list[tuple[str, Callable[[Row], str]]]:
    """Each quantity of the theory with the function that shows it for one checkpoint."""
    return [line for section in _lines() for line in section]


def _lines() -> list[list[tuple[str, Callable[[Row], str]]]]:
    def number(*keys: str) -> Callable[[Row], str]:
        def show(row: Row) -> str:
            value: Any = row
            for key in keys:
                value = value[key]
            return format_number(value)

        return show

    def interval(row: Row) -> str:
        low, high = row["correlation_interval"]
        return MISSING if math.isnan(low) else f"{low:+.2f} to {high:+.2f}"

    def percent(key: str, digits: str) -> Callable[[Row], str]:
        return lambda row: MISSING if math.isnan(row[key]) else f"{100 * row[key]:{digits}} %"

    def sides(row: Row, key: str) -> str:
        return f"{row[key]['left']:.6e}\n{row[key]['right']:.6e}"

    def residual(*keys: str) -> Callable[[Row], str]:
        return lambda row: f"{row[keys[0]][keys[1]]:.0e}"

    def whole(row: Row) -> str:
        bound = row["finite_step"]["entry_bound"]
        return f"{bound:.0f}" if math.isfinite(bound) else MISSING

    def corrected(row: Row) -> str:
        result = row["correction"]
        return ("applies" if result["holds"] else "does not apply") if result["adverse"] else "not needed"

    return [
        [
            ("long-horizon risk J_L", number("risk")),
            ("‖∇J_L‖", number("slope_norm")),
            ("weight λ", number("lambda")),
            ("activation α, mean", number("alpha_mean")),
            ("activation α, std", number("alpha_std")),
            ("usefulness a, mean", number("a_mean")),
            ("usefulness a, std", number("a_std")),
            ("windows with a > 0", percent("a_positive", ".0f")),
            ("cos(g_i, ∇J_L), mean", number("cosine_mean")),
        ],
        [
            ("Cov(α, a)", number("covariance")),
            ("Corr(α, a)", lambda row: MISSING if math.isnan(row["correlation"]) else f"{row['correlation']:+.3f}"),
            ("  95 % interval", interval),
        ],
        [
            ("⟨∇J_L, d⁰⟩", number("along_standard")),
            ("⟨∇J_L, d^H⟩\n(1+λᾱ)⟨∇J_L, d⁰⟩ − λ Cov", lambda row: sides(row, "decomposition")),
            ("  difference", residual("decomposition", "residual")),
            ("⟨∇J_L, d̃^H⟩\n⟨∇J_L, d⁰⟩ − λ Cov/(1+λᾱ)", lambda row: sides(row, "normalised")),
            ("  difference", residual("normalised", "residual")),
            ("  mini-batches, largest", residual("minibatch", "largest_residual")),
            ("mini-batches with Cov > 0", lambda row: f"{100 * row['minibatch']['covariance_positive']:.0f} %"),
            ("reweighting adds descent", percent("effect", "+.2g")),
        ],
        [
            ("corollary 1 (preserves)", lambda row: "applies" if row["preservation"]["holds"] else "does not apply"),
            ("corollary 2 (corrects)", corrected),
        ],
        [
            ("descent margin γ", number("finite_step", "gamma")),
            ("‖d^H‖", number("finite_step", "direction_norm")),
            ("smoothness L̂", number("finite_step", "smoothness")),
            ("largest rate γ / (L̂ D²)", number("finite_step", "rate")),
            ("steps to 0.9 J_L, at most", whole),
            ("one step: promised fall", number("finite_step", "promised_decrease")),
            ("one step: measured fall", number("finite_step", "measured_decrease")),
        ],
    ]


def probe_figure(rows: Sequence[Row]) -> Figure:
    """α against a, one panel per checkpoint, with the correlation, the regression line and the zero line of a."""
    across = min(len(rows), 3)
    down = -(-len(rows) // across)
    figure = new_figure(max(5.2, 4.1 * across), 0.9 + 3.5 * down)
    panels = figure.subplots(down, across, squeeze=False).flat
    for axes, row in zip(panels, rows, strict=False):
        _scatter(axes, row)
    for axes in list(panels)[len(rows) :]:
        axes.set_visible(False)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle("Does history give more weight to windows that matter for the long horizon?", fontsize=11)
    return figure


def _scatter(axes: Axes, row: Row) -> None:
    window = row["per_window"]
    alpha, a = np.array(window["alpha"]), np.array(window["a"])
    selected = np.array(window["selected"])
    for name in dict.fromkeys(window["selected"]):
        label, colour, marker = CANDIDATES.get(name, (name, PURPLE, "D"))
        of = selected == name
        axes.scatter(alpha[of], a[of], s=16, color=colour, marker=marker, alpha=0.65, linewidths=0,
                     label=f"reference: {label}")  # fmt: skip
    axes.axhline(0, color=BLACK, linewidth=1.0, linestyle="--", label="a = 0")
    r, (low, high) = row["correlation"], row["correlation_interval"]
    if not math.isnan(r):
        ends = np.array([alpha.min(), alpha.max()])
        slope = row["covariance"] / row["alpha_std"] ** 2
        axes.plot(ends, a.mean() + slope * (ends - alpha.mean()), color=GREY, linewidth=1.6, label="regression")
    interval = "" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
    verdict = "α is constant" if math.isnan(r) else f"r = {r:+.2f}{interval}"
    axes.set_title(f"step {row['step']}: {verdict}", fontsize=10)
    axes.set_xlabel("activation α")
    axes.set_ylabel("usefulness a = ⟨∇J_L, g⟩")
    axes.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(0.06)
    axes.grid(alpha=0.25)


def landscape_sentence(result: Mapping[str, Any]) -> str:
    """The worst and the best moment of the kept checkpoints against the final model."""
    ratio = np.array(result["log10_ratio"], dtype=np.float64)
    diverged = [step for step, row in zip(result["steps"], result["errors"], strict=True) if not np.isfinite(row[-1])]
    note = f" Rollouts diverged at checkpoint {', '.join(map(str, diverged))}." if diverged else ""
    if not np.isfinite(ratio).any():
        return "No checkpoint can be compared with the final model: rollouts diverged everywhere." + note
    parts = []
    for word, pick in (("worse", np.max), ("better", np.min)):
        extreme = pick(ratio[np.isfinite(ratio)])
        row, column = np.argwhere(ratio == extreme)[0]
        if (extreme > 0) == (word == "worse") and extreme != 0:
            factor = format_number(10 ** abs(extreme))
            parts.append(
                f"at most {factor} times {word} (checkpoint {result['steps'][row]}, rollout step {column + 1})"
            )
    said = "; ".join(parts) if parts else "equal everywhere"
    return f"Against the final model of step {result['final_step']}, kept checkpoints are {said}.{note}"


def landscape_figure(steps: Sequence[int], ratio: np.ndarray, final_step: int, title: str) -> Figure:
    """Δ_s(t) (checkpoint, rollout step) as a heat map, the earliest checkpoint on top, the final model below."""
    count, length = ratio.shape
    shown = np.vstack([ratio, np.zeros(length)])
    finite = np.abs(shown[np.isfinite(shown)])
    limit = float(np.clip(finite.max(initial=0), *COLOUR_LIMITS))
    beyond = bool((finite > limit).any())
    figure = new_figure(8.4, 2.0 + 0.5 * (count + 1))
    axes = figure.subplots()
    # Infinite and undefined cells are left out of the map: there the dark ground of the axes is seen.
    axes.set_facecolor(DIVERGED)
    image = axes.imshow(
        np.ma.masked_invalid(shown),
        aspect="auto",
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
        extent=(0.5, length + 0.5, count + 0.5, -0.5),
    )
    if not np.isfinite(shown).all():
        figure.legend(handles=[Patch(color=DIVERGED, label=_diverged_label(shown))], loc="outside lower center")
    for step in MARKED_STEPS:
        if step <= length:
            axes.axvline(step, color=BLACK, linewidth=1.1, linestyle="--")
    for row in range(count):
        axes.axhline(row + 0.5, color=GREY, linewidth=0.8)
    axes.set_yticks(range(count + 1), [*map(str, steps), f"final ({final_step})"])
    axes.set_xticks(sorted({1, *range(20, length + 1, 20)}))
    axes.set(xlabel="rollout step", ylabel="checkpoint (training step)", title=title)
    bar = figure.colorbar(image, ax=axes, extend="both" if beyond else "neither", pad=0.02)
    bar.set_label("log10 of the error ratio\nred: worse than final", fontsize=9)
    return figure


def _diverged_label(shown: np.ndarray) -> str:
    cases = {"the checkpoint": shown == np.inf, "the final model": shown == -np.inf, "both": np.isnan(shown)}
    return f"a rollout of {' or of '.join(name for name, where in cases.items() if where.any())} diverged"
