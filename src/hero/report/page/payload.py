"""The content of the page: sentences, tables, and plain data of curves, players and images. `page.py` lays it out."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hero.errors import HeroError
from hero.method.metrics import TAU, diverged
from hero.report.content import group_table, metrics_table, probe_table, runs_table, statistics_tables, study_tables
from hero.report.figures.analysis import landscape_sentence
from hero.report.figures.style import series as log_series
from hero.report.headline import lead, page_title
from hero.report.notes import PAPER_NOTE, statistics_notes, study_notes
from hero.report.page.panels import Panel, Series, group_of, own_panels, panels_of
from hero.report.page.player import colour_tables, finite_or_none, player
from hero.report.page.sources import Document, Sources, StoredRun
from hero.report.tables import MISSING, Table, format_number
from hero.runs.rollouts import read_rollout
from hero.study.records import ROLLOUT_COLUMNS

PLAYER_BYTES, LEAST_PLAYER_BYTES, ALL_PLAYERS_BYTES = 1_000_000, 250_000, 25_000_000
TRAINING_RUNS = 100
"""With more runs than this, the course of training is shown of the first seed of each method only."""
FOLDED_RUNS = 10
"""Of more runs than this the table is opened on demand: the methods above it sum them up."""
LOG_POINTS = 400
IMAGE_BYTES = 10_000_000

CURVE_METRICS = [
    {"key": "nrmse", "label": "nRMSE, mean over trajectories"},
    {"key": "median", "label": "nRMSE, median over trajectories"},
    {"key": "correlation", "label": "correlation, mean over trajectories"},
]
TRAINING_CHARTS = (
    ("Training loss", "log", (("loss", "loss"),)),
    ("Validation GM100", "log", (("val_gm100", "GM100"),)),
    ("Learning rate", "linear", (("lr", "learning rate"),)),
    ("HERO’s weights", "linear", (("alpha", "gate α"), ("lambda", "weight λ"))),
    (
        "Selected reference, share",
        "linear",
        (("lag", "lagged operator"), ("perturbed", "perturbed"), ("self", "itself")),
    ),
    ("Margin d_fail − d_cur", "linear", (("margin", "margin"),)),
)

CAPTIONS = {
    "landscape": "Mean test error of checkpoints kept during training, divided by that of the final model (the weights "
    "with the best validation score) at the same rollout step, as a logarithm. Red: worse than the final model; blue: "
    "better; the bottom row is zero by definition.",
    "probe": "One point per validation window: its activation α, the weight that history gives it, against its "
    "usefulness a, the inner product of its gradient with the gradient of the long-horizon risk. History helps to "
    "first order where the points rise to the right. In brackets a 95 % interval of the correlation.",
}

Data = dict[str, Any]


def payload(sources: Sources) -> Data:
    """Everything on the page, in the order of the page."""
    panels = panels_of(sources)
    players, left_out = _players(panels)
    training, not_shown = _training(panels)
    return {
        "title": page_title(sources, panels),
        "lead": lead(sources),
        "notices": [*sources.notices, *left_out, *not_shown],
        "tables": result_tables(sources),
        "curves": {"tau": TAU, "metrics": CURVE_METRICS, "panels": [_curves(panel) for panel in panels]},
        "players": {"colours": colour_tables() if players else {}, "runs": players},
        "training": training,
        "analyses": [part for run in sources.runs for part in _analyses(run)],
        "studies": [found for study in sources.studies if (found := _study(study))],
        "runs": [_provenance(run) for run in sources.runs],
    }


def result_tables(sources: Sources) -> list[Table]:
    """One run next to the paper; or the groups of studies and runs, and then every run."""
    if len(sources.runs) == 1 and not sources.studies:
        return [metrics_table(sources.runs[0].metrics)]
    tables: list[Table] = []
    for study in sources.studies:
        *others, last = study_tables(study.result)
        tables += [*others, replace(last, notes=study_notes(study.result))]
    own = [group_table([group_of(panel)], ROLLOUT_COLUMNS) for panel in own_panels(sources)]
    if own:
        note = "Mean ± standard deviation over seeds; bold is the best of its column. " + PAPER_NOTE
        tables += [*own[:-1], replace(own[-1], notes=[note])]
    if sources.runs:
        runs = runs_table([run.metrics for run in sources.runs], "Runs")
        tables.append(replace(runs, folded=len(sources.runs) > FOLDED_RUNS))
    return tables


def _curves(panel: Panel) -> Data:
    shown = [series for series in panel.series if series.stacked("nrmse")]
    return {"title": panel.title, "series": [_series_curves(series) for series in shown]}


def _series_curves(series: Series) -> Data:
    errors = [np.where(np.isnan(e), np.inf, e) for e in series.stacked("nrmse")]
    per_seed = {
        "nrmse": [e.mean(axis=0) for e in errors],
        # A rank without interpolation: between a finite and an infinite value there is nothing to interpolate.
        "median": [np.quantile(e, 0.5, axis=0, method="inverted_cdf") for e in errors],
        "correlation": [c.mean(axis=0) for c in series.stacked("correlation")],
    }
    return {
        "label": series.label,
        "seeds": len(errors),
        "diverged": sum(map(diverged, errors)),
        "rollouts": sum(map(len, errors)),
        "paper": [[t, series.paper[f"nrmse@{t}"].mean] for t in (1, 100) if f"nrmse@{t}" in series.paper],
        **{key: _band(curves) for key, curves in per_seed.items()},
    }


def _band(curves: Sequence[np.ndarray]) -> Data:
    """Mean, least and largest over seeds at each step; None stands for infinity."""
    length = min(map(len, curves))
    stacked = np.stack([curve[:length] for curve in curves])
    rows = {"mean": stacked.mean(axis=0)}
    if len(curves) > 1:
        rows |= {"low": stacked.min(axis=0), "high": stacked.max(axis=0)}
    return {name: [finite_or_none(x) for x in row] for name, row in rows.items()}


def _players(panels: Sequence[Panel]) -> tuple[list[Data], list[str]]:
    """One player per method of a panel, of its first seed, while there is room; and what was left out."""
    chosen = {series.runs[0].name: (panel, series, series.runs[0]) for panel in panels for series in panel.series}
    allowed = min(PLAYER_BYTES, max(LEAST_PLAYER_BYTES, ALL_PLAYERS_BYTES // max(1, len(chosen))))
    found: list[Data] = []
    notices: list[str] = []
    crowded: list[str] = []
    room = ALL_PLAYERS_BYTES
    for panel, series, run in chosen.values():
        if room < allowed:
            crowded.append(run.name)
            continue
        try:
            rollout = read_rollout(run.folder)
        except HeroError as error:
            notices.append(str(error))
            continue
        if rollout is None:
            notices.append(f"run {run.name} has no rollout.npz; `hero evaluate {run.name}` draws its rollout.")
            continue
        task = run.config.make_task()
        data = player(rollout, run.errors_of(rollout), task.dims, allowed)
        room -= sum(map(len, (*data["fields"], *data["spectra"])))
        label = f"{panel.title}: {series.label}, seed {run.config.seed}"
        found.append({"run": run.name, "label": label, "extent": task.extent, "dt": task.dt, **data})
    if crowded:
        size = ALL_PLAYERS_BYTES // 1_000_000
        notices.append(
            f"The page holds {size} MB of rollouts at most; left out: {', '.join(crowded)}. "
            "Name fewer runs to see these."
        )
    return found, notices


def _training(panels: Sequence[Panel]) -> tuple[list[Data], list[str]]:
    """The course of training of every run, or of one run per method if there are very many; and what was left out."""
    runs = {run.name: (panel, series, run) for panel in panels for series in panel.series for run in series.runs}
    notices = []
    if len(runs) > TRAINING_RUNS:
        notices.append(f"Training is shown of the first seed of each method only, as there are {len(runs)} runs.")
        runs = {series.runs[0].name: (panel, series, series.runs[0]) for panel in panels for series in panel.series}
    found = []
    for panel, series, run in runs.values():
        charts = [chart for chart in (_chart(run, *spec) for spec in TRAINING_CHARTS) if chart["series"]]
        if charts:
            label = f"{panel.title}: {series.label}, seed {run.config.seed}"
            found.append({"run": run.name, "label": label, "charts": charts})
    return found, notices


def _chart(run: StoredRun, title: str, scale: str, keys: Sequence[tuple[str, str]]) -> Data:
    lines = []
    for key, label in keys:
        steps, values = log_series(run.log, key)
        if len(steps):
            kept = np.unique(np.linspace(0, len(steps) - 1, min(LOG_POINTS, len(steps))).round().astype(int))
            line = {"label": label, "x": steps[kept].tolist(), "y": [finite_or_none(y) for y in values[kept]]}
            _, deviation = log_series(run.log, f"{key}_std")
            if len(deviation) == len(values):
                line |= {"low": [finite_or_none(y) for y in (values - deviation)[kept]]}
                line |= {"high": [finite_or_none(y) for y in (values + deviation)[kept]]}
            lines.append(line)
    return {"title": title, "scale": scale, "series": lines}


def _analyses(run: StoredRun) -> list[Data]:
    """What `hero probe` and `hero landscape` found."""
    found: list[Data] = []
    for kind, title, content in (
        ("probe", "The theory, measured", run.probe),
        ("landscape", "Checkpoint landscape", run.landscape),
    ):
        if content:
            try:
                if kind == "probe":
                    points = content["checkpoints"]
                    sentences, table = [str(point["conclusion"]) for point in points], probe_table(points)
                else:
                    sentences, table = [landscape_sentence(content)], None
            except (LookupError, TypeError, ValueError):
                sentences, table = [f"{kind}.json is damaged; `hero {kind} {run.name}` writes it anew."], None
            drawn = image(run.folder / "figures" / f"{kind}.png")
            if drawn is None:
                sentences.append(f"`hero {kind} {run.name}` draws its figure.")
            part: Data = {"run": run.name, "title": title, "caption": CAPTIONS[kind], "sentences": sentences}
            part["table"] = table and replace(table, title="All numbers of the probe", folded=True)
            found.append({**part, "image": drawn})
    return found


def image(path: Path) -> str | None:
    """A PNG as a data URI."""
    try:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _study(study: Document) -> Data | None:
    """Figures and statistics of a study; None if it has neither."""
    figures, room = [], IMAGE_BYTES
    for path in sorted(study.folder.glob("*.png")):
        drawn_here = path.stem.startswith("curves")  # the page has the same curves to read off
        found = None if drawn_here else image(path)
        if found and len(found) <= room:
            room -= len(found)
            figures.append({"name": path.stem.replace("_", " "), "image": found})
    tables = []
    for summary in study.result.statistics:
        *others, last = statistics_tables(summary) or [Table("", [], [])]
        tables += [*others, replace(last, notes=statistics_notes(summary, study.result.groups))]
    return {"title": study.result.title, "figures": figures, "tables": tables} if figures or tables else None


def _provenance(run: StoredRun) -> Data:
    metrics = run.metrics
    facts: Data = {
        "run": run.name,
        "hash of the configuration": run.name.rpartition("-")[2],
        **{key: metrics.get(key) for key in ("task", "backbone", "strategy", "seed", "parameters")},
        "best checkpoint at step": metrics.get("best_step"),
        "validations": len(log_series(run.log, "val_gm100")[0]),
        "trajectories": metrics.get("trajectories"),
    }
    facts |= {key.replace("_", " "): value for key, value in metrics["training"].items()}
    facts |= {f"version of {name}": value for name, value in (metrics.get("versions") or {}).items()}
    config = (run.folder / "config.toml").read_text(encoding="utf-8")
    return {"run": run.name, "facts": {name: _fact(value) for name, value in facts.items()}, "config": config}


def _fact(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_number(value) if isinstance(value, float) else str(value)
