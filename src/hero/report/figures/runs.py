"""All figures of a report as files: of one run, and of all runs of a panel together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from hero.data import Source
from hero.method.metrics import Scoring
from hero.report.figures.charts import Chart
from hero.report.figures.curves import (
    baseline_means,
    curves_figure,
    draw_errors,
    error_chart,
    error_figure,
    finetune_figure,
    methods_chart,
)
from hero.report.figures.fields import draw_states, fields_figure, spectrum_figure
from hero.report.figures.style import PAPER_DPI, new_figure, safe_name, save_png_and_pdf
from hero.report.figures.training import spectra_charts, spectra_figure, training_figure
from hero.report.inputs import ReportedRun, ReportInputs
from hero.report.panels import Panel, panels_of
from hero.report.registries import ANALYSES
from hero.runs.records import Errors
from hero.runs.rollouts import Rollout
from hero.study.registries import published_numbers


def run_figures(run: ReportedRun) -> Iterator[tuple[str, Figure]]:
    """The figures of a run, one at a time; a file that cannot be read leaves its figure out."""
    source, (rollout, errors) = run.config.source, run.rollout([])
    if run.errors is not None:
        yield "error", error_figure(run.errors, source.title, source.channel_names, published_numbers(run.config))
    if rollout is not None and errors is not None:
        for c, name in enumerate(source.channel_names):
            figure = fields_figure(rollout, errors[:, c].tolist(), source, run.metrics.scoring, c)
            yield f"fields_{safe_name(name)}" if source.channels > 1 else "fields", figure
        yield "spectrum", spectrum_figure(rollout, source.channel_names)
    yield "training", training_figure(run.log)
    if charts := spectra_charts(run.log, run.weighs_error, source.channel_names):
        yield "weights", spectra_figure(charts)
    if run.before_errors and run.errors:
        yield "finetune", finetune_figure(run.before_errors, run.errors, source.title)
    for name, found in run.analyses.items():
        yield name, ANALYSES[name].figure(found, run.config)


def panel_figures(panel: Panel) -> Iterator[tuple[str, Figure]]:
    """The error curves of the methods of a panel, and of each channel where there are several."""
    for channel in ("", *panel.channels) if panel.curves else ():
        chart = panel_chart(panel, "mean", channel)
        yield safe_name(f"curves_{chart.title}").lower(), curves_figure(chart)


def panel_chart(panel: Panel, metric: str, channel: str = "") -> Chart:
    """The methods of a panel by a metric of `Curves`, and next to errors what doing nothing gives."""
    methods = {method.row.label: method for method in panel.methods if method.curves}
    seeds = {label: [one.lines[metric][channel] for one in method.curves] for label, method in methods.items()}
    lost = {label: method.diverged for label, method in methods.items()}
    title = f"{panel.title}: {channel}" if channel else panel.title
    if metric == "correlation":
        chart = error_chart(title, seeds, lost, panel.scoring)
        return replace(chart, unit=metric, log=False, threshold=None)
    paper = {label: method.published for label, method in methods.items() if metric == "mean"}
    return error_chart(title, seeds, lost, panel.scoring, panel.baselines(channel), paper)


def write_figures(inputs: ReportInputs, folder: Path) -> list[str]:
    """PDF and PNG of the error curves of each panel, and of all figures of each method's first seed; their names."""
    written: list[str] = []
    panels = list(panels_of(inputs))
    for panel in panels:
        for name, figure in panel_figures(panel):
            save_png_and_pdf(figure, folder, name, PAPER_DPI)
            written.append(name)
    for run in {method.runs[0].name: method.runs[0] for panel in panels for method in panel.methods}.values():
        for name, figure in run_figures(run):
            save_png_and_pdf(figure, folder, f"{run.name}_{name}", PAPER_DPI)
            written.append(f"{run.name}_{name}")
    return written


def result_figure(title: str, errors: Errors, rollout: Rollout | None, source: Source, scoring: Scoring) -> Figure:
    """One run for a notebook: its errors, and the last scored state of the stored rollout if there is one on a grid."""
    has_state, step = rollout is not None and not source.cloud, scoring.steps
    height = 4.2 if source.channels == 1 or not has_state else 0.6 + 2.4 * source.channels
    figure = new_figure(12.5 if has_state else 6.5, height)
    left, *right = figure.subfigures(1, 1 + has_state, squeeze=False, width_ratios=(1, 1.3)[: 1 + has_state])[0]
    axes = left.subplots()
    lines = {f"mean of {len(errors.score)} trajectories": errors.score[:, None]}
    draw_errors(axes, methods_chart(title, lines, scoring, baseline_means(errors)))
    if rollout is not None and right:
        found = [errors.of_channel(c)[rollout.trajectory, step - 1] for c in range(source.channels)]
        states = {"prediction": rollout.prediction[step - 1]}
        draw_states(right[0], rollout.truth[step - 1], states, {"prediction": found}, source, scoring)
        right[0].suptitle(f"step {step} of test trajectory {rollout.trajectory}, the median", fontsize=10)
    return figure
