"""The figures of runs, panels and studies, from their results, run folders and test data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from hero.data import Source
from hero.method.metrics import Scoring
from hero.report.content import write_tables
from hero.report.figures.charts import Chart, curves_figure, draw_errors, error_chart
from hero.report.figures.fields import draw_states, fields_figure, spectrum_figure
from hero.report.figures.style import PAPER_DPI, new_figure, safe_name, save_png_and_pdf
from hero.report.figures.training import training_figure
from hero.report.inputs import ANALYSES, STUDY_FIGURES, Curves, ReportedRun, ReportInputs, tried
from hero.report.panels import Panel, panels_of, results_of
from hero.runs.folder import Run
from hero.runs.records import Errors, Rollout
from hero.study.records import Group, StudyResult

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
    if run.before and (changed := tried(lambda: finetune_figure(run.run), [])):
        yield "finetune", changed
    for name, found in run.analyses.items():
        yield name, ANALYSES[name].figure(found, run.config)


def finetune_figure(run: Run) -> Figure:
    """The errors of a fine-tuned run next to the checkpoint that it started from, over the same trajectories."""
    curves = {"before": [Curves.of(run.before_errors)], "after": [Curves.of(run.errors)]}
    return curves_figure(error_chart(f"{run.config.source.title}: before and after fine-tuning", curves))


def result_figure(chart: Chart, runs: Mapping[str, tuple[Rollout, Errors]], source: Source, scoring: Scoring) -> Figure:
    """Error curves, and next to them the last scored state of a trajectory on a grid: the truth and each prediction."""
    has_state, step = bool(runs) and not source.cloud, scoring.steps
    height = 4.2 if source.channels == 1 or not has_state else 0.6 + 2.4 * source.channels
    figure = new_figure(12.5 if has_state else 6.5, height)
    left, *right = figure.subfigures(1, 1 + has_state, squeeze=False, width_ratios=(1, 1.3)[: 1 + has_state])[0]
    draw_errors(left.subplots(), chart)
    for panel in right:
        first, _ = next(iter(runs.values()))
        states = {label: rollout.prediction[step - 1] for label, (rollout, _) in runs.items()}
        numbers = {
            label: [errors.of_channel(c)[rollout.trajectory, step - 1] for c in range(source.channels)]
            for label, (rollout, errors) in runs.items()
        }
        draw_states(panel, first.truth[step - 1], states, numbers, source, scoring)
        panel.suptitle(f"step {step} of test trajectory {first.trajectory}", fontsize=10)
    return figure


def errors_chart(title: str, errors: Errors) -> Chart:
    return error_chart(title, {f"mean of {len(errors.score)} trajectories": [Curves.of(errors)]})


def write_study(out: Path, result: StudyResult, runs_dir: Path) -> list[Path]:
    """Write the tables and figures of a study into `out`; returns the figures."""
    write_tables(out, result)
    written, draw = [], STUDY_FIGURES.get(result.figures, lambda *_: ())
    for group in result.groups:
        subject = "-".join(filter(None, (group.task, group.backbone.rpartition(":")[2], group.loss, group.shift)))
        for name, figure in draw(result, group, subject, runs_dir):
            save_png_and_pdf(figure, out, name)
            written.append(out / f"{name}.png")
    return written


def curves(result: StudyResult, group: Group, name: str, runs_dir: Path) -> Iterator[Named]:
    """The error curves of a group."""
    if found := group_curves(group, runs_dir):
        yield f"curves-{name}", curves_figure(error_chart(group.title, found))


def rollouts(result: StudyResult, group: Group, name: str, runs_dir: Path) -> Iterator[Named]:
    """The error curves of a group, and next to them the first test trajectory by the first seed of each row."""
    runs = {row.label: Run(runs_dir / row.finished[0].run) for row in group.rows if row.finished}
    if runs:
        config = next(iter(runs.values())).config
        drawn = {label: (found, run.errors) for label, run in runs.items() if (found := run.first_rollout)}
        chart = error_chart(group.title, group_curves(group, runs_dir))
        yield f"rollout-{name}", result_figure(chart, drawn, config.source, config.scoring)


def group_curves(group: Group, runs_dir: Path) -> dict[str, list[Curves]]:
    found = {row.label: [Curves.of(Run(runs_dir / run.run).errors) for run in row.finished] for row in group.rows}
    return {label: some for label, some in found.items() if some}
