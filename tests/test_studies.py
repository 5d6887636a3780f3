"""A study is the paper's list of runs; its table says what the run folders say, whatever happened on the way."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

import hero
from conftest import TINY, Call, options, set_options, tiny
from fakes import fake_metrics
from hero.cli import main
from hero.cli.options import seed_numbers
from hero.errors import HeroError
from hero.method.metrics import METRICS
from hero.models import count_parameters
from hero.paper import cost
from hero.paper import studies as ood
from hero.paper.cost import COST_NOTE, Costs, FreeRollout, measure_costs
from hero.paper.landscape import stored_landscape
from hero.paper.numbers import _paper, differences, published_row
from hero.report.content import study_markdown
from hero.report.figures.runs import write_study
from hero.report.listing import study_number
from hero.report.sentences import result_sentences
from hero.report.tables import format_number
from hero.runs.config import PRESETS, RECOMMENDED, RunConfig, make_config
from hero.runs.folder import Run, versions
from hero.runs.log import Log, TrainingRecord
from hero.runs.records import Errors
from hero.strategies.hero import HeroSettings
from hero.study.collect import Plan, PlannedGroup, paper_of
from hero.study.compare import logged_seconds, plan_comparison
from hero.study.cost.measure import DryRun
from hero.study.plans import STUDIES, loss_key, plan
from hero.study.records import FILE, ROLLOUT_COLUMNS, MethodRow, Published, StudyResult
from hero.study.run import run
from hero.study.worker import Workers


def means_of(table: str, task: str, backbone: str = "fno") -> dict[str, dict[str, float]]:
    """The means of one of the paper's tables, by row and column."""
    rows = {key[3]: row for key, row in _paper().items() if key[:3] == (table, task, backbone)}
    return {name: {column: number.mean for column, number in row.items()} for name, row in rows.items()}


PAPER_TASKS = list(dict.fromkeys(task for table, task, *_ in _paper() if table == "complete"))
OOD_PAPER = {name: means_of(f"ood_{name}", "kolmogorov_flow") for name in ood.SHIFTS}
COST_PAPER = means_of("cost", "2d")
HERE = Workers(count=0)
SEEDS = (0, 1)
NAMES = ("push_forward", "hero")
TASKS = ("burgers", "dispersion")


def command(runs: Path, data: Path, *more: object) -> list[object]:
    axes = ["--tasks", ",".join(TASKS), "--backbones", "fno", "--strategies", ",".join(NAMES), "--seeds", len(SEEDS)]
    where = ["--loss", "relative", "--workers", 0, "--runs", runs, "--data", data]
    return ["study", "main", *axes, *options(), *where, *more]


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """The runs folder of a finished study."""
    runs = tmp_path_factory.mktemp("runs")
    assert main([str(part) for part in command(runs, data_dir)]) == 0
    return runs


@pytest.fixture
def again(studied: Path, runs_dir: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(studied, runs_dir)
    return runs_dir


def folder_of(runs: Path, name: str = "main") -> Path:
    (folder,) = runs.glob(f"study-{name}-*")
    return folder


def stored(runs: Path, name: str = "main") -> StudyResult:
    return StudyResult.read(folder_of(runs, name) / FILE)


def mean_of(row: MethodRow, key: str) -> float:
    cell = row.cells[key]
    return cell.mean


def evaluated(runs: Path, config: RunConfig, value: float = 0.5) -> None:
    """The folder of a finished run of `config` whose every number is `value`, without the training."""
    folder = runs / config.run_id()
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.to_toml())
    training = {"steps": config.train.steps, "seconds": 1.0, "steps_per_second": 1.0, "compiled": False,
                "device": "cpu", "threads": 1}  # fmt: skip
    facts = {**config.identity(), "training": training, "versions": {}, "parameters": 1, "trajectories": 2}
    fake_metrics(folder.name, dict.fromkeys(METRICS, value), **facts).write(folder / "metrics.json")
    errors = np.full((2, 200), value)
    Errors({"nrmse": errors, "correlation": errors}, errors).write(folder / "errors.npz")


def studied_here(name: str, runs: Path, data: Path, **chosen: Any) -> StudyResult:
    """A study in this process, from Python."""
    return run(plan(name, **chosen), runs, data, HERE)


def table_of(planned: Plan, runs: Path, data: Path) -> StudyResult:
    """The table of runs that are there."""
    return run(planned, runs, data, table_only=True)


def run_of(runs: Path, task: str, strategy: str, seed: int) -> Path:
    return runs / tiny(task__name=task, strategy=strategy, seed=seed).run_id()


def test_cells_are_what_the_run_folders_say(studied: Path) -> None:
    result = stored(studied)
    assert (result.study, result.seeds, result.folder) == ("main", (0, 1), folder_of(studied).name)
    assert [group.title for group in result.groups] == ["Burgers, FNO, relative loss", "Dispersion, FNO, relative loss"]
    assert result.columns == ROLLOUT_COLUMNS
    for group, task in zip(result.groups, TASKS, strict=True):
        assert [row.label for row in group.rows] == ["FNO-PF", "FNO-HERO"]
        means: dict[str, list[float]] = {}
        for row, strategy in zip(group.rows, NAMES, strict=True):
            runs = [run_of(studied, task, strategy, seed) for seed in SEEDS]
            for column in result.columns:
                metrics = [json.loads((run / "metrics.json").read_text()) for run in runs]
                values = [found[column.split][column.metric] for found in metrics]
                cell = row.cells[column.key]
                assert list(cell.values) == values
                assert cell.mean == pytest.approx(sum(values) / 2, rel=1e-12)
                assert cell.std == pytest.approx(abs(values[0] - values[1]) / 2**0.5, rel=1e-9)
                assert cell.paper is None  # a tiny run is not the paper's
                means.setdefault(column.key, []).append(cell.mean)
            errors = [np.load(run / "errors.npz")["nrmse"] for run in runs]
            assert mean_of(row, "nrmse@100") == pytest.approx(np.mean([e[:, 99].mean() for e in errors]), rel=1e-12)
            assert row.rollouts == sum(map(len, errors))
            assert row.diverged == sum(int((~np.isfinite(e)).any(axis=1).sum()) for e in errors)
            assert [(run.seed, run.run, run.status) for run in row.runs] == [
                (seed, run.name, "finished") for seed, run in zip(SEEDS, runs, strict=True)
            ]
            assert any(text.startswith("train.steps=20") for text in row.differs)
        for column in result.columns:
            found = means[column.key]
            best = (min if column.direction == "lower" else max)(found)
            assert group.best(column) == (best if len(set(found)) > 1 else None)


def test_the_papers_numbers_stand_next_to_the_papers_runs_only(runs_dir: Path, data_dir: Path) -> None:
    chosen: dict[str, Any] = {"tasks": ["burgers"], "backbones": ["fno"], "seeds": [0], "loss": "both"}
    paper, quick = plan("main", **chosen), plan("main", preset="quick", **chosen)
    for config in (*paper.configs, *quick.configs):
        evaluated(runs_dir, config)
    for group in table_of(paper, runs_dir, data_dir).groups:
        for row in group.rows:
            published = published_row("complete", "burgers", "fno", row.strategy)
            for key, cell in row.cells.items():
                if published is None:
                    assert (row.strategy, cell.paper, row.differs) == ("fixed_weight", None, ())
                    continue
                assert cell.paper == published[key]
    result = table_of(quick, runs_dir, data_dir)
    assert {row.differs for row in result.rows if row.strategy != "fixed_weight"} == {
        ("train.steps=1000 (paper: 10000)",)
    }
    assert not any(cell.paper for row in result.rows for cell in row.cells.values() if cell)
    text = study_markdown(result)
    assert "left out of 10 rows, whose settings are not the paper's: train.steps=1000 (paper: 10000)." in text


def test_the_files_say_the_same(studied: Path) -> None:
    folder, result = folder_of(studied), stored(studied)
    text = (folder / "table.md").read_text()
    for row in result.rows:
        for cell in row.cells.values():
            ours = study_number(cell, row).text
            assert ours.startswith(format_number(cell.mean))
            assert ours in text
    figures = sorted(path.name for path in folder.glob("*.png"))
    assert figures == ["curves-burgers-fno-relative.png", "curves-dispersion-fno-relative.png"]
    (summary,) = result.statistics
    assert (summary.loss, summary.metric, summary.baseline) == ("relative", "nrmse@100", "push_forward")
    for name in figures:
        assert imread(folder / name)[..., :3].std() > 0.02
        assert (folder / name).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert list(folder.glob(".*")) == []
    lines = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text())))
    assert len(lines) == len(TASKS) * (len(NAMES) + 1)  # one of the first state kept
    assert r"\textbf{" in (folder / "table.tex").read_text()


def test_repeating_runs_nothing_and_writes_the_same(call: Call, again: Path, data_dir: Path) -> None:
    weights = {path: path.stat().st_mtime_ns for path in again.glob("*/model.safetensors")}
    assert len(weights) == 8
    before = {path: path.read_bytes() for path in folder_of(again).iterdir()}
    code, out, err = call(*command(again, data_dir))
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.read_bytes() for path in folder_of(again).iterdir()} == before
    assert "step 20/20" not in out
    for expected in ("Main results (study main, preset paper, 2 seeds)", "FNO-HERO", "ratio to Push-forward"):
        assert expected in out


@pytest.mark.parametrize(
    ("error", "code", "status"), [(KeyboardInterrupt(), 130, "not run"), (ValueError("so"), 1, "failed")]
)
def test_a_study_that_is_interrupted_or_crashes_leaves_the_table_so_far(
    error: BaseException,
    code: int,
    status: str,
    call: Call,
    again: Path,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = [run_of(again, "burgers", strategy, 1) for strategy in NAMES]
    for folder in lost:
        shutil.rmtree(folder)

    def broken(config: RunConfig, *folders: Path) -> Path:
        raise error

    monkeypatch.setattr("hero.study.run.train", broken)
    shutil.rmtree(folder_of(again))
    assert call(*command(again, data_dir))[0] == code
    row = stored(again).groups[0].rows[1]
    assert [run.status for run in row.runs] == ["finished", status]
    cell = row.cells["nrmse@100"]
    assert cell.std is None
    assert "| FNO-HERO (1 of 2 seeds) |" in (folder_of(again) / "table.md").read_text()
    if status == "failed":
        assert row.runs[1].reason == f"it crashed (ValueError: so) (log: {lost[1] / 'output.log'})."
        assert "Traceback" in (lost[1] / "output.log").read_text()


def test_what_is_not_there_is_said(call: Call, again: Path, data_dir: Path) -> None:
    before = sorted(again.iterdir())
    (run_of(again, "burgers", "hero", 0) / "metrics.json").unlink()
    shutil.rmtree(run_of(again, "burgers", "hero", 1))
    shutil.rmtree(run_of(again, "dispersion", "push_forward", 0))
    shutil.rmtree(run_of(again, "dispersion", "push_forward", 1))
    run_of(again, "dispersion", "hero", 1).joinpath("errors.npz").write_bytes(b"broken")
    code, out, _ = call(*command(again, data_dir, "--table-only"))
    assert code == 1
    assert "step 20/20" not in out
    burgers, dispersion = (group.rows for group in stored(again).groups)
    assert [run.status for run in burgers[1].runs] == ["unfinished", "not run"]
    assert study_number(None, burgers[1]).text == "unfinished"
    assert set(dispersion[0].cells.values()) == {None}
    assert [run.status for run in dispersion[1].runs] == ["finished", "failed"]
    assert dispersion[1].rollouts == 2
    assert dispersion[1].runs[1].reason in out.replace("\n", " ")
    text = (folder_of(again) / "table.md").read_text()
    assert "| FNO-PF | not run | not run | not run | not run | not run | – |" in text
    assert len(before) - 3 == len(list(again.iterdir()))


def test_a_dry_run_lists_everything_and_touches_nothing(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(
        "study", "complete", "--dry-run", "--workers", 4, "--runs", tmp_path / "r", "--data", tmp_path / "d"
    )
    assert code == 0
    lines = re.findall(r"^ *(\S+-s[0-4]-\w{8}) +not run", out, re.M)
    assert len(set(lines)) == len(lines) == 540
    for name in PAPER_TASKS:
        assert sum(run.startswith(f"{name}-") for run in lines) == 60
    assert "trains nothing" in call("study", "cost", "--dry-run", "--runs", tmp_path / "r")[1]
    assert list(tmp_path.iterdir()) == []


def published_in(group: PlannedGroup, table: dict[str, Any]) -> list[str]:
    """The rows of the paper's table that stand next to our rows."""
    return [row.published for row in group.rows if row.published in table]


def test_the_plans_have_the_papers_rows() -> None:
    everything = plan("complete")
    assert len(everything.configs) == 540
    assert {(g.task, g.backbone) for g in everything.groups} == set(
        itertools.product(PAPER_TASKS, ("fno", "transolver"))
    )
    for group in everything.groups:
        table = means_of("complete", group.task, group.backbone)
        assert published_in(group, table) == list(table)
        assert [row.strategy for row in group.rows] == [*table, "fixed_weight"]
    main_plan = plan("main")
    assert len(main_plan.configs) == 720  # both losses
    assert {group.task for group in everything.groups} - {group.task for group in main_plan.groups} == {
        "dispersion", "kdv", "kolmogorov_flow"}  # fmt: skip
    assert [row.label for row in main_plan.groups[2].rows] == [
        "Trans.", "Trans.-PF", "Trans.-Ref.", "Trans.-RNO", "Trans.-HERO", "Trans.-fixed"]  # fmt: skip
    # Every run of the main table with D is one of the complete one: nothing is trained twice.
    relative = plan("main", loss="relative")
    assert {c.run_id() for c in relative.configs} <= {c.run_id() for c in everything.configs}
    (shifted,) = plan("ood").groups
    for table in OOD_PAPER.values():
        assert [row.strategy for row in shifted.rows] == [*table, "fixed_weight"]
    (costs,) = plan("cost").groups
    assert [row.strategy for row in costs.rows] == [*COST_PAPER, "fixed_weight", "push_forward"]
    assert plan("cost").configs == []
    assert [row.label for row in plan("rollout_figure").groups[0].rows] == ["FNO", "FNO-PF", "FNO-HERO"]


@pytest.mark.parametrize("name", ["ablation", "start_step", "refresh"])
def test_the_tables_of_variants_have_the_papers_rows(name: str, runs_dir: Path, data_dir: Path) -> None:
    planned = plan(name, seeds=[0], loss="mse")
    (group,) = planned.groups
    published = means_of(name, "decaying_turbulence")
    assert published_in(group, published) == list(published)
    assert [row.label for row in group.rows if row.strategy != "fixed_weight"] == list(published)
    for config in planned.configs:
        evaluated(runs_dir, config)
    (found,) = table_of(planned, runs_dir, data_dir).groups
    for row in found.rows:
        papers = {key: cell.paper.mean for key, cell in row.cells.items() if cell and cell.paper}
        assert papers == published.get(row.label, {})
        assert row.differs == ()


def test_the_settings_of_the_variants() -> None:
    (group,) = plan("ablation", loss="relative").groups
    rows = {row.label: row.configs[0] for row in group.rows}
    assert rows["Self-relative"].to_dict()["hero"]["candidates"] == ("self",)
    assert rows["HERO w/o Lag"].to_dict()["hero"]["candidates"] == ("perturbed", "self")
    assert rows["HERO w/o Relative"].to_dict()["hero"]["lambda_max"] == 0
    hero = plan("main", tasks=["decaying_turbulence"], loss="relative").groups[0].rows[4].configs[0]
    assert rows["Full HERO"].run_id() == hero.run_id()
    starts, refreshed = (
        [row.configs[0].to_dict() for row in plan(name).groups[0].rows] for name in ("start_step", "refresh")
    )
    assert [row["hero"]["start"] for row in starts[1:]] == [2000, 4000, 6000, 8000]
    assert [row["hero"]["refresh"] for row in refreshed[1:]] == [500, 1000, 2000, 4000]


def test_the_same_loss_is_named_as_a_repeat() -> None:
    whole = {row.strategy: row for row in plan("main", tasks=["burgers"], loss="mse").groups[0].rows}
    ours, base = whole["recurrent"].configs[0], whole["push_forward"].configs[0]
    assert loss_key(ours) != loss_key(base)
    assert ours.train.unroll == ours.data.train_steps
    assert ours.train.batch * ours.train.unroll == base.train.batch * base.train.unroll
    settings = {"recurrent.starts": "any"}
    rows = {row.strategy: row for row in plan("main", overrides=settings, tasks=["burgers"]).groups[0].rows}
    assert rows["recurrent"].repeats == "FNO-PF"
    assert {name for name, row in rows.items() if row.repeats} == {"recurrent"}
    repeated = {row.label: row.repeats for row in plan("ablation").groups[0].rows if row.repeats}
    assert repeated == {"HERO w/o Relative": "FNO-PF"}
    rows = plan("main", overrides={"train.unroll": 1}, tasks=["burgers"]).groups[0].rows
    assert [row.repeats for row in rows if row.strategy == "push_forward"] == ["FNO"]


def test_the_folder_is_named_after_what_is_studied() -> None:
    chosen: dict[str, Any] = {"tasks": ["burgers"], "backbones": ["fno"], "seeds": [0]}
    changes: list[dict[str, Any]] = [{}, {"preset": "quick"}, {"seeds": [0, 1]}, {"tasks": ["kdv"]}, {"loss": "mse"}]
    folders = {plan("main", **{**chosen, **change}).folder for change in changes}
    assert len({*folders, plan("complete", **chosen).folder}) == 6
    assert plan("main", **chosen).folder in folders
    assert {group.loss for group in plan("start_step", loss="both").groups} == {"relative", "mse"}


def test_the_rollout_figure(again: Path, data_dir: Path) -> None:
    chosen: dict[str, Any] = {"overrides": TINY, "tasks": ["burgers"], "strategies": NAMES, "seeds": SEEDS}
    result = studied_here("rollout_figure", again, data_dir, **chosen)
    out = folder_of(again, "rollout_figure")
    assert write_study(out, result, again) == [out / "rollout-burgers-fno.png"]


def test_the_landscape_reads_the_kept_checkpoints_of_the_main_study(again: Path, data_dir: Path) -> None:
    def modified(pattern: str) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in again.glob(pattern)}

    weights, folder = modified("*/model.safetensors"), run_of(again, "burgers", "hero", 0)
    chosen: dict[str, Any] = {"overrides": TINY, "tasks": ["burgers"], "seeds": [0]}
    result = studied_here("landscape", again, data_dir, **chosen)
    assert [run.status for run in result.runs.values()] == ["finished"]
    assert modified("*/model.safetensors") == weights
    content, rows = stored_landscape(folder, data_dir), list(result.rows)
    assert [row.label for row in rows] == [*(f"FNO-HERO, step {s}" for s in (4, 8, 12, 16, 20)), "FNO-HERO, final"]
    for row, errors in zip(rows, [*content.errors, content.final_errors], strict=True):
        assert mean_of(row, "nrmse@40") == errors[39]
        assert row.cells["nrmse@160"] is None  # these rollouts have 100 steps
    out = folder_of(again, "landscape")
    assert write_study(out, result, again) == [out / f"landscape-{folder.name}.png"]
    assert result_sentences(result) == []  # no contest between the checkpoints of one run
    assert result.statistics == ()
    measured = modified("*/landscape.json")
    assert studied_here("landscape", again, data_dir, **chosen) == result
    assert modified("*/landscape.json") == measured
    # A run that has lost its checkpoints is trained again, to the same weights.
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "model.safetensors").read_bytes()
    assert studied_here("landscape", again, data_dir, **chosen) == result
    assert (folder / "model.safetensors").read_bytes() == before


def test_shifts_of_the_same_checkpoints(runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = ood.SHIFTS["viscosity_6.67e-3"]
    monkeypatch.setattr(ood, "SHIFTS", {shift.name: shift})  # finer grids take their time
    settings = {**TINY, "data.test_steps": 200, "task.warmup": 0, "task.substeps": 2, "train.steps": 5}
    result = studied_here("ood", runs_dir, data_dir, overrides=settings, strategies=NAMES, seeds=[0])
    (group,) = result.groups
    assert (group.shift, group.task) == (shift.name, "kolmogorov_flow")
    for row in group.rows:
        test = ood.shifted(runs_dir / row.runs[0].run, data_dir, shift).metrics
        assert {column.key: mean_of(row, column.key) for column in result.columns} == {
            column.key: test[column.metric] for column in result.columns
        }
        assert row.rollouts == 2
    assert result.statistics[0].metric == "nrmse@200"


@pytest.mark.parametrize("shift", OOD_PAPER)
def test_shifts_stand_next_to_the_papers(shift: str) -> None:
    (group,) = plan("ood").groups
    for row in group.rows:
        numbers, differs = paper_of(group, row, f"ood_{shift}")
        assert differs == ()
        assert {key: value.mean for key, value in numbers.items()} == OOD_PAPER[shift].get(row.strategy, {})


def test_costs_are_measured_once(runs_dir: Path, data_dir: Path) -> None:
    planned = plan("cost", strategies=["refiner", "push_forward"])
    configs = [row.configs[0] for row in planned.groups[0].rows]
    note = "What an earlier measurement has left."
    same = {"inference_ms_per_step": 2.0, "peak_memory_mb": 2.0, "compiled": False}
    rates = zip(configs, (102921, 102881, 30541), (10.0, 11.0, 12.0), strict=True)
    known = {c.run_id(): cost.RunCost(parameters=p, train_steps_per_s=rate, **same) for c, p, rate in rates}
    path = runs_dir / planned.folder / "decaying_turbulence-fno-costs.json"
    cost.Costs(note=note, versions=versions(), costs=known).write(path)
    result = run(planned, runs_dir, data_dir, HERE)
    refiner, ours, published = result.groups[0].rows
    assert [row.label for row in result.rows] == ["FNO-Ref.", "FNO-PF", "FNO-PF, 30,541 parameters"]
    assert mean_of(ours, "train_steps_per_s") == 11
    assert result.groups[0].best(result.columns[-1]) == 12
    # The paper's numbers stand next to its number of parameters.
    assert not any(cell and cell.paper for cell in (*refiner.cells.values(), *ours.cells.values()))
    cell = published.cells["inference_ms_per_step"]
    assert cell.paper.mean == COST_PAPER["push_forward"]["inference_ms_per_step"]
    assert result.groups[0].notes == (note, COST_NOTE)


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_trains(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    # A row that burgers does not have is one of the turbulence.
    task = "burgers" if all(row.applies(tiny()) for row in study.rows) else "decaying_turbulence"
    chosen = {"tasks": [task], "backbones": ["fno"], "seeds": [0]}
    axes = {axis: value for axis, value in chosen.items() if axis in study.axes}
    planned = plan(name, overrides={**TINY, "task.warmup": 0}, **axes)
    rows = [row for group in planned.groups for row in group.rows]
    assert len(rows) == len(planned.groups) * len(study.rows)
    for row in rows:
        (config,) = row.configs
        dry_run = DryRun(config, tmp_path, torch.device("cpu"))
        dry_run.update(0, 0)
        dry_run.update(0, config.train.steps - 1)
        batch = dataclasses.replace(dry_run.windows(0), step=config.train.steps - 1)
        loss = dry_run.trainee.strategy.loss(dry_run.model, batch)
        assert torch.isfinite(loss.value), row.label
        # The relative term is logged wherever the strategy has one.
        relative = isinstance(config.method, HeroSettings) and config.method.lambda_max > 0
        assert ("alpha" in loss.statistics) == relative, row.label


NO_DATA = Path("no data")
CONFIGS = {name: tiny(strategy=name) for name in ("push_forward", "hero", "refiner")}
FIGURES = ("parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s")


def test_every_figure_is_there_and_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"rounds": 1, "path": tmp_path / "costs.json"}
    monkeypatch.setattr(cost, "peak_of", lambda free: 10**6)
    found = measure_costs(list(CONFIGS.values()), NO_DATA, **more)
    monkeypatch.setattr(cost, "peak_of", None)
    assert Costs.read(more["path"]) == measure_costs(list(CONFIGS.values()), NO_DATA, **more) == found
    with pytest.raises(TypeError):  # of a further run all is measured
        measure_costs([*CONFIGS.values(), tiny(strategy="one_step")], NO_DATA, **more)
    assert list(found.costs) == [config.run_id() for config in CONFIGS.values()]
    for config in CONFIGS.values():
        one = found.costs[config.run_id()]
        assert all(0 < getattr(one, figure) < float("inf") for figure in FIGURES), one
        assert one.parameters == count_parameters(config.build_operator())
        assert not one.compiled
    for words in ("on cpu with 1 thread,", "uncompiled", "batch 5", "200 steps"):
        assert words in found.note


def test_the_memory_of_a_rollout_is_that_of_its_states() -> None:
    """200 steps of 100 fields of 256 numbers of 4 bytes are 20.5 MB; the network adds little."""
    config = tiny(strategy="one_step", task__resolution=256, train__batch=100)
    states = 200 * 100 * 256 * 4
    assert states < cost.peak_of(FreeRollout(config, torch.device("cpu"))) < 1.5 * states


ROLLOUT = {column.key for column in ROLLOUT_COLUMNS}
COST = {"parameters", "inference_ms_per_step", "peak_memory_mb", "train_steps_per_s"}


def test_every_table_is_complete() -> None:
    rows = _paper()
    counts = Counter("ood" if key[0].startswith("ood_") else key[0] for key in rows)
    assert counts == {"complete": 90, "ablation": 9, "start_step": 5, "refresh": 5, "ood": 16, "cost": 5}
    columns = {"ood": {"gm100", "nrmse@200", "mean_stability_horizon"}, "cost": COST}
    for key, row in rows.items():
        assert set(row) == columns.get(key[0].partition("_")[0], ROLLOUT), key
        assert all((value.std is not None) == (key[0] == "complete") for value in row.values())
        assert all(value.mean > 0 and (value.std is None or 0 < value.std < value.mean) for value in row.values())


@pytest.mark.parametrize(
    ("key", "column", "mean", "std"),
    [
        (("complete", "burgers", "fno", "hero"), "nrmse@100", 0.153, 0.007),
        (("complete", "decaying_turbulence", "transolver", "one_step"), "nrmse@100", 18.084, 1.652),
        (("complete", "unbalanced_advection", "transolver", "hero"), "val_gm100", 1.197, 0.064),
        (("ablation", "decaying_turbulence", "fno", "Lag-only HERO"), "test_gm100", 1.346, None),
        (("start_step", "decaying_turbulence", "fno", "HERO (s0=6000)"), "nrmse@1", 0.0323, None),
        (("refresh", "decaying_turbulence", "fno", "HERO (R=500)"), "val_gm100", 1.176, None),
        (("ood_forcing_1.50", "kolmogorov_flow", "fno", "hero"), "mean_stability_horizon", 2.7, None),
        (("cost", "2d", "fno", "hero"), "train_steps_per_s", 336.92, None),
    ],
)
def test_numbers_of_the_paper(key: tuple[str, str, str, str], column: str, mean: float, std: float | None) -> None:
    row = published_row(*key)
    assert row[column] == Published(mean=mean, std=std)


@pytest.mark.parametrize("strategy", ["one_step", "push_forward", "refiner", "recurrent", "hero"])
def test_the_preset_is_the_papers_protocol(strategy: str) -> None:
    for task, backbone in (("burgers", "fno"), ("kolmogorov_flow", "transolver"), ("swift_hohenberg", "fno")):
        config = make_config(overrides={"task.name": task, "strategy": strategy, "backbone.name": backbone})
        assert differences(config) == []


@pytest.mark.parametrize(
    "free",
    [
        {"seed": 4},
        {"train.loss": "mse", "train.patience": 5},
        {"train.device": "cpu", "train.compile": "false"},
        {"data.val_trajectories": 5, "data.val_seed": 9},
        {"strategy": "refiner", "refiner.steps": 1},
        {"task.name": "kuramoto_sivashinsky", "task.gradient_norm": -2.0, "task.kept_mean": 1.0},
        {"task.name": "kolmogorov_flow", "backbone.size": "paper_count"},
    ],
)
def test_what_the_paper_does_not_fix_is_no_difference(free: dict[str, Any]) -> None:
    assert differences(make_config(overrides=free)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"task.viscosity": 0.01}, ["task.viscosity=0.01"]),
        ({"task.name": "kuramoto_sivashinsky", "task.gradient_norm": -2.0}, ["gradient_norm=-2.0 (paper: -1.0)"]),
        ({"task.name": "kdv_difficulty"}, ["task kdv_difficulty is not in the paper"]),
        ({"strategy": "fixed_weight"}, ["strategy fixed_weight is not in the paper"]),
        (
            {"backbone.name": "torch.nn:Conv1d", "backbone.kwargs.kernel_size": 1},
            ["torch.nn:Conv1d is not in the paper"],
        ),
        ({"backbone.width": 32}, ["backbone.width=32 (paper: 28)"]),
        ({"data.train_trajectories": 10}, ["data.train_trajectories=10 (paper: 50)"]),
        ({"train.steps": 400, "train.lr": 3e-3}, ["train.steps=400", "train.lr=0.003 (paper: 0.001)"]),
        ({"hero.margin": 0.1, "hero.candidates": "lag,self"}, ["hero.margin=0.1", "hero.candidates=lag, self"]),
    ],
)
def test_other_runs_say_what_differs(changed: dict[str, Any], words: list[str]) -> None:
    found = differences(make_config(overrides={"task.name": "burgers", **changed}))
    assert len(found) == len(words), found
    assert all(any(word in text for text in found) for word in words)


def test_a_published_row_may_have_its_own_settings() -> None:
    config = make_config(overrides={"task.name": "decaying_turbulence", "hero.start": 6000})
    assert differences(config) == ["hero.start=6000 (paper: 4000)"]
    assert differences(config, own={"hero.start"}) == []


COMPARED = ["push_forward", "hero"]


def test_the_baseline_is_push_forward_or_the_first() -> None:
    def plan(baseline: str | None, *names: str) -> Plan:
        return plan_comparison(TINY, names or COMPARED, [0], baseline)

    assert plan(None).folder == plan("push_forward").folder != plan("hero").folder
    assert plan(None).study.baseline == "push_forward"
    assert plan(None, "hero", "one_step").study.baseline == "hero"
    assert plan("one_step", "hero", "one_step").study.baseline == "one_step"
    with pytest.raises(HeroError, match="baseline"):
        plan("refiner")


def test_logged_seconds_leave_a_validation_out() -> None:
    """Updates take half a second; a validation falls into one stretch of three."""
    common = {"loss": 1.0, "grad_norm": 1.0, "lr": 1.0, "seconds": 1.0, "compiled": False, "device": "cpu"}
    rates = {5: 2.0, 10: 0.05, 15: 2.0}
    records = ({"step": step, "steps_per_second": rate, **common} for step, rate in rates.items())
    assert logged_seconds(Log(tuple(map(TrainingRecord.model_validate, records)))) == 0.5


def test_seeds_are_counted_or_named() -> None:
    assert seed_numbers("3") == [0, 1, 2]
    assert seed_numbers("10-12") == [10, 11, 12]
    assert seed_numbers("7,3") == [7, 3]
    for text in ("", "-1", "3-", "1e3", "٣", "4-2", "0", "999999999", "1-2-3", "9" * 5000):
        with pytest.raises(HeroError, match="--seeds"):
            seed_numbers(text)


def test_by_default_every_strategy_has_the_recipe(call: Call, runs_dir: Path, data_dir: Path) -> None:
    """The command and the function train the same runs: the ones that `hero train` makes, with another strategy."""
    folders = ["--runs", runs_dir, "--data", data_dir]
    short = {**TINY, "train.steps": 2}
    chosen = ["--strategies", "push_forward,one_step", "--seeds", 1, "--workers", 0]
    code, _, err = call("compare", "burgers", *set_options(short), *chosen, *folders)
    assert code == 0, err
    (folder,) = runs_dir.glob("compare-*")
    result = StudyResult.read(folder / FILE)
    assert (result.study, result.folder, result.title) == ("compare", folder.name, "Comparison at equal updates")
    assert result.changed["train.optimizer"] == PRESETS[RECOMMENDED]["train.optimizer"]
    assert [row.label for row in result.rows] == ["FNO-PF (recipe)", "FNO (else recipe)"]
    for row in result.rows:
        score = Run(runs_dir / row.runs[0].run).errors.score
        assert [cell and cell.mean for cell in (row.cells["nrmse@100"],)] == [pytest.approx(score[:, 99].mean())]
    costs = [row.cells["cost"] for row in result.rows]
    assert [cell and cell.values for cell in costs[:1]] == [(1,)]
    assert result.statistics[0].tests[0].baseline == "FNO-PF (recipe)"
    assert (folder / "curves-burgers-fno.png").is_file()
    runs = {path.parent.name for path in runs_dir.glob("*/config.toml")}
    assert make_config(RECOMMENDED, overrides={"task.name": "burgers", **short}).run_id() in runs
    again = hero.compare(
        "burgers", ["push_forward", "one_step"], seeds=1, runs=runs_dir, data_dir=data_dir, settings=short
    )
    assert not again.study.failed
    assert {path.parent.name for path in runs_dir.glob("*/config.toml")} == runs
