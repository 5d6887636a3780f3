"""Figures for papers: of one run, and of all runs of a panel together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hero.errors import HeroError
from hero.method.metrics import TAU, diverged
from hero.report.figures.analysis import landscape_figure, probe_figure
from hero.report.figures.curves import COLOURS, error_curves, save_png_and_pdf
from hero.report.figures.fields import fields_figure, spectrum_figure
from hero.report.figures.history import history_figure
from hero.report.figures.style import GREEN, error_figure, new_figure, training_figure
from hero.report.page.panels import Panel, panels_of, task_title
from hero.report.page.sources import Sources, StoredRun
from hero.runs.rollouts import read_rollout
from hero.study.published import paper_value

PAPER_DPI = 300


def run_figures(run: StoredRun) -> Iterator[tuple[str, Figure]]:
    """The figures of a run, one at a time; a file that cannot be read leaves its out."""
    metrics, task = run.metrics, run.config.make_task()
    if run.errors:
        paper = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"])
        yield "error", error_figure(run.errors["nrmse"], paper, f"{task.title}: error along the rollout")
    try:
        rollout = read_rollout(run.folder)
    except HeroError:
        rollout = None
    errors = None if rollout is None else run.errors_of(rollout)
    if rollout is not None and errors is not None:
        yield "fields", fields_figure(rollout, errors.tolist(), task)
        yield "spectrum", spectrum_figure(rollout)
    yield "training", training_figure(run.log)
    history = history_figure(run.log)
    if history is not None:
        yield "history", history


def analysis_figures(run: StoredRun) -> Iterator[tuple[str, Figure]]:
    """The figures of `hero landscape` and `hero probe`, if they were called."""
    if run.landscape:
        found = run.landscape
        title = f"{task_title(run)}: error of kept checkpoints over that of the final model"
        yield "landscape", landscape_figure(found["steps"], np.array(found["log10_ratio"]), found["final_step"], title)
    if run.probe:
        yield "probe", probe_figure(run.probe["checkpoints"])


def write_figures(sources: Sources, folder: Path) -> list[str]:
    """PDF and PNG of the error curves of each panel, and of all figures of each method's first seed; their names."""
    written: list[str] = []
    panels = panels_of(sources)
    for panel in panels:
        figure = curves_figure(panel)
        if figure is not None:
            save_png_and_pdf(figure, folder, name := file_name(f"curves_{panel.title}"), PAPER_DPI)
            written.append(name)
    chosen = {series.runs[0].name: series.runs[0] for panel in panels for series in panel.series}
    for run in chosen.values():
        for figures in (run_figures(run), analysis_figures(run)):
            for name, figure in figures:
                save_png_and_pdf(figure, folder, f"{run.name}_{name}", PAPER_DPI)
                written.append(f"{run.name}_{name}")
    return written


def curves_figure(panel: Panel) -> Figure | None:
    """Error curves of all methods of a panel: means over trajectories and seeds, with all seeds as a band."""
    errors = {series.label: np.stack(found) for series in panel.series if (found := series.stacked("nrmse"))}
    if not errors:
        return None
    lost = {label: sum(map(diverged, seeds)) for label, seeds in errors.items()}
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    error_curves(axes, errors, lost, {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(errors)})
    axes.axhline(TAU, color=GREEN, linewidth=1.0, linestyle=":", label=f"τ = {TAU}")
    figure.suptitle(panel.title, fontsize=11)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def file_name(title: str) -> str:
    """A title as the name of a file."""
    return re.sub(r"[^\w.-]+", "_", title).strip("_").lower()
