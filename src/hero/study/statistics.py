"""What the numbers of a study can show: paired tests across seeds, win rates and average ranks over its groups.

A group is a task and a backbone (or a shift) with one row per method. Errors are compared by their ratio: a method that
is 10 % better on every task says the same everywhere, whatever the size of the error. A diverged run has error inf: it
is worse than anything, ties with another diverged run, and is never left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hero.report.tables import as_float

ALPHA = 0.05
EXACT_SEEDS = 20
"""Up to here all 2^n sign flips are counted; beyond, DRAWS of them are drawn."""
DRAWS = 100_000
ROUGH_GROUPS = 10
"""Below this number of groups the χ² distribution is a rough stand-in for Friedman's."""

Group = Mapping[str, Any]
Row = Mapping[str, Any]


def summarise(
    groups: Sequence[Group], metric: str = "nrmse@100", baseline: str = "push_forward", direction: str = "lower"
) -> dict[str, Any] | None:
    """The statistics of a study, from the groups of its study.json; None if no group has two rows with results.

    `baseline` is a strategy or the label of a row. A method is known across groups by its strategy, because labels name
    the backbone too; where a group has several rows of one strategy, by its label.

        {"metric", "baseline", "direction", "alpha": 0.05,
         "tests": [{"group", "label", "method", "baseline",  # label of the row, its method, label of the baseline's row
                    "seeds": [0, 1, ...], "n",               # seeds that both have
                    "ratio", "interval": [low, high] | None, # geometric mean of the ratios to the baseline, 95 %
                    "diverged": {"ours", "baseline"},        # paired seeds with an infinite value
                    "t_p": p | None, "sign_flip_p": p,       # two-sided; the t-test is not defined for every sample
                    "test": "t" | "sign-flip", "p", "p_holm",  # the one that counts, and corrected over all tests
                    "verdict": "better" | "worse" | "open"}],
         "wins": [{"method", "against", "wins", "ties", "losses", "groups", "left_out", "rate": share | None}],
         "ranks": {"methods": [{"method", "rank"}],          # best first; empty if there is nothing to rank
                   "groups", "left_out": [titles], "friedman": {"chi2", "p"} | None,
                   "critical_difference": CD | None, "joined": [[methods that CD does not separate]]},
         "notes": [sentences that a careful reader needs]}
    """
    names = method_names(groups)
    if not any(sum(bool(_values(row, metric)) for row in group["rows"]) > 1 for group in groups):
        return None
    means = {name: _means(groups, names, name, metric) for name in dict.fromkeys(names.values())}
    means = {name: found for name, found in means.items() if found}
    tests = _tests(groups, names, metric, baseline, direction)
    ranks = average_ranks(means, [group["title"] for group in groups], direction)
    summary = {
        "metric": metric,
        "baseline": baseline,
        "direction": direction,
        "alpha": ALPHA,
        "tests": tests,
        "wins": win_rates(means, direction),
        "ranks": ranks,
    }
    return {**summary, "notes": [*_test_notes(summary, groups), *_rank_notes(summary, groups)]}


def method_names(groups: Sequence[Group]) -> dict[tuple[str, str], str]:
    """(strategy, label) of every row -> the name by which its method is known in all groups."""
    shared = set()
    for group in groups:
        strategies = [row["strategy"] for row in group["rows"]]
        shared |= {name for name in strategies if strategies.count(name) > 1}
    return {
        (row["strategy"], row["label"]): row["label"] if row["strategy"] in shared else row["strategy"]
        for group in groups
        for row in group["rows"]
    }


def compare_pairs(ours: Sequence[float], theirs: Sequence[float], direction: str = "lower") -> dict[str, Any]:
    """Ratio of paired values with its t-interval, t-test and sign-flip test; the fields of a test before correction."""
    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    logs = log_ratios(a, b)
    interval, t_p = t_test(logs) if np.isfinite([a, b]).all() else (None, None)
    flip_p = sign_flip_p(logs)
    return {
        "n": len(logs),
        "ratio": mean_ratio(a, b),
        "interval": interval,
        "diverged": {"ours": int(np.isinf(a).sum()), "baseline": int(np.isinf(b).sum())},
        "t_p": t_p,
        "sign_flip_p": flip_p,
        "test": "sign-flip" if t_p is None else "t",
        "p": flip_p if t_p is None else t_p,
        "better": bool(_total(logs) < 0) if direction == "lower" else bool(_total(logs) > 0),
    }


def log_ratios(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """log(e / e⁰) for each pair; ±inf where one of them is infinite or zero, 0 where both are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ours) - np.log(theirs)
    return np.where(ours == theirs, 0.0, logs)


def mean_ratio(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """exp(d̄), the geometric mean of e / e⁰; inf or 0 if values of one side are infinite or zero, None if of both."""
    logs = log_ratios(ours, theirs)
    if all(not (np.isfinite(values) & (values > 0)).all() for values in (ours, theirs)):
        return None
    return _exp(_total(logs) / len(logs))


def t_test(logs: np.ndarray) -> tuple[list[float] | None, float | None]:
    """The 95 % interval exp(d̄ ± t s/√n) of the ratio and the two-sided p of t = d̄ √n / s, for log ratios d.

    With one pair, without spread or with an infinite ratio there is no t: both are None.
    """
    from scipy import stats

    if len(logs) < 2 or not np.isfinite(logs).all() or np.ptp(logs) <= 1e-12 * max(1.0, np.abs(logs).max()):
        return None, None
    n, mean = len(logs), float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(n)
    reach = float(stats.t.ppf(1 - ALPHA / 2, n - 1)) * error
    return [_exp(mean - reach), _exp(mean + reach)], float(2 * stats.t.sf(abs(mean) / error, n - 1))


def sign_flip_p(logs: np.ndarray) -> float:
    """Share of the 2^n sign flips of d whose |Σ ±d| is at least |Σ d|: exact, without a distribution assumed.

    Infinite differences count as the limit of large ones: together they outweigh all finite ones.
    """
    d = _bounded(logs)
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


def win_rates(means: Mapping[str, Mapping[str, float]], direction: str = "lower") -> list[dict[str, Any]]:
    """For each ordered pair of methods, in how many groups (title -> mean) the first is better; a tie counts half."""
    rates = []
    every = set().union(*means.values())
    for a, b in itertools.permutations(means, 2):
        common = means[a].keys() & means[b].keys()
        signs = [_sign(means[a][title], means[b][title], direction) for title in common]
        wins, ties = signs.count(1), signs.count(0)
        rates.append({
            "method": a,
            "against": b,
            "wins": wins,
            "ties": ties,
            "losses": signs.count(-1),
            "groups": len(common),
            "left_out": len(every) - len(common),
            "rate": (wins + ties / 2) / len(common) if common else None,
        })  # fmt: skip
    return rates


def average_ranks(
    means: Mapping[str, Mapping[str, float]], titles: Sequence[str], direction: str = "lower"
) -> dict[str, Any]:
    """Ranks (1 is best, ties share) averaged over the groups in which every method has a result, as Demšar (2006)."""
    complete = [title for title in titles if all(title in found for found in means.values())]
    result: dict[str, Any] = {
        "methods": [],
        "groups": len(complete),
        "left_out": [title for title in titles if title not in complete],
        "friedman": None,
        "critical_difference": None,
        "joined": [],
    }
    if len(complete) < 2 or len(means) < 2:
        return result
    from scipy import stats

    table = np.array([[found[title] for found in means.values()] for title in complete])  # (group, method)
    ranks = stats.rankdata(table if direction == "lower" else -table, axis=1)
    difference = critical_difference(len(means), len(complete))
    ordered = sorted(zip(ranks.mean(axis=0).tolist(), means, strict=True))
    return result | {
        "methods": [{"method": name, "rank": rank} for rank, name in ordered],
        "friedman": friedman(ranks),
        "critical_difference": difference,
        "joined": joined([rank for rank, _ in ordered], [name for _, name in ordered], difference),
    }


def friedman(ranks: np.ndarray) -> dict[str, float] | None:
    """χ² = (k−1) Σ_j (R_j − N(k+1)/2)² / Σ_ij (r_ij − (k+1)/2)², corrected for ties; None if all is tied."""
    from scipy import stats

    n, k = ranks.shape
    spread = float(((ranks - (k + 1) / 2) ** 2).sum())
    if spread == 0:
        return None
    chi2 = (k - 1) * float(((ranks.sum(axis=0) - n * (k + 1) / 2) ** 2).sum()) / spread
    return {"chi2": chi2, "p": float(stats.chi2.sf(chi2, k - 1))}


def critical_difference(methods: int, groups: int) -> float:
    """Nemenyi: CD = q √(k(k+1) / 6N), with q the studentized range at 0.05 for k methods over √2."""
    from scipy import stats

    q = float(stats.studentized_range.isf(ALPHA, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * groups))


def joined(ranks: Sequence[float], names: Sequence[str], difference: float) -> list[list[str]]:
    """The largest sets of neighbours, in the order of their ranks, whose ends the critical difference does not part."""
    found: list[list[str]] = []
    reached = 0
    for first in range(len(ranks)):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] < difference)
        if last > first and last > reached:
            found.append(list(names[first : last + 1]))
            reached = last
    return found


def _values(row: Row, metric: str) -> dict[int, float]:
    """Seed -> value of the runs that are finished; a value that is missing is left out, an infinite one is not."""
    cell = row["cells"].get(metric)
    if cell is None:
        return {}
    seeds = [run["seed"] for run in row["runs"] if run["status"] == "finished"]
    found = zip(seeds, map(as_float, cell["values"]), strict=True)
    return {seed: value for seed, value in found if not math.isnan(value)}


def _means(groups: Sequence[Group], names: Mapping[tuple[str, str], str], name: str, metric: str) -> dict[str, float]:
    """Title of a group -> mean over seeds of the method `name`, where it has results."""
    found = {}
    for group in groups:
        for row in group["rows"]:
            values = _values(row, metric)
            if values and names[row["strategy"], row["label"]] == name:
                found[group["title"]] = float(np.mean(list(values.values())))
    return found


def _tests(
    groups: Sequence[Group], names: Mapping[tuple[str, str], str], metric: str, baseline: str, direction: str
) -> list[dict[str, Any]]:
    tests = []
    for group in groups:
        reference = _baseline_row(group, names, baseline)
        if reference is None:
            continue
        theirs = _values(reference, metric)
        for row in group["rows"]:
            ours = _values(row, metric)
            seeds = sorted(ours.keys() & theirs.keys())
            if row is reference or not seeds:
                continue
            identity = {
                "group": group["title"],
                "label": row["label"],
                "method": names[row["strategy"], row["label"]],
                "baseline": reference["label"],
                "seeds": seeds,
            }
            pairs = compare_pairs([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds], direction)
            tests.append(identity | pairs)
    for test, corrected in zip(tests, holm([test["p"] for test in tests]), strict=True):
        better = test.pop("better")
        test["p_holm"] = corrected
        test["verdict"] = "open" if corrected >= ALPHA else "better" if better else "worse"
    return tests


def _baseline_row(group: Group, names: Mapping[tuple[str, str], str], baseline: str) -> Row | None:
    """The row that the others of a group are compared with: by method first, then by label."""
    for row in group["rows"]:
        if names[row["strategy"], row["label"]] == baseline:
            return row
    return next((row for row in group["rows"] if row["label"] == baseline), None)


def _sign(a: float, b: float, direction: str) -> int:
    """1 if `a` is better than `b`, 0 if they are the same, −1 if worse."""
    if a == b:
        return 0
    return 1 if (a < b) == (direction == "lower") else -1


def _bounded(logs: np.ndarray) -> np.ndarray:
    """Infinite differences as finite ones that outweigh all others, whatever their signs."""
    finite = np.where(np.isfinite(logs), logs, 0.0)
    return np.where(np.isfinite(logs), logs, np.sign(logs) * (4 * np.abs(finite).sum() or 1.0))


def _total(logs: np.ndarray) -> float:
    """Σ d without NaN: of infinite differences the more frequent sign wins; as many of both leave the finite ones."""
    infinite = float(np.sign(logs[np.isinf(logs)]).sum())
    return math.copysign(math.inf, infinite) if infinite else float(logs[np.isfinite(logs)].sum())


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _test_notes(summary: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:
    tests, baseline = summary["tests"], summary["baseline"]
    if not tests:
        return [f"No test was made: {baseline} and another method have no seed in common in any group."]
    counts = sorted({test["n"] for test in tests})
    found = [
        f"Tests are paired by seed and made on log ratios of {summary['metric']} to {baseline}; "
        f"{'smaller' if summary['direction'] == 'lower' else 'larger'} is better.",
        _seed_note(counts),
        f"{_counted(len(tests), 'comparison')} of this study {'was' if len(tests) == 1 else 'were'} made; "
        f"with Holm's correction, the chance of any false finding among them is at most {100 * ALPHA:g} %.",
    ]
    diverged = sum(sum(test["diverged"].values()) > 0 for test in tests)
    if diverged:
        found.append(
            f"{_counted(diverged, 'comparison')} with diverged runs: the t-test is not defined there, the sign-flip "
            "test counts, with inf worse than anything and a tie of two."
        )
    other = sum(test["t_p"] is None and not any(test["diverged"].values()) for test in tests)
    if other:
        found.append(
            f"{_counted(other, 'comparison')} without a t-test, for there is one seed, no spread or a value of zero; "
            "the sign-flip test counts."
        )
    compared = {test["group"] for test in tests}
    without = len([group for group in groups if group["title"] not in compared])
    if without:
        found.append(
            f"{_counted(without, 'group')} without a test, for {baseline} or the others have no results there."
        )
    lost = sum(run["status"] != "finished" for group in groups for row in group["rows"] for run in row["runs"])
    if lost:
        found.append(f"{_counted(lost, 'run')} not finished: pairs and means are over those that are.")
    return found


def _seed_note(counts: Sequence[int]) -> str:
    """What `counts` seeds can at best show."""
    n = counts[-1]
    seeds = _counted(n, "seed") if len(counts) == 1 else f"at most {n} seeds"
    smallest = min(1.0, 2 / 2**n)
    if smallest <= ALPHA:
        return f"With {seeds} the smallest possible p of the sign-flip test is 2/2^{n} = {smallest:.3g}."
    note = (
        f"With {seeds} the smallest possible p of the sign-flip test is 2/2^{n} = {smallest:.3g}: "
        "it cannot reach 0.05, six seeds can"
    )
    return (
        f"{note}; what is found rests on the t-test and its assumption of normal log ratios." if n > 1 else note + "."
    )


def _rank_notes(summary: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:
    ranks = summary["ranks"]
    found = []
    if not ranks["methods"]:
        return [
            f"Average ranks need two groups in which all methods have results, here {ranks['groups']}: nothing can be "
            "said over groups."
        ]
    friedman, count = ranks["friedman"], ranks["groups"]
    if friedman is None:
        found.append(f"All methods tie in all {count} groups.")
    else:
        shown = "differ" if friedman["p"] < ALPHA else "are not shown to differ"
        found.append(f"Over {count} groups the methods {shown} in rank (Friedman p = {friedman['p']:.2g}).")
    found.append(
        f"Ranks nearer than the critical difference {ranks['critical_difference']:.2f} (Nemenyi) are not separated."
    )
    if ranks["left_out"]:
        found.append(
            f"{_counted(len(ranks['left_out']), 'group')} left out of the ranks, for not all methods ran there."
        )
    if count < ROUGH_GROUPS:
        found.append(f"With {count} groups the Friedman p is rough, and only large differences in rank can be seen.")
    if len({group["task"] for group in groups}) < len(groups):
        found.append("Groups that share a task are not independent, so p over groups is too small.")
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
