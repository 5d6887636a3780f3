"""The content of the page: sentences, tables, and plain data of curves, players and images. `page.py` lays it out."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hero.report.content import metrics_tables, statistics_tables, study_tables
from hero.report.figures.charts import Curve, Data
from hero.report.figures.runs import panel_chart
from hero.report.figures.training import spectra_charts, training_charts
from hero.report.inputs import ReportedRun, ReportInputs
from hero.report.listing import ListedRun, runs_table
from hero.report.page.player import colour_tables, player, size_of
from hero.report.panels import Panel, panels_of, results_of
from hero.report.registries import ANALYSES
from hero.report.sentences import lead, statistics_notes, study_notes, warnings
from hero.report.tables import Table
from hero.study.records import StudyResult

PLAYER_BYTES, LEAST_PLAYER_BYTES, ALL_PLAYERS_BYTES = 1_000_000, 250_000, 25_000_000
FULL_CHANNELS = 4
"""A rollout takes so many times the bytes of a channel at most; more channels share them."""
TRAINING_RUNS = 100
"""With more runs than this, the course of training is shown of the first seed of each method only."""
FOLDED_RUNS = 10
"""Above this number of runs their table is folded: the methods above it sum them up."""
LOG_POINTS = 400
IMAGE_BYTES = 10_000_000

CURVE_METRICS = {
    "mean": "error, mean over trajectories",
    "median": "error, median over trajectories",
    "correlation": "correlation, mean over trajectories",
}


def payload(inputs: ReportInputs) -> Data:
    """Everything on the page, in the order of the page."""
    panels = list(panels_of(inputs))
    players, truths, left_out = _players(panels)
    training, not_shown = _training(panels, inputs.named)
    return {
        "title": _title(inputs),
        "lead": lead(inputs),
        "warnings": warnings(inputs),
        "notices": [*inputs.notices, *left_out, *not_shown],
        "tables": result_tables(inputs),
        "curves": _curves([panel for panel in panels if panel.curves]),
        "players": {"colours": colour_tables() if players else {}, "runs": players, "truths": truths},
        "training": training,
        "analyses": [analysis for run in inputs.runs.values() for analysis in _analyses(run)],
        "finetuned": [run for run in inputs.runs.values() if run.before],
        "studies": [
            (result.title, _statistics(result), _images(folder))
            for folder, result in zip(inputs.studies, results_of(inputs), strict=False)
            if result.statistics or _images(folder)
        ],
        "runs": list(inputs.runs.values()),
    }


def _analyses(run: ReportedRun) -> Iterator[Data]:
    """The analyses of a run: heading, sentences, figure and table."""
    for name, found in run.analyses.items():
        shown = ANALYSES[name]
        table = shown.table(found) if shown.table else None
        yield {
            "run": run,
            "name": name,
            "title": f"{shown.title}: {run.name}",
            "sentences": shown.sentences(found),
            "caption": shown.caption,
            "tables": [table if table.folded else replace(table, title="")] if table else [],
        }


def _title(inputs: ReportInputs) -> str:
    """The titles of the studies, and how many runs were named by themselves if they are not of one study."""
    results = results_of(inputs)
    studies, own = results[: len(inputs.studies)], results[len(inputs.studies) :]
    single = [result.title for result in own] if len(own) < 2 else [f"{sum(len(one.runs) for one in own)} runs"]
    return "; ".join([*(result.title for result in studies), *single])


def result_tables(inputs: ReportInputs) -> list[Table]:
    """One run next to the paper; or the groups of studies and runs, and then every run."""
    if inputs.single:
        tables = metrics_tables(inputs.single.metrics, inputs.single.config)
        return [replace(one, warnings=()) for one in tables]  # the page begins with them
    tables = []
    for result in results_of(inputs):
        *others, last = study_tables(result)
        tables += [*others, replace(last, notes=study_notes(result))]
    runs = runs_table([ListedRun(name, run.metrics, label=run.label) for name, run in inputs.runs.items()], "Runs")
    return [*tables, *([replace(runs, folded=len(inputs.runs) > FOLDED_RUNS)] if inputs.runs else [])]


def _curves(panels: Sequence[Panel]) -> Data:
    """The error curves of the panels: a chart for each metric, and channel where they are measured one by one.

    A method has one style in all panels. `marks` says what of the legend on the page is needed.
    """
    found, curves = [], list[Curve]()
    places: dict[str, int] = {}
    for panel in panels:
        channels = ["", *panel.channels]
        charts = {metric: [panel_chart(panel, metric, name) for name in (channels if metric != "correlation" else [""])]
                  for metric in CURVE_METRICS}  # fmt: skip
        own = charts["mean"][0].curves
        styles = [places.setdefault(curve.label, len(places)) for curve in own if not curve.idle]
        data = {metric: [chart.data() for chart in some] for metric, some in charts.items()}
        found.append({"title": panel.title, "channels": channels, "styles": [[i, i] for i in styles], "charts": data})
        curves += own
    marks = {
        "threshold": any(panel.scoring.measure == "nrmse" for panel in panels),
        "baselines": any(curve.idle for curve in curves),
        "paper": any(curve.points for curve in curves),
    }
    metrics = [{"key": key, "label": label} for key, label in CURVE_METRICS.items()]
    return {"metrics": metrics, "panels": found, "marks": marks}


def _labelled(panels: Sequence[Panel], all_seeds: bool) -> list[tuple[str, str, ReportedRun]]:
    """Every run once, or the first seed of every method, under a label such as "Burgers, FNO: HERO, seed 0".

    The title of a single panel is left out. In between stands the short name, such as "HERO", for where the panel is
    known.
    """
    before = {panel.title: f"{panel.title}: " if len(panels) > 1 else "" for panel in panels}
    found = {
        run.name: (f"{before[panel.title]}{method.row.label}, seed {run.config.seed}", method.row.label, run)
        for panel in panels
        for method in panel.methods
        for run in method.runs[: None if all_seeds else 1]
    }
    return list(found.values())


def _players(panels: Sequence[Panel]) -> tuple[list[Data], Data, list[str]]:
    """One player per method of a panel, of its first seed, while there is room; the truths; and what was left out.

    Runs on the same data show the same trajectory, the first, and so share a truth: two of them can stand side by side.
    """
    chosen = _labelled(panels, all_seeds=False)
    allowed = min(PLAYER_BYTES, max(LEAST_PLAYER_BYTES, ALL_PLAYERS_BYTES // max(1, len(chosen))))
    methods = Counter(_data_of(run) for *_, run in chosen)
    found: list[Data] = []
    truths: Data = {}
    notices: list[str] = []
    crowded: list[str] = []
    room = ALL_PLAYERS_BYTES
    for label, name, run in chosen:
        if room < allowed:
            crowded.append(run.name)
            continue
        shared = methods[_data_of(run)] > 1
        rollout, errors = run.rollout(notices, first=shared)
        if rollout is None:
            continue
        source = run.config.source
        first = shared and rollout.trajectory == 0
        size = min(room, allowed * min(source.channels, FULL_CHANNELS))
        data = player(rollout, errors, source, size, run.metrics.scoring, first)
        if shared and not first:
            data["notes"].append(
                f"`hero evaluate {run.name}` also stores the first one, to be seen next to other runs."
            )
        truth = data["truth"]
        known = next((key for key, stored in truths.items() if stored == truth), None)
        if known is None:
            known = f"truth {len(truths)}"
            truths[known] = truth
            room -= size_of(truth)
        room -= size_of(data["channels"])
        found.append({"run": run.name, "label": label, "name": name, **data, "truth": known})
    if crowded:
        size = ALL_PLAYERS_BYTES // 1_000_000
        notices.append(
            f"The page holds {size} MB of rollouts at most; left out: {', '.join(crowded)}. "
            "Name fewer runs to see these."
        )
    return found, truths, notices


def _data_of(run: ReportedRun) -> str:
    """The task or file of a run, with its settings."""
    return repr((run.config.task.name, run.config.task.settings, run.config.data.model_dump()))


def _training(panels: Sequence[Panel], named: Sequence[str]) -> tuple[list[Data], list[str]]:
    """The course of training of every run, or of one run per method if there are very many; and what was left out.

    Runs that were named by themselves, not through a study, also have the charts by wavenumber.
    """
    runs, notices = _labelled(panels, all_seeds=True), []
    if len(runs) > TRAINING_RUNS:
        notices.append(f"Training is shown of the first seed of each method only, as there are {len(runs)} runs.")
        runs = _labelled(panels, all_seeds=False)
    found = []
    for label, _, run in runs:
        log = run.log
        if charts := [chart.data(LOG_POINTS) for chart in training_charts(log)]:
            names = run.config.source.channel_names
            spectra = spectra_charts(log, run.weighs_error, names) if run.name in named else []
            found.append({"label": label, "charts": charts, "spectra": [chart.data() for chart in spectra]})
    return found, notices


def image(path: Path) -> str | None:
    """A PNG as a data URI."""
    try:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _images(folder: Path) -> dict[str, str]:
    """The figures in the folder of a study by name, except its curves, which the page draws itself to read off."""
    found, room = {}, IMAGE_BYTES
    for path in sorted(folder.glob("*.png")):
        source = None if path.stem.startswith("curves") else image(path)
        if source and len(source) <= room:
            room -= len(source)
            found[path.stem.replace("_", " ")] = source
    return found


def _statistics(result: StudyResult) -> list[Table]:
    """The tables of the statistics, with their notes below the last of each loss."""
    tables = []
    for summary in result.statistics:
        *others, last = statistics_tables(summary) or [Table("", [], [])]
        tables += [*others, replace(last, notes=statistics_notes(summary, result.groups))]
    return tables
