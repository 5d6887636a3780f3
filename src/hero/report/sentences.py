"""The sentences of tables and page: the result first, then how its numbers came about and how far they reach.

A method is called the best of its group only where the paired test over seeds separates it from the others. Where it
does not, the sentence says that no difference is shown. Every claim stands with its ratio, interval, seeds and p.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from hero.method.metrics import HORIZON, Scoring, scoring_of
from hero.models import BACKBONES
from hero.report.inputs import ReportInputs
from hero.report.listing import study_number
from hero.report.names import method_title, metric_title, title_of
from hero.report.panels import results_of
from hero.report.tables import format_number, format_p
from hero.runs.config import RunConfig
from hero.runs.records import Before, Metrics, Shortfall
from hero.study.records import Group, MethodRow, MetricColumn, PairedTest, StudyResult, Summary
from hero.study.registries import published_numbers
from hero.study.statistics import ALPHA, ROUGH_GROUPS, counted, paired_tests

PAPER_NOTE = (
    "The paper’s values are its published means over five seeds, on its own data; they are printed for reference. "
    "Ratio is ours divided by the paper’s mean. ∞ means that at least one rollout diverged."
)

NAMED = 4
"""So many of a long list of settings are named."""


def lead(inputs: ReportInputs) -> list[str]:
    """One run in a sentence; else the result of each group, the number of runs, and the conclusion of a study."""
    if inputs.single:
        config = inputs.single.config
        return list(filter(None, [summary_sentence(inputs.single.metrics, config), structure_sentence(config)]))
    results = results_of(inputs)
    found = []
    for result in results:
        found += result_sentences(result)
    found.append(_count_sentence(inputs, [row for result in results for row in result.rows]))
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
    return list(map(capital, found))


def result_sentences(result: StudyResult) -> list[str]:
    """The best of each group; of a comparison, which is one group, first all methods against the baseline."""
    if not all(group.compares_runs for group in result.groups):
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
        f"{config.source.title}: {metric_title(name)} {number}{paper}{worst}; "
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


def group_sentence(group: Group, column: MetricColumn, tests: Sequence[PairedTest] = ()) -> str:
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


def tests_of_best(group: Group, column: MetricColumn, best: str, tests: Sequence[PairedTest]) -> dict[str, PairedTest]:
    """The best row against each other one, by its label; where the study made that test, its own."""
    found = {test.label: turned(test) for test in paired_tests([group], column.key, best, column.direction)}
    for test in (test for test in tests if test.group == group.title):
        if test.label == best:
            found[test.baseline] = test
        elif test.baseline == best:
            found[test.label] = turned(test)
    return found


def turned(test: PairedTest) -> PairedTest:
    """The test with both methods exchanged."""
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


def main_column(columns: Sequence[MetricColumn]) -> MetricColumn:
    """The column that the sentences are about: the error at step 100, or at the last step of shorter data."""
    steps = {int(key[6:]): column for column in columns if (key := column.key).startswith(("nrmse@", "vrmse@"))}
    found = [step for step in steps if 1 < step <= HORIZON]
    return steps[max(found)] if found else columns[0]


def _count_sentence(inputs: ReportInputs, rows: Sequence[MethodRow]) -> str:
    curves = [run.curves for run in inputs.runs.values() if run.curves]
    states = Counter(run.status for row in rows for run in row.runs)
    others = "".join(f", {states[state]} {state}" for state in ("failed", "unfinished", "not run") if states[state])
    plural = "s" if len(inputs.runs) != 1 else ""
    lost, rollouts = sum(one.diverged for one in curves), sum(one.rollouts for one in curves)
    return f"{len(inputs.runs)} finished run{plural}{others}; {lost} of {rollouts} rollouts diverged."


def study_notes(result: StudyResult) -> list[str]:
    """The notes below the tables of a study, and the runs that are not in them."""
    cells = [cell for row in result.rows for cell in row.cells.values() if cell]
    found = ["Mean ± standard deviation over seeds."] if len(result.seeds) > 1 else []
    found.append("In bold: the best mean of each group.")
    if any(cell.paper for cell in cells):
        source = "five seeds after 10,000 updates on its own data" if result.seeds else "its own hardware"
        found.append(f"Paper: the published numbers, of {source}; ratio: ours over the paper's.")
    found += _unpublished_notes(result)
    if result.changed:
        changed = ", ".join(f"{key} = {value}" for key, value in result.changed.items())
        found.append(f"Set here for all rows{not_published(result)}: {changed}.")
    repeats = {(row.label, row.repeats) for row in result.rows if row.repeats}
    found += [
        f"{label} trains the same loss as {first}: ranks and tests count it once." for label, first in sorted(repeats)
    ]
    if any(row.rollouts for row in result.rows):
        found.append("Diverged: test rollouts that left the finite range, over all seeds; they make a mean infinite.")
    found += dict.fromkeys(note for group in result.groups for note in group.notes)
    states = Counter(run.status for run in result.runs.values())
    missing = states["not run"] + states["unfinished"]
    if missing:
        found.append(f"{missing} of {len(result.runs)} runs are not finished; the same command resumes them.")
    found += failure_notes(result.failed)
    if states.total() > states["finished"]:
        found.append("Means are over the runs that finished.")
    return found


def not_published(result: StudyResult) -> str:
    """What follows from a setting for all rows: people's data are not in the paper anyway."""
    return ", so not as in the paper" if scoring_of(c.metric for c in result.columns).measure == "nrmse" else ""


def _unpublished_notes(result: StudyResult) -> list[str]:
    """Why rows that the paper has stand without its numbers."""
    rows = [row for row in result.rows if row.differs]
    found = list(dict.fromkeys(difference for row in rows for difference in row.differs))
    left_out = f"The paper's numbers are left out of {_counted(len(rows), 'row')}"
    return [f"{left_out}, whose settings are not the paper's: {first_of(found)}."] if rows else []


def first_of(names: Sequence[str], between: str = ", ") -> str:
    """ "a, b, c, d and 3 more"."""
    return between.join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def failure_notes(failed: Mapping[str, str]) -> list[str]:
    """One sentence for each reason, with the runs that it stopped."""
    runs: dict[str, list[str]] = {}
    for name, reason in failed.items():
        runs.setdefault(reason, []).append(name)
    more = {reason: f" and {len(names) - 1} more" if len(names) > 1 else "" for reason, names in runs.items()}
    return [f"{names[0]}{more[reason]} failed: {reason}" for reason, names in runs.items()]


def statistics_notes(summary: Summary, groups: Sequence[Group]) -> list[str]:
    """How the tests and ranks were made and how far they reach."""
    groups = [group for group in groups if group.loss == summary.loss]
    return [*_test_notes(summary, groups), *_rank_notes(summary, groups)]


def _test_notes(summary: Summary, groups: Sequence[Group]) -> list[str]:
    tests, baseline = summary.tests, method_title(summary.baseline)
    if not tests:
        return [f"No test was made: {baseline} and another method have no seed in common in any group."]
    found = [
        f"Tests are paired by seed and made on log ratios of {metric_title(summary.metric)} to {baseline}; "
        f"{'smaller' if summary.direction == 'lower' else 'larger'} is better.",
        _seed_note(sorted({test.n for test in tests})),
        f"{_counted(summary.corrected, 'comparison')} in this study; "
        f"with Holm's correction, the chance of any false finding among them is at most {100 * ALPHA:g} %.",
    ]
    diverged = [test for test in tests if test.diverged or test.baseline_diverged]
    if diverged:
        found.append(
            f"{_counted(len(diverged), 'comparison')} with diverged runs: the t-test is not defined there, the "
            "sign-flip test decides, with inf worse than anything and a tie of two."
        )
    other = sum(test.t_p is None and test not in diverged for test in tests)
    if other:
        found.append(
            f"{_counted(other, 'comparison')} without a t-test, for there is one seed, no spread or a value of zero; "
            "the sign-flip test decides."
        )
    compared = {test.group for test in tests}
    without = sum(group.title not in compared for group in groups)
    if without:
        found.append(
            f"{_counted(without, 'group')} without a test, for {baseline} or the others have no results there."
        )
    lost = sum(run.status != "finished" for group in groups for row in group.rows for run in row.runs)
    if lost:
        found.append(f"{_counted(lost, 'run')} not finished: pairs and means are over the finished ones.")
    return found


def _seed_note(counts: Sequence[int]) -> str:
    """The best that `counts` seeds can show."""
    n = counts[-1]
    seeds = _counted(n, "seed") if len(counts) == 1 else f"at most {n} seeds"
    smallest = min(1.0, 2 / 2**n)
    note = f"With {seeds} the smallest possible p of the sign-flip test is 2/2^{n} = {smallest:.3g}"
    if smallest <= ALPHA:
        return f"{note}."
    note += ": it cannot reach 0.05, six seeds can"
    return f"{note}; findings rest on the t-test and its assumption of normal log ratios." if n > 1 else f"{note}."


def _rank_notes(summary: Summary, groups: Sequence[Group]) -> list[str]:
    ranks = summary.ranks
    if not ranks.methods:
        return [
            f"Average ranks need two groups in which all methods have results, here {ranks.groups}: nothing can be "
            "said over groups."
        ]
    if ranks.p is None:
        found = [f"All methods tie in all {ranks.groups} groups."]
    else:
        shown = "differ" if ranks.p < ALPHA else "are not shown to differ"
        found = [f"Over {ranks.groups} groups the methods {shown} in rank (Friedman p = {ranks.p:.2g})."]
    found.append(
        f"Ranks nearer than the critical difference {ranks.critical_difference:.2f} (Nemenyi) are not separated."
    )
    if ranks.left_out:
        found.append(f"{_counted(len(ranks.left_out), 'group')} left out of the ranks, for not all methods ran there.")
    if ranks.groups < ROUGH_GROUPS:
        found.append(
            f"With {ranks.groups} groups the Friedman p is rough, and only large differences in rank can be seen."
        )
    if len({group.task for group in groups}) < len(groups):
        found.append("Groups that share a task are not independent, so p over groups is too small.")
    return found


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortfall_sentences(metrics: Metrics) -> list[str]:
    """One sentence where doing nothing is as good as the run, naming the worst channel; none where it is not."""
    found = metrics.shortfalls
    if not found:
        return []
    worst = worst_of(found)
    others = list(dict.fromkeys(one.channel for one in found if one.channel != worst.channel))
    also = f" (also {first_of(others)})" if others else ""
    return [f"no better than doing nothing: {_shortfall_words(worst, metrics.scoring)}{also}."]


def study_shortfalls(*results: StudyResult) -> list[str]:
    """One sentence where doing nothing is as good as some of the methods; none where it is not."""
    groups = [(scoring_of(c.metric for c in result.columns), group) for result in results for group in result.groups]
    found = {
        f"{row.label} on {group.title}" if len(groups) > 1 else row.label: (scoring, worst_of(row.shortfalls))
        for scoring, group in groups
        for row in group.rows
        if row.shortfalls
    }
    if not found:
        return []
    worst = max(found, key=lambda name: _excess(found[name][1]))
    names = first_of(list(found), "; " if len(groups) > 1 else ", ")
    words = _shortfall_words(found[worst][1], found[worst][0])
    words = f"With {worst}, {words}" if len(found) > 1 else capital(words)
    return [f"no better than doing nothing: {names}. {words}."]


def capital(words: str) -> str:
    """The words as a sentence begins."""
    return words[:1].upper() + words[1:]


def worst_of(found: Sequence[Shortfall]) -> Shortfall:
    """The baseline that a run misses by most."""
    return max(found, key=_excess)


def _excess(one: Shortfall) -> float:
    return one.error / one.baseline_error if one.baseline_error else math.inf


def _shortfall_words(one: Shortfall, scoring: Scoring) -> str:
    of = f" of {one.channel}" if one.channel else ""
    idle = {"persistence": "keeping the first state", "mean": "the mean state of the training data"}[one.baseline]
    error, other = format_number(one.error), format_number(one.baseline_error)
    return f"at step {one.step} {scoring.title}{of} is {error}, and {idle} has {other}"


def change_words(before: Before, metrics: Metrics) -> tuple[str, str]:
    """The sentence that says that fine-tuning helped, by the GM of the test error; else "", and the warning."""
    name = metrics.scoring.gm
    old, new = before.test[name], metrics.test[name]
    numbers = f"test {metric_title(name)} {format_number(old)} before, {format_number(new)} after"
    if new < old:
        return f"Fine-tuning helped: {numbers}.", ""
    return "", (
        f"fine-tuning did not help: {numbers}; keep the checkpoint {before.checkpoint}, or try a lower "
        "train.lr, another strategy or longer unrolls."
    )
