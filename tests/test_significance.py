"""Statistics of a study: against scipy, published critical values, enumeration and properties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Later
from fakes import ERROR, fake_group, fake_row
from hero.report.sentences import notes_on_tests
from hero.study.records import Group, MethodRow, Status, Summary
from hero.study.statistics import compare_pairs, holm, sign_flip_p, summarise

INF = math.inf
stats = Later("scipy.stats")
errors = st.floats(1e-6, 1e3) | st.just(INF)


def row(method: str, values: list[float], label: str = "", statuses: Sequence[Status] = ()) -> MethodRow:
    return fake_row(label or f"FNO-{method}", values, ERROR, statuses=statuses, method=method, strategy=method)


def group(title: str, *rows: MethodRow, task: str = "", loss: str = "") -> Group:
    return fake_group(*rows, title=title, task=task or title, loss=loss)


def only(found: tuple[Summary, ...]) -> Summary:
    (summary,) = found
    return summary


def sample(seeds: int, factor: float = 1.0, seed: int = 0) -> list[float]:
    return (factor * np.exp(np.random.default_rng(seed).normal(0, 0.1, seeds))).tolist()


def study(groups: int = 4, seeds: int = 5) -> list[Group]:
    """hero is better than push_forward, which is better than one_step, by far more than they scatter."""
    return [
        group(
            f"Task {i}, FNO",
            row("push_forward", sample(seeds, 1.0, 3 * i)),
            row("hero", sample(seeds, 0.5, 3 * i + 1)),
            row("one_step", sample(seeds, 2.0, 3 * i + 2)),
        )
        for i in range(groups)
    ]


def test_the_t_test_is_scipys_on_log_errors() -> None:
    ours, theirs = sample(7, 0.9, 1), sample(7, 1.0, 2)
    found = compare_pairs(ours, theirs)
    expected = stats.ttest_rel(np.log(ours), np.log(theirs))
    assert found.t_p == pytest.approx(expected.pvalue, rel=1e-12)
    interval = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx([math.exp(interval.low), math.exp(interval.high)], rel=1e-12)
    assert found.ratio == pytest.approx(stats.gmean(ours) / stats.gmean(theirs), rel=1e-12)
    assert found.p == found.t_p


def test_the_sign_flip_test_is_scipys_permutation_test() -> None:
    logs = np.random.default_rng(5).normal(0.1, 0.2, 9)
    expected = stats.permutation_test((logs,), np.sum, permutation_type="samples", n_resamples=INF)
    assert sign_flip_p(logs) == pytest.approx(expected.pvalue, rel=1e-12)
    assert sign_flip_p(np.ones(21)) == 1 / 100_001  # drawn, not counted: no draw has all signs the same


@given(st.lists(st.integers(-3, 3).map(float) | st.sampled_from([INF, -INF]), min_size=1, max_size=7))
def test_the_sign_flip_test_counts_every_flip_with_infinity_as_a_limit(logs: list[float]) -> None:
    def sizes(huge: float) -> list[float]:
        d = [math.copysign(huge, x) if math.isinf(x) else x for x in logs]
        flips = itertools.product((1, -1), repeat=len(d))
        return [abs(sum(sign * x for sign, x in zip(signs, d, strict=True))) for signs in flips]

    all_sizes = sizes(1e6)
    naive = sum(size >= all_sizes[0] for size in all_sizes) / len(all_sizes)
    assert sign_flip_p(np.array(logs)) == naive


@given(st.lists(st.tuples(errors, errors), min_size=1, max_size=8))
def test_infinite_errors_are_never_dropped(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = map(list, zip(*pairs, strict=True))
    found = compare_pairs(ours, theirs)
    assert (found.diverged, found.baseline_diverged) == (ours.count(INF), theirs.count(INF))
    assert 0 < found.sign_flip_p <= 1
    if found.diverged or found.baseline_diverged:
        assert found.t_p is found.interval is None
        assert found.p == found.sign_flip_p
    if ours.count(INF) and not theirs.count(INF):
        assert found.ratio == INF


def test_one_diverged_seed_outweighs_four_good_ones_but_two_tie() -> None:
    equal = compare_pairs([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (equal.ratio, equal.interval, equal.t_p, equal.p) == (1.0, None, None, 1.0)
    zero = compare_pairs([0.0, 40.0, 50.0], [10.0, 20.0, 30.0], "higher")
    assert (zero.t_p, zero.ratio, zero.is_better) == (None, 0.0, False)
    found = compare_pairs([INF, 0.5, 0.5, 0.5, 0.5], [1.0] * 5)
    assert not found.is_better
    assert found.sign_flip_p == 1  # of all flips, none leaves less than this one, where the four pull back
    assert compare_pairs([INF, 2.0, 2.0, 2.0, 2.0], [1.0] * 5).sign_flip_p == 2 / 2**5
    tied = compare_pairs([INF, 0.5, 0.5, 0.5, 0.5], [INF, 1.0, 1.0, 1.0, 1.0])
    assert tied.is_better
    assert tied.ratio is None
    assert tied.sign_flip_p == 2 / 2**4


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_monotone_and_never_below_the_raw_value(p: list[float]) -> None:
    corrected = holm(p)
    assert all(raw <= value <= 1 for raw, value in zip(p, corrected, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [corrected[i] for i in order] == sorted(corrected)
    assert all(value <= min(1, len(p) * raw) for raw, value in zip(p, corrected, strict=True))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_study_with_a_clear_order() -> None:
    groups = study(seeds=6)
    found = only(summarise(groups))
    assert len(found.tests) == 8
    assert {(test.method, test.verdict) for test in found.tests} == {("hero", "better"), ("one_step", "worse")}
    assert [test.p_holm for test in found.tests] == holm([test.p for test in found.tests])
    assert any(note.startswith("8 comparisons") for note in notes_on_tests(found))


def test_the_direction_turns_verdicts() -> None:
    found = only(summarise(study(), direction="higher"))
    assert {(test.method, test.verdict) for test in found.tests} == {("hero", "worse"), ("one_step", "better")}


def test_losses_share_the_correction() -> None:
    of_d = [g.model_copy(update={"loss": "relative"}) for g in study(2)]
    of_mse = [g.model_copy(update={"loss": "mse", "title": f"{g.title}, mse"}) for g in study(3)]
    relative, mse = summarise([*of_d, *of_mse])
    assert (relative.loss, mse.loss) == ("relative", "mse")
    tests = (*relative.tests, *mse.tests)
    assert [test.p_holm for test in tests] == holm([test.p for test in tests])
    assert relative.corrected == mse.corrected == len(tests) == 10
    assert any(note.startswith("10 comparisons") for note in notes_on_tests(mse))
    assert [test.p_holm for test in relative.tests] != [test.p_holm for test in only(summarise(of_d)).tests]


def test_the_same_loss_is_counted_once() -> None:
    groups = study()
    again = [
        g.model_copy(update={"rows": (*g.rows, g.rows[0].model_copy(update={"method": "again", "repeats": "FNO-PF"}))})
        for g in groups
    ]
    assert summarise(again) == summarise(groups)


def test_runs_are_paired_by_seed_and_not_by_place() -> None:
    ours, theirs = sample(4, 0.8, 1), sample(4, 1.0, 2)
    partly: list[Status] = ["failed", "finished", "not run", "finished"]
    groups = [group("Burgers", row("push_forward", theirs), row("hero", [ours[1], ours[3]], statuses=partly))]
    found = only(summarise(groups))
    (test,) = found.tests
    assert test.seeds == (1, 3)
    expected = compare_pairs([ours[1], ours[3]], [theirs[1], theirs[3]])
    assert (test.ratio, test.t_p) == (expected.ratio, expected.t_p)


def test_the_baseline_is_a_method_or_a_label() -> None:
    def of(backbone: str) -> Group:
        rows = [row("push_forward", sample(3), f"{backbone}-PF"), row("HERO", sample(3, 0.9, 1), "HERO"),
                row("without lag", sample(3, 0.8, 2), "without lag")]  # fmt: skip
        return group(backbone, *rows, task="burgers")

    groups = [of("FNO"), of("Trans.")]
    found = only(summarise(groups))
    assert [test.label for test in found.tests] == ["HERO", "without lag"] * 2
    assert {test.baseline for test in only(summarise(groups, baseline="HERO")).tests} == {"HERO"}
    assert len(only(summarise(groups[:1], baseline="FNO-PF")).tests) == 2


def test_nothing_to_compare_is_empty_and_no_baseline_is_said() -> None:
    assert summarise([]) == ()
    assert summarise([group("Burgers", row("hero", [0.1, 0.2]))]) == ()
    assert summarise([group("Burgers", row("hero", [0.1]), row("push_forward", []))]) == ()
    found = only(summarise(study(), baseline="refiner"))
    assert found.tests == ()
    assert any("No test was made: PDE-Refiner" in note for note in notes_on_tests(found))
