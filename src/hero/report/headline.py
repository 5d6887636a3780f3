"""The first lines of the page: the result in a few sentences.

A method is called the best of its group only where the paired test over seeds separates it from the others. Where it
does not, the sentence says that there is no difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hero.method.metrics import HORIZON, diverged
from hero.models import BACKBONES
from hero.report.content import published_numbers, study_number
from hero.report.inputs import ReportInputs
from hero.report.names import method_title, metric_title, title_of
from hero.report.notes import first_of
from hero.report.panels import results_of
from hero.report.tables import format_number, format_p
from hero.runs.config import RunConfig
from hero.runs.records import Metrics
from hero.study.records import Column, Group, PairedTest, Row, Summary
from hero.study.statistics import counted, paired_tests


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
            settings = [f"{key} = {value}" for key, value in result.changed.items()]
            found.append(f"Set for all rows, so not as in the paper: {first_of(settings)}.")
        found += map(tested_sentence, result.statistics)
    return list(filter(None, found))


def tested_sentence(summary: Summary) -> str:
    """ "Of 10 comparisons of nrmse@100 with push_forward ...: 2 better, 1 worse, the rest open." """
    verdicts = [test.verdict for test in summary.tests]
    if not verdicts:
        return f"Nothing could be tested against {method_title(summary.baseline)}."
    loss = f", trained with the loss {summary.loss}" if summary.loss else ""
    return (
        f"Of {len(verdicts)} comparison{'s' if len(verdicts) > 1 else ''} of {metric_title(summary.metric)} with "
        f"{method_title(summary.baseline)}"
        f"{loss}, paired by seed and corrected for their number: "
        f"{verdicts.count('better')} better, {verdicts.count('worse')} worse, the rest open."
    )


def summary_sentence(metrics: Metrics, config: RunConfig) -> str:
    """ "FNO trained with HERO on Burgers: nRMSE@100 0.0310, paper 0.153; 0 of 30 rollouts diverged." """
    name = f"nrmse@{metrics.horizon}"
    name = name if name in metrics.test else "nrmse@1"
    published = published_numbers(config).get(name)
    paper = f", paper {published.mean:g}" if published else ""
    number = format_number(metrics.test.get(name))
    return (
        f"{title_of(BACKBONES, config.backbone.name)} trained with {method_title(config.strategy)} on "
        f"{config.make_source().title}: {metric_title(name)} {number}{paper}; "
        f"{metrics.test.get('diverged', 0):.0f} of {metrics.trajectories} rollouts diverged."
    )


def group_sentence(group: Group, column: Column, tests: Sequence[PairedTest] = ()) -> str:
    """ "Burgers, FNO: HERO has the lowest nRMSE@100 of 3, 0.0310 ±0.0020 over 3 seeds; paper 0.153."

    Or, where the paired test does not separate the best from all others, "no difference in nRMSE@100 between HERO
    (0.0310 ±0.0020) and push-forward (0.0320 ±0.0030) ...". `tests` are the study's own, whose verdicts are kept.
    """
    cells = {row.label: cell for row in counted(group) if row.runs and (cell := row.cells.get(column.key))}
    finite = {label: cell.mean for label, cell in cells.items() if math.isfinite(cell.mean)}
    if not cells:
        return ""
    if not finite:
        return f"{group.title}: {column.label} is infinite for every method, because rollouts diverged."
    lower = column.direction == "lower"
    best = (min if lower else max)(finite, key=finite.__getitem__)
    numbers = {row.label: study_number(cells.get(row.label), row) for row in group.rows}
    seeds = f" over {cells[best].n} seeds" if cells[best].n > 1 else ""
    paper = f"; paper {numbers[best].paper}" if numbers[best].paper else ""
    if len(cells) == 1:
        return f"{group.title}: {best} has {column.label} {numbers[best].text}{seeds}{paper}."
    tested = {test.label: test for test in paired_tests([group], column.key, best, column.direction)}
    kept = {frozenset((test.label, test.baseline)): test.verdict for test in tests if test.group == group.title}
    verdicts = {label: kept.get(frozenset((label, best)), test.verdict) for label, test in tested.items()}
    tied = [label for label in cells if label != best and verdicts.get(label, "open") == "open"]
    extreme = f"{'lowest' if lower else 'highest'} {column.label} of {len(cells)}"
    if not tied:
        return f"{group.title}: {best} has the {extreme}, {numbers[best].text}{seeds}{paper}."
    names = [f"{label} ({numbers[label].text})" for label in (best, *tied)]
    p = max((tested[label].p_holm for label in tied if label in tested), default=1.0)
    how = f"by the paired test{seeds} (p = {format_p(p)})" if seeds else "can be shown with one seed"
    rest = f"; they have the {extreme}" if len(tied) + 1 < len(cells) else ""
    return (
        f"{group.title}: no difference in {column.label} between {', '.join(names[:-1])} and {names[-1]} {how}{rest}."
    )


def main_column(columns: Sequence[Column]) -> Column:
    """The column that the sentences are about: nRMSE@100 where there is one, or at the last step of shorter data."""
    steps = {int(key[6:]): column for column in columns if (key := column.key).startswith("nrmse@")}
    found = [step for step in steps if 1 < step <= HORIZON]
    return steps[max(found)] if found else columns[0]


def _counted(inputs: ReportInputs, rows: Sequence[Row]) -> str:
    errors = [run.errors.nrmse for run in inputs.runs.values() if run.errors]
    states = Counter(run.status for row in rows for run in row.runs)
    others = "".join(f", {states[state]} {state}" for state in ("failed", "unfinished", "not run") if states[state])
    plural = "s" if len(inputs.runs) != 1 else ""
    lost, rollouts = sum(map(diverged, errors)), sum(map(len, errors))
    return f"{len(inputs.runs)} finished run{plural}{others}; {lost} of {rollouts} rollouts diverged."
