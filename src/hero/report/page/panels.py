"""Runs put in order: a panel is a task and a backbone (or a group of a study), a series in it the seeds of one method.

Runs are seeds of one series if their configurations differ in nothing but the seed. Where a method appears with several
configurations, the settings in which they differ are named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hero.method.metrics import METRICS, diverged
from hero.report.cells import cell, mark_best
from hero.report.page.sources import Document, Sources, StoredRun
from hero.report.tables import COMPARED, as_float
from hero.strategies import STRATEGIES
from hero.study.paired import mean_and_deviation
from hero.study.published import Published, paper_value

BACKBONES = {"fno": "FNO", "transolver": "Transolver"}
METHODS = {
    "one_step": "one-step",
    "push_forward": "push-forward",
    "refiner": "PDE-Refiner",
    "recurrent": "recurrent",
    "diverted_chain": "diverted chain",
    "history_replay": "history replay",
    "hero": "HERO",
    "fixed_weight": "fixed weight",
}
NAMED_SETTINGS = 3
"""So many differing settings are named in a label."""


@dataclass(frozen=True)
class Series:
    """The seeds of one method; `paper` is its published row, if it has one."""

    label: str
    strategy: str
    runs: tuple[StoredRun, ...]
    paper: Published | None

    def stacked(self, name: str) -> list[np.ndarray]:
        """The arrays (trajectory, step) of the runs that have them."""
        return [run.errors[name] for run in self.runs if run.errors]


@dataclass(frozen=True)
class Panel:
    """What is drawn into one pair of axes."""

    title: str
    task: str
    backbone: str
    series: tuple[Series, ...]


def panels_of(sources: Sources) -> list[Panel]:
    """Panels of the studies, of the comparisons, and of the runs that were named by themselves."""
    found = [panel for study in sources.studies for panel in _study_panels(study, sources)]
    found += [_comparison_panel(document, sources) for document in sources.comparisons]
    found += run_panels([run for run in sources.runs if run.name in sources.named])
    return [panel for panel in found if panel.series]


def task_title(run: StoredRun) -> str:
    return run.config.make_task().title


def backbone_title(name: str) -> str:
    return BACKBONES.get(name, name.rpartition(":")[2])


def run_panels(runs: Sequence[StoredRun]) -> list[Panel]:
    """One panel per task and backbone, in the order in which they appear."""
    found: dict[tuple[str, str], list[StoredRun]] = {}
    for run in runs:
        found.setdefault((run.config.task.name, run.config.backbone.name), []).append(run)
    return [
        Panel(f"{task_title(some[0])}, {backbone_title(backbone)}", task, backbone, tuple(_series(some)))
        for (task, backbone), some in found.items()
    ]


def group_of(panel: Panel) -> dict[str, Any]:
    """The panel as a group of a table, in the shape that study.json has."""
    rows = []
    for series in panel.series:
        cells: dict[str, Any] = {}
        for split, metric, _, key in COMPARED:
            values = [as_float(run.metrics[split][metric]) for run in series.runs if metric in run.metrics[split]]
            cells[key] = cell(mean_and_deviation(values), (series.paper or {}).get(key))
        errors = series.stacked("nrmse")
        rows.append({
            "label": series.label,
            "strategy": series.strategy,
            "cells": cells,
            "runs": [{"seed": run.config.seed, "run": run.name, "status": "finished"} for run in series.runs],
            "diverged": sum(map(diverged, errors)),
            "rollouts": sum(map(len, errors)),
        })  # fmt: skip
    mark_columns(rows)
    return {"title": panel.title, "task": panel.task, "backbone": panel.backbone, "shift": None, "rows": rows}


def mark_columns(rows: Sequence[Mapping[str, Any]]) -> None:
    """The best mean of each of the paper's columns."""
    for _, metric, _, key in COMPARED:
        mark_best([row["cells"][key] for row in rows], METRICS[metric].direction)


def _series(runs: Sequence[StoredRun]) -> list[Series]:
    order = list(STRATEGIES)
    classes: dict[str, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: (order.index(run.config.strategy), run.config.seed)):
        classes.setdefault(dataclasses.replace(run.config, seed=0).run_id(), []).append(run)
    by_strategy: dict[str, list[list[StoredRun]]] = {}
    for seeds in classes.values():
        by_strategy.setdefault(seeds[0].config.strategy, []).append(seeds)
    found = []
    for strategy, methods in by_strategy.items():
        labels = [METHODS.get(strategy, strategy) + suffix for suffix in _suffixes([seeds[0] for seeds in methods])]
        for label, seeds in zip(labels, methods, strict=True):
            config = seeds[0].config
            paper = paper_value(config.task.name, config.backbone.name, strategy)
            found.append(Series(label, strategy, tuple(seeds), paper))
    return found


def _suffixes(runs: Sequence[StoredRun]) -> list[str]:
    """In which settings each run differs from the others, as " (train.steps=300)"; nothing for a single one."""
    flat = [_flat(run.config.to_dict()) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    differing = [key for key in keys if key != "seed" and len({repr(settings.get(key)) for settings in flat}) > 1]
    if not differing:
        return [""] * len(runs)
    shown = differing[:NAMED_SETTINGS]
    more = ", …" if len(differing) > len(shown) else ""
    texts = [", ".join(f"{key}={settings.get(key)}" for key in shown) + more for settings in flat]
    if len(set(texts)) < len(texts):  # what is shown does not tell them apart
        texts = [f"{text}, {run.name.rpartition('-')[2]}" for text, run in zip(texts, runs, strict=True)]
    return [f" ({text})" for text in texts]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _study_panels(study: Document, sources: Sources) -> Iterable[Panel]:
    """The groups of a study, except shifted ones: those are other data than the runs' own error curves."""
    for group in study.content["groups"]:
        if not group.get("shift"):
            cells = [row.get("cells") or {} for row in group["rows"]]
            papers = [{key: c["paper"] for key, c in row.items() if c and c.get("paper")} for row in cells]
            labels = [row["label"] for row in group["rows"]]
            series = _row_series(group["rows"], labels, papers, sources)
            yield Panel(group["title"], group.get("task") or "", group.get("backbone") or "", tuple(series))


def _comparison_panel(document: Document, sources: Sources) -> Panel:
    content, rows = document.content, document.content["rows"]
    labels = [METHODS.get(row["strategy"], row["strategy"]) for row in rows]
    series = tuple(_row_series(rows, labels, [row["paper"] for row in rows], sources))
    title = f"{task_title(series[0].runs[0])}, " if series else ""
    return Panel(title + backbone_title(content["backbone"]), content["task"], content["backbone"], series)


def _row_series(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    papers: Sequence[Published | None],
    sources: Sources,
) -> Iterable[Series]:
    for row, label, paper in zip(rows, labels, papers, strict=True):
        runs = [sources.run(run["run"]) for run in row["runs"] if run.get("run")]
        present = tuple(run for run in runs if run is not None)
        if present:
            yield Series(label, row["strategy"], present, paper or None)
