"""Error against rollout step, of one method or of several over each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from hero.method.metrics import TAU, Scoring, diverged
from hero.report.figures.style import (
    BLACK,
    GREEN,
    GREY,
    colours_of,
    line_style,
    log_scale,
    new_figure,
    plain,
    whole_steps,
)
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
Clip = Callable[[np.ndarray], np.ndarray]


def error_axes(axes: Axes, errors: np.ndarray, scoring: Scoring = PLAIN, references: Sequence[float] = ()) -> Clip:
    """Set up a logarithmic axis for `errors` and `references`; returns the function that clips curves for drawing.

    Infinite values are drawn as leaving through the top of the axis.
    """
    visible = errors[np.isfinite(errors) & (errors > 0)]
    ends = [*references, *([visible.min(), visible.max()] if visible.size else [])] or list(ERROR_RANGE)
    low, high = max(min(ends) / 1.5, ERROR_RANGE[0]), min(max(ends) * 1.5, ERROR_RANGE[1])
    low, high = min(low, ERROR_RANGE[1] / 10), max(high, 10 * ERROR_RANGE[0])
    axes.set(xlabel="rollout step", ylabel=scoring.title)
    whole_steps(axes)
    log_scale(axes, np.array([low, high]))
    axes.set_ylim(low, high)
    axes.margins(x=0.01)
    axes.grid(alpha=0.25)

    def clip(values: np.ndarray) -> np.ndarray:
        return np.clip(values, low / 10, high * 10)

    return clip


def draw_methods(
    axes: Axes, errors: Errors, scoring: Scoring = PLAIN, baselines: Baselines = NONE, paper: Paper = NOTHING
) -> None:
    """The mean over trajectories and seeds of each method; every seed as a thin line, all of them as a band.

    A cross marks the step from which a seed's mean is infinite, because a rollout diverged; a diamond is the paper's.
    Baselines are grey dashes.
    """
    of_seed = {name: np.nan_to_num(values.mean(axis=1), nan=np.inf, posinf=np.inf) for name, values in errors.items()}
    colours, numbers = colours_of(errors), [number.mean for found in paper.values() for number in found.values()]
    curves = [curve.ravel() for curve in (*of_seed.values(), *baselines.values())]
    clip = error_axes(axes, np.concatenate(curves), scoring, numbers)
    for i, (name, curve) in enumerate(of_seed.items()):
        colour, steps, lost = colours[name], np.arange(1, curve.shape[1] + 1), sum(map(diverged, errors[name]))
        label = f"{name} ({lost} diverged)" if lost else name
        axes.plot(steps, clip(curve.mean(axis=0)), line_style(i), color=colour, linewidth=1.8, label=label)
        axes.plot(steps, clip(curve).T, color=colour, alpha=0.3, linewidth=0.5)
        low, high = clip(curve.min(axis=0)), clip(curve.max(axis=0))
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        first = np.isinf(curve).argmax(axis=1)[np.isinf(curve).any(axis=1)] + 1
        if len(first):  # an empty line would take room in the corner
            axes.plot(first, np.full(len(first), axes.get_ylim()[1]), "x", color=colour, markersize=7, clip_on=False)
        for step, number in paper.get(name, {}).items():
            axes.errorbar(step, number.mean, number.std or 0, fmt="D", color=colour, ecolor=BLACK, capsize=4,
                          markeredgecolor=BLACK, label="paper, mean ± std" if step == 1 else None)  # fmt: skip
    for dashes, (name, curve) in zip(((0, (5, 3)), (0, (1, 2))), baselines.items(), strict=False):
        axes.plot(np.arange(1, len(curve) + 1), clip(curve), color=GREY, linewidth=1.0, linestyle=dashes,
                  label=BASELINE_TITLES[name])  # fmt: skip


def curves_figure(
    title: str,
    errors: Errors,
    scoring: Scoring = PLAIN,
    baselines: Baselines = NONE,
    tests: Sequence[PairedTest] = (),
    paper: Paper = NOTHING,
) -> Figure:
    """Error curves of all methods, and next to them the ratios to the baseline that were tested."""
    figure = new_figure(11.5 if tests else 7.5, 4.8 + 0.12 * len(errors))
    widths = [1.6, 1] if tests else [1]
    left, *right = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    draw_methods(left, errors, scoring, baselines, paper)
    if scoring.measure == "nrmse" and left.get_ylim()[0] < TAU < left.get_ylim()[1]:
        left.axhline(TAU, color=GREEN, linewidth=1.0, linestyle=":", label=f"τ = {TAU}")
    if tests:
        _draw_ratios(right[0], tests, colours_of(errors))
    figure.suptitle(title, fontsize=11)
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
    scoring, idle = Scoring(measure=found.measure), baseline_means(found)
    return curves_figure(f"{title}: error along the rollout", lines, scoring, idle, paper={label: numbers})


def baseline_means(errors: records.Errors) -> dict[str, np.ndarray]:
    """The score of doing nothing at each step."""
    return {name: values.mean(axis=0) for name, values in errors.baselines.items()}


def finetune_figure(before: records.Errors, after: records.Errors, subject: str) -> Figure:
    """The errors of a fine-tuned run next to the checkpoint that it started from, over the same trajectories."""
    lines = {"before": before.score[None], "after": after.score[None]}
    title, scoring = f"{subject}: before and after fine-tuning", Scoring(measure=after.measure)
    return curves_figure(title, lines, scoring, baseline_means(after))


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
