"""A sample of the fuzzer, which `python -m benchmarks fuzz` runs at any size: nothing ends in a traceback."""

from __future__ import annotations

import io
import sys

import pytest

from benchmarks.fuzz import fuzz
from conftest import Call
from forked import in_fork
from hero.cli import main
from hero.config import parse_override
from hero.errors import HeroError
from hero.runs.config import make_config
from hero.runs.folder import choose_device
from hero.study.plans import MOST_VALUES, check_values


def test_strange_values_are_taken_or_refused_in_one_sentence() -> None:
    counts, failures = in_fork(fuzz, 150, 60, 12, 8.0)
    assert failures == [], counts
    assert not counts.startswith("0 values")


REFUSED = [
    *("train.steps=1979-05-27", "backbone.kwargs=5", "task.name=5", "backbone.name=[1]", "train.steps=٣"),
    *("train.steps=" + "9" * 5000, "train.steps=" + "[" * 5000, "train.stages=٣:٣", "data.nothing=1"),
    *("refiner.steps=[]", "backbone.size=[]", "hero.diagnostics=[[1]]", "train.stages=1:" + "9" * 5000),
    *("strategy=math:pi", "strategy=torch.nn:Linear", "strategy=hero.strategies:Strategy", "strategy=os:getcwd"),
    "backbone.name=unet backbone.levels=9223372036854775807",
    "backbone.name=torch.nn:Conv1d backbone.kwargs=5 backbone.kwargs.a=1",
]


@pytest.mark.parametrize("texts", REFUSED)
def test_a_value_of_another_kind_is_refused(texts: str) -> None:
    with pytest.raises(HeroError, match=r"[.?]$"):
        make_config(overrides=texts.split())


def test_only_the_digits_of_toml_are_numbers() -> None:
    assert [parse_override(f"a={text}")[1] for text in ("1_0", ".5", "٣", "１")] == [10, 0.5, "٣", "１"]


@pytest.mark.parametrize("name", ["meta", "lazy", "cpu:-1", "cuda:99", ""])
def test_a_device_that_computes_nothing_is_refused(name: str) -> None:
    with pytest.raises(HeroError, match="is not available here"):
        choose_device(name)


@pytest.mark.parametrize("values", [range(10**12), range(10**30), [*range(MOST_VALUES), 0]])
def test_an_axis_without_end_is_refused_at_once(values: range) -> None:
    with pytest.raises(HeroError, match=f"at most {MOST_VALUES}"):
        check_values("seeds", values)


def test_a_terminal_without_our_signs_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["data", "list"]) == 0
    screen.flush()
    shown = screen.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"burgers" in shown
    assert b"?" in shown


def test_what_a_terminal_would_obey_is_spelled_out(call: Call) -> None:
    code, _, err = call("settings", "--set", "a\x1b[31m\n=1")
    assert (code, err.count("\n"), "\x1b" in err, r"\x1b" in err) == (2, 1, False, True)
