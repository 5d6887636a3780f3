"""What the page shows, as plain data: sentences, tables, curves, players and images. `page.py` only lays it out."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hero.errors import HeroError
from hero.method.metrics import TAU, diverged
from hero.report.figures.analysis import landscape_sentence, probe_lines
from hero.report.figures.style import series as log_series
from hero.report.page.panels import Panel, Series, panels_of
from hero.report.page.player import colour_tables, finite_or_none, player
from hero.report.page.sources import Sources, StoredRun
from hero.report.sentences import lead, page_title
from hero.report.sheets import result_tables, statistics_tables, text_cell
from hero.report.tables import MISSING, format_number
from hero.runs.rollouts import read_rollout

PLAYER_BYTES, LEAST_PLAYER_BYTES, ALL_PLAYERS_BYTES = 1_000_000, 250_000, 25_000_000
TRAINING_RUNS = 100
"""With more runs than this, the course of training is shown of the first seed of each method only."""
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
        "studies": [_study(study.content, study.folder) for study in sources.studies],
        "runs": [_provenance(run) for run in sources.runs],
    }


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
    paper = series.paper or {}
    return {
        "label": series.label,
        "seeds": len(errors),
        "diverged": sum(map(diverged, errors)),
        "rollouts": sum(map(len, errors)),
        "paper": [[t, paper[f"nrmse@{t}"]["mean"]] for t in (1, 100) if f"nrmse@{t}" in paper],
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
                sentences, table = _probed(content) if kind == "probe" else ([landscape_sentence(content)], None)
            except (LookupError, TypeError, ValueError):
                sentences, table = [f"{kind}.json is damaged; `hero {kind} {run.name}` writes it anew."], None
            drawn = image(run.folder / "figures" / f"{kind}.png")
            if drawn is None:
                sentences.append(f"`hero {kind} {run.name}` draws its figure.")
            part = {"run": run.name, "kind": kind, "title": title, "sentences": sentences, "table": table}
            found.append({**part, "image": drawn})
    return found


def _probed(content: Mapping[str, Any]) -> tuple[list[str], Data]:
    points = content["checkpoints"]
    rows = [[text_cell(label), *(text_cell(show(point)) for point in points)] for label, show in probe_lines()]
    columns = [{"label": "Quantity"}, *({"label": f"step {point['step']}"} for point in points)]
    table = {"title": "", "columns": columns, "rows": rows, "notes": [], "sortable": False}
    return [str(point["conclusion"]) for point in points], table


def image(path: Path) -> str | None:
    """A PNG as a data URI."""
    try:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _study(content: Mapping[str, Any], folder: Path) -> Data:
    """Figures and statistics of a study."""
    figures, room = [], IMAGE_BYTES
    for name in content.get("figures") or ():
        path = folder / Path(str(name)).name
        drawn_here = path.stem.startswith("curves-")  # the page has the same curves to read off
        found = image(path) if path.suffix == ".png" and not drawn_here else None
        if found and len(found) <= room:
            room -= len(found)
            figures.append({"name": path.stem.replace("_", " "), "image": found})
    return {"title": content["title"], "figures": figures, "tables": statistics_tables(content.get("statistics") or {})}


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
