"""A study is the paper's list of runs; its table says what the run folders say, whatever happened on the way."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

from conftest import TINY, Call, assert_refused, options, start_hero, tiny, wait_until
from hero.cli import main
from hero.errors import HeroError
from hero.evaluation import shifts as ood
from hero.report.cells import mark_best
from hero.report.study import latex, markdown, missing_word, study_tables, tex
from hero.report.tables import COMPARED, format_number
from hero.runs.config import RunConfig
from hero.study.collect import stored_landscape
from hero.study.cost import table as cost
from hero.study.cost.dry_run import duration, passes_per_window, schedule
from hero.study.plans import STUDIES, plan
from hero.study.published import paper_value
from hero.study.run import carry_out, run_study
from hero.study.worker import Workers


def paper_tables() -> dict[str, Any]:
    """table, task, backbone, row, column -> the mean (in `complete` with its std), straight from the file."""
    tables: dict[str, Any] = {}
    with (Path(__file__).parent.parent / "src/hero/study/paper.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            keys = [line.pop(name) for name in ("table", "task", "backbone", "row")]
            node = tables
            for key in keys:
                node = node.setdefault(key, {})
            for name, cell in line.items():
                if cell:
                    numbers = [float(number) for number in cell.split("±")]
                    node[name] = numbers[0] if len(numbers) == 1 else dict(zip(("mean", "std"), numbers, strict=True))
    return tables


PAPER = paper_tables()
OOD_PAPER = {name[4:]: table["kolmogorov_flow"]["fno"] for name, table in PAPER.items() if name.startswith("ood_")}
COST_PAPER = PAPER["cost"]["2d"]["fno"]
HERE = Workers(count=0)
SEEDS = (0, 1)
NAMES = ("push_forward", "hero")
TASKS = ("burgers", "dispersion")


def command(runs: Path, data: Path, *more: object) -> list[object]:
    axes = ["--tasks", ",".join(TASKS), "--backbones", "fno", "--strategies", ",".join(NAMES), "--seeds", len(SEEDS)]
    return ["study", "main", *axes, *options(), "--workers", 0, "--runs", runs, "--data", data, *more]


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


def stored(runs: Path, name: str = "main") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder_of(runs, name) / "study.json").read_text())
    return content


def run_of(runs: Path, task: str, strategy: str, seed: int) -> Path:
    return runs / tiny(task__name=task, strategy=strategy, seed=seed).run_id()


def test_cells_are_what_the_run_folders_say(studied: Path) -> None:
    result = stored(studied)
    assert (result["study"], result["seeds"], result["folder"]) == ("main", [0, 1], folder_of(studied).name)
    assert [group["title"] for group in result["groups"]] == ["Burgers, FNO", "Dispersion, FNO"]
    for group, task in zip(result["groups"], TASKS, strict=True):
        assert [row["label"] for row in group["rows"]] == ["FNO-PF", "FNO-HERO"]
        means: dict[str, list[float]] = {}
        for row, strategy in zip(group["rows"], NAMES, strict=True):
            runs = [run_of(studied, task, strategy, seed) for seed in SEEDS]
            for (split, metric, _, key), column in zip(COMPARED, result["columns"], strict=True):
                values = [json.loads((run / "metrics.json").read_text())[split][metric] for run in runs]
                cell, published = row["cells"][key], PAPER["complete"][task]["fno"][strategy][key]
                assert column["key"] == key
                assert cell["values"] == values
                assert cell["mean"] == pytest.approx(sum(values) / 2, rel=1e-12)
                assert cell["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, rel=1e-9)
                assert cell["paper"] == published
                assert cell["ratio"] == pytest.approx(sum(values) / 2 / published["mean"], rel=1e-12)
                means.setdefault(key, []).append(cell["mean"])
            errors = [np.load(run / "errors.npz")["nrmse"] for run in runs]
            assert row["cells"]["nrmse@100"]["values"] == pytest.approx([e[:, 99].mean() for e in errors], rel=1e-12)
            assert row["rollouts"] == sum(map(len, errors))
            assert row["diverged"] == sum(int((~np.isfinite(e)).any(axis=1).sum()) for e in errors)
            assert [(run["seed"], run["run"], run["status"]) for run in row["runs"]] == [
                (seed, run.name, "finished") for seed, run in zip(SEEDS, runs, strict=True)
            ]
        for column in result["columns"]:
            found = means[column["key"]]
            best = (min if column["direction"] == "lower" else max)(found)
            marked = [row["cells"][column["key"]]["best"] for row in group["rows"]]
            assert marked == [mean == best and len(set(found)) > 1 for mean in found]


def test_the_files_say_the_same(studied: Path) -> None:
    folder, result = folder_of(studied), stored(studied)
    lines = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text())))
    text = (folder / "table.md").read_text()
    assert len(lines) == len(TASKS) * len(NAMES) * len(COMPARED)
    for group in result["groups"]:
        for row in group["rows"]:
            for key, cell in row["cells"].items():
                (line,) = [
                    x for x in lines if (x["group"], x["label"], x["metric"]) == (group["title"], row["label"], key)
                ]
                assert float(line["mean"]) == cell["mean"]
                assert float(line["paper_std"]) == cell["paper"]["std"]
                assert line["best"] == str(cell["best"])
                ours = f"{format_number(cell['mean'])} ±{cell['std']:#.2g}"
                ours = f"**{ours}**" if cell["best"] else ours
                assert (
                    f"{ours} ({cell['paper']['mean']:g} ±{cell['paper']['std']:g}, ×{format_number(cell['ratio'])})"
                    in text
                )
    assert "Set here for all rows, so not as in the paper: task.resolution = 32" in text
    assert result["figures"] == ["curves-burgers-fno.png", "curves-dispersion-fno.png", "ranks.png"]
    assert result["statistics"]["baseline"] == "push_forward"
    for name in result["figures"]:
        assert imread(folder / name)[..., :3].std() > 0.02
        assert (folder / name).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert list(folder.glob(".*")) == []


def columns_in(line: str) -> int:
    """Columns of a line of a LaTeX table."""
    spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return 1 + len(re.findall(r"(?<!\\)&", line)) + sum(spans)


def assert_sane_latex(text: str) -> None:
    assert text.isascii()
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[#]", bare)
    for begin, end in (("table", "table"), ("tabular", "tabular")):
        assert text.count(rf"\begin{{{begin}}}") == text.count(rf"\end{{{end}}}") > 0
    for part in text.split(r"\begin{tabular}{")[1:]:
        width = len(part.partition("}")[0])
        lines = [line for line in part.partition(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")]
        assert len(lines) > 2
        assert {columns_in(line) for line in lines} == {width}
    for name in ("toprule", "bottomrule"):
        assert text.count(rf"\{name}") == text.count(r"\begin{tabular}")


def test_the_latex_is_a_table(studied: Path, tmp_path: Path) -> None:
    text = (folder_of(studied) / "table.tex").read_text()
    assert_sane_latex(text)
    assert r"\textbf{" in text
    assert tex("a_b & 50 % ±∞ {x}") == r"a\_b \& 50 \% $\pm$$\infty$ \{x\}"
    if shutil.which("pdflatex"):
        (tmp_path / "all.tex").write_text(
            "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + text + "\\end{document}\n"
        )
        subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("width", [100, 80])
def test_the_terminal_table_fits(width: int, studied: Path) -> None:
    result = stored(studied)
    for row in result["groups"][0]["rows"]:
        row["cells"]["nrmse@1"] |= {"mean": 0.00123456, "std": 0.000123, "ratio": 0.000123}
    console = Console(width=width, file=io.StringIO())
    for table in study_tables(result):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    whole = ("0.00123 ±0.00012", "0.208 ±0.009") if width == 100 else ("0.00123", "±0.00012", "0.208", "±0.009")
    for expected in (*whole, "FNO-HERO", "  paper", "  ratio"):
        assert expected in text
    assert "…" not in text


def test_repeating_runs_nothing_and_writes_the_same(call: Call, again: Path, data_dir: Path) -> None:
    weights = {path: path.stat().st_mtime_ns for path in again.glob("*/model.safetensors")}
    assert len(weights) == 8
    before = {path: path.read_bytes() for path in folder_of(again).iterdir()}
    code, out, err = call(*command(again, data_dir))
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.read_bytes() for path in folder_of(again).iterdir()} == before
    assert "step 20/20" not in out
    for expected in ("Main results (study main, preset paper, 2 seeds)", "Burgers, FNO", "FNO-HERO", "table.md",
                     "curves-burgers-fno.png", "ratio to push_forward", f"hero report {folder_of(again)}"):  # fmt: skip
        assert expected in out


def test_killed_and_repeated_gives_the_same_table(call: Call, again: Path, data_dir: Path, tmp_path: Path) -> None:
    one = ["--tasks", "burgers"]
    assert call(*command(again, data_dir, *one, "--out", tmp_path / "whole"))[0] == 0
    runs = tmp_path / "killed"
    process = start_hero(*command(runs, data_dir, *one))
    wait_until(lambda: len(list(runs.glob("*/last/state.pt"))) >= 2, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(runs.glob("study-*")) == []
    finished = {path: path.stat().st_mtime_ns for path in runs.glob("*/metrics.json")}
    assert 1 <= len(finished) < 4
    assert call(*command(runs, data_dir, *one))[0] == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for path in (tmp_path / "whole").iterdir():
        assert (folder_of(runs) / path.name).read_bytes() == path.read_bytes(), path.name


def test_an_interrupted_study_leaves_the_table_so_far(
    call: Call, runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = importlib.import_module("hero.study.sweep")
    train = sweep.train

    def interrupted(config: RunConfig, *folders: Path) -> Path:
        if config.seed == 1:
            raise KeyboardInterrupt
        run: Path = train(config, *folders)
        return run

    monkeypatch.setattr(sweep, "train", interrupted)
    assert call(*command(runs_dir, data_dir, "--tasks", "burgers"))[0] == 130
    row = stored(runs_dir)["groups"][0]["rows"][1]
    assert [run["status"] for run in row["runs"]] == ["finished", "not run"]
    assert row["cells"]["nrmse@100"]["std"] is None
    text = (folder_of(runs_dir) / "table.md").read_text()
    assert "| FNO-HERO (1 of 2 seeds) |" in text
    assert "2 of 4 runs are not finished; the same command goes on with them." in text


def test_a_failed_run_is_shown_and_the_others_are_there(call: Call, again: Path, data_dir: Path) -> None:
    for seed in SEEDS:
        run = run_of(again, "burgers", "hero", seed)
        (run / "metrics.json").unlink()
        (run / "last" / "state.pt").write_bytes(b"broken")
    run_of(again, "dispersion", "hero", 1).joinpath("errors.npz").write_bytes(b"broken")
    code, out, _ = call(*command(again, data_dir))
    assert code == 1
    burgers, dispersion = (group["rows"] for group in stored(again)["groups"])
    assert {run["status"] for run in burgers[1]["runs"]} == {"failed"}
    assert burgers[1]["cells"] == dict.fromkeys(burgers[1]["cells"])
    assert burgers[0]["cells"]["nrmse@100"]["values"]
    assert not burgers[0]["cells"]["nrmse@100"]["best"]
    assert [run["status"] for run in dispersion[1]["runs"]] == ["finished", "failed"]
    assert dispersion[1]["rollouts"] == 2
    assert "errors.npz is missing or damaged" in dispersion[1]["runs"][1]["failed"]
    assert f"{run_of(again, 'burgers', 'hero', 0).name} failed: the checkpoint" in out
    assert "| FNO-HERO | failed | failed |" in (folder_of(again) / "table.md").read_text()


def test_a_study_of_which_nothing_can_be_run_says_why(call: Call, runs_dir: Path, data_dir: Path) -> None:
    for config in plan(
        "main", overrides=TINY, tasks=["burgers"], backbones=["fno"], strategies=["hero"], seeds=[0]
    ).configs:
        (runs_dir / config.run_id() / "last").mkdir(parents=True)
        (runs_dir / config.run_id() / "last" / "state.pt").write_bytes(b"broken")
    one = ["--tasks", "burgers", "--strategies", "hero", "--seeds", 1]
    code, out, err = call(*command(runs_dir, data_dir, *one))
    assert (code, err) == (1, "")
    assert re.search(r"burgers-fno-hero-s0-\w+ failed: the checkpoint .* is damaged", out)
    assert "failed" in (folder_of(runs_dir) / "table.md").read_text()


def test_what_is_not_there_is_said(call: Call, again: Path, data_dir: Path) -> None:
    before = sorted(again.iterdir())
    (run_of(again, "burgers", "hero", 0) / "metrics.json").unlink()
    shutil.rmtree(run_of(again, "burgers", "hero", 1))
    for seed in SEEDS:
        shutil.rmtree(run_of(again, "dispersion", "hero", seed))
    code, out, _ = call(*command(again, data_dir, "--table-only"))
    assert code == 0
    assert "step 20/20" not in out
    burgers, dispersion = (group["rows"] for group in stored(again)["groups"])
    assert [run["status"] for run in burgers[1]["runs"]] == ["unfinished", "not run"]
    assert missing_word(burgers[1]) == "unfinished"
    assert dispersion[1]["cells"] == dict.fromkeys(dispersion[1]["cells"])
    text = (folder_of(again) / "table.md").read_text()
    assert "| FNO-HERO | not run | not run | not run | not run | not run | – |" in text
    assert "not run" in latex(stored(again))
    assert len(before) - 3 == len(list(again.iterdir()))


def test_divergence_is_shown_and_never_best(studied: Path) -> None:
    result = stored(studied)
    row = result["groups"][0]["rows"][1]
    row["cells"]["nrmse@100"] |= {"mean": float("inf"), "std": None, "ratio": float("inf")}
    row["diverged"] = 3
    cells = [row["cells"]["nrmse@100"] for row in result["groups"][0]["rows"]]
    mark_best(cells, "lower")
    assert [cell["best"] for cell in cells] == [True, False]
    assert "| ∞ (" in markdown(result)
    assert "3 of 4" in markdown(result)
    assert_sane_latex(latex(result))
    same: list[dict[str, Any] | None] = [{"mean": 1.0, "best": False}, None, {"mean": 1.0, "best": False}]
    mark_best(same, "lower")
    assert not any(cell["best"] for cell in same if cell)


def test_a_dry_run_lists_everything_and_touches_nothing(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(
        "study", "complete", "--dry-run", "--workers", 4, "--runs", tmp_path / "r", "--data", tmp_path / "d"
    )
    assert code == 0
    lines = re.findall(r"^ (\S+-s[0-4]-\w{8}) +not run +([\d.,]+ (?:s|min|h|days)) +counted", out, re.M)
    assert len({run for run, _ in lines}) == len(lines) == 540
    for name in PAPER["complete"]:
        assert sum(run.startswith(f"{name}-") for run, _ in lines) == 60
    assert "540 runs, 0 finished" in out
    assert "With 4 workers at best" in out
    assert "trains nothing" in call("study", "cost", "--dry-run", "--runs", tmp_path / "r")[1]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_what_is_there(again: Path, call: Call, data_dir: Path) -> None:
    (run_of(again, "burgers", "hero", 1) / "metrics.json").unlink()
    shutil.rmtree(run_of(again, "burgers", "hero", 0))
    planned = plan("main", overrides=TINY, tasks=TASKS, backbones=["fno"], strategies=[*NAMES, "one_step"], seeds=SEEDS)
    lines = {line["run"]: line for line in schedule(planned, again)}
    gone, half = (lines[run_of(again, "burgers", "hero", seed).name] for seed in SEEDS)
    assert (gone["state"], gone["source"]) == ("not run", "logged")
    assert (half["state"], half["source"]) == ("at step 20", "logged")
    assert gone["seconds"] > half["seconds"] == 0
    assert sum(line["state"] == "finished" for line in lines.values()) == 6
    assert lines[tiny(strategy="one_step").run_id()]["source"] == "counted"
    out = call(*command(again, data_dir, "--dry-run"))[1]
    assert "8 runs, 6 finished" in out
    assert [duration(s) for s in (40, 720, 12600, 700000)] == ["40 s", "12 min", "3.5 h", "8 days"]


def test_strategies_are_counted_in_passes() -> None:
    # Forward and twice that backward, for each of the five steps of a window; HERO rolls out candidates on top.
    passes = {
        name: passes_per_window(tiny(strategy=name)) for name in ("one_step", "push_forward", "fixed_weight", "hero")
    }
    assert passes["push_forward"] == pytest.approx(15, rel=0.05)
    assert passes["one_step"] == pytest.approx(3, rel=0.05)
    assert passes["fixed_weight"] == pytest.approx(15, rel=0.05)
    assert 15 + 0.6 * 5 <= passes["hero"] <= 25


def test_the_plans_have_the_papers_rows() -> None:
    everything = plan("complete")
    assert len(everything.configs) == 540
    assert {(g.task, g.backbone) for g in everything.groups} == {
        (t, b) for t in PAPER["complete"] for b in ("fno", "transolver")
    }
    for group in everything.groups:
        assert [row.strategy for row in group.rows] == [*PAPER["complete"][group.task][group.backbone], "fixed_weight"]
        for row in group.rows:
            assert row.paper == paper_value(group.task, group.backbone, row.strategy)
    main_plan = plan("main")
    assert len(main_plan.configs) == 360
    assert {group.task for group in everything.groups} - {group.task for group in main_plan.groups} == {
        "dispersion", "kdv", "kolmogorov_flow"}  # fmt: skip
    assert [row.label for row in main_plan.groups[1].rows] == [
        "Trans.", "Trans.-PF", "Trans.-Ref.", "Trans.-RNO", "Trans.-HERO", "Trans.-fixed"]  # fmt: skip
    # Every run of the main table is one of the complete one: nothing is trained twice.
    assert {c.run_id() for c in main_plan.configs} <= {c.run_id() for c in everything.configs}
    (shifted,) = plan("ood").groups
    for table in OOD_PAPER.values():
        assert [row.strategy for row in shifted.rows] == [*table, "fixed_weight"]
    assert list(ood.SHIFTS) == list(OOD_PAPER)
    (costs,) = plan("cost").groups
    assert [row.strategy for row in costs.rows] == [*COST_PAPER, "fixed_weight"]
    assert plan("cost").configs == []
    assert [row.label for row in plan("rollout_figure").groups[0].rows] == ["FNO", "FNO-PF", "FNO-HERO"]
    assert plan("landscape").configs[0].train.keep_every == 2000


@pytest.mark.parametrize("name", ["ablation", "start_step", "refresh"])
def test_the_tables_of_variants_have_the_papers_rows(name: str) -> None:
    (group,) = plan(name).groups
    published = PAPER[name]["decaying_turbulence"]["fno"]
    assert [row.label for row in group.rows if row.strategy != "fixed_weight"] == list(published)
    for row in group.rows:
        found = {key: value["mean"] for key, value in (row.paper or {}).items()}
        assert found == published.get(row.label, {})
    # With a tenth of the steps the settings are the same shares, beside the same published numbers.
    (tenth,) = plan(name, preset="quick").groups
    assert [row.paper for row in tenth.rows] == [row.paper for row in group.rows]
    (elsewhere,) = plan(name, tasks=["burgers"]).groups
    assert [row.paper for row in elsewhere.rows] == [None] * len(group.rows)


def test_the_settings_of_the_variants() -> None:
    rows = {row.label: row.configs[0] for row in plan("ablation").groups[0].rows}
    assert rows["Self-relative"].hero.candidates == ("self",)
    assert rows["HERO w/o Lag"].hero.candidates == ("perturbed", "self")
    assert rows["HERO w/o Relative"].hero.lambda_max == 0
    assert (
        rows["Full HERO"].run_id() == plan("main", tasks=["decaying_turbulence"]).groups[0].rows[4].configs[0].run_id()
    )
    starts = plan("start_step").groups[0].rows
    assert [row.note for row in starts] == ["", *(f"{s}–10000" for s in (2000, 4000, 6000, 8000))]
    assert [row.configs[0].hero.start for row in starts[1:]] == [2000, 4000, 6000, 8000]
    refreshed = plan("refresh").groups[0].rows
    assert [row.note for row in refreshed[1:]] == [
        "4000, 4500, …, 9500", "4000, 5000, …, 9000", "4000, 6000, 8000", "4000, 8000"]  # fmt: skip
    # 30 steps: 0.05 of them is 1.5, which is no setting of the paper's.
    odd = plan("refresh", overrides={"train.steps": 30}).groups[0].rows
    assert [row.paper is None for row in odd] == [False, True, False, False, False]


def test_the_folder_is_named_after_what_is_studied() -> None:
    chosen: dict[str, Any] = {"tasks": ["burgers"], "backbones": ["fno"], "seeds": [0]}
    one = plan("main", **chosen)
    assert one.folder == plan("main", **chosen).folder
    others = [
        plan("complete", **chosen),
        plan("main", preset="quick", **chosen),
        plan("main", **{**chosen, "seeds": [0, 1]}),
        plan("main", **{**chosen, "tasks": ["kdv"]}),
        plan("main", strategies=["hero"], **chosen),
    ]
    assert len({one.folder, *(other.folder for other in others)}) == 6


def test_a_configuration_file_leaves_the_axes_alone(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(tiny(strategy="hero", seed=3).to_toml())
    planned = plan(
        "main", file=tmp_path / "run.toml", tasks=["burgers"], backbones=["fno"], strategies=NAMES, seeds=SEEDS
    )
    assert [config.run_id() for config in planned.configs] == [
        tiny(strategy=name, seed=seed).run_id() for seed in SEEDS for name in NAMES
    ]
    assert planned.changed["train.steps"] == 20
    assert "train.lr" not in planned.changed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mian"], ("study 'mian'", "did you mean 'main'?")),
        (["main", "--tasks", "burger"], ("task 'burger'", "did you mean 'burgers'?")),
        (["main", "--backbones", "fn"], ("backbone 'fn'", "did you mean 'fno'?")),
        (["main", "--strategies", "heroo"], ("strategy 'heroo'", "did you mean 'hero'?")),
        (["main", "--strategies", "hero,one_step,hero"], ("--strategies has hero twice",)),
        (["main", "--tasks", " , "], ("--tasks is empty",)),
        (["main", "--seeds", "0"], ("--seeds is empty",)),
        (["ablation", "--strategies", "hero"], ("study ablation has no --strategies", "--tasks, --backbones, --seeds")),
        (["ood", "--tasks", "burgers"], ("study ood has no --tasks",)),
        (["cost", "--seeds", "2"], ("study cost has no --seeds",)),
        (["main", "--set", "task.name=kdv"], ("task.name", "--tasks")),
        (["main", "--set", "seed=3"], ("seed", "--seeds")),
        (["start_step", "--set", "hero.start=5"], ("hero.start is what study start_step sets",)),
        (["refresh", "--set", "train.steps=5"], ("train.steps=5 is too short",)),
        (["main", "--preset", "fast"], ("preset", "'fast'")),
        (["main", "--set", "train.step=5"], ("'train.step'",)),
        (["main", "--dry-run", "--table-only"], ("--dry-run", "--table-only")),
    ],
)
def test_mistakes_are_refused_before_anything_is_run(
    arguments: list[str], words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    assert_refused(call("study", *arguments, "--runs", tmp_path / "runs", "--data", tmp_path / "data"), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_a_setting_from_python(runs_dir: Path, data_dir: Path) -> None:
    result = run_study("refresh", runs_dir, data_dir, overrides=TINY, tasks=["burgers"], seeds=[0], workers=HERE)
    (group,) = result["groups"]
    assert [row["label"] for row in group["rows"]] == ["FNO-PF", *(f"HERO (R={r})" for r in (1, 2, 4, 8))]
    assert [row["note"] for row in group["rows"]] == ["", "8, 9, …, 19", "8, 10, …, 18", "8, 12, 16", "8, 16"]
    assert result["figures"] == ["curves-burgers-fno.png", "setting-burgers-fno.png"]
    folder = folder_of(runs_dir, "refresh")
    assert imread(folder / "setting-burgers-fno.png").shape[1] > 1000
    assert "| HERO (R=4) | 8, 12, 16 |" in (folder / "table.md").read_text()
    assert_sane_latex((folder / "table.tex").read_text())


def test_the_first_figure_of_the_paper(again: Path, data_dir: Path) -> None:
    planned = plan("rollout_figure", overrides=TINY, tasks=["burgers"], strategies=NAMES, seeds=SEEDS)
    out = again / "elsewhere"
    result = carry_out(planned, again, data_dir, HERE, out)
    assert result["figures"] == ["rollout-burgers-fno.png"]
    picture = imread(out / "rollout-burgers-fno.png")
    assert picture.shape[1] > 1500
    assert picture[:, picture.shape[1] // 2 :, :3].std() > 0.05
    assert list(again.glob("study-rollout_figure-*")) == []


def test_predictions_in_the_figure_are_those_that_were_measured(studied: Path, data_dir: Path) -> None:
    figures = importlib.import_module("hero.report.figures.of_study")
    config = tiny(strategy="hero", seed=1)
    run = studied / config.run_id()
    test = importlib.import_module("hero.evaluation.evaluate").load_data(config, "test", data_dir, "cpu")
    errors = np.load(run / "errors.npz")["nrmse"]
    for trajectory in range(2):
        u = figures.predicted(run, test[trajectory], 100, torch.device("cpu"))
        truth = test[trajectory, 100].numpy()
        measured = np.linalg.norm(u - truth) / np.linalg.norm(truth)
        assert measured == pytest.approx(errors[trajectory, 99], rel=1e-5)


def test_kept_checkpoints_in_a_table(runs_dir: Path, data_dir: Path) -> None:
    result = run_study("landscape", runs_dir, data_dir, overrides=TINY, tasks=["burgers"], seeds=[0], workers=HERE)
    (run,) = [path.parent for path in runs_dir.glob("*/landscape.json")]
    content = stored_landscape(run, data_dir)
    rows = result["groups"][0]["rows"]
    assert [row["label"] for row in rows] == [*(f"FNO-HERO, step {s}" for s in (4, 8, 12, 16, 20)), "FNO-HERO, final"]
    for row, errors in zip(rows, [*content["errors"], content["final_errors"]], strict=True):
        assert row["cells"]["nrmse@40"]["mean"] == errors[39]
        assert row["cells"]["nrmse@160"] is None  # these rollouts have 100 steps
    assert result["figures"] == [f"landscape-{run.name}.png"]
    assert result["statistics"] is None
    times = (run / "landscape.json").stat().st_mtime_ns
    run_study("landscape", runs_dir, data_dir, overrides=TINY, tasks=["burgers"], seeds=[0], workers=HERE)
    assert (run / "landscape.json").stat().st_mtime_ns == times


def test_shifts_of_the_same_checkpoints(runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = ood.SHIFTS["viscosity_6.67e-3"]
    monkeypatch.setattr(ood, "SHIFTS", {shift.name: shift})  # finer grids take their time
    settings = {**TINY, "data.test_steps": 200, "task.warmup": 0, "task.substeps": 2}
    result = run_study("ood", runs_dir, data_dir, overrides=settings, strategies=NAMES, seeds=[0], workers=HERE)
    (group,) = result["groups"]
    assert (group["shift"], group["task"]) == (shift.name, "kolmogorov_flow")
    for row in group["rows"]:
        test = ood.shifted(runs_dir / row["runs"][0]["run"], data_dir, shift)["test"]
        published = OOD_PAPER[shift.name][row["strategy"]]
        for key, name in (
            ("gm100", "gm100"),
            ("nrmse@200", "nrmse@200"),
            ("mean_stability_horizon", "stability_horizon_200"),
        ):
            assert row["cells"][key]["values"] == [test[name]]
            assert row["cells"][key]["ratio"] == test[name] / published[key]
        assert row["rollouts"] == 2
    assert result["statistics"]["metric"] == "nrmse@200"


def test_costs_are_measured_once(runs_dir: Path, data_dir: Path) -> None:
    planned = plan("cost", overrides={"task.resolution": 32, "train.compile": "false"}, strategies=NAMES)
    configs = {row.label: row.configs[0] for row in planned.groups[0].rows}
    out = runs_dir / planned.folder
    # What an earlier measurement under the same conditions has left.
    rows = {
        config.run_id(): {**dict.fromkeys(cost.FIGURES, 2.0), "train_steps_per_s": 10.0 + i}
        for i, config in enumerate(configs.values())
    }
    how = cost.conditions({k: cost.for_measuring(c) for k, c in configs.items()}, cost.ROUNDS, cost.STEPS)
    out.mkdir(parents=True)
    (out / "decaying_turbulence-fno-costs.json").write_text(json.dumps({cost.HOW: how, "costs": rows}))
    result = carry_out(planned, runs_dir, data_dir, HERE)
    first, second = (row["cells"] for row in result["groups"][0]["rows"])
    assert first["train_steps_per_s"]["mean"] == 10
    assert second["train_steps_per_s"]["best"]
    assert not first["parameters"]["best"]
    assert first["inference_ms_per_step"]["ratio"] == 2 / COST_PAPER["push_forward"]["inference_ms_per_step"]
    assert how["note"] in result["notes"]
    assert "diverged" not in (out / "table.md").read_text()
    assert_sane_latex((out / "table.tex").read_text())


CRASHING = """
from torch import nn


class Fine(nn.Conv1d):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels, 3, padding=1, padding_mode="circular")


class Net(Fine):
    def forward(self, u):
        if self.training and not hasattr(self, "done"):
            self.done = 1
        elif self.training:
            raise ValueError("broken on purpose")
        return super().forward(u)
"""


def test_a_row_that_crashes_is_a_failed_row(
    call: Call, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashing_models.py").write_text(CRASHING)
    monkeypatch.chdir(tmp_path)
    own = [
        part for key, value in TINY.items() if not key.startswith("backbone") for part in ("--set", f"{key}={value}")
    ]
    arguments = ["study", "main", "--tasks", "burgers", "--strategies", "push_forward", "--seeds", 1,
                 "--backbones", "crashing_models:Net,crashing_models:Fine", *own, "--set", "train.steps=2",
                 "--runs", "runs", "--data", data_dir]  # fmt: skip
    code, out, err = call(*arguments, "--workers", 0)
    assert (code, err) == (1, "")
    crashed, finished = (group["rows"][0] for group in stored(tmp_path / "runs")["groups"])
    assert [run["status"] for row in (crashed, finished) for run in row["runs"]] == ["failed", "finished"]
    run = Path("runs", crashed["runs"][0]["run"])
    reason = f"it crashed (ValueError: broken on purpose) (log: {run / 'output.log'})."
    assert f"{run.name} failed: {reason}" in out
    assert "Traceback" in (run / "output.log").read_text()
    assert "| Net-PF | failed |" in (folder_of(tmp_path / "runs") / "table.md").read_text()
    assert Path("runs", finished["runs"][0]["run"], "report.html").is_file()  # also without a worker process
    # The same from a worker process, whose module is imported there.
    code, out, err = call(*arguments, "--workers", 1)
    assert (code, err) == (1, "")
    assert f"{run.name} failed: its process crashed with exit code 1 (log: {run / 'output.log'})." in out


def test_anyones_own_module(call: Call, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study_models.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Conv1d):\n"
        "    def __init__(self, in_channels, out_channels):\n"
        "        super().__init__(in_channels, out_channels, 3, padding=1, padding_mode='circular')\n"
    )
    monkeypatch.chdir(tmp_path)
    own = [
        part for key, value in TINY.items() if not key.startswith("backbone") for part in ("--set", f"{key}={value}")
    ]
    arguments = ["study", "main", "--tasks", "burgers", "--backbones", "study_models:Net", "--strategies", "one_step",
                 "--seeds", 1, *own, "--workers", 0, "--runs", tmp_path / "runs", "--data", data_dir]  # fmt: skip
    assert "not run" in call(*arguments, "--dry-run")[1]
    code, out, _ = call(*arguments)
    assert code == 0
    assert "Burgers, Net" in out
    row = stored(tmp_path / "runs")["groups"][0]["rows"][0]
    assert (row["label"], row["cells"]["nrmse@1"]["paper"]) == ("Net", None)
    assert (folder_of(tmp_path / "runs") / "curves-burgers-Net.png").is_file()


def test_every_study_can_be_planned_and_described(call: Call) -> None:
    for name, study in STUDIES.items():
        planned = plan(name, preset="quick")
        assert len(planned.groups) == len(study.tasks) * len(study.backbones)
        assert all(len(row.configs) == (5 if "seeds" in study.axes else 1) for g in planned.groups for row in g.rows)
    with pytest.raises(HeroError, match="--seeds has 1 twice"):
        plan("main", seeds=[1, 1])
    out = call("study", "--help")[1]
    for word in (*STUDIES, "--tasks", "--dry-run", "--table-only", "--workers", "--out", "--preset", "--runs"):
        assert word in out


def test_the_mean_of_seeds_is_the_plain_one(studied: Path) -> None:
    cell = stored(studied)["groups"][0]["rows"][0]["cells"]["test_gm100"]
    assert cell["mean"] == statistics.fmean(cell["values"])
    assert cell["std"] == statistics.stdev(cell["values"])
