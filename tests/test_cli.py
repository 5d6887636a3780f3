"""The command as a user meets it: help, listings, and results that can be had again."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import h5py
import pytest
import typer

from conftest import Call, assert_refused, options, parse
from hero import parts
from hero.cli import app
from hero.cli.options import Configuration, OneRun, setting_names
from hero.console import console
from hero.data import TASKS
from hero.errors import DISTRIBUTION, HeroError
from hero.files import run_lock
from hero.runs.config import make_config
from hero.runs.sections import all_settings
from hero.runs.stored import find_run


def commands(command: Any, *words: str) -> Iterator[tuple[list[str], Any]]:
    """Every command and group, with the words that call it."""
    yield list(words), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=["-".join(words) or "hero" for words, _ in COMMANDS])
def test_help_names_every_option_and_command(words: list[str], command: Any, call: Call) -> None:
    code, out, err = call(*words, "--help")
    assert (code, err) == (0, "")
    shown = [name for param in command.params for name in param.opts if name.startswith("--")]
    for word in (*shown, *getattr(command, "commands", ())):
        assert word in out
    assert "typing." not in out
    assert max(map(len, out.splitlines())) <= 120


def test_a_group_alone_shows_its_help(call: Call) -> None:
    for group in ([], ["data"]):
        assert call(*group) == call(*group, "--help")


def test_settings_lists_every_setting_with_its_value_and_meaning(call: Call) -> None:
    def rows(*arguments: str) -> dict[str, list[str]]:
        """The words of each line by the first one."""
        code, out, _ = call("settings", *arguments)
        assert code == 0
        return {words[0]: words[1:] for line in out.splitlines() if (words := line.split())}

    shown = rows()
    for name, field in all_settings():
        assert field.description
        assert field.description[:60] in " ".join(shown[name]), name  # the rest may be on further lines
    assert shown["train.steps"][0] == "10000"
    shown = rows("kolmogorov_flow", "--preset", "quick", "--set", "task.drag=0.25")
    expected = {"task.drag": "0.25", "hero.start": "400", "backbone.width": "20", "task.name": "kolmogorov_flow"}
    assert {name: shown[name][0] for name in expected} == expected


def test_settings_shows_a_section_a_name_or_what_a_word_means(call: Call) -> None:
    def shown(*arguments: str) -> dict[str, object]:
        found = json.loads(call("settings", "--json", *arguments)[1])
        return {row["setting"]: row["value"] for row in found}

    assert shown("push_forward").keys() == {key for key, _ in all_settings() if key.startswith("push_forward.")}
    assert shown("kolmogorov_flow", "train.steps", "task")["train.steps"] == 10_000
    assert "task.drag" in shown("kolmogorov_flow", "task")
    assert shown("lr") == {"train.lr": 0.005, "train.lr_scale": []}
    assert shown("learning_rate") == {"train.lr": 0.005}
    assert shown("validate") == {"train.validate_every": 500}
    assert shown().keys() >= {key for key, _ in all_settings()}
    assert_refused(call("settings", "recurent"), "task, section or setting", "did you mean 'recurrent'?")


def test_data_list_names_every_task_and_its_equation(call: Call) -> None:
    code, out, _ = call("data", "list")
    assert code == 0
    for task in TASKS.values():
        assert task.name in out
    listed = json.loads(call("data", "list", "--json")[1])
    assert [(task["task"], task["equation"]) for task in listed] == [(t.name, t.equation) for t in TASKS.values()]


def test_data_make_and_show(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("data", "make", "burgers", *options(), "--data", tmp_path)
    assert code == 0
    paths = [Path(line) for line in out.split()]
    assert [path.name.split("-")[1] for path in paths] == ["train", "val", "test"]
    for path, shape in zip(paths, ((4, 11, 1, 32), (2, 101, 1, 32), (2, 101, 1, 32)), strict=True):
        with h5py.File(path) as file:
            assert file["u"].shape == shape
    times = [path.stat().st_mtime_ns for path in paths]
    code, out, _ = call("data", "show", "burgers", *options(), "--data", tmp_path)
    assert code == 0
    for word in ("viscosity", "solver", "seed", "773", paths[2].name):
        assert word in out
    picture = Path(out.split("picture: ")[1].strip())
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.stat().st_mtime_ns for path in paths] == times


def test_evaluating_again_gives_the_same_metrics(call: Call, finished: Path, data_dir: Path) -> None:
    before = (finished / "metrics.json").read_bytes()
    code, out, err = call("evaluate", finished.name, "--runs", finished.parent, "--data", data_dir)
    assert (code, err) == (0, "")
    assert (finished / "metrics.json").read_bytes() == before
    assert f"report: {finished / 'report.html'}" in out


def test_the_same_command_after_the_end_shows_the_result_and_touches_nothing(
    call: Call, finished: Path, data_dir: Path
) -> None:
    def files() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file() and p.name != ".lock"}

    before = files()
    folders = ("--runs", finished.parent, "--data", data_dir)
    shown = [
        call("train", "burgers", "--strategy", "hero", *options(), *folders),
        call("train", "--config", finished / "config.toml", *folders),
        call("train", "--resume", finished.name[-8:], *folders),
        call("train", "--resume", finished, *folders),
    ]
    for code, out, err in shown:
        assert (code, err) == (0, "")
        assert out == shown[0][1]
        assert "step 5/20" not in out
    assert "nRMSE@100" in shown[0][1]
    assert files() == before
    assert [path.name for path in finished.parent.iterdir()] == [finished.name]


def test_options_and_overrides_mean_the_same() -> None:
    options = ["--strategy", "push_forward", "--seed", "7", "--backbone", "fno", "--preset", "quick"]
    values = parse("train", "kdv", *options, "--set", "train.lr=.5")
    run, settings = (cls(**{item.name: values[item.name] for item in fields(cls)}) for cls in (OneRun, Configuration))
    parsed = settings.resolve("train", **vars(run))
    values = {"task.name": "kdv", "strategy": "push_forward", "seed": 7, "train.lr": 0.5}
    assert parsed == make_config("quick", overrides=values)


@pytest.mark.parametrize("width", [80, 160])
def test_names_are_whole_on_a_narrow_screen(
    width: int, finished: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_width", width)
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = call("runs", "--runs", finished.parent)
    assert code == 0
    assert any(finished.name in line and "finished" in line for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= width
    assert ("Seconds" in out) == (width == 160)
    code, out, _ = call("settings")
    for name, field in all_settings():
        assert f" {name} " in out
        for word in (field.description or "").split():
            assert word in out, (name, word)


def test_a_pipe_has_one_plain_line_for_each_row(finished: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # which a parallel test run sets
    heading, line = call("runs", "--runs", finished.parent)[1].splitlines()
    assert heading.split()[:3] == ["Run", "Seed", "Updates"]
    assert line.split()[:3] == [finished.name, "0", "20"]
    assert line.endswith("finished")
    out = call("settings")[1]
    assert "─" not in out
    lines = {line.split()[0]: line for line in out.splitlines()}
    for name, field in all_settings():
        assert str(field.description) in lines[name]


def test_runs_are_removed_only_if_wanted_and_unused(
    call: Call, finished: Path, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, runs_dir / finished.name)
    here = ("--runs", runs_dir)
    for answer in ("", "n\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        assert call("runs", "rm", finished.name, *here)[0] == 1
    assert_refused(call("runs", "rm", finished, "--yes", *here), "--runs")  # a run of another folder
    assert_refused(call("runs", "--json", "rm", finished.name), "after the action")
    with run_lock(runs_dir / finished.name):
        assert_refused(call("runs", "rm", finished.name, "--yes", *here), "in use by another process")
    assert (runs_dir / finished.name / "metrics.json").is_file()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, err = call("runs", "rm", finished.name, *here)
    assert (code, err) == (0, "")
    assert f"deleted: {runs_dir / finished.name}" in out
    assert not (runs_dir / finished.name).exists()
    assert (finished / "metrics.json").is_file()
    code, out, err = call("runs", *here)  # an empty list is no mistake
    assert (code, err) == (0, "")
    assert call("runs", "--json", *here) == (0, "[]\n", "")


def test_a_run_is_found_by_path_id_or_part_of_it(finished: Path, runs_dir: Path) -> None:
    for name in (str(finished), finished.name, finished.name[-8:], f"{finished}/"):
        assert find_run(name, finished.parent) == finished
    for seed in (0, 1):
        folder = runs_dir / f"burgers-fno-hero-s{seed}-abc"
        folder.mkdir(parents=True)
        (folder / "config.toml").touch()
    with pytest.raises(HeroError, match="fits 2 runs"):
        find_run("hero", runs_dir)


def test_open_hands_the_page_to_the_browser(
    call: Call, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "address"}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)  # found again with this variable, and afterwards without it
    page = tmp_path / "a b.html"
    assert call("report", finished, "--out", page, "--open")[0] == 0
    assert (tmp_path / "address").read_text().strip() == page.as_uri()


def test_a_reader_that_stops_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "hero", "settings"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    err = process.stderr.read()
    process.wait()
    assert "Traceback" not in err


HEAVY = {"torch", "numpy", "matplotlib", "scipy", "h5py", "pydantic"}


def loaded_by(code: str, **environment: str) -> tuple[set[str], str]:
    """The heavy packages that a fresh interpreter has loaded after `code`, and its output."""
    script = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}}, sep=',', file=sys.stderr)"
    environment = {**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, **environment}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    return HEAVY & set(result.stderr.strip().split(",")), result.stdout


def test_help_and_importing_hero_load_nothing_heavy() -> None:
    shown = [["--help"], ["--version"], ["train", "--help"], ["data", "make", "--help"]]
    code = f"import hero; hero.HeroError\nfrom hero.cli import main\nfor line in {shown}:\n    assert main(line) == 0"
    heavy, out = loaded_by(code)
    assert heavy == set()
    assert all(word in out for word in ("hero train", "hero data make", version(DISTRIBUTION)))


def test_unknown_names_are_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    refused = ["train burgrs", "study mian", "data make burgrs", "export nothing", "train --resume nothing"]
    refused += ["compare burgers --strategies hero,heroo", "describe burgers --backbone fmo"]
    refused += [f"train burgers --{option}" for option in ("strategy hiro", "preset bst", "log csv")]
    lines = [[*line.split(), "--runs", str(tmp_path)] for line in refused]
    heavy, out = loaded_by(f"from hero.cli import main\nassert [main(line) for line in {lines}] == [2] * {len(lines)}")
    assert (heavy & {"torch", "matplotlib", "scipy", "h5py"}, out) == (set(), "")


def test_listing_runs_loads_no_torch(finished: Path) -> None:
    heavy, out = loaded_by(f"from hero.cli import main\nassert main(['runs', '--runs', {str(finished.parent)!r}]) == 0")
    assert finished.name in out
    assert heavy <= {"numpy", "pydantic"}


def test_public_names_exist() -> None:
    import hero

    assert {"Hero", "SOAP", "train", "make_config"} <= set(hero.__all__) <= set(dir(hero))
    assert all(hasattr(hero, name) for name in hero.__all__)
    assert "np" not in hero.__all__
    with pytest.raises(AttributeError, match="'hero' has no attribute 'trian'"):
        hero.trian  # noqa: B018


CORE = """
import importlib.abc, sys
import numpy, torch, torch._dynamo  # which optimizers of torch import
known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names) | {"hero"}

class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Only())
from hero import FNO, SOAP, Balanced, Context, Hero, unroll

torch.manual_seed(0)
net, objective = FNO(1, 1, width=4, modes=(4,), depth=1), Hero(0)
optimizer, u = SOAP(net.parameters(), lr=1e-3), torch.randn(2, 3, 1, 16)
loss, *_ = objective(net, u[:, 0], u[:, 1:], objective.init())
(loss + Balanced.on((16,))(unroll(net, u[:, 0], 2), u[:, 1:])).backward()
optimizer.step()
"""


def test_the_core_needs_torch_and_numpy_alone() -> None:
    heavy, _ = loaded_by(CORE)
    assert "torch" in heavy
    assert heavy <= {"torch", "numpy"}


COMPLETED = {
    "hero tr": {"train"},
    "hero data ": {"list", "make", "show"},
    "hero train --str": {"--strategy"},
    "hero train ku": {"kuramoto_sivashinsky"},
    "hero train burgers --strategy push": {"push_forward"},
    "hero compare burgers --strategies hero,one": {"hero,one_step"},
    "hero describe --backbone t": {"transolver"},
    "hero study abl": {"ablation"},
    "hero evaluate ": {"a-run", "b-run"},
    "hero train --resume b": {"b-run"},
    "hero runs r": {"rm"},
    "hero runs rm b": {"b-run"},
    "hero train burgers --set train.val": {"train.validate_every="},
    "hero settings recur": {"recurrent"},
}
COMPLETE = f"""
import os
from hero.cli import main
for words in {list(COMPLETED)}:
    os.environ.update(COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    try:
        main([])
    except SystemExit:
        print("---")
"""


def test_completion_knows_names_and_loads_nothing_heavy(tmp_path: Path) -> None:
    for name in ("a-run", "b-run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
    heavy, out = loaded_by(COMPLETE, _HERO_COMPLETE="complete_bash", HERO_RUNS=str(tmp_path))
    found = [set(part.split()) for part in out.split("---\n")[:-1]]
    assert dict(zip(COMPLETED, found, strict=True)) == COMPLETED
    assert heavy == set()


def test_names_lead_to_all_built_in_parts() -> None:
    from hero.data.tasks.benchmarks import BY_NAME
    from hero.deploy.exported import FORMATS
    from hero.models.build import OURS
    from hero.models.settings import SIZES

    found = (parts.TASKS, parts.FORMATS, parts.BACKBONES, parts.SIZES)
    assert [dict(names) for names in found] == [BY_NAME, FORMATS, OURS, SIZES]
    assert parts.STUDIES.values()
    assert parts.STRATEGIES.values()
    assert parts.LOGGERS.values()


def test_completion_knows_all_settings() -> None:
    assert setting_names() == ["task.name", *(key for key, _ in all_settings())], "run tools/setting_names.py"
