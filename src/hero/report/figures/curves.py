"""Error against rollout step, of one method or of several over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.method.metrics import TAU, Scoring, diverged
from hero.report.figures.charts import STEPS, Chart, Curve, draw_chart
from hero.report.figures.style import BLACK, GREY, colours_of, line_style, new_figure, plain
from hero.report.names import BASELINE_TITLES
from hero.runs import records
from hero.study.records import PairedTest, Published

# An exploding rollout passes through 30 decades before it overflows; beyond a thousandfold error nothing can be seen.
ERROR_RANGE = (1e-8, 1e3)

Errors = Mapping[str, np.ndarray]
"""The score (seed, trajectory, step) of each method."""
Baselines = Mapping[str, np.ndarray]
"""The score (step,) of doing nothing by the name of the baseline."""
Paper = Mapping[str, Mapping[int, Published]]
"""The paper's nRMSE of a method by rollout step."""
NONE: Baselines = MappingProxyType({})
NOTHING: Paper = MappingProxyType({})
PLAIN = Scoring()


def error_chart(
    title: str,
    seeds: Mapping[str, Sequence[np.ndarray]],
    lost: Mapping[str, tuple[int, int]],
    scoring: Scoring = PLAIN,
    baselines: Baselines = NONE,
    paper: Paper = NOTHING,
) -> Chart:
    """The mean over the curves (step,) of the seeds of each method, with a band over all of them; baselines are grey.

    `lost` has how many rollouts of a method diverged, and of how many.
    """
    colours, curves = colours_of(seeds), []
    for place, (name, own) in enumerate(seeds.items()):
        length = min(map(len, own))
        lines = np.stack([line[:length] for line in own])
        band = (lines.min(axis=0), lines.max(axis=0)) if len(own) > 1 else None
        curves.append(Curve(name, np.arange(1, length + 1), lines.mean(axis=0), band, colours[name],
                            line_style(place), points=paper.get(name, {}), lost=lost[name]))  # fmt: skip
    for number, (name, line) in enumerate(baselines.items(), start=1):
        steps = np.arange(1, len(line) + 1)
        curves.append(
            Curve(BASELINE_TITLES[name], steps, line, colour=GREY, style="--" if number == 1 else ":", idle=number)
        )
    threshold = TAU if scoring.measure == "nrmse" else None
    return Chart(title, curves, STEPS, scoring.title, log=True, threshold=threshold)


def methods_chart(
    title: str, errors: Errors, scoring: Scoring = PLAIN, baselines: Baselines = NONE, paper: Paper = NOTHING
) -> Chart:
    """The mean over trajectories and seeds of each method; an error that is not a number is infinite."""
    means = {name: [*np.nan_to_num(u.mean(axis=1), nan=np.inf, posinf=np.inf)] for name, u in errors.items()}
    lost = {name: (sum(map(diverged, u)), u.shape[0] * u.shape[1]) for name, u in errors.items()}
    return error_chart(title, means, lost, scoring, baselines, paper)


def draw_errors(axes: Axes, chart: Chart) -> None:
    """Errors on an axis that ends where nothing can be seen any more."""
    curves = [line for one in chart.curves for line in (one.y, *(one.band or ()))]
    published = [number.mean for one in chart.curves for number in one.points.values()]
    values = np.concatenate([published, *curves])
    visible = values[np.isfinite(values) & (values > 0)]
    ends = [visible.min(), visible.max()] if visible.size else list(ERROR_RANGE)
    low, high = max(ends[0] / 1.5, ERROR_RANGE[0]), min(ends[1] * 1.5, ERROR_RANGE[1])
    draw_chart(axes, replace(chart, range=(min(low, ERROR_RANGE[1] / 10), max(high, 10 * ERROR_RANGE[0]))))


def curves_figure(chart: Chart, tests: Sequence[PairedTest] = ()) -> Figure:
    """Error curves of all methods, and next to them the ratios to the baseline that were tested."""
    figure = new_figure(11.5 if tests else 7.5, 4.8 + 0.12 * len(chart.curves))
    widths = [1.6, 1] if tests else [1]
    left, *right = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    draw_errors(left, replace(chart, title=""))
    if tests:
        _draw_ratios(right[0], tests, {curve.label: curve.colour for curve in chart.curves})
    if legend := left.get_legend():
        legend.remove()
    figure.suptitle(chart.title, fontsize=11)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def error_figure(
    found: records.Errors,
    title: str,
    channels: Sequence[str] = (),
    paper: Mapping[str, Published] = MappingProxyType({}),
) -> Figure:
    """The errors of one run: the mean over its trajectories, of each channel too where channels are measured alone."""
    several = len(channels) > 1 and found.has_channels
    label = "mean over channels" if several else f"mean of {len(found.score)} trajectories"
    lines = {label: found.score[:, None]}
    lines |= {plain(name): found.of_channel(c)[:, None] for c, name in enumerate(channels) if several}
    numbers = {t: paper[f"nrmse@{t}"] for t in (1, 100) if f"nrmse@{t}" in paper and t <= found.score.shape[1]}
    scoring, idle, title = Scoring(measure=found.measure), baseline_means(found), f"{title}: error along the rollout"
    return curves_figure(methods_chart(title, lines, scoring, idle, {label: numbers}))


def baseline_means(errors: records.Errors) -> dict[str, np.ndarray]:
    """The score of doing nothing at each step."""
    return {name: values.mean(axis=0) for name, values in errors.baselines.items()}


def finetune_figure(before: records.Errors, after: records.Errors, subject: str) -> Figure:
    """The errors of a fine-tuned run next to the checkpoint that it started from, over the same trajectories."""
    lines = {"before": before.score[None], "after": after.score[None]}
    title, scoring = f"{subject}: before and after fine-tuning", Scoring(measure=after.measure)
    return curves_figure(methods_chart(title, lines, scoring, baseline_means(after)))


def _draw_ratios(axes: Axes, tests: Sequence[PairedTest], colours: Mapping[str, str]) -> None:
    """The geometric mean ratio of each row to the baseline with its 95 % interval, on a logarithmic axis."""
    axes.axvline(1, color=colours.get(tests[0].baseline, BLACK), linewidth=1.5)
    labels = []
    for height, test in enumerate(tests):
        ratio = test.ratio if test.ratio and np.isfinite(test.ratio) else np.nan
        labels.append(f"{test.label} (diverged)" if np.isnan(ratio) else test.label)
        colour = colours.get(test.label, BLACK)
        axes.plot(test.interval or (), [height] * 2 * bool(test.interval), color=colour, linewidth=3, alpha=0.5)
        axes.plot(ratio, height, "D", color=colour, markersize=7, markeredgecolor=BLACK)
    axes.set_xscale("log")
    for axis in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis(StrMethodFormatter("{x:g}"))
    axes.tick_params(axis="x", which="both", labelsize=8, labelrotation=45)
    axes.set_yticks(range(len(tests)), labels)
    axes.set(ylim=(len(tests) - 0.4, -0.6), xlabel=f"ratio to {tests[0].baseline}, bar: 95 % interval")
    axes.grid(axis="x", alpha=0.25)
