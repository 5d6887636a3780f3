"""The sentences of tables and page: the result first, then how its numbers came about and how far they reach.

A method is called the best of its group only where the paired test over seeds separates it from the others. Where it
does not, the sentence says that no difference is shown. Every claim stands with its ratio, interval, seeds and p;
docs/method/statistics.md explains the tests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from hero.method.metrics import Scoring, scoring_of
from hero.report.inputs import ReportInputs
from hero.report.listing import method_title, metric_title, study_number
from hero.report.tables import format_number, format_p
from hero.runs.records import Before, Metrics, Shortfall
from hero.study.records import Group, MetricColumn, PairedTest, StudyResult, Summary
from hero.study.statistics import ALPHA, counted, paired_tests

NAMED = 4  # so many of a long list are named


def lead(inputs: ReportInputs, results: Sequence[StudyResult]) -> list[str]:
    """The result of each group, and the number of runs."""
    found = [sentence for result in results for sentence in result_sentences(result)]
    metrics = [run.metrics for run in inputs.runs.values()]
    states = Counter(run.status for result in results for row in result.rows for run in row.runs)
    others = "".join(f", {states[state]} {state}" for state in ("failed", "unfinished", "not run") if states[state])
    lost, rollouts = sum(int(one.test["diverged"]) for one in metrics), sum(one.trajectories for one in metrics)
    count = f"{numbered(len(metrics), 'finished run')}{others}"
    return [*found, f"{count}; {lost} of {rollouts} rollouts diverged."]


def result_sentences(result: StudyResult) -> list[str]:
    """The best of each group, where rows have runs of their own."""
    if not all(group.compares_runs for group in result.groups):
        return []
    column = main_column(result.columns)
    tests = [test for summary in result.statistics if summary.metric == column.key for test in summary.tests]
    return list(filter(None, (group_sentence(group, column, tests) for group in result.groups)))


def main_column(columns: Sequence[MetricColumn]) -> MetricColumn:
    """The column that the sentences are about: the error at the last step that is scored."""
    last = scoring_of(column.metric for column in columns).last
    return next((column for column in columns if column.key == last), columns[0])


def group_sentence(group: Group, column: MetricColumn, tests: Sequence[PairedTest] = ()) -> str:
    """The result of a group in a sentence that can be quoted: numbers, ratio with its interval, seeds and verdict.

    "Burgers, FNO: HERO has the lowest nRMSE@100 of 3, 0.0310 ±0.0020 over 5 seeds (PF over HERO 1.61, ...)" only where
    the paired test separates the best from all others; else "... are not shown to differ in nRMSE@100 ...". `tests` are
    the study's own, whose verdicts are kept.
    """
    cells = {row.label: cell for row in counted(group) if row.runs and (cell := row.cells.get(column.key))}
    finite = {label: cell.mean for label, cell in cells.items() if math.isfinite(cell.mean)}
    if not cells:
        return ""
    if not finite:
        return f"{group.title}: {column.label} is infinite for every method, because rollouts diverged."
    lower = column.direction == "lower"
    best = (min if lower else max)(finite, key=finite.__getitem__)
    shown = {row.label: study_number(cells.get(row.label), row) for row in group.rows}
    seeds = f"over {numbered(cells[best].n, 'seed')}"
    paper = f"; paper {shown[best].paper}" if shown[best].paper else ""
    if len(cells) == 1:
        return f"{group.title}: {best} has {column.label} {shown[best].text} {seeds}{paper}."
    against = {test.label: test for test in paired_tests([group], column.key, best, column.direction)}
    for test in (test for test in tests if test.group == group.title):
        if best in (test.label, test.baseline):
            against[test.baseline if test.label == best else test.label] = test
    others = sorted((label for label in cells if label != best), key=lambda label: cells[label].mean, reverse=not lower)
    tied = [label for label in others if label not in against or against[label].verdict == "open"]
    nearest = against.get((tied or others)[0])
    ratio = f" ({ratio_words(nearest)})" if nearest else ""
    extreme = f"the {'lowest' if lower else 'highest'} {column.label} of {len(cells)}"
    if not tied:
        return f"{group.title}: {best} has {extreme}, {shown[best].text} {seeds}{ratio}{paper}."
    together = listed(f"{label} ({shown[label].text})" for label in (best, *tied))
    rest = f"; they have {extreme}" if len(tied) + 1 < len(cells) else ""
    return f"{group.title}: {together} are not shown to differ in {column.label} {seeds}{ratio}{rest}."


def ratio_words(test: PairedTest) -> str:
    """ "HERO over PF 0.620, 95 % interval 0.510 to 0.754, p = 0.003"; where rollouts diverged it says so instead."""
    known = test.ratio and math.isfinite(test.ratio)
    words = [f"{test.label} over {test.baseline} {format_number(test.ratio)}"] if known else []
    words += [f"95 % interval {' to '.join(map(format_number, test.interval))}"] if test.interval else []
    lost = {test.label: test.diverged, test.baseline: test.baseline_diverged}
    words += [f"{label} diverged in {count} of {test.n} seeds" for label, count in lost.items() if count]
    p = format_p(test.p_holm)
    return ", ".join([*words, f"p {p}" if p.startswith("<") else f"p = {p}"])


def study_notes(result: StudyResult) -> list[str]:
    """The notes below the tables of a study, and the runs that are not in them."""
    cells = [cell for row in result.rows for cell in row.cells.values() if cell]
    found = ["Mean ± standard deviation over seeds; the best mean of each group is bold."] * (len(result.seeds) > 1)
    if any(cell.paper for cell in cells):
        source = "five seeds after 10,000 updates on its own data" if result.seeds else "its own hardware"
        found.append(f"Paper: the published numbers, of {source}; ratio: ours over the paper's.")
    changed = [row for row in result.rows if row.differs]
    if changed:
        settings = first_of(list(dict.fromkeys(difference for row in changed for difference in row.differs)))
        rows = numbered(len(changed), "row")
        found.append(f"The paper's numbers are left out of {rows}, whose settings are not the paper's: {settings}.")
    if result.changed:
        settings = first_of([f"{key} = {value}" for key, value in result.changed.items()])
        found.append(f"Set for all rows: {settings}.")
    for label, first in sorted({(row.label, row.repeats) for row in result.rows if row.repeats}):
        found.append(f"{label} trains the same loss as {first}: tests count it once.")
    if any(row.rollouts for row in result.rows):
        found.append("Diverged: test rollouts that left the finite range, over all seeds; they make a mean infinite.")
    found += dict.fromkeys(note for group in result.groups for note in group.notes)
    unfinished = sum(run.status != "finished" for run in result.runs.values())
    if unfinished:
        count = f"{unfinished} of {numbered(len(result.runs), 'run')}"
        found.append(f"Not finished: {count}; means are over the others, and the same command resumes them.")
    reasons: dict[str, list[str]] = {}
    for name, reason in result.failed.items():
        reasons.setdefault(reason, []).append(name)
    return [*found, *(f"{first_of(names)} failed: {reason}" for reason, names in reasons.items())]


def notes_on_tests(summary: Summary) -> list[str]:
    """How the tests were made and how far they reach."""
    tests, baseline = summary.tests, method_title(summary.baseline)
    if not tests:
        return [f"No test was made: {baseline} and another method have no seed in common in any group."]
    least, n = min(test.n for test in tests), max(test.n for test in tests)
    seeds = numbered(n, "seed") if least == n else f"{least} to {n} seeds"
    smallest = min(1.0, 2 / 2**n)
    rests = "" if smallest <= ALPHA else ", so findings rest on the t-test, which takes log ratios as normal"
    found = [
        f"Tests are paired by seed and made on log ratios of {metric_title(summary.metric)} to {baseline}; "
        f"{'smaller' if summary.direction == 'lower' else 'larger'} is better.",
        f"With {seeds} the smallest possible p of the sign-flip test is 2/2^{n} = {smallest:.3g}{rests}.",
        f"{numbered(summary.corrected, 'comparison')} in this study; "
        f"with Holm's correction, the chance of any false finding among them is at most {100 * ALPHA:g} %.",
    ]
    without = sum(test.t_p is None for test in tests)
    if without:
        found.append(
            f"{numbered(without, 'comparison')} without a t-test, for a run diverged, there is one seed, no spread or "
            "a value of zero: the sign-flip test decides, with inf worse than anything and a tie of two."
        )
    return found


def run_shortfalls(metrics: Metrics) -> list[str]:
    """One sentence where doing nothing is as good as the run, naming the worst channel; none where it is not."""
    return _shortfalls([(one.channel, metrics.scoring, one) for one in metrics.shortfalls])


def finetuning_sentence(metrics: Metrics, before: Before) -> tuple[bool, str]:
    """Whether a run is better than the checkpoint that it was fine-tuned from, and the sentence on it."""
    name = metrics.scoring.gm
    old, new = before.test[name], metrics.test[name]
    numbers = f"test {metric_title(name)} {format_number(old)} before, {format_number(new)} after"
    if new < old:
        return True, f"Fine-tuning helped: {numbers}."
    advice = "or try a lower train.lr, another strategy or longer unrolls"
    return False, f"fine-tuning did not help: {numbers}; keep the checkpoint {before.checkpoint}, {advice}."


def study_shortfalls(*results: StudyResult) -> list[str]:
    """One sentence where doing nothing is as good as some of the methods; none where it is not."""
    return _shortfalls(
        [
            (", ".join(filter(None, (f"{row.label} on {group.title}", one.channel))), scoring, one)
            for result in results
            for scoring in [scoring_of(column.metric for column in result.columns)]
            for group in result.groups
            for row in group.rows
            for one in row.shortfalls
        ]
    )


def _shortfalls(found: Sequence[tuple[str, Scoring, Shortfall]]) -> list[str]:
    if not found:
        return []
    name, scoring, worst = max(
        found, key=lambda one: one[2].error / one[2].baseline_error if one[2].baseline_error else math.inf
    )
    idle = {"persistence": "keeping the first state", "mean": "the mean state of the training data"}[worst.baseline]
    others = list(dict.fromkeys(other for other, *_ in found if other != name))
    return [
        f"no better than doing nothing: {f'{name}, ' * bool(name)}at step {worst.step} {scoring.title} is "
        f"{format_number(worst.error)}, and {idle} has {format_number(worst.baseline_error)}"
        f"{f' (also {first_of(others)})' if others else ''}."
    ]


def numbered(count: int, noun: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def listed(words: Iterable[str]) -> str:
    """ "a, b and c"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def first_of(names: Sequence[str]) -> str:
    """ "a, b, c, d and 3 more"."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
