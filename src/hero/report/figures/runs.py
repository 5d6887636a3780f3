"""All figures of a report as files: of one run, and of all runs of a panel together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hero.report.content import published_numbers
from hero.report.figures.analysis import landscape_figure, probe_figure
from hero.report.figures.anatomy import anatomy_figure
from hero.report.figures.curves import curves_figure
from hero.report.figures.fields import fields_figure, spectrum_figure
from hero.report.figures.finetune import finetune_figure
from hero.report.figures.spectra import spectra_charts, spectra_figure
from hero.report.figures.style import PAPER_DPI, save_png_and_pdf
from hero.report.figures.training import training_figure
from hero.report.inputs import ReportedRun, ReportInputs
from hero.report.panels import panels_of
from hero.study.records import Published


def run_figures(run: ReportedRun) -> Iterator[tuple[str, Figure]]:
    """The figures of a run, one at a time; a file that cannot be read leaves its figure out."""
    source, (rollout, errors) = run.config.make_source(), run.rollout([])
    if run.errors is not None:
        yield "error", error_figure(run.errors.score, published_numbers(run.config), source.title)
    if rollout is not None and errors is not None:
        yield "fields", fields_figure(rollout, errors.tolist(), source, run.metrics.scoring)
        yield "spectrum", spectrum_figure(rollout)
    yield "training", training_figure(run.log)
    if charts := spectra_charts(run.log, run.weighs_error):
        yield "weights", spectra_figure(charts)
    if run.before_errors and run.errors:
        yield "finetune", finetune_figure(run.before_errors, run.errors, source.title)
    if run.landscape:
        yield "landscape", landscape_figure(run.landscape, source.title)
    if run.probe:
        yield "probe", probe_figure(run.probe.checkpoints)
    if run.anatomy:
        yield "anatomy", anatomy_figure(run.anatomy, source.title)


def error_figure(errors: np.ndarray, paper: Mapping[str, Published], title: str) -> Figure:
    """Relative error (trajectory, step) of one run: each trajectory, and their mean next to the paper's."""
    label = f"mean of {len(errors)} trajectories"
    numbers = {t: paper[f"nrmse@{t}"] for t in (1, 100) if f"nrmse@{t}" in paper and t <= errors.shape[1]}
    return curves_figure(f"{title}: error along the rollout", {label: errors[:, None]}, paper={label: numbers})


def write_figures(inputs: ReportInputs, folder: Path) -> list[str]:
    """PDF and PNG of the error curves of each panel, and of all figures of each method's first seed; their names."""
    written: list[str] = []
    panels = list(panels_of(inputs))
    for panel in panels:
        errors = {series.row.label: np.stack(found) for series in panel.series if (found := series.stacked("score"))}
        if errors:
            name = re.sub(r"[^\w.-]+", "_", f"curves_{panel.title}").strip("_").lower()
            save_png_and_pdf(curves_figure(panel.title, errors), folder, name, PAPER_DPI)
            written.append(name)
    for run in {series.runs[0].name: series.runs[0] for panel in panels for series in panel.series}.values():
        for name, figure in run_figures(run):
            save_png_and_pdf(figure, folder, f"{run.name}_{name}", PAPER_DPI)
            written.append(f"{run.name}_{name}")
    return written
