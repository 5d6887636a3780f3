"""The first lines of the page: the result in a few sentences.

A method is called the best of its group only where the paired test over seeds separates it from the others. Where it
does not, the sentence says that there is no difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hero.method.metrics import METRICS, diverged
from hero.report.content import published_numbers, study_number
from hero.report.inputs import ReportInputs
from hero.report.names import backbone_title, method_title
from hero.report.panels import results_of
from hero.report.tables import format_number, format_p
from hero.runs.config import RunConfig
from hero.runs.records import Metrics
from hero.strategies import STRATEGIES
from hero.study.records import Column, Group, PairedTest, Row, Summary
from hero.study.statistics import ALPHA, compare_pairs, holm


def lead(inputs: ReportInputs) -> list[str]:
    """One run in a sentence; else the result of each group, the number of runs, and the conclusion of a study."""
    if inputs.single:
        return [summary_sentence(inputs.single.metrics, inputs.single.config)]
    results = results_of(inputs)
    found = []
    for result in results:
        tests = [test for summary in result.statistics for test in summary.tests]
        found += [group_sentence(group, main_column(result.columns), tests) for group in result.groups]
    found.append(_counted(inputs, [row for result in results for row in result.rows]))
    for result in results:
        if result.changed:
            settings = ", ".join(f"{key} = {value}" for key, value in result.changed.items())
            found.append(f"Set for all rows, so not as in the paper: {settings}.")
        found += map(tested_sentence, result.statistics)
    return list(filter(None, found))


def tested_sentence(summary: Summary) -> str:
    """ "Of 10 comparisons of nrmse@100 with push_forward ...: 2 better, 1 worse, the rest open." """
    verdicts = [test.verdict for test in summary.tests]
    if not verdicts:
        return f"Nothing could be tested against {summary.baseline}."
    loss = f", trained with the loss {summary.loss}" if summary.loss else ""
    return (
        f"Of {len(verdicts)} comparison{'s' if len(verdicts) > 1 else ''} of {summary.metric} with {summary.baseline}"
        f"{loss}, paired by seed and corrected for their number: "
        f"{verdicts.count('better')} better, {verdicts.count('worse')} worse, the rest open."
    )


def summary_sentence(metrics: Metrics, config: RunConfig) -> str:
    """ "FNO trained with HERO on Burgers: nRMSE@100 0.0310, paper 0.153; 0 of 30 rollouts diverged." """
    name = "nrmse@100" if "nrmse@100" in metrics.test else "nrmse@1"
    published = published_numbers(config).get(name)
    paper = f", paper {published.mean:g}" if published else ""
    number = format_number(metrics.test.get(name))
    strategy = STRATEGIES.get(config.strategy)
    phrase = (strategy and strategy.phrase) or method_title(config.strategy)
    return (
        f"{backbone_title(config.backbone.name)} trained with {phrase} on "
        f"{config.make_task().title}: {METRICS[name].title} {number}{paper}; "
        f"{metrics.test.get('diverged', 0):.0f} of {metrics.trajectories} rollouts diverged."
    )


def group_sentence(group: Group, column: Column, tests: Sequence[PairedTest] = ()) -> str:
    """ "Burgers, FNO: HERO has the lowest nRMSE@100 of 3, 0.0310 ±0.0020 over 3 seeds; paper 0.153."

    Or, where the paired test does not separate the best from all others, "no difference in nRMSE@100 between HERO
    (0.0310 ±0.0020) and push-forward (0.0320 ±0.0030) ...". `tests` are the study's own, whose verdicts are kept.
    """
    known = {row.label: (row, cell) for row in group.rows if (cell := row.cells.get(column.key))}
    numbers = {label: study_number(cell, row) for label, (row, cell) in known.items()}
    finite = {label: cell.mean for label, (_, cell) in known.items() if math.isfinite(cell.mean)}
    if not known:
        return ""
    if not finite:
        return f"{group.title}: {column.label} is infinite for every method, because rollouts diverged."
    lower = column.direction == "lower"
    best = (min if lower else max)(finite, key=finite.__getitem__)
    number = numbers[best]
    seeds = f" over {number.n} seeds" if (number.n or 1) > 1 else ""
    paper = f"; paper {number.published:g}" if number.published is not None else ""
    if len(known) == 1:
        return f"{group.title}: {best} has {column.label} {number.text}{seeds}{paper}."
    extreme = f"{'lowest' if lower else 'highest'} {column.label} of {len(known)}"
    p_values = _p_values(known[best][0], [row for label, (row, _) in known.items() if label != best], column)
    tied = [label for label, p in p_values.items() if not _is_separated({label, best}, p, group, tests)]
    if not tied:
        return f"{group.title}: {best} has the {extreme}, {number.text}{seeds}{paper}."
    named = [f"{label} ({numbers[label].text})" for label in (best, *tied)]
    p = max(p_values[label] for label in tied)
    how = f"by the paired test{seeds} (p = {format_p(p)})" if seeds else "can be shown with one seed"
    rest = f"; they have the {extreme}" if len(tied) + 1 < len(known) else ""
    return (
        f"{group.title}: no difference in {column.label} between {', '.join(named[:-1])} and {named[-1]} {how}{rest}."
    )


def _p_values(best: Row, others: Sequence[Row], column: Column) -> dict[str, float]:
    """p of the paired test of `best` against each other row, corrected for their number; 1 without a common seed."""
    found = {}
    for row in others:
        ours, theirs = _values(best, column.key), _values(row, column.key)
        seeds = sorted(ours.keys() & theirs.keys())
        pairs = compare_pairs([ours[s] for s in seeds], [theirs[s] for s in seeds], column.direction) if seeds else None
        found[row.label] = pairs.p if pairs else 1.0
    return dict(zip(found, holm(list(found.values())), strict=True))


def _values(row: Row, key: str) -> dict[int, float]:
    """Seed -> value of the finished runs."""
    cell = row.cells[key]
    return dict(zip((run.seed for run in row.finished), cell.values, strict=False)) if cell else {}


def _is_separated(labels: set[str], p: float, group: Group, tests: Sequence[PairedTest]) -> bool:
    """Whether two rows differ: as the study's own test of the two says, else by `p`."""
    for test in tests:
        if test.group == group.title and {test.label, test.baseline} == labels:
            return test.verdict != "open"
    return p < ALPHA


def main_column(columns: Sequence[Column]) -> Column:
    """The column that the sentences are about: nRMSE@100 where there is one."""
    return next((column for column in columns if column.key == "nrmse@100"), columns[0])


def _counted(inputs: ReportInputs, rows: Sequence[Row]) -> str:
    errors = [run.errors.nrmse for run in inputs.runs.values() if run.errors]
    states = Counter(run.status for row in rows for run in row.runs)
    others = "".join(f", {states[state]} {state}" for state in ("failed", "unfinished", "not run") if states[state])
    plural = "s" if len(inputs.runs) != 1 else ""
    lost, rollouts = sum(map(diverged, errors)), sum(map(len, errors))
    return f"{len(inputs.runs)} finished run{plural}{others}; {lost} of {rollouts} rollouts diverged."
