"""The first lines of the page: the result in a few sentences.

A method is called the best of its group only where the paired test over seeds separates it from the others. Where it
does not, the sentence says that no difference is shown. Every claim stands with its ratio, interval, seeds and p.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hero.method.metrics import HORIZON, Scoring, scoring_of
from hero.models import BACKBONES
from hero.report.content import published_numbers, study_number
from hero.report.inputs import ReportInputs
from hero.report.names import method_title, metric_title, title_of
from hero.report.notes import WARNING, capital, first_of, not_published, shortfall_sentences, study_shortfalls
from hero.report.panels import results_of
from hero.report.tables import format_number, format_p
from hero.runs.config import RunConfig
from hero.runs.records import Metrics
from hero.study.records import Column, Group, PairedTest, Row, StudyResult, Summary
from hero.study.statistics import counted, paired_tests


def lead(inputs: ReportInputs) -> list[str]:
    """One run in a sentence; else the result of each group, the number of runs, and the conclusion of a study."""
    if inputs.single:
        config = inputs.single.config
        return list(filter(None, [summary_sentence(inputs.single.metrics, config), structure_sentence(config)]))
    results = results_of(inputs)
    found = []
    for result in results:
        found += result_sentences(result)
    found.append(_counted(inputs, [row for result in results for row in result.rows]))
    for result in results:
        if result.changed:
            settings = [f"{key} = {value}" for key, value in result.changed.items()]
            found.append(f"Set for all rows{not_published(result)}: {first_of(settings)}.")
        if len(result.groups) > 1:
            found += map(tested_sentence, result.statistics)
    return list(filter(None, found))


def warnings(inputs: ReportInputs) -> list[str]:
    """What must not be overlooked: runs that are no better than doing nothing."""
    single = inputs.single
    found = shortfall_sentences(single.metrics) if single else study_shortfalls(*results_of(inputs))
    return [capital(sentence.removeprefix(WARNING)) for sentence in found]


def result_sentences(result: StudyResult) -> list[str]:
    """The best of each group; of a comparison, which is one group, first all methods against the baseline."""
    if result.figures == "landscape":  # its rows are checkpoints of a run, not methods
        return []
    column = main_column(result.columns)
    tests = [test for summary in result.statistics if summary.metric == column.key for test in summary.tests]
    best = [group_sentence(group, column, tests) for group in result.groups]
    scoring = scoring_of(one.metric for one in result.columns)
    channels = list(filter(None, (channel_sentence(group, scoring) for group in result.groups)))
    if len(result.groups) > 1:
        return [*best, *channels]
    compared = [comparison_sentence(result.groups[0], summary) for summary in result.statistics]
    return [*compared, *(best if len(tests) != 1 else ()), *channels]  # of two methods the first says all


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
    """ "FNO trained with HERO on Burgers: nRMSE@100 0.0310, paper 0.153; 0 of 30 rollouts diverged."

    Of several channels the worst is named.
    """
    scoring = metrics.scoring
    name = scoring.last if scoring.last in metrics.test else scoring.at(1)
    published = published_numbers(config).get(name)
    paper = f", paper {published.mean:g}" if published else ""
    number = format_number(metrics.test.get(name))
    errors = {channel: numbers[name] for channel, numbers in metrics.channels.items() if name in numbers}
    channel = max(errors, key=errors.__getitem__) if len(errors) > 1 else ""
    worst = f", worst channel {channel} {format_number(errors[channel])}" if channel else ""
    return (
        f"{title_of(BACKBONES, config.backbone.name)} trained with {method_title(config.strategy)} on "
        f"{config.make_source().title}: {metric_title(name)} {number}{paper}{worst}; "
        f"{metrics.test.get('diverged', 0):.0f} of {metrics.trajectories} rollouts diverged."
    )


def structure_sentence(config: RunConfig) -> str:
    """ "The operator keeps mean:u, as the data do, and predicts the change of the state."; "" where it does neither."""
    backbone = config.backbone
    found = "as the data do" if "auto" in backbone.keep else "as was asked for"
    keeps = f"keeps {', '.join(backbone.kept)}, {found}," if backbone.is_found and backbone.kept else ""
    target = "predicts the change of the state" if backbone.predicts_change else ""
    text = " and ".join(filter(None, [keeps, target])).rstrip(",")
    return f"The operator {text}." if text else ""


def channel_sentence(group: Group, scoring: Scoring) -> str:
    """ "waves, FNO: the worst channel is pressure, VRMSE@40 0.912 with HERO and 1.10 with PF"; "" with one channel."""
    rows = [row for row in counted(group) if len(row.channels) > 1]
    if not rows:
        return ""
    name = max(rows[0].channels, key=lambda channel: sum(row.channels[channel].mean for row in rows))
    numbers = [f"{format_number(row.channels[name].mean)} with {row.label}" for row in rows]
    listed = numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"{group.title}: the worst channel is {name}, {metric_title(scoring.last, scoring)} {listed}."


def group_sentence(group: Group, column: Column, tests: Sequence[PairedTest] = ()) -> str:
    """The result of a group in a sentence that can be quoted: numbers, ratio with its interval, seeds and verdict.

    "Burgers, FNO: HERO has the lowest nRMSE@100 of 3, 0.0310 ±0.0020 over 5 seeds, ratio to PF ..."
    only where the paired test separates the best from all others; else "... are not shown to differ in nRMSE@100 ...".
    `tests` are the study's own, whose verdicts are kept.
    """
    cells = {row.label: cell for row in counted(group) if row.runs and (cell := row.cells.get(column.key))}
    finite = {label: cell.mean for label, cell in cells.items() if math.isfinite(cell.mean)}
    if not cells:
        return ""
    if not finite:
        return f"{group.title}: {column.label} is infinite for every method, because rollouts diverged."
    lower = column.direction == "lower"
    best = (min if lower else max)(finite, key=finite.__getitem__)
    numbers = {row.label: study_number(cells.get(row.label), row).text for row in group.rows}
    paper = next(study_number(cells[best], row).paper for row in group.rows if row.label == best)
    paper = f"; paper {paper}" if paper else ""
    seeds = f" over {cells[best].n} seeds" if cells[best].n > 1 else ""
    if len(cells) == 1:
        return f"{group.title}: {best} has {column.label} {numbers[best]}{seeds}{paper}."
    others = sorted((label for label in cells if label != best), key=lambda label: cells[label].mean, reverse=not lower)
    against = tests_of_best(group, column, best, tests)
    tied = [label for label in others if label not in against or against[label].verdict == "open"]
    extreme = f"{'lowest' if lower else 'highest'} {column.label} of {len(cells)}"
    if not tied:
        ratio = ratio_words(against[others[0]], f"ratio to {others[0]}")
        return f"{group.title}: {best} has the {extreme}, {numbers[best]}{seeds}{ratio}{paper}."
    names = [f"{label} ({numbers[label]})" for label in (best, *tied)]
    together = f"{', '.join(names[:-1])} and {names[-1]}"
    rest = f"; they have the {extreme}" if len(tied) + 1 < len(cells) else ""
    if not seeds:
        return f"{group.title}: no difference in {column.label} between {together} can be shown with one seed{rest}."
    pair = "ratio" if len(tied) == 1 else "ratio of the first two"
    shown = ratio_words(against[tied[0]], pair) if tied[0] in against else ""
    return f"{group.title}: {together} are not shown to differ in {column.label}{seeds}{shown}{rest}."


def tests_of_best(group: Group, column: Column, best: str, tests: Sequence[PairedTest]) -> dict[str, PairedTest]:
    """The best row against each other one, by its label; where the study made that test, its own."""
    found = {test.label: turned(test) for test in paired_tests([group], column.key, best, column.direction)}
    for test in (test for test in tests if test.group == group.title):
        if test.label == best:
            found[test.baseline] = test
        elif test.baseline == best:
            found[test.label] = turned(test)
    return found


def turned(test: PairedTest) -> PairedTest:
    """The same test from the other side."""
    return test.model_copy(
        update={
            "label": test.baseline,
            "baseline": test.label,
            "ratio": None if test.ratio is None else inverse(test.ratio),
            "interval": test.interval and tuple(map(inverse, reversed(test.interval))),
            "diverged": test.baseline_diverged,
            "baseline_diverged": test.diverged,
            "is_better": not test.is_better,
            "verdict": {"better": "worse", "worse": "better", "open": "open"}[test.verdict],
        }
    )


def inverse(ratio: float) -> float:
    """1 / ratio, between 0 and infinity."""
    return math.inf if ratio == 0 else 1 / ratio


def ratio_words(test: PairedTest, name: str) -> str:
    """ ", ratio to PF 0.620 (95 % interval 0.510 to 0.754, p = 0.003)": the size of a difference, and its test.

    `name` is what the ratio is called; where rollouts diverged there is none.
    """
    known = test.ratio and math.isfinite(test.ratio)
    return f"{f', {name} {format_number(test.ratio)}' if known else ''} ({_test_words(test)})"


def _test_words(test: PairedTest) -> str:
    """ "95 % interval 0.510 to 0.754, p = 0.003"; where rollouts diverged there is no interval."""
    p = format_p(test.p_holm)
    words = [f"95 % interval {' to '.join(map(format_number, test.interval))}"] if test.interval else []
    lost = {test.label: test.diverged, test.baseline: test.baseline_diverged}
    words += [f"{label} diverged in {count} of {test.n} seeds" for label, count in lost.items() if count]
    return ", ".join([*words, f"p {p}" if p.startswith("<") else f"p = {p}"])


def comparison_sentence(group: Group, summary: Summary) -> str:
    """The methods of a group against its baseline, in a sentence that can be quoted; "" where none was tested.

    "Burgers, FNO: nRMSE@100 relative to PF (0.200 ±0.016), paired by 5 seeds, is 0.912 with HERO (0.182 ±0.014; 95 %
    interval 0.897 to 0.928, p < 0.001: better) and 5.00 with one-step (...: worse)."
    """
    tests = [test for test in summary.tests if test.group == group.title]
    if not tests:
        return ""
    numbers = {row.label: study_number(row.cells.get(summary.metric), row).text for row in group.rows}
    parts = [
        f"{format_number(test.ratio)} with {test.label} ({numbers[test.label]}; {_test_words(test)}: {test.verdict})"
        for test in tests
    ]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    least, most = min(test.n for test in tests), max(test.n for test in tests)
    counts = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{group.title}: {metric_title(summary.metric)} relative to {tests[0].baseline} "
        f"({numbers[tests[0].baseline]}), paired by {counts} seed{'s' * (counts != '1')}, is {listed}."
    )


def main_column(columns: Sequence[Column]) -> Column:
    """The column that the sentences are about: the error at step 100, or at the last step of shorter data."""
    steps = {int(key[6:]): column for column in columns if (key := column.key).startswith(("nrmse@", "vrmse@"))}
    found = [step for step in steps if 1 < step <= HORIZON]
    return steps[max(found)] if found else columns[0]


def _counted(inputs: ReportInputs, rows: Sequence[Row]) -> str:
    curves = [run.curves for run in inputs.runs.values() if run.curves]
    states = Counter(run.status for row in rows for run in row.runs)
    others = "".join(f", {states[state]} {state}" for state in ("failed", "unfinished", "not run") if states[state])
    plural = "s" if len(inputs.runs) != 1 else ""
    lost, rollouts = sum(one.diverged for one in curves), sum(one.rollouts for one in curves)
    return f"{len(inputs.runs)} finished run{plural}{others}; {lost} of {rollouts} rollouts diverged."
