"""What the page says first: its title, and the result in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hero.method.metrics import diverged
from hero.report.comparison import title as comparison_title
from hero.report.page.panels import METHODS, Panel, backbone_title, group_of, task_title
from hero.report.page.sources import Sources
from hero.report.sheets import UNFINISHED, comparison_group, own_panels, spread
from hero.report.tables import as_float, diverged_of, format_number
from hero.study.published import paper_value

MAIN_COLUMN = {"key": "nrmse@100", "label": "nRMSE@100", "direction": "lower"}
STRATEGY_PHRASES = {
    "one_step": "one-step training",
    "push_forward": "push-forward training",
    "refiner": "PDE-Refiner",
    "recurrent": "recurrent training",
    "diverted_chain": "a diverted chain",
    "history_replay": "history replay",
    "hero": "HERO",
    "fixed_weight": "a fixed-weight control of HERO",
}


def page_title(sources: Sources, panels: Sequence[Panel]) -> str:
    """What the page is about."""
    documents = [str(study.content["title"]) for study in sources.studies]
    documents += [comparison_title(document.content) for document in sources.comparisons]
    if documents:
        return "; ".join(documents)
    if len(sources.runs) == 1:
        strategy = sources.runs[0].metrics["strategy"]
        return f"{panels[0].title}, {METHODS.get(strategy, strategy)}"
    return f"{len(sources.runs)} runs" if len(panels) > 1 else f"{panels[0].title}: {len(sources.runs)} runs"


def lead(sources: Sources) -> list[str]:
    """One run in a sentence; else the best method of each group, the number of runs, and what a study concludes."""
    if len(sources.runs) == 1 and not (sources.studies or sources.comparisons):
        return [summary_sentence(sources.runs[0].metrics, task_title(sources.runs[0]))]
    groups = [
        (_main_column(study.content["columns"]), group)
        for study in sources.studies
        for group in study.content["groups"]
    ]
    groups += [(MAIN_COLUMN, comparison_group(document.content)) for document in sources.comparisons]
    groups += [(MAIN_COLUMN, group_of(panel)) for panel in own_panels(sources)]
    found = [sentence for column, group in groups if (sentence := best_sentence(group, column))]
    found.append(_counted(sources, [row for _, group in groups for row in group["rows"]]))
    for study in sources.studies:
        if changed := study.content.get("changed"):
            settings = ", ".join(f"{key} = {value}" for key, value in changed.items())
            found.append(f"Set for all rows, so not as in the paper: {settings}.")
        if statistics := study.content.get("statistics"):
            found.append(tested_sentence(statistics))
    return found


def tested_sentence(statistics: Mapping[str, Any]) -> str:
    """ "Of 10 comparisons of nrmse@100 with push_forward 2 are better and 1 is worse, ...; the others are open." """
    verdicts = [test["verdict"] for test in statistics["tests"]]
    if not verdicts:
        return f"Nothing could be tested against {statistics['baseline']}."
    return (
        f"Of {len(verdicts)} comparison{'s' if len(verdicts) > 1 else ''} of {statistics['metric']} with "
        f"{statistics['baseline']}, paired by seed and corrected for their number: "
        f"{verdicts.count('better')} better, {verdicts.count('worse')} worse, the rest open."
    )


def summary_sentence(metrics: Mapping[str, Any], title: str) -> str:
    """ "FNO trained with HERO on Burgers: nRMSE@100 0.0310, paper 0.153; 0 of 30 rollouts diverged." """
    test = metrics.get("test") or {}
    name = "nrmse@100" if "nrmse@100" in test else "nrmse@1"
    published = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"])
    beside = f", paper {published[name]['mean']:g}" if published else ""
    strategy = STRATEGY_PHRASES.get(metrics["strategy"], metrics["strategy"])
    return (
        f"{backbone_title(metrics['backbone'])} trained with {strategy} on {title}: "
        f"{name.replace('nrmse', 'nRMSE')} {format_number(test.get(name))}{beside}; "
        f"{diverged_of(metrics)} rollouts diverged."
    )


def best_sentence(group: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    """ "Burgers, FNO: HERO has the lowest nRMSE@100 of 3, 0.0310 ±0.0020 over 3 seeds; paper 0.153." """
    lowest = column["direction"] == "lower"
    cells = [(row["label"], row["cells"].get(column["key"])) for row in group["rows"]]
    known = [(label, found) for label, found in cells if found and found["mean"] is not None]
    finite = [(label, found) for label, found in known if np.isfinite(as_float(found["mean"]))]
    if not known:
        return ""
    if not finite:
        return f"{group['title']}: {column['label']} is infinite for every method, because rollouts diverged."
    label, best = (min if lowest else max)(finite, key=lambda pair: as_float(pair[1]["mean"]))
    has = f"{column['label']}"
    if len(known) > 1:
        has = f"the {'lowest' if lowest else 'highest'} {column['label']} of {len(known)},"
    seeds = len(best.get("values") or ())
    over = f" over {seeds} seeds" if seeds > 1 else ""
    paper = f"; paper {best['paper']['mean']:g}" if best.get("paper") else ""
    return f"{group['title']}: {label} has {has} {spread(best)}{over}{paper}."


def _main_column(columns: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((column for column in columns if column["key"] == "nrmse@100"), columns[0] if columns else MAIN_COLUMN)


def _counted(sources: Sources, rows: Sequence[Mapping[str, Any]]) -> str:
    errors = [run.errors["nrmse"] for run in sources.runs if run.errors]
    states = [run["status"] for row in rows for run in row["runs"]]
    others = "".join(f", {states.count(state)} {state}" for state in UNFINISHED if state in states)
    plural = "s" if len(sources.runs) != 1 else ""
    lost, rollouts = sum(map(diverged, errors)), sum(map(len, errors))
    return f"{len(sources.runs)} finished run{plural}{others}; {lost} of {rollouts} rollouts diverged."
