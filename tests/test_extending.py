"""A part of each kind, registered from outside by one line, goes through `hero train`, a study and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import hero, options
from hero.runs.folder import Run

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"task__resolution": 32, "task__substeps": 1, "backbone__width": None, "backbone__modes": None}


def extended(*arguments: Any) -> tuple[int, str, str]:
    """The command in a process of its own, with the parts of examples/extending.py: exit code, stdout, stderr."""
    return hero(*arguments, cwd=EXAMPLES, env={"HERO_IMPORT": "extending", "COLUMNS": "200"})


def settings(**changes: Any) -> list[str]:
    """Options of a tiny run, without the settings of the FNO."""
    found = options(**changes)
    pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
    return [part for pair in pairs if "=None" not in pair[1] for part in pair]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the toy strategy and one of HERO with the toy candidate and diagnostic."""
    folder = tmp_path_factory.mktemp("extended")
    folders = ["--runs", folder, "--data", folder / "data"]
    stencil = settings(backbone__width=None, backbone__modes=None, weighted_steps__ratio=3)
    code, _, err = extended(
        "train", "damped_advection", *folders, "--backbone", "stencil", "--strategy", "weighted_steps", *stencil
    )
    assert code == 0, err
    parts = settings(hero__start=4, hero__candidates="lag,frozen", hero__diagnostics="roll,mean", train__loss="largest")
    code, _, err = extended("train", "damped_advection", *folders, *parts)
    assert code == 0, err
    return folder


def test_a_toy_task_backbone_strategy_and_metric_are_trained_and_measured(runs: Path) -> None:
    (path,) = runs.glob("damped_advection-stencil-weighted_steps-*")
    metrics = json.loads((path / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["test"]["worst@50"] >= metrics["test"]["nrmse@50"] > 0
    log = (path / "log.jsonl").read_text(encoding="utf-8")
    assert "last_step_error" in log
    assert "ratio = 3.0" in (path / "config.toml").read_text(encoding="utf-8")


def test_a_toy_candidate_and_diagnostic_are_ranked_and_logged(runs: Path) -> None:
    (path,) = runs.glob("damped_advection-fno-hero-*")
    last = Run(path).log.training[-1].statistics
    assert last["lag"] + last["frozen"] == pytest.approx(1)
    assert last["frozen.mean"] >= 0


def test_a_toy_study_has_its_rows_and_columns_in_the_table_and_on_the_page(runs: Path, tmp_path: Path) -> None:
    small = settings(backbone__width=None, backbone__modes=None)
    folders = ("--runs", runs, "--data", runs / "data")
    code, _, err = extended(
        "study", "stencils", *folders, "--seeds", 1, "--workers", 0, *small, "--out", tmp_path / "study"
    )
    assert code == 0, err
    table = (tmp_path / "study" / "table.md").read_text(encoding="utf-8")
    assert "Worst nRMSE@50" in table
    assert "Sten.-weighted" in table
    code, _, err = extended("report", tmp_path / "study", *folders, "--out", tmp_path / "page.html")
    assert code == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("Stencils", "Worst nRMSE@50", "Sten.-weighted"):
        assert name in page, name


def test_they_are_settings_like_any_other() -> None:
    _, out, _ = extended(
        "settings", "damped_advection", "--set", "strategy=weighted_steps", "--set", "backbone.name=stencil"
    )
    assert "weighted_steps.ratio" in out
    assert "backbone.points" in out
    code, _, err = extended("train", "damped_advection", "--set", "weighted_steps.ratio=-1")
    assert code == 2
    assert err.startswith("hero: weighted_steps.ratio=-1 should be greater than 0; ")
    code, _, err = extended("train", "damped_advection", "--set", "hero.candidates=lag,frozn")
    assert (code, "frozen" in err) == (2, True)
