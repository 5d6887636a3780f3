"""Reports: figures draw, also of diverged runs; all forms of a table, and the page, say what the files say, safely.

What the page does in a browser is in test_page.py.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from conftest import Call, assert_refused, tiny
from fakes import (
    ERROR,
    GRIDS,
    TITLE,
    Parsed,
    assert_drawn,
    fake_errors,
    fake_group,
    fake_metrics,
    fake_rollout,
    fake_row,
    fake_run,
    fake_study,
    fake_test,
    spectrum_of,
)
from hero.data import Source, get_task
from hero.errors import HeroError
from hero.files import json_line
from hero.method import measures
from hero.method import metrics as m
from hero.report.content import (
    group_table,
    metrics_table,
    paired_table,
    study_csv,
    study_latex,
    study_markdown,
    study_tables,
)
from hero.report.figures.charts import curves_figure, error_chart
from hero.report.figures.fields import fields_figure, spectrum_figure
from hero.report.figures.style import colours_of, line_style
from hero.report.figures.training import diagnostic_charts, series, training_charts, training_figure
from hero.report.inputs import Curves, gather
from hero.report.page.page import payload, render, write_run_page
from hero.report.page.player import LEVELS, player, quantise
from hero.report.panels import Panel, panels_of, results_of
from hero.report.sentences import group_sentence, main_column
from hero.report.tables import LATEX, Column, Number, Row, Table, Text, format_number, tex
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run
from hero.runs.log import Log, TrainingRecord, ValidationRecord
from hero.runs.records import Metrics, Rollout, read_rollout, write_rollout
from hero.study.collect import published_numbers
from hero.study.records import ROLLOUT_COLUMNS, MethodRow, Published, RunEntry, StudyResult

TASKS = dict(zip((1, 2, 3), GRIDS, strict=True))
STATISTICS = {"alpha": 0.5, "alpha_std": 0.1, "lambda": 0.1, "margin": 0.2}
CANDIDATES, DIAGNOSTICS = ("lag", "perturbed", "self"), ("roll", "spec", "energy", "growth")


def source_of(dims: int, resolution: int = 0) -> Source:
    task = get_task(TASKS[dims])
    return replace(task, extent=2.0, dt=0.1, resolution=resolution or GRIDS[TASKS[dims]][0]).source()


def trajectory(dims: int, length: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Truth and prediction, noise."""
    generator = torch.Generator().manual_seed(dims)
    truth = torch.randn(length, 1, *GRIDS[TASKS[dims]], generator=generator)
    return truth, truth + 0.1 * torch.randn(truth.shape, generator=generator)


def stored(folder: Path, truth: torch.Tensor, prediction: torch.Tensor) -> tuple[Rollout, list[float]]:
    """What is written of a rollout, as it is read back, and the errors of the whole fields."""
    write_rollout(folder, truth[0], truth, prediction, trajectory=1)
    rollout = read_rollout(folder)
    return rollout, measures.nrmse(prediction[None], truth[None])[0].tolist()


def error_array(diverged: int = 0) -> np.ndarray:
    errors = 0.003 * np.arange(1, 201) * np.linspace(0.5, 1.5, 30)[:, None]
    errors[:diverged, 60:] = np.inf
    return errors


def trained(step: int, loss: float, **statistics: float) -> TrainingRecord:
    facts = {"grad_norm": 1.0, "steps_per_second": 9.0, "seconds": step / 9, "compiled": False, "device": "cpu"}
    return TrainingRecord(step=step, loss=loss, lr=1e-3, **facts, **statistics)


def logged(candidates: Sequence[str] = CANDIDATES, diagnostics: Sequence[str] = DIAGNOSTICS) -> Log:
    """A log with the statistics of HERO, and a validation that diverged."""
    shares = dict.fromkeys(candidates, 1 / len(candidates))
    errors = {f"{c}.{q}": 0.1 * (i + 1) for i, c in enumerate(candidates) for q in diagnostics}
    training = tuple(trained(50 * i, 1 / i, **STATISTICS, **shares, **errors) for i in range(1, 21))
    validation = (ValidationRecord(step=500, score=math.inf, metric="gm100", val_diverged=2),
                  ValidationRecord(step=1000, score=0.2, metric="gm100", val_diverged=0))  # fmt: skip
    return Log(training, validation)


def paper_config(strategy: str = "hero") -> RunConfig:
    return make_config(overrides={"task.name": "burgers", "strategy": strategy})


def run_metrics(diverged: int = 0, config: RunConfig | None = None, **changes: Any) -> Metrics:
    errors, config = error_array(diverged), config or paper_config()
    values = m.summarise({"nrmse": errors, "correlation": 1 - np.minimum(errors, 1), "apebench_nrmse": errors})
    training = {"steps": config.train.steps, "seconds": 93.4, "steps_per_second": 107.1, "compiled": True,
                "device": "cpu", "threads": 2}  # fmt: skip
    return fake_metrics(config.run_id(), values, **{**config.identity(), "training": training, **changes})


def panels(folder: Path) -> list[Panel]:
    inputs = gather([], folder)
    return list(panels_of(inputs, results_of(inputs)))


def parsed(path: Path) -> Parsed:
    return Parsed(path.read_text(encoding="utf-8"))


def test_numbers() -> None:
    values = (0.031, 80.76, 100.0, 0.09999, 999.7, 1234.4, 1e-12, 0, math.inf, math.nan, None)
    shown = ["0.0310", "80.8", "100", "0.100", "1000", "1234", "1.00e-12", "0", "∞", "–", "–"]
    assert [format_number(value) for value in values] == shown


@pytest.mark.parametrize(
    ("errors", "lost"),
    [
        (error_array(), 0),
        (error_array(4), 4),
        (np.zeros((2, 40)), 0),
        (np.full((3, 40), np.inf), 3),
        (np.full((1, 40), np.nan), 1),
    ],
)
def test_figures_of_errors(tmp_path: Path, errors: np.ndarray, lost: int) -> None:
    paper = {"HERO": {1: Published(mean=0.01), 100: Published(mean=0.2, std=0.1)}}
    figure = curves_figure(error_chart("title", {"HERO": [Curves.of(fake_errors(errors))]}, paper=paper))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "HERO" + f" ({lost} of {len(errors)} diverged)" * bool(lost)
    assert_drawn(figure, tmp_path)


@pytest.mark.parametrize(
    ("dims", "length", "fate"),
    [(3, 60, "finite"), (1, 200, "lost"), (2, 60, "nan"), (1, 60, "decaying"), (1, 60, "vanishing")],
)
def test_field_and_spectrum_figures(tmp_path: Path, dims: int, length: int, fate: str) -> None:
    truth, prediction = trajectory(dims, length)
    if fate == "lost":
        prediction[40:] *= 1e30
        prediction[120:, ..., :3] = math.inf
    elif fate == "nan":
        prediction[:] = math.nan
    elif fate in ("decaying", "vanishing"):
        size = torch.logspace(0, -5, length).view(-1, 1, 1) * (fate == "decaying")
        truth, prediction = size * truth, size * prediction
    rollout, errors = stored(tmp_path, truth, prediction)
    assert_drawn(fields_figure(rollout, errors, source_of(dims)), tmp_path)
    assert_drawn(spectrum_figure(rollout), tmp_path)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_spectrum_of_a_wave_lies_in_its_shell(dims: int) -> None:
    """cos(3x) has |û|² = 1/4 in two modes; P(3) is their mean over the shell, and every other shell is empty."""
    n = 16
    x = np.arange(n) * 2 * np.pi / n
    state = np.broadcast_to(np.cos(3 * x).reshape(n, *[1] * (dims - 1)), (n,) * dims)
    spectrum = spectrum_of(state)
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * dims, indexing="ij"))
    modes = (np.rint(np.sqrt((k**2).sum(0))) == 3).sum()
    assert len(spectrum) == n // 2
    assert spectrum[2] == pytest.approx(0.5 / modes)
    assert np.delete(spectrum, 2).max() < 1e-28


@pytest.mark.parametrize(
    "log",
    [Log(), Log((trained(1, math.nan),), (ValidationRecord(step=1, score=math.inf, metric="gm100", val_diverged=30),))],
)
def test_training_figure(tmp_path: Path, log: Log) -> None:
    assert_drawn(training_figure(log), tmp_path)


def test_a_step_logged_twice_counts_once() -> None:
    steps, values = series(Log((trained(100, 3.0), trained(50, 2.0), trained(100, 1.0))), "loss")
    assert steps.tolist() == [50, 100]
    assert values.tolist() == [2.0, 1.0]


def test_candidates_and_diagnostics_of_others_are_drawn_with_ours(tmp_path: Path) -> None:
    """Six candidates and five diagnostics, some of which nobody has registered; one is called like a method."""
    candidates, diagnostics = (*CANDIDATES, "mine", "copy", "json"), (*DIAGNOSTICS, "shock")
    log = logged(candidates, diagnostics)
    charts = diagnostic_charts(log)
    assert [chart.title for chart in charts][-1] == "shock"
    assert len(charts) == len(diagnostics)
    for chart in (*charts, training_charts(log)[-1]):
        assert len(chart.curves) == len({curve.colour for curve in chart.curves}) == len(candidates)
        assert {"mine", "copy", "json"} < {curve.label for curve in chart.curves}
    few = diagnostic_charts(logged(candidates[1:]))[0]
    assert few.curves[0].colour == charts[0].curves[1].colour  # a candidate has its colour in every run
    figure = training_figure(log)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 6 + len(diagnostics)
    assert_drawn(figure, tmp_path)
    assert diagnostic_charts(Log((trained(50, 0.1),))) == []


def texts_of(metrics: Metrics, config: RunConfig | None = None) -> dict[str, list[str]]:
    """Label -> the other cells of the table of one run."""
    table = metrics_table(metrics, config or paper_config())
    return {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in table.rows}


def test_table_rows_equal_metrics() -> None:
    metrics, published = run_metrics(), published_numbers(paper_config())
    rows = texts_of(metrics)
    for label, name, key in (("Test GM100", "gm100", "test_gm100"), ("Stable step", "stable_step", "stable_step")):
        ours, paper, ratio = rows[label]
        assert ours == format_number(metrics.test[name])
        assert paper == f"{published[key].mean:g} ±{published[key].std:g}"
        assert float(ratio) == pytest.approx(metrics.test[name] / published[key].mean, rel=5e-3)
    assert rows["Diverged"][0] == "0 of 30"
    assert rows["nRMSE@200"][1:] == ["–", "–"]
    labels = list(rows)
    assert labels[:5] == ["Val GM100", "Test GM100", "nRMSE@1", "nRMSE@100", "Stable step"]
    assert len(labels) == len(m.METRICS) + 1


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_rollouts_are_read_as_they_were_written(tmp_path: Path, dims: int) -> None:
    truth, prediction = trajectory(dims, length=5)
    prediction[3:] = math.inf
    rollout, _ = stored(tmp_path, truth, prediction)
    middle = (..., 4) if dims == 3 else (...,)
    assert rollout.slice == (4 if dims == 3 else None)
    assert rollout.trajectory == 1
    np.testing.assert_array_equal(rollout.truth, truth.numpy()[middle])
    np.testing.assert_array_equal(rollout.prediction, prediction.numpy()[middle])
    np.testing.assert_array_equal(rollout.initial, truth[0].numpy()[middle])
    np.testing.assert_allclose(rollout.truth_spectrum[2, 0], spectrum_of(truth[2, 0].numpy()))
    assert np.isinf(rollout.prediction_spectrum[3:]).all()
    assert np.isfinite(rollout.prediction_spectrum[:3]).all()


def test_quantised_fields_are_within_half_a_level() -> None:
    field = np.array([-3.0, -1.0, -0.4, 0.0, 1e-3, 0.77, 1.0, 8.0, np.nan, np.inf])
    for low, high in ((-1.0, 1.0), (0.1, 5.0)):
        levels = quantise(field, low, high)
        back = low + (levels[:8].astype(float) - 1) / LEVELS * (high - low)
        np.testing.assert_allclose(back, np.clip(field[:8], low, high), atol=0.5 * (high - low) / LEVELS + 1e-12)
        assert levels[8:].tolist() == [0, 0]
        assert levels[:8].min() == 1


def test_players_stay_small_and_say_what_they_left_out(tmp_path: Path) -> None:
    truth = torch.randn(200, 1, 72, 72)
    rollout, errors = stored(tmp_path, truth, 1.1 * truth)
    data = player(rollout, np.array(errors)[:, None], source_of(2, 72), bytes_allowed=100_000)
    assert data["shape"] == [36, 36]
    assert len(json.dumps([data["truth"], data["channels"]])) <= 105_000
    assert data["steps"][0] == 1
    assert data["steps"][-1] == 200
    (channel,) = data["channels"]
    assert channel["errors"][3] == pytest.approx(errors[data["steps"][3] - 1])
    assert f"{len(data['steps'])} of 200 steps" in " ".join(data["notes"])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as evaluation leaves it, made by hand."""
    config = tiny(task__name="burgers", train__steps=1000)
    folder = fake_run(tmp_path_factory.mktemp("template"), config, *fake_rollout(), error_array())
    run_metrics(config=config).write(folder / "metrics.json")
    log = logged()
    lines = [json_line(record.model_dump()) for record in (*log.training, *log.validation)]
    (folder / "log.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "runs" / template.name))


@pytest.mark.parametrize("diverged", [0, 30])
def test_report_of_a_run(run: Path, diverged: int) -> None:
    config = Run(run).config
    fake_run(run.parent, config, *fake_rollout(diverged_at=61 if diverged else None), error_array(diverged))
    metrics = run_metrics(diverged, config)
    metrics.write(run / "metrics.json")
    page = write_run_page(run)
    assert page == run / "report.html"
    parser = parsed(page)
    assert "http://www.w3.org/2000/svg" in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").count("http") == 2  # that name, and http-equiv
    assert parser.resources == [f"#{key}" for key in ("tables", "curves", "players", "training", "provenance")]
    assert f"{diverged} of 30 rollouts diverged" in parser.text
    for name, value in metrics.test.items():
        assert name == "diverged" or format_number(value) in parser.text
    for fact in (run.name, "44801", "9500", "1000", "93.4", "2.9.0"):
        assert fact in parser.text
    assert not (run / "figures").exists()


def test_page_escapes_what_others_named(run: Path) -> None:
    hostile = "<img src=x onerror=1></script><script>alert(1)</script>"
    run_metrics(config=Run(run).config, versions={hostile: hostile}).write(run / "metrics.json")
    inputs = gather([run.name], run.parent)
    inputs.notices.append(hostile)
    data = payload(inputs)
    data["training"][0]["label"] = hostile
    cell = Text(hostile, detail=hostile, verdict=hostile)
    data["tables"][0] = replace(data["tables"][0], title=hostile, notes=[hostile], rows=[Row([cell] * 2, hostile)])
    path = run / "hostile.html"
    path.write_text(render(data), encoding="utf-8")
    parser = parsed(path)
    assert parser.tags.count("script") == 2
    assert "img" not in parser.tags
    assert hostile in parser.text


def test_report_command_writes_page_and_figures(
    run: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hero.report.figures.runs.PAPER_DPI", 60)
    code, _, err = call("report", "--runs", run.parent, "--figures", tmp_path / "drawn")
    assert (code, err) == (0, "")
    assert (run.parent / "report.html").is_file()
    stems = {"curves_burgers_fno", *(f"{run.name}_{name}" for name in ("fields", "spectrum", "training"))}
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {f"{s}.{e}" for s in stems for e in ("pdf", "png")}
    drawn = (tmp_path / "drawn" / "curves_burgers_fno.pdf").read_bytes()
    assert drawn.startswith(b"%PDF")
    assert b"/Type3" not in drawn  # fonts that journals refuse
    call("report", run, "--runs", tmp_path, "--out", tmp_path / "one.html")
    assert "HERO has nRMSE@100" in parsed(tmp_path / "one.html").text


def test_a_run_that_cannot_be_shown(run: Path, call: Call) -> None:
    other = shutil.copytree(run, run.parent / "other")
    (run / "metrics.json").unlink()
    assert_refused(call("report", run, "--runs", run.parent), "is not finished", "--resume")
    code, out, _ = call("report", "--runs", run.parent)  # the others are shown, and why it is not
    assert code == 0
    for text in (out, parsed(run.parent / "report.html").text):
        assert "is not finished" in text
    assert other.name in parsed(run.parent / "report.html").text


def test_missing_pictures_are_named_and_do_not_stop_the_page(run: Path, call: Call) -> None:
    (run / "rollout.npz").unlink()
    (run / "errors.npz").write_bytes(b"damaged")
    (run / "probe.json").write_text("[]")
    (run / "landscape.json").write_text('{"log10_ratio": [[1]]}')
    code, _, err = call("report", run, "--runs", run.parent)
    assert (code, err) == (0, "")
    text = parsed(run / "report.html").text
    for said in (
        "has no rollout.npz",
        "errors.npz is missing or damaged",
        "probe.json is damaged",
        "landscape.json is damaged",
    ):
        assert said in text
    assert format_number(run_metrics().test["gm100"]) in text


def test_bad_names_are_refused(run: Path, call: Call, tmp_path: Path) -> None:
    assert_refused(call("report", "nothing", "--runs", run.parent), "no run 'nothing'")
    assert_refused(call("report", "--runs", tmp_path / "empty"), "no finished runs")
    assert_refused(call("report", run, "--out", tmp_path / "page.pdf"), ".html")


def test_runs_are_seeds_of_one_series_only_if_nothing_else_differs(run: Path) -> None:
    changes = ({"seed": 1}, {"seed": 0, "train__lr": 0.5})
    for change in changes:
        config = tiny(task__name="burgers", train__steps=1000, **change)
        folder = Path(shutil.copytree(run, run.parent / config.run_id()))
        (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    (panel,) = panels(run.parent)
    assert sorted(len(method.runs) for method in panel.methods) == [1, 2]
    assert sorted(method.row.label for method in panel.methods) == ["HERO (train.lr=0.001)", "HERO (train.lr=0.5)"]


def test_no_two_lines_have_the_same_name(run: Path) -> None:
    """A copy of a run, and two comparisons of the same methods, are told apart wherever they are named."""
    shutil.copytree(run, run.parent / f"copy-of-{run.name}")
    shutil.copytree(run, run.parent / f"{run.name}x")
    (panel,) = panels(run.parent)
    assert [len(method.runs) for method in panel.methods] == [1, 1, 1]  # a copy is no further seed
    names = (run.name, f"copy-of-{run.name}", f"{run.name}x")
    assert {method.row.label for method in panel.methods} == {f"HERO ({name})" for name in names}
    row = fake_row("HERO", [0.25], runs=[run.name])
    result = fake_study(fake_group(row), study="compare", title="Comparison", folder="", seeds=(0,))
    for folder in ("compare-1", "compare-2"):
        result.model_copy(update={"folder": folder}).write(run.parent / folder / "study.json")
    two = payload(gather(["compare-1", "compare-2"], run.parent))
    titles = [f"Burgers (compare-{i}), FNO" for i in (1, 2)]
    assert [table.title for table in two["tables"][:2]] == titles
    assert [panel["title"] for panel in two["curves"]["panels"]] == titles


def test_a_study_is_shown_with_its_runs_and_failures(run: Path) -> None:
    hero = fake_row("HERO", [0.25], statuses=["finished", "failed"], runs=[run.name, "gone"])
    group = fake_group(hero, fake_row("one-step", [0.3]))
    result = fake_study(group, study="compare", title="Burgers, equal steps", folder="compare-1", seeds=(0, 1))
    result.write(run.parent / "compare-1" / "study.json")
    for name in ("setting", "curves-burgers-fno"):
        (run.parent / "compare-1" / f"{name}.png").touch()
    data = payload(gather(["compare-1"], run.parent))
    table, runs = data["tables"]
    assert (data["title"], table.title, runs.title) == ("Burgers, equal steps", "Burgers, FNO", "Runs")
    assert [cell.text for cell in table.rows[0].cells][:2] == ["HERO (1 of 2 seeds)", "0.250"]
    assert "gone failed: no memory" in table.notes
    assert any("run one-step-s0 of compare-1 is not in" in notice for notice in data["notices"])
    assert [list(images) for _, _, images in data["studies"]] == [["setting"]]  # the page draws curves itself


BASE = [0.20, 0.21, 0.19, 0.22, 0.18]
BETTER = [0.9 * x + 0.001 * i for i, x in enumerate(BASE)]
SIMILAR = [0.19, 0.22, 0.18, 0.21, 0.185]


@pytest.mark.parametrize(
    ("rows", "best", "said"),
    [
        ({"HERO": BETTER, "PF": BASE}, True, ("0.182 ±0.014 over 5 seeds", "1.10", "1.09 to 1.11", "p < 0.001")),
        ({"HERO": SIMILAR, "PF": BASE, "FNO": [1, 1.1, 1, 1.2, 1]}, False, ("0.197 ±0.017", "PF", "p = 0.51", "of 3")),
        ({"HERO": [0.1], "PF": [0.2]}, False, ("over 1 seed", "2.00, p = 1")),
        ({"HERO": BASE, "PF": [math.inf, *BASE[1:]]}, False, ("PF (∞)", "PF diverged in 1 of 5 seeds")),
    ],
)
def test_the_headline_calls_no_difference_within_the_spread_a_win(
    rows: dict[str, list[float]], best: bool, said: tuple[str, ...]
) -> None:
    group = fake_group(*(fake_row(label, values) for label, values in rows.items()))
    sentence = group_sentence(group, main_column(ROLLOUT_COLUMNS))
    assert ("HERO has the lowest nRMSE@100" in sentence) == best
    assert all(words in sentence for words in said), sentence


def test_the_headline_keeps_the_verdict_of_the_study() -> None:
    """The study corrects over all its groups: a pair that it leaves open is no win, whatever a test alone says."""
    group = fake_group(fake_row("HERO", BETTER), fake_row("PF", BASE))
    facts = {"seeds": (0, 1, 2, 3, 4), "ratio": 0.9, "interval": (0.8, 1.25), "is_better": True, "p_holm": 0.2}
    for names, verdict in ((("HERO", "PF"), "open"), (("HERO", "PF"), "better"), (("PF", "HERO"), "worse")):
        sentence = group_sentence(group, main_column(ROLLOUT_COLUMNS), [fake_test(*names, **facts, verdict=verdict)])
        assert f"{names[0]} over {names[1]} 0.900, 95 % interval 0.800 to 1.25, p = 0.2" in sentence
        assert ("HERO has the lowest nRMSE@100" in sentence) == (verdict != "open")


def test_no_two_of_thirty_lines_look_the_same() -> None:
    names = [str(i) for i in range(30)]
    looks = {(colour, line_style(i)) for i, colour in enumerate(colours_of(names).values())}
    assert len(looks) == 30


SIGNS = "<b>&\"'|_%$#{}\\^~[bold]"


class Forms:
    """A table read back from each of its forms: lines of texts, headings first, without the paper's numbers."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def all(self) -> dict[str, list[list[str]]]:
        return {"terminal": self.terminal(), "markdown": self.markdown(), "latex": self.latex(), "html": self.html()}

    def terminal(self) -> list[list[str]]:
        table = self.table.to_rich()
        headings = [str(column.header).replace("\n@", "@").replace("\n", " ") for column in table.columns]
        lines = list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))
        return [headings, *(list(line) for line in lines if line[0] not in ("  paper", "  ratio") and any(line[1:]))]

    def markdown(self) -> list[list[str]]:
        headings, _, *lines = [line[2:-2].split(" | ") for line in self.table.to_markdown().splitlines()]
        found = [[re.sub(r" \(.*, ×.*\)$", "", cell).replace("**", "") for cell in line] for line in lines]
        return [headings, *(line for line in found if any(line[1:]))]

    def latex(self) -> list[list[str]]:
        back = {sign: text for text, sign in LATEX.items()}
        lines = []
        for line in self.table.to_latex().splitlines():
            if line.endswith(r"\\") and not line.startswith((r"\quad", r"\multicolumn")):
                cells = [re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell) for cell in line.removesuffix(r" \\").split(" & ")]
                for sign in sorted(back, key=len, reverse=True):
                    cells = [cell.replace(sign, back[sign]) for cell in cells]
                lines.append(cells)
        return lines

    def html(self) -> list[list[str]]:
        return Parsed(self.table.to_html()).rows


def study_of(values: dict[str, list[float]], title: str = TITLE) -> StudyResult:
    """A study of one group with these values of every metric, a row that was not run, and statistics."""
    paper = Published(mean=0.153, std=0.007)
    rows = [fake_row(label, found, paper=paper, note="a note" * (label == "hero")) for label, found in values.items()]
    rows.append(fake_row("refiner", statuses=["not run"]))
    first, second, *_ = values
    test = fake_test(second, first, title, p_holm=0.00012, verdict="better")
    group = fake_group(*rows, title=title)
    return fake_study(group, tests=[test], preset="quick", seeds=(0, 1))


VALUES = {"push_forward": [0.00432, 0.01], "hero": [0.031, 0.0353], "one_step": [1234.5, 1500.0]}
VALUES |= {"lost": [1.0, math.inf]}


def test_a_study_has_the_same_columns_and_number_texts_in_all_forms() -> None:
    result = study_of(VALUES)
    (table,) = study_tables(result)
    forms = Forms(table).all()
    assert forms["terminal"][0] == ["Method", "Note", "Val GM100 ↓", "Test GM100 ↓", "nRMSE@1 ↓", "nRMSE@100 ↓",
                                    "Stable step ↑", "Diverged"]  # fmt: skip
    assert forms["terminal"][2][2] == "0.0331 ±0.0030"
    assert [line[2] for line in forms["terminal"][3:]] == ["1367 ±188", "∞", "not run"]
    for name, lines in forms.items():
        assert lines == forms["terminal"], name
    # The files of a study hold these forms.
    assert table.to_markdown() in study_markdown(result)
    assert table.to_latex() in study_latex(result)
    lines = list(csv.DictReader(io.StringIO(study_csv(result))))
    assert len(lines) == len(table.rows)
    best = result.groups[0].best(result.columns[3])
    for line, row in zip(lines, result.groups[0].rows, strict=True):
        cell = row.cells["nrmse@100"]
        assert (line["group"], line["method"]) == (TITLE, row.label)
        if cell is not None:
            assert float(line["nrmse@100"]) == cell.mean
            assert float(line["nrmse@100_paper"]) == 0.153
            assert line["nrmse@100_best"] == ("True" if cell.mean == best else "")


def test_statistics_have_the_same_columns_and_number_texts_in_all_forms() -> None:
    (tests,) = map(Forms, map(paired_table, study_of(VALUES).statistics))
    assert tests.terminal() == tests.markdown() == tests.latex() == tests.html()
    assert tests.terminal() == [
        ["Method", "Ratio", "95 % interval", "p t-test", "p sign-flip", "p Holm", "Verdict"],
        ["hero", "0.975", "0.812 to 1.10", "0.032", "0.5", "< 0.001", "better"],
    ]


def test_papers_numbers_and_ratios_are_in_every_form() -> None:
    number = Number(0.031, 0.0043, Published(mean=0.153, std=0.007), best=True)
    table = Table("t", [Column("Method"), Column("x", direction="lower")], [Row([Text("ours"), number])])
    assert "**0.0310 ±0.0043** (0.153 ±0.007, ×0.203)" in table.to_markdown()
    assert r"\quad paper & 0.153 $\pm$0.007 \\" in table.to_latex()
    assert r"\quad ratio & 0.203 \\" in table.to_latex()
    assert "<small>paper 0.153 ±0.007</small><small>ratio 0.203</small>" in table.to_html()
    assert 'title="0.031"><strong>0.0310 ±0.0043</strong>' in table.to_html()
    assert [str(cell) for cell in table.to_rich().columns[1].cells] == ["0.0310 ±0.0043", "0.153 ±0.007", "0.203"]


def test_signs_with_a_meaning_are_text() -> None:
    table = Table(SIGNS, [Column(SIGNS, words=True), Column("x")], [Row([Text(SIGNS), Number(1.0)], SIGNS)])
    assert "<b>" not in table.to_html()
    # In HTML: title, name of the region, heading, section, cell, its key for sorting.
    assert unescape(table.to_html()).count(SIGNS) == 6
    console = Console(width=200, file=io.StringIO())
    console.print(table.to_rich())
    assert console.file.getvalue().count(SIGNS) == 3  # type: ignore[attr-defined]
    assert table.to_markdown().count(SIGNS.replace("|", r"\|")) == 3
    assert tex(SIGNS).isascii()


def test_optional_columns_are_shown_where_they_say_something() -> None:
    columns = [Column("a", words=True), Column("b", optional=True), Column("c", optional=True)]
    table = Table("", columns, [Row([Text("x"), Number(None), Number(1.0)])]).compact()
    assert [column.label for column in table.columns] == ["a", "c"]
    assert [cell.text for cell in table.rows[0].cells] == ["x", "1.00"]


def test_groups_of_a_task_are_sections_of_one_table() -> None:
    one, other = study_of(VALUES).groups[0], study_of(VALUES, "Burgers, Transolver").groups[0]
    table = group_table([one, other], ROLLOUT_COLUMNS)
    assert table.title == "Burgers"
    assert [section for section, _ in table.sections()] == ["Burgers, FNO", "Burgers, Transolver"]
    assert r"\multicolumn{8}{l}{\textit{Burgers, Transolver}} \\" in table.to_latex()
    assert table.to_html().count('<th scope="rowgroup" colspan="8">') == 2
    assert Forms(table).terminal() == Forms(table).html() == Forms(table).markdown() == Forms(table).latex()


def table_row(label: str, *values: float, **facts: Any) -> MethodRow:
    return fake_row(label, values, ERROR, **facts)


def small_result() -> StudyResult:
    lost = RunEntry(seed=2, run="a-s2", status="failed", reason="it is broken.")
    a, b = table_row("a", 1.0, math.inf), table_row("b", 0.5, 0.25, paper=Published(mean=0.75))
    rows = a.model_copy(update={"runs": (*a.runs, lost)}), b
    test = fake_test("a", "b", "g", ratio=math.inf, interval=None, diverged=1, t_p=None)
    return fake_study(fake_group(*rows, title="g"), tests=[test], changed={"train.steps": 20})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = small_result()
    path = written.write(tmp_path / "study.json")
    assert json.loads(path.read_text())["groups"][0]["rows"][0]["cells"]["nrmse@100"]["mean"] == "inf"
    assert StudyResult.read(path) == written
    cell = StudyResult.read(path).groups[0].rows[0].cells["nrmse@100"]
    assert (cell.mean, cell.values, cell.n, cell.std) == (math.inf, (1.0, math.inf), 2, None)
    assert written.failed == {"a-s2": "it is broken."}
    assert list(written.runs) == ["a-s0", "a-s1", "a-s2", "b-s0", "b-s1"]


def test_cells_and_their_best() -> None:
    (group,), (column,) = small_result().groups, ERROR
    cell = group.rows[1].cells["nrmse@100"]
    assert cell.mean == 0.375 == group.best(column)
    assert fake_group(table_row("a", 1.0), table_row("b"), table_row("c", 1.0)).best(column) is None
    assert fake_group(table_row("a", math.inf), table_row("b", math.inf)).best(column) is None
    (test,) = small_result().statistics[0].tests
    assert (test.p, test.n) == (0.5, 2)


@pytest.mark.parametrize("damage", ['{"study": "main"}', "no JSON", '{"version": 99}'])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(damage)
    with pytest.raises(HeroError, match=r"study\.json .*the same `hero study` or `hero compare` command rewrites it\."):
        StudyResult.read(tmp_path / "study.json")
