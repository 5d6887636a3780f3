"""The statistics of a study: paired tests across seeds, corrected for their number.

A group is a task, a backbone and a loss (or a shift) with one row per method. Errors are compared by their ratio: a
method that is 10 % better on every task says the same everywhere, whatever the size of the error. A diverged run has
error inf: it is worse than anything, ties with another diverged run, and is never left out. A row that trains the same
loss as an earlier one is counted once. The sign-flip test and Holm's correction are our own because scipy turns
infinite errors into NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hero.study.records import Direction, Group, MethodRow, PairedTest, Pairs, Summary

ALPHA = 0.05
EXACT_SEEDS = 20  # up to here all 2^n sign flips are counted; beyond, DRAWS of them are drawn
DRAWS = 100_000


def summarise(
    groups: Sequence[Group], metric: str = "nrmse@100", baseline: str = "push_forward", direction: Direction = "lower"
) -> tuple[Summary, ...]:
    """The statistics of the groups of each loss; of none that has no group with two rows with results.

    `baseline` is a method or the label of a row. Tests are corrected over all groups.
    """
    tests = paired_tests(groups, metric, baseline, direction)
    found = []
    for loss in dict.fromkeys(group.loss for group in groups):
        part = [group for group in groups if group.loss == loss]
        if any(sum(bool(values_of(row, metric)) for row in counted(group)) > 1 for group in part):
            titles, named = [group.title for group in part], {"metric": metric, "baseline": baseline}
            own = tuple(test for test in tests if test.group in titles)
            found.append(Summary(**named, loss=loss, direction=direction, tests=own, corrected=len(tests)))
    return tuple(found)


def counted(group: Group) -> list[MethodRow]:
    """The rows of a group without those that repeat a loss."""
    return [row for row in group.rows if row.repeats is None]


def values_of(row: MethodRow, metric: str) -> dict[int, float]:
    """Seed -> value of the finished runs; a missing value is left out, an infinite one is not."""
    cell = row.cells.get(metric)
    if cell is None:
        return {}
    found = zip((run.seed for run in row.finished), cell.values, strict=True)
    return {seed: value for seed, value in found if not math.isnan(value)}


def paired_tests(groups: Sequence[Group], metric: str, baseline: str, direction: Direction) -> list[PairedTest]:
    """Each row against the baseline of its group, on the seeds that both have; Holm-corrected over all of them."""
    tests: list[PairedTest] = []
    for group in groups:
        rows = counted(group)
        named = [row for row in rows if row.method == baseline] or [row for row in rows if row.label == baseline]
        for row in rows if named else ():
            ours, theirs = values_of(row, metric), values_of(named[0], metric)
            seeds = sorted(ours.keys() & theirs.keys())
            if row is not named[0] and seeds:
                pairs = compare_pairs([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds], direction)
                test = PairedTest(
                    **pairs.model_dump(),
                    group=group.title,
                    label=row.label,
                    method=row.method,
                    baseline=named[0].label,
                    seeds=tuple(seeds),
                    p_holm=pairs.p,
                    verdict="better" if pairs.is_better else "worse",
                )
                tests.append(test)
    corrected = zip(tests, holm([test.p for test in tests]), strict=True)
    return [
        test.model_copy(update={"p_holm": p, "verdict": "open" if p >= ALPHA else test.verdict})
        for test, p in corrected
    ]


def compare_pairs(ours: Sequence[float], theirs: Sequence[float], direction: Direction = "lower") -> Pairs:
    """Ratio of paired values with its t-interval, t-test and sign-flip test."""
    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):  # log(e / e⁰): ±inf where one of them is infinite or zero
        logs = np.where(a == b, 0.0, np.log(a) - np.log(b))
    # Σ d without NaN: of infinite differences the more frequent sign wins; as many of both leave the finite ones.
    infinite = float(np.sign(logs[np.isinf(logs)]).sum())
    total = math.copysign(math.inf, infinite) if infinite else float(logs[np.isfinite(logs)].sum())
    # exp(d̄), the geometric mean of e / e⁰: none if values of both sides are infinite or zero.
    has_ratio = any((np.isfinite(values) & (values > 0)).all() for values in (a, b))
    interval, t_p = t_test(logs) if np.isfinite([a, b]).all() else (None, None)
    return Pairs(
        ratio=_exp(total / len(logs)) if has_ratio else None,
        interval=interval,
        diverged=int(np.isinf(a).sum()),
        baseline_diverged=int(np.isinf(b).sum()),
        t_p=t_p,
        sign_flip_p=sign_flip_p(logs),
        is_better=total < 0 if direction == "lower" else total > 0,
    )


def t_test(logs: np.ndarray) -> tuple[tuple[float, float] | None, float | None]:
    """The 95 % interval exp(d̄ ± t s/√n) of the ratio and the two-sided p of t = d̄ √n / s, for log ratios d.

    With one pair, without spread or with an infinite ratio there is no t: both are None.
    """
    from scipy import stats

    if len(logs) < 2 or not np.isfinite(logs).all() or np.ptp(logs) <= 1e-12 * max(1.0, np.abs(logs).max()):
        return None, None
    found = stats.ttest_1samp(logs, 0.0)
    low, high = found.confidence_interval(1 - ALPHA)
    return (_exp(float(low)), _exp(float(high))), float(found.pvalue)


def sign_flip_p(logs: np.ndarray) -> float:
    """Share of the 2^n sign flips of d whose |Σ ±d| is at least |Σ d|: exact, without a distribution assumed.

    Infinite differences count as the limit of large ones: together they outweigh all finite ones.
    """
    outweighing = 4 * np.abs(logs[np.isfinite(logs)]).sum() or 1.0
    d = np.where(np.isfinite(logs), logs, np.sign(logs) * outweighing)
    d = np.where(np.abs(d) < 1e-14, 0.0, d)  # a ratio that rounding made is a tie
    observed = abs(d.sum()) - 1e-12 * np.abs(d).sum()  # equal sums, added in another order
    if len(d) > EXACT_SEEDS:
        signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(DRAWS, len(d)))
        return float((1 + (np.abs(signs @ d) >= observed).sum()) / (1 + DRAWS))
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums + value, sums - value))
    return float((np.abs(sums) >= observed).mean())


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction: the i-th smallest of m values times m − i + 1, made monotone and at most 1."""
    corrected, highest = [0.0] * len(p), 0.0
    for place, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, (len(p) - place) * p[i]))
        corrected[i] = highest
    return corrected


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
