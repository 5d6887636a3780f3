"""The sentences below a table: how its numbers came about, which of them are missing, and how far they reach."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hero.evaluation.evaluate import Landscape
from hero.method.metrics import Scoring, scoring_of
from hero.report.names import method_title, metric_title
from hero.report.tables import format_number
from hero.runs.records import Before, Metrics, Shortfall
from hero.study.records import Group, StudyResult, Summary
from hero.study.statistics import ALPHA, ROUGH_GROUPS

PAPER_NOTE = (
    "The paper’s values are its published means over five seeds, on its own data; they are printed for reference. "
    "Ratio is ours divided by the paper’s mean. ∞ means that at least one rollout diverged."
)

WARNING = "warning: "
"""Before a sentence that must not be overlooked."""

NAMED = 4
"""So many of a long list of settings are named."""


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
    return [f"{WARNING}no better than doing nothing: {_shortfall_words(worst, metrics.scoring)}{also}."]


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
    return [f"{WARNING}no better than doing nothing: {names}. {words}."]


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


def change_sentence(before: Before, metrics: Metrics) -> str:
    """Whether fine-tuning helped, by the geometric mean of the test error over the horizon."""
    name = metrics.scoring.gm
    old, new = before.test[name], metrics.test[name]
    numbers = f"test {metric_title(name)} {format_number(old)} before, {format_number(new)} after"
    if new < old:
        return f"Fine-tuning helped: {numbers}."
    return (
        f"warning: fine-tuning did not help: {numbers}; keep the checkpoint {before.checkpoint}, or try a lower "
        "train.lr, another strategy or longer unrolls."
    )


def landscape_sentence(found: Landscape) -> str:
    """The worst and the best moment of the kept checkpoints against the final model."""
    ratio = np.array(found.log10_ratio, dtype=np.float64)
    diverged = [step for step, row in zip(found.steps, found.errors, strict=True) if not np.isfinite(row[-1])]
    note = f" Rollouts diverged at checkpoint {', '.join(map(str, diverged))}." if diverged else ""
    if not np.isfinite(ratio).any():
        return "No checkpoint can be compared with the final model: rollouts diverged everywhere." + note
    parts = []
    for word, pick in (("worse", np.max), ("better", np.min)):
        extreme = pick(ratio[np.isfinite(ratio)])
        row, column = np.argwhere(ratio == extreme)[0]
        if (extreme > 0) == (word == "worse") and extreme != 0:
            factor = format_number(10 ** abs(extreme))
            parts.append(f"at most {factor} times {word} (checkpoint {found.steps[row]}, rollout step {column + 1})")
    verdict = "; ".join(parts) if parts else "equal everywhere"
    return f"Against the final model of step {found.final_step}, kept checkpoints are {verdict}.{note}"
