"""The figures of runs, panels and studies, from their results, run folders and test data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hero.data import Source
from hero.method.metrics import Scoring
from hero.report.figures.charts import Across, Chart, Curve, charts_figure, curves_figure, draw_errors, error_chart
from hero.report.figures.fields import draw_states, fields_figure, spectrum_figure
from hero.report.figures.style import (
    BLACK,
    BLUE,
    GREY,
    PAPER_DPI,
    colours_of,
    new_figure,
    safe_name,
    save_png_and_pdf,
)
from hero.report.figures.training import spectra_charts, spectra_figure, training_figure
from hero.report.inputs import Curves, ReportedRun, ReportInputs, tried
from hero.report.listing import method_title, metric_title
from hero.report.panels import Panel, panels_of, results_of
from hero.report.registries import ANALYSES, STUDY_FIGURES
from hero.runs.folder import Run
from hero.runs.records import Errors
from hero.runs.rollouts import Rollout
from hero.study.records import Group, StudyResult, Summary

Named = tuple[str, Figure]


def write_figures(inputs: ReportInputs, folder: Path) -> list[str]:
    """PDF and PNG of the error curves of each panel, and of all figures of each method's first seed; their names."""
    written: list[str] = []
    panels = list(panels_of(inputs, results_of(inputs)))
    for panel in panels:
        for channel in ("", *panel.channels) if panel.curves else ():
            chart = panel_chart(panel, channel)
            written.append(safe_name(f"curves_{chart.title}").lower())
            save_png_and_pdf(curves_figure(chart), folder, written[-1], PAPER_DPI)
    for run in {method.runs[0].name: method.runs[0] for panel in panels for method in panel.methods}.values():
        for name, figure in run_figures(run):
            written.append(f"{run.name}_{name}")
            save_png_and_pdf(figure, folder, written[-1], PAPER_DPI)
    return written


def panel_chart(panel: Panel, channel: str = "") -> Chart:
    methods = {method.row.label: method for method in panel.methods if method.curves}
    paper = {label: method.published for label, method in methods.items()}
    title = f"{panel.title}: {channel}" if channel else panel.title
    return error_chart(title, {label: one.curves for label, one in methods.items()}, channel, paper)


def run_figures(run: ReportedRun) -> Iterator[Named]:
    """The figures of a run, one at a time; a file that cannot be read leaves its figure out."""
    source, (rollout, errors) = run.config.source, run.rollout([])
    if rollout is not None and errors is not None:
        for c, name in enumerate(source.channel_names):
            figure = fields_figure(rollout, errors[:, c].tolist(), source, run.metrics.scoring, c)
            yield f"fields_{safe_name(name)}" if source.channels > 1 else "fields", figure
        yield "spectrum", spectrum_figure(rollout, source.channel_names)
    yield "training", training_figure(run.log)
    if charts := spectra_charts(run.log, run.weighs_error, source.channel_names):
        yield "weights", spectra_figure(charts)
    if run.before and (changed := tried(lambda: finetune_figure(run.run), [])):
        yield "finetune", changed
    for name, found in run.analyses.items():
        yield name, ANALYSES[name].figure(found, run.config)


def finetune_figure(run: Run) -> Figure:
    """The errors of a fine-tuned run next to the checkpoint that it started from, over the same trajectories."""
    curves = {"before": [Curves.of(run.before_errors)], "after": [Curves.of(run.errors)]}
    return curves_figure(error_chart(f"{run.config.source.title}: before and after fine-tuning", curves))


def result_figure(title: str, errors: Errors, rollout: Rollout | None, source: Source, scoring: Scoring) -> Figure:
    """One run for a notebook: its errors, and the last scored state of the stored rollout if there is one on a grid."""
    has_state, step = rollout is not None and not source.cloud, scoring.steps
    height = 4.2 if source.channels == 1 or not has_state else 0.6 + 2.4 * source.channels
    figure = new_figure(12.5 if has_state else 6.5, height)
    left, *right = figure.subfigures(1, 1 + has_state, squeeze=False, width_ratios=(1, 1.3)[: 1 + has_state])[0]
    draw_errors(left.subplots(), errors_chart(title, errors))
    if rollout is not None and right:
        found = [errors.of_channel(c)[rollout.trajectory, step - 1] for c in range(source.channels)]
        states = {"prediction": rollout.prediction[step - 1]}
        draw_states(right[0], rollout.truth[step - 1], states, {"prediction": found}, source, scoring)
        right[0].suptitle(f"step {step} of test trajectory {rollout.trajectory}, the median", fontsize=10)
    return figure


def errors_chart(title: str, errors: Errors) -> Chart:
    return error_chart(title, {f"mean of {len(errors.score)} trajectories": [Curves.of(errors)]})


def study_figures(result: StudyResult, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    kind = STUDY_FIGURES.get(result.figures, no_figures)
    for group in result.groups:
        name = "-".join(filter(None, (group.task, group.backbone.rpartition(":")[2], group.loss, group.shift)))
        yield from kind(result, group, name, runs_dir, data_dir)
    for summary in result.statistics:
        if summary.ranks.methods:
            yield f"ranks-{summary.loss}" if summary.loss else "ranks", critical_difference_figure(summary)


def no_figures(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """Nothing to draw."""
    return iter(())


def curves(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """The error curves of a group, next to its tests."""
    if found := group_curves(group, runs_dir):
        tests = [test for summary in result.statistics for test in summary.tests if test.group == group.title]
        yield f"curves-{name}", curves_figure(error_chart(group.title, found), tests)


def setting(result: StudyResult, group: Group, name: str, runs_dir: Path, data_dir: Path) -> Iterator[Named]:
    """The error curves of a group, and each column against the setting that its rows vary."""
    for curve in curves(result, group, name, runs_dir, data_dir):
        yield curve
        yield f"setting-{name}", setting_figure(group, result)


def group_curves(group: Group, runs_dir: Path) -> dict[str, list[Curves]]:
    found = {row.label: [Curves.of(Run(runs_dir / run.run).errors) for run in row.finished] for row in group.rows}
    return {label: some for label, some in found.items() if some}


def setting_figure(group: Group, result: StudyResult) -> Figure:
    """Each column against the setting that the rows vary: the mean of the seeds, with a band over all of them.

    A row without a value of the setting is the reference.
    """
    places = [row.setting for row in group.rows if row.setting is not None]
    charts = []
    for column in result.columns:
        cells = [(row, cell) for row in group.rows if (cell := row.cells.get(column.key))]
        varied = [(row.setting, cell) for row, cell in cells if row.setting is not None]
        lines = {"mean of seeds": ([x for x, _ in varied], [cell for _, cell in varied], BLUE, "o-")}
        for row, cell in cells:
            if row.setting is None:
                lines[row.label] = ([min(places), max(places)], [cell] * 2, GREY, "--")
        drawn = [
            Curve(label, x, np.array([one.mean for one in some]), _ends([one.values for one in some]), colour, style)
            for label, (x, some, colour, style) in lines.items()
        ]
        charts.append(Chart(f"{column.label} ({column.direction} is better)", drawn, Across(result.setting)))
    return charts_figure(group.title, charts, len(charts), 2.9, 3.4)


def _ends(seeds: list[tuple[float, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest finite seed of each place."""
    finite = [[value for value in some if math.isfinite(value)] or [math.nan] for some in seeds]
    return np.array([min(some) for some in finite]), np.array([max(some) for some in finite])


def critical_difference_figure(summary: Summary) -> Figure:
    """Methods on an axis of average ranks, best on top, with a bar for each joined set."""
    ranks, count = summary.ranks, len(summary.ranks.methods)
    figure = new_figure(7.0, 1.6 + 0.3 * count + 0.12 * len(ranks.joined))
    axes = figure.subplots()
    place = {one.method: (height, one.rank) for height, one in enumerate(ranks.methods)}
    colours = colours_of(place)
    for method, (height, rank) in place.items():
        axes.plot([rank, rank], [-1, height], color=colours[method], linewidth=1.2, linestyle=":")
        axes.plot(rank, height, "o", color=colours[method], markersize=7)
    axes.set_yticks(range(count), [f"{method_title(one.method)}  {one.rank:.2f}" for one in ranks.methods])
    lines = [(place[names[0]][1], place[names[-1]][1], -0.5 - 0.35 * i) for i, names in enumerate(ranks.joined)]
    difference = ranks.critical_difference or 0.0
    top = -1.1 - 0.35 * len(lines)
    for start, end, y in lines:
        axes.plot([start - 0.04, end + 0.04], [y] * 2, color=BLACK, linewidth=4, solid_capstyle="round")
    # A difference longer than the axis separates nothing: it is cut there and its label gives its length.
    axes.plot([1, 1 + min(difference, count - 1)], [top] * 2, "|-", color=BLACK, linewidth=1.2, markersize=8)
    axes.text(1, top - 0.15, f"critical difference {difference:.2f}", fontsize=9, va="bottom")
    axes.set(xlim=(0.8, count + 0.2), ylim=(count - 0.5, top - 0.9), xticks=range(1, count + 1))
    axes.set_xlabel(f"average rank of {metric_title(summary.metric)} over {ranks.groups} groups (1 is best)")
    axes.grid(axis="x", alpha=0.25)
    return figure
