"""One self-contained HTML page: style, script and data are inside it, and its policy forbids it to load anything.

Text and tables are plain HTML that a reader without JavaScript sees too; curves and players are drawn by `page.js` from
the data in a JSON block. Values from data are escaped by the templates, or set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hero.files import write_atomic
from hero.report.content import metrics_tables, paired_table, study_tables
from hero.report.figures.charts import Chart, Data
from hero.report.figures.runs import panel_chart
from hero.report.figures.training import training_charts
from hero.report.inputs import ANALYSES, ReportedRun, ReportInputs
from hero.report.listing import ListedRun, runs_table
from hero.report.page.player import colour_tables, player
from hero.report.panels import Panel, panels_of, results_of
from hero.report.sentences import lead, study_shortfalls
from hero.report.tables import Table, format_number, template
from hero.study.records import StudyResult

SCRIPTS = ("basics.js", "chart.js", "player.js", "page.js")  # in the order in which they need each other
PLAYER_BYTES, ALL_PLAYERS_BYTES = 1_000_000, 25_000_000  # the fields of a channel of one rollout, and of all rollouts
FULL_CHANNELS = 4  # a rollout takes so many times the bytes of a channel at most; more channels share them
FOLDED_RUNS = 10  # above this number of runs their table is folded: the methods above it sum them up
LOG_POINTS, ALL_LOG_POINTS = 400, 40_000
"""Points of a curve of one log, and of all logs: with very many runs each has fewer."""


def write_page(inputs: ReportInputs, path: Path) -> Path:
    return write_atomic(path, render(payload(inputs)).encode())


def write_run_page(run: Path) -> Path:
    """Write `report.html` of an evaluated run into its folder."""
    inputs = ReportInputs()
    inputs.add(run, named=True, finished=False)
    return write_page(inputs, run / "report.html")


def render(data: Mapping[str, Any]) -> str:
    """The page of a payload. Style, script and JSON are ours or safe as they are; all else is escaped."""
    style = _asset("page.css")
    script = '\n"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    style_hash, script_hash = (f"'sha256-{digest}'" for digest in hashes)
    # Nothing may be loaded, and no other style or script than ours may run, wherever it comes from.
    policy = f"default-src 'none'; img-src data:; style-src {style_hash}; script-src {script_hash}; "
    drawn = {key: data[key] for key in ("curves", "players", "training")}
    content = json.dumps(drawn, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<\u2028\u2029":  # JSON that cannot end the script element around it
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return template("page.html").render(
        data=data,
        policy=f"{policy}base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        json=Markup(content),
        analyses=ANALYSES,
        drawn=lambda run, kind: image(run.run.path / "figures" / f"{kind}.png"),
        shown=lambda value: format_number(value) if isinstance(value, float) else str(value),
    )


def _asset(name: str) -> str:
    return resources.files("hero.report.page").joinpath(name).read_text(encoding="utf-8")


def payload(inputs: ReportInputs) -> Data:
    """Everything on the page, in the order of the page."""
    results, notices = results_of(inputs), list(inputs.notices)
    panels = list(panels_of(inputs, results))
    players = _players(panels, notices)
    own = results[len(inputs.studies) :]  # runs that were named by themselves
    single = [result.title for result in own] if len(own) < 2 else [f"{sum(len(one.runs) for one in own)} runs"]
    return {
        "title": "; ".join([*(result.title for result in results[: len(inputs.studies)]), *single]),
        "lead": lead(inputs, results),
        "warnings": study_shortfalls(*results),
        "notices": notices,
        "tables": result_tables(inputs, results),
        "curves": _curves([panel for panel in panels if panel.curves]),
        "players": players,
        "training": _training(panels, inputs),
        "analyses": [run for run in inputs.runs.values() if run.analyses],
        "finetuned": [
            (run, [] if inputs.single else metrics_tables(run.metrics, run.config, run.before)[:1])
            for run in inputs.runs.values()
            if run.before
        ],
        "studies": [
            (result.title, [*map(paired_table, result.statistics)], images)
            for folder, result in zip(inputs.studies, results, strict=False)
            if (images := _images(folder)) or result.statistics
        ],
        "runs": list(inputs.runs.values()),
    }


def result_tables(inputs: ReportInputs, results: Sequence[StudyResult]) -> list[Table]:
    """One run next to the paper; or the groups of studies and runs, and then every run."""
    if inputs.single:
        tables = metrics_tables(inputs.single.metrics, inputs.single.config, inputs.single.before)
        return [replace(one, warnings=()) for one in tables]  # the page begins with them
    tables = []
    for result in results:
        tables += [replace(one, warnings=()) for one in study_tables(result)]
    runs = runs_table([ListedRun(name, run.metrics) for name, run in inputs.runs.items()], "Runs")
    return [*tables, *([replace(runs, folded=len(inputs.runs) > FOLDED_RUNS)] if inputs.runs else [])]


def _curves(panels: Sequence[Panel]) -> Data:
    """The error curves of the panels: a chart for all channels, and one for each that is measured by itself.

    A method has one style in all panels. `marks` says what of the legend on the page is needed.
    """
    found, first = [], list[Chart]()
    places: dict[str, int] = {}
    for panel in panels:
        channels = ["", *panel.channels]
        charts = [panel_chart(panel, name) for name in channels]
        first.append(charts[0])
        styles = [places.setdefault(curve.label, len(places)) for curve in charts[0].curves if not curve.idle]
        data = [chart.data() for chart in charts]
        found.append({"title": panel.title, "channels": channels, "styles": [[i, i] for i in styles], "charts": data})
    marks = {
        "threshold": any(chart.threshold for chart in first),
        "baselines": any(curve.idle for chart in first for curve in chart.curves),
        "paper": any(curve.points for chart in first for curve in chart.curves),
    }
    return {"panels": found, "marks": marks}


def _labelled(panels: Sequence[Panel]) -> dict[str, str]:
    """The label of every run, such as "Burgers, FNO: HERO, seed 0"; the title of a single panel is left out."""
    return {
        run.name: f"{panel.title}: " * (len(panels) > 1) + f"{method.row.label}, seed {run.config.seed}"
        for panel in panels
        for method in panel.methods
        for run in method.runs
    }


def _players(panels: Sequence[Panel], notices: list[str]) -> Data:
    """One player per method of a panel, of its first seed, and the truths; `notices` gets why there is none of a run.

    Runs on the same data show the same trajectory, the first, and so share a truth: two of them can stand side by side.
    """
    chosen = {method.runs[0].name: (method.row.label, method.runs[0]) for panel in panels for method in panel.methods}
    methods = Counter(_data_of(run) for _, run in chosen.values())
    labels = _labelled(panels)
    found: list[Data] = []
    truths: dict[str, Data] = {}
    for name, run in chosen.values():
        shared, source = methods[_data_of(run)] > 1, run.config.source
        rollout, errors = run.rollout(notices, first=shared)
        if rollout is None:
            continue
        first = shared and rollout.trajectory == 0
        size = min(PLAYER_BYTES * min(source.channels, FULL_CHANNELS), ALL_PLAYERS_BYTES // len(chosen))
        data = player(rollout, errors, source, size, run.metrics.scoring, first)
        if shared and not first:
            data["notes"].append(
                f"`hero evaluate {run.name}` also stores the first one, to be seen next to other runs."
            )
        truth = data["truth"]
        known = next((key for key, stored in truths.items() if stored == truth), f"truth {len(truths)}")
        truths[known] = truth
        found.append({"run": run.name, "label": labels[run.name], "name": name, **data, "truth": known})
    return {"colours": colour_tables() if found else {}, "runs": found, "truths": truths}


def _data_of(run: ReportedRun) -> str:
    return repr((run.config.task.name, run.config.task.settings, run.config.data.model_dump()))


def _training(panels: Sequence[Panel], inputs: ReportInputs) -> list[Data]:
    """The course of training of every run."""
    labels = _labelled(panels)
    most = min(LOG_POINTS, max(2, ALL_LOG_POINTS // max(1, len(labels))))
    found = []
    for name, label in labels.items():
        if charts := [chart.data(most) for chart in training_charts(inputs.runs[name].log)]:
            found.append({"label": label, "charts": charts})
    return found


def image(path: Path) -> str | None:
    try:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _images(folder: Path) -> dict[str, str]:
    """The figures in the folder of a study by name, except its curves, which the page draws itself to read off."""
    paths = [path for path in sorted(folder.glob("*.png")) if not path.stem.startswith("curves")]
    return {path.stem.replace("_", " "): source for path in paths if (source := image(path))}
