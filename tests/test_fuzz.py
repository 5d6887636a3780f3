"""Input that no command expects, with a sample of `python -m benchmarks fuzz`: one sentence, never a traceback."""

from __future__ import annotations

import dataclasses
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz import fuzz
from conftest import Call, assert_refused, options, tiny
from forked import in_fork
from hero.cli import main
from hero.config import parse_override
from hero.errors import HeroError
from hero.runs.config import TaskSettings, make_config
from hero.runs.folder import choose_device
from hero.study.plans import MOST_VALUES, check_values
from hero.training.loop import train


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


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", "[red]x[/]", "a b\nc", "..", "ü\x00", "C:x"])
def test_the_id_of_a_run_is_a_plain_name(name: str, tmp_path: Path) -> None:
    identity = dataclasses.replace(tiny(), task=TaskSettings(name, {})).run_id()
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", identity)
    assert (tmp_path / identity).resolve().parent == tmp_path.resolve()


def test_folders_with_names_like_markup(tmp_path: Path, call: Call, data_dir: Path) -> None:
    folder = tmp_path / "[red]x[/]"
    train(tiny(train__steps=1), folder, data_dir)
    (run,) = folder.iterdir()
    run.rename(renamed := folder / "[red]r[b]")
    code, out, err = call("runs", "--runs", folder)
    assert (code, "[red]r[b]" in out) == (0, True), err
    code, out, err = call("train", "--resume", renamed, "--data", data_dir)
    assert (code, f"report: {renamed}" in out) == (0, True), err
    code, _, err = call("evaluate", folder / "[/x]", "--runs", folder)
    assert (code, "[/x]" in err) == (2, True)


def test_a_start_that_fails_leaves_no_run_folder(tmp_path: Path, data_dir: Path, call: Call) -> None:
    for bad in ("--backbone=torch.nn:Identity", "--backbone=torch.nn:Nothing", "--set=train.optimizer=torch.nn:Linear"):
        given = [part for part in options() if not bad.startswith("--backbone") or not part.startswith("backbone.")]
        settings = [f"--set={part}" for part in given if "=" in part]
        code, _, err = call("train", "burgers", *settings, bad, "--runs", tmp_path, "--data", data_dir)
        assert (code, err.startswith("hero: ")) == (2, True), bad
        assert not any(tmp_path.iterdir()), bad


def test_a_batch_above_the_windows_is_said(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny(train__steps=1, train__batch=500), tmp_path, data_dir)
    assert "train.batch=500 is above the 24 windows of the data: a batch is all of them" in capsys.readouterr().out


REFUSED_COMMANDS = {
    "train": ("hero train burgers",),
    "train burgers --set train.steps": ("KEY=VALUE",),
    "train burgers --set train.device=tpu9": ("train.device='tpu9'", "cpu"),
    "train burgers --config absent.toml": ("absent.toml",),
    "train burgers --resume x": ("--resume", "own settings"),
    "train --resume nothing": ("'nothing'", "hero runs"),
    "data make burgers --set task.dt=0": ("task.dt",),
    "fly": ("unknown command 'fly'", "evaluate, export"),
    "trian": ("unknown command 'trian'", "did you mean 'train'?"),
    "evaluate": ("RUN", "hero evaluate --help"),
    "train burgers --seed x": ("--seed", "integer", "hero train --help"),
    "train burgers --sed=3": ("unknown option '--sed'", "did you mean '--seed'?"),
    "train burgers -s 3": ("unknown option '-s'",),
    "train burgers --strategy": ("--strategy", "requires an argument"),
    "describe": ("name a benchmark",),
    "describe burgers --updates -1": ("--updates=-1", "at least 1"),
    "compare": ("hero compare burgers",),
    "compare burgers --strategies ' , '": ("--strategies is empty",),
    "compare burgers --strategies hero,one_step,hero": ("--strategies has hero twice",),
    "compare burgers --seeds 0": ("--seeds 0", "1 to 1000"),
    "compare burgers --strategies one_step --baseline hero": ("--baseline=hero", "one_step"),
    "compare burgers --set seed=3": ("--seeds",),
    "compare burgers --set train.steps=20 --set hero.start=20": ("hero.start=20",),
    "compare burgers --workers -1": ("--workers=-1", "at least 0"),
    "compare burgers --gpus 0.5": ("--gpus", "--cluster"),
    "compare burgers --cluster here": ("'here'", "host:port"),
    "compare burgers --cluster auto --workers 0": ("--workers=0",),
    "compare burgers --cluster auto --gpus 1.5": ("--gpus=1.5", "whole number"),
    "compare burgers --cluster auto --retries -2": ("--retries=-2",),
    "study main --tasks burger": ("task 'burger'", "did you mean 'burgers'?"),
    "study main --loss mes": ("loss 'mes'", "did you mean 'mse'?"),
    "study main --set task.name=kdv": ("task.name", "--tasks"),
    "study main --set seed=3": ("seed", "--seeds"),
    "study main --set train.loss=mse": ("train.loss", "--loss"),
    "study main --dry-run --table-only": ("--dry-run", "--table-only"),
    "study ablation --strategies hero": ("ablation has no --strategies", "--tasks, --backbones, --loss, --seeds"),
    "study cost --loss mse": ("study cost has no --loss",),
    "study refresh --set train.steps=5": ("train.steps=5 is too short",),
}


@pytest.mark.parametrize("line", REFUSED_COMMANDS)
def test_mistakes_are_refused_before_anything_is_computed(
    line: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*shlex.split(line))
    assert_refused((code, out, err), *REFUSED_COMMANDS[line])
    assert "Usage:" not in out
    assert list(tmp_path.iterdir()) == []
