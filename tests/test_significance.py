"""Statistics of a study: against scipy, published critical values, enumeration and properties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from fakes import ERROR, fake_group, fake_row
from hero.report.content import statistics_tables
from hero.report.figures.runs import critical_difference_figure
from hero.report.figures.style import save
from hero.report.sentences import statistics_notes
from hero.study.records import Direction, Group, MethodRow, Status, Summary, Wins
from hero.study.statistics import (
    average_ranks,
    compare_pairs,
    critical_difference,
    friedman,
    holm,
    joined,
    log_ratios,
    sign_flip_p,
    summarise,
    win_rates,
)

INF = math.inf
errors = st.floats(1e-6, 1e3) | st.just(INF)
finite = st.floats(1e-6, 1e3)


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


@given(st.lists(st.integers(-3, 3).map(float) | st.sampled_from([INF, -INF]), min_size=1, max_size=7))
def test_the_sign_flip_test_counts_every_flip_with_infinity_as_a_limit(logs: list[float]) -> None:
    def sizes(huge: float) -> list[float]:
        d = [math.copysign(huge, x) if math.isinf(x) else x for x in logs]
        flips = itertools.product((1, -1), repeat=len(d))
        return [abs(sum(sign * x for sign, x in zip(signs, d, strict=True))) for signs in flips]

    all_sizes = sizes(1e6)
    naive = sum(size >= all_sizes[0] for size in all_sizes) / len(all_sizes)
    assert sign_flip_p(np.array(logs)) == naive


def test_many_seeds_are_drawn_instead_of_counted() -> None:
    logs = np.random.default_rng(2).normal(0.1, 0.3, 21)
    sums = np.zeros(1)
    for half in (logs[:12], logs[12:]):  # all 2^21 sums, as sums of two halves
        part = np.zeros(1)
        for value in half:
            part = np.concatenate((part + value, part - value))
        sums = (sums[:, None] + part[None]).ravel()
    exact = (np.abs(sums) >= abs(logs.sum()) - 1e-9).mean()
    assert sign_flip_p(logs) == pytest.approx(exact, abs=5 * math.sqrt(exact / 100_000))
    assert sign_flip_p(logs) == sign_flip_p(logs)


@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=8), st.floats(0.01, 100))
def test_a_common_scale_changes_nothing(pairs: list[tuple[float, float]], scale: float) -> None:
    ours, theirs = map(list, zip(*pairs, strict=True))
    before = compare_pairs(ours, theirs)
    after = compare_pairs([scale * x for x in ours], [scale * x for x in theirs])
    assert after.ratio == pytest.approx(before.ratio, rel=1e-9)
    assert after.sign_flip_p == before.sign_flip_p
    if before.t_p is not None and np.ptp(log_ratios(np.array(ours), np.array(theirs))) > 1e-6:
        assert after.t_p == pytest.approx(before.t_p, rel=1e-6)


@given(st.lists(st.tuples(errors, errors), min_size=1, max_size=8))
def test_swapping_the_sides_inverts_the_ratio_and_keeps_p(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = map(list, zip(*pairs, strict=True))
    found, swapped = compare_pairs(ours, theirs), compare_pairs(theirs, ours)
    assert swapped.sign_flip_p == found.sign_flip_p
    if found.ratio is None:
        assert swapped.ratio is None
    elif 0 < found.ratio < INF:
        assert swapped.ratio == pytest.approx(1 / found.ratio, rel=1e-9)
    else:
        assert {found.ratio, swapped.ratio} == {0.0, INF}


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
    found = compare_pairs([INF, 0.5, 0.5, 0.5, 0.5], [1.0] * 5)
    assert not found.is_better
    assert found.sign_flip_p == 1  # of all flips, none leaves less than this one, where the four pull back
    assert compare_pairs([INF, 2.0, 2.0, 2.0, 2.0], [1.0] * 5).sign_flip_p == 2 / 2**5
    tied = compare_pairs([INF, 0.5, 0.5, 0.5, 0.5], [INF, 1.0, 1.0, 1.0, 1.0])
    assert tied.is_better
    assert tied.ratio is None
    assert tied.sign_flip_p == 2 / 2**4


def test_equal_runs_do_not_differ() -> None:
    found = compare_pairs([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (found.ratio, found.interval, found.t_p, found.p) == (1.0, None, None, 1.0)


def test_zero_is_a_value_like_any_other_for_the_sign_flip_test() -> None:
    found = compare_pairs([0.0, 40.0, 50.0], [10.0, 20.0, 30.0], "higher")
    assert found.t_p is None
    assert found.ratio == 0.0
    assert not found.is_better


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_monotone_and_never_below_the_raw_value(p: list[float]) -> None:
    corrected = holm(p)
    assert all(raw <= value <= 1 for raw, value in zip(p, corrected, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [corrected[i] for i in order] == sorted(corrected)
    assert all(value <= min(1, len(p) * raw) for raw, value in zip(p, corrected, strict=True))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(
    ("methods", "q"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_critical_values_are_those_demsar_prints(methods: int, q: float) -> None:
    assert critical_difference(methods, 1) / math.sqrt(methods * (methods + 1) / 6) == pytest.approx(q, abs=1.1e-3)


# Table 6 of Demšar, "Statistical comparisons of classifiers over multiple data sets" (JMLR 2006): AUC,
# higher is better.
# One value has a digit more than printed: the paper ranks it before the one that looks the same.
DEMSAR = {
    "C4.5": [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957],
    "C4.5+m": [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978],
    "C4.5+cf": [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946],
    "C4.5+m+cf": [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970],
}


def test_average_ranks_are_those_of_demsars_example() -> None:
    titles = [str(i) for i in range(14)]
    means = {name: dict(zip(titles, values, strict=True)) for name, values in DEMSAR.items()}
    found = average_ranks(means, titles, "higher")
    ranks = {entry.method: entry.rank for entry in found.methods}
    assert ranks == pytest.approx({"C4.5": 3.143, "C4.5+m": 2.000, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}, abs=5e-4)
    assert found.critical_difference == pytest.approx(1.25, abs=5e-3)
    expected = stats.friedmanchisquare(*DEMSAR.values())
    assert (found.chi2, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
    # All differences are below 1.25, as the paper says of Nemenyi's test there.
    assert found.joined == (("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"),)


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=2, max_size=8))
def test_friedman_is_scipys_also_with_ties(table: list[list[int]]) -> None:
    ranks = stats.rankdata(np.array(table), axis=1)
    found = friedman(ranks)
    if found is None:
        assert all(len(set(values)) == 1 for values in table)
        return
    expected = stats.friedmanchisquare(*np.array(table).T)
    assert found == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9, abs=1e-12)


def test_joined_methods_are_the_largest_sets_within_the_difference() -> None:
    assert joined([1.0, 2.0, 2.9, 5.0], list("abcd"), 1.5) == (("a", "b"), ("b", "c"))
    assert joined([1.0, 1.5, 2.0], list("abc"), 1.5) == (("a", "b", "c"),)
    assert joined([1.0, 3.0], list("ab"), 1.5) == ()


tables = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.sampled_from("1234"), errors, min_size=1), min_size=2
)


@given(tables, st.sampled_from(["lower", "higher"]))
def test_win_rates_of_a_pair_sum_to_one(means: dict[str, dict[str, float]], direction: Direction) -> None:
    pairs = {(pair.method, pair.against): pair for pair in win_rates(means, direction)}
    for (a, b), pair in pairs.items():
        back = pairs[b, a]
        assert pair.groups == len(means[a].keys() & means[b].keys())
        assert pair.groups + pair.left_out == len(set().union(*means.values()))
        assert pair.wins == back.losses
        if pair.rate is not None and back.rate is not None:
            assert pair.rate + back.rate == pytest.approx(1)
        else:
            assert pair.groups == 0


def test_wins_by_hand_with_a_tie_of_diverged_runs_and_a_group_left_out() -> None:
    means = {"a": {"1": 0.1, "2": INF, "3": 0.3}, "b": {"1": 0.2, "2": INF, "3": 0.2, "4": 0.1}}
    (forward, _) = win_rates(means)
    assert forward == Wins(method="a", against="b", wins=1, ties=1, losses=1, left_out=1)
    assert (forward.groups, forward.rate) == (3, 0.5)


def test_a_study_with_a_clear_order() -> None:
    groups = study(seeds=6)
    found = only(summarise(groups))
    assert len(found.tests) == 8
    assert {(test.method, test.verdict) for test in found.tests} == {("hero", "better"), ("one_step", "worse")}
    assert [test.p_holm for test in found.tests] == holm([test.p for test in found.tests])
    assert [(entry.method, entry.rank) for entry in found.ranks.methods] == [
        ("hero", 1), ("push_forward", 2), ("one_step", 3)]  # fmt: skip
    assert found.ranks.chi2 == pytest.approx(8)  # N (k − 1) where all groups agree
    assert any(note.startswith("8 comparisons") for note in statistics_notes(found, groups))


def test_the_direction_turns_verdicts_wins_and_ranks() -> None:
    found = only(summarise(study(), direction="higher"))
    assert {(test.method, test.verdict) for test in found.tests} == {("hero", "worse"), ("one_step", "better")}
    assert found.ranks.methods[0].method == "one_step"
    assert next(pair.rate for pair in found.wins if pair.method == "hero") == 0


def test_losses_have_their_own_ranks_and_share_the_correction() -> None:
    of_d = [g.model_copy(update={"loss": "relative"}) for g in study(2)]
    of_mse = [g.model_copy(update={"loss": "mse", "title": f"{g.title}, mse"}) for g in study(3)]
    relative, mse = summarise([*of_d, *of_mse])
    assert (relative.loss, mse.loss) == ("relative", "mse")
    assert (relative.ranks.groups, mse.ranks.groups) == (2, 3)
    tests = (*relative.tests, *mse.tests)
    assert [test.p_holm for test in tests] == holm([test.p for test in tests])
    assert relative.corrected == mse.corrected == len(tests) == 10
    assert any(note.startswith("10 comparisons") for note in statistics_notes(mse, of_mse))
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
    assert {entry.method for entry in found.ranks.methods} == {"push_forward", "HERO", "without lag"}
    assert [test.label for test in found.tests] == ["HERO", "without lag"] * 2
    assert any("not independent" in note for note in statistics_notes(found, groups))
    assert {test.baseline for test in only(summarise(groups, baseline="HERO")).tests} == {"HERO"}
    assert len(only(summarise(groups[:1], baseline="FNO-PF")).tests) == 2


def test_groups_without_all_methods_are_left_out_of_the_ranks_and_counted() -> None:
    lacking = group("Task 9, FNO", row("push_forward", sample(5)), row("hero", sample(5, 0.5)), row("one_step", []))
    found = only(summarise([*study(3), lacking]))
    assert found.ranks.groups == 3
    assert found.ranks.left_out == ("Task 9, FNO",)
    pairs = {(pair.method, pair.against): pair for pair in found.wins}
    assert (pairs["hero", "one_step"].groups, pairs["hero", "one_step"].left_out) == (3, 1)
    assert (pairs["hero", "push_forward"].groups, pairs["hero", "push_forward"].left_out) == (4, 0)


def test_one_group_says_nothing_over_groups() -> None:
    groups = study(1)
    found = only(summarise(groups))
    assert found.ranks.methods == ()
    assert any("nothing can be said" in note for note in statistics_notes(found, groups))
    assert len(found.tests) == 2


def test_nothing_to_compare_is_empty_and_no_baseline_is_said() -> None:
    assert summarise([]) == ()
    assert summarise([group("Burgers", row("hero", [0.1, 0.2]))]) == ()
    assert summarise([group("Burgers", row("hero", [0.1]), row("push_forward", []))]) == ()
    found = only(summarise(study(), baseline="refiner"))
    assert found.tests == ()
    assert any("No test was made: PDE-Refiner" in note for note in statistics_notes(found, study()))


def with_divergence() -> list[Group]:
    """One run of hero has diverged in the first group, one of push_forward in the second."""
    groups = study()
    for number, place, seed in ((0, 1, 2), (1, 0, 0)):
        rows = list(groups[number].rows)
        cell = rows[place].cells["nrmse@100"]
        assert cell is not None
        values = [INF if i == seed else value for i, value in enumerate(cell.values)]
        rows[place] = row(rows[place].method, values)
        groups[number] = group(groups[number].title, *rows)
    return groups


def test_diverged_runs_are_in_tests_ranks_and_tables() -> None:
    found = only(summarise(with_divergence()))
    test = found.tests[0]
    assert (test.diverged, test.baseline_diverged, test.ratio, test.n, test.test) == (1, 0, INF, 5, "sign-flip")
    assert found.ranks.groups == 4
    pairs = {(pair.method, pair.against): pair for pair in found.wins}
    assert pairs["hero", "one_step"].losses == 1  # the group in which hero diverged
    text = "".join(table.to_markdown() for table in statistics_tables(found))
    assert "| ∞ | 1 diverged | – |" in text
    assert "base: 1 diverged" in text


def printed(summary: Summary, width: int) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        for table in statistics_tables(summary):
            console.print(table.to_rich())
    return capture.get()


def test_tables_fit_a_terminal_of_80_columns_without_cut_numbers() -> None:
    found = only(summarise(study()))
    text = printed(found, 80)
    assert max(map(len, text.splitlines())) <= 80
    for test in found.tests:
        assert f"{test.ratio:#.3g}" in text


@pytest.mark.parametrize("methods", [2, 12])
def test_the_rank_diagram_names_every_method_once(methods: int, tmp_path: Path) -> None:
    groups = [
        group(f"Task {i}", *(row(f"method_{m}", sample(2, 1.1**m, i * 99 + m)) for m in range(methods)))
        for i in range(3)
    ]
    found = only(summarise(groups, baseline="method_0"))
    figure = critical_difference_figure(found)
    assert figure is not None
    labels = figure.axes[0].get_yticklabels()
    texts = [text.get_text() for text in labels]
    for entry in found.ranks.methods:
        shown = [text for text in texts if set(text.split()) == {entry.method, f"{entry.rank:.2f}"}]
        assert len(shown) == 1
    assert save(figure, tmp_path / "ranks.png").stat().st_size > 5000
    width, _ = figure.get_size_inches()
    boxes = [text.get_window_extent() for text in (*labels, *figure.axes[0].texts)]
    assert min(box.x0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width * figure.dpi


@settings(max_examples=25)
@given(st.lists(st.lists(st.lists(errors, min_size=1, max_size=4), min_size=2, max_size=4), min_size=1, max_size=4))
def test_any_study_gives_a_summary_that_can_be_written(values: list[list[list[float]]]) -> None:
    names = ("push_forward", "hero", "one_step", "refiner")
    groups = [
        group(f"Task {i}", *(row(name, list(cell)) for name, cell in zip(names, cells, strict=False)))
        for i, cells in enumerate(values)
    ]
    found = only(summarise(groups))
    assert all(test.p <= test.p_holm <= 1 for test in found.tests)
    assert sum(test.n for test in found.tests) == sum(
        min(len(cells[0]), len(cell)) for cells in values for cell in cells[1:]
    )
    assert "nan" not in found.model_dump_json().lower()
    assert all(table.to_markdown() for table in statistics_tables(found))
