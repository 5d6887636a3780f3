"""The report of a run: figures draw, also of diverged runs; tables and page say what metrics.json says, and safely."""

from __future__ import annotations

import io
import math
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from hero import metrics as m
from hero.report import report_run
from hero.report.fields import fields_figure, radial_spectrum, spectrum_figure
from hero.report.figures import error_figure, save, series, training_figure
from hero.report.page import summary_sentence, write_report
from hero.report.reference import paper_value
from hero.report.tables import format_number, metric_rows, metrics_table, runs_table

GRIDS = {1: (32,), 2: (16, 16), 3: (8, 8, 8)}
TASKS = (
    "dispersion",
    "burgers",
    "kdv",
    "kuramoto_sivashinsky",
    "anisotropic_diffusion",
    "kolmogorov_flow",
    "decaying_turbulence",
    "swift_hohenberg",
    "unbalanced_advection",
)
STRATEGIES = ("one_step", "push_forward", "refiner", "recurrent", "hero")


def task(dims: int) -> SimpleNamespace:
    return SimpleNamespace(name="burgers", title="Burgers", dims=dims, extent=2.0, dt=0.1)


def trajectory(dims: int, length: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(dims)
    truth = torch.randn(1, length, 1, *GRIDS[dims], generator=generator)
    return truth, truth + 0.1 * torch.randn(truth.shape, generator=generator)


def error_array(diverged: int = 0) -> np.ndarray:
    errors = 0.003 * np.arange(1, 201) * np.linspace(0.5, 1.5, 30)[:, None]
    errors[:diverged, 60:] = np.inf
    return errors


def records() -> list[dict]:
    log: list[dict] = [
        {
            "step": 50 * i,
            "loss": 1 / i,
            "lr": 1e-3 / i,
            "alpha": 0.5,
            "lambda": 0.1,
            "lag": 0.5,
            "perturbed": 0.3,
            "self": 0.2,
        }
        for i in range(1, 21)
    ]
    return [
        *log,
        {"step": 500, "val_gm100": "inf", "val_diverged": 2},
        {"step": 1000, "val_gm100": 0.2, "val_diverged": 0},
    ]


def run_metrics(diverged: int = 0, strategy: str = "hero") -> dict:
    errors = error_array(diverged)
    values = m.summarise(errors, 1 - np.minimum(errors, 1), errors)
    stored = {name: "inf" if math.isinf(value) else value for name, value in values.items()}
    return {
        "run": "ab12cd",
        "task": "burgers",
        "backbone": "fno",
        "strategy": strategy,
        "seed": 3,
        "parameters": 44801,
        "best_step": 9500,
        "val": stored,
        "test": stored,
        "training": {"steps": 10000, "seconds": 93.4, "compiled": True, "device": "cpu"},
        "versions": {"torch": "2.9.0"},
    }


def assert_png(path: Path) -> None:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 5000
    assert list(path.parent.glob(".*")) == []


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order; collects resources, alt texts and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.resources: list[str] = []
        self.alts: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)
        values = dict(attrs)
        self.resources += [values[name] or "" for name in ("src", "href") if name in values]
        if tag == "img":
            self.alts.append(values.get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(path: Path) -> Balanced:
    parser = Balanced()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("backbone", ["fno", "transolver"])
def test_the_paper_has_every_combination(name: str, backbone: str) -> None:
    for strategy in STRATEGIES:
        value = paper_value(name, backbone, strategy)
        assert value is not None
        assert set(value) == {"val_gm100", "test_gm100", "nrmse@1", "nrmse@100", "stable_step"}
        assert all(set(entry) == {"mean", "std"} for entry in value.values())


def test_the_paper_has_no_more() -> None:
    assert paper_value("kdv_difficulty", "fno", "hero") is None
    assert paper_value("burgers", "fno", "fixed_weight") is None
    assert paper_value("burgers", "unet", "hero") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.031, "0.0310"),
        (80.76, "80.8"),
        (100.0, "100"),
        (0.09999, "0.100"),
        (999.7, "1000"),
        (1234.4, "1234"),
        (1e-12, "1.00e-12"),
        (0, "0"),
        ("inf", "∞"),
        (math.inf, "∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize("diverged", [0, 4, 30])
@pytest.mark.parametrize("strategy", ["hero", "fixed_weight"])
def test_error_figure(tmp_path: Path, diverged: int, strategy: str) -> None:
    figure = error_figure(error_array(diverged), paper_value("burgers", "fno", strategy), "title")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert any("paper" in label for label in labels) == (strategy == "hero")
    assert any(f"{diverged} of 30" in label for label in labels) == (diverged > 0)
    assert_png(save(figure, tmp_path / "error.png"))


@pytest.mark.parametrize("errors", [np.zeros((2, 40)), np.full((3, 40), np.inf), np.full((1, 40), np.nan)])
def test_error_figure_of_extreme_errors(tmp_path: Path, errors: np.ndarray) -> None:
    assert_png(save(error_figure(errors, None, "extreme"), tmp_path / "error.png"))


@pytest.mark.parametrize(
    ("dims", "fate"),
    [(1, "finite"), (2, "finite"), (3, "finite"), (1, "lost"), (2, "lost"), (3, "lost"), (1, "nan"), (2, "nan")],
)
def test_field_and_spectrum_figures(tmp_path: Path, dims: int, fate: str) -> None:
    truth, prediction = trajectory(dims)
    if fate == "lost":
        prediction[:, 40:] *= 1e30
        prediction[:, 120:, ..., :3] = math.inf
    elif fate == "nan":
        prediction[:] = math.nan
    assert_png(save(fields_figure(truth, prediction, task(dims)), tmp_path / "fields.png"))
    assert_png(save(spectrum_figure(truth, prediction), tmp_path / "spectrum.png"))


@pytest.mark.parametrize("dims", [1, 2])
def test_field_figures_of_short_decaying_and_vanishing_rollouts(tmp_path: Path, dims: int) -> None:
    truth, prediction = trajectory(dims, length=60)
    decay = torch.logspace(0, -5, 60).view(1, 60, 1, *[1] * dims)
    for u, u_hat in ((truth * decay, prediction * decay), (0 * truth, 0 * truth)):
        assert_png(save(fields_figure(u, u_hat, task(dims)), tmp_path / "fields.png"))
        assert_png(save(spectrum_figure(u, u_hat), tmp_path / "spectrum.png"))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_spectrum_of_a_wave_lies_in_its_shell(dims: int) -> None:
    """cos(3x) has |û|² = 1/4 in two modes; P(3) is their mean over the shell, and every other shell is empty."""
    n = 16
    x = np.arange(n) * 2 * np.pi / n
    state = np.broadcast_to(np.cos(3 * x).reshape(n, *[1] * (dims - 1)), (n,) * dims)
    spectrum = radial_spectrum(state)
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * dims, indexing="ij"))
    modes = (np.rint(np.sqrt((k**2).sum(0))) == 3).sum()
    assert len(spectrum) == n // 2
    assert spectrum[2] == pytest.approx(0.5 / modes)
    assert np.delete(spectrum, 2).max() < 1e-28


@pytest.mark.parametrize(
    "log",
    [
        records(),
        [],
        [{"step": 1, "loss": "nan", "lr": 0.0}, {"step": 1, "val_gm100": "inf", "val_diverged": 30}],
        [{"step": 50, "loss": 0.1, "lr": 0.1}],
    ],
)
def test_training_figure(tmp_path: Path, log: list[dict]) -> None:
    assert_png(save(training_figure(log), tmp_path / "training.png"))


def test_a_step_logged_twice_counts_once() -> None:
    steps, values = series([{"step": 100, "loss": 3.0}, {"step": 50, "loss": 2.0}, {"step": 100, "loss": 1.0}], "loss")
    assert steps.tolist() == [50, 100]
    assert values.tolist() == [2.0, 1.0]


def test_table_rows_equal_metrics() -> None:
    metrics = run_metrics()
    rows = {row.label: row for row in metric_rows({**metrics, "trajectories": 30})}
    published = paper_value("burgers", "fno", "hero")
    assert published is not None
    for label, name, key in (("Test GM100", "gm100", "test_gm100"), ("Stable step", "stable_step", "stable_step")):
        assert rows[label].ours == format_number(metrics["test"][name])
        assert rows[label].paper.startswith(f"{published[key]['mean']:g} ± ")
        assert float(rows[label].ratio) == pytest.approx(metrics["test"][name] / published[key]["mean"], rel=5e-3)
    assert rows["Diverged"].ours == "0 of 30"
    assert rows["nRMSE@200"].paper == rows["nRMSE@200"].ratio == "–"
    labels = [row.label for row in metric_rows(metrics)]
    assert labels[:5] == ["Val GM100", "Test GM100", "nRMSE@1", "nRMSE@100", "Stable step"]
    assert len(labels) == len(m.METRICS) + 1


def test_verdicts_follow_the_direction_of_the_metric() -> None:
    metrics = run_metrics()
    published = paper_value("burgers", "fno", "hero")
    assert published is not None
    metrics["test"] = {
        "gm100": 0.5 * published["test_gm100"]["mean"],
        "stable_step": 0.5 * published["stable_step"]["mean"],
    }
    metrics["val"] = {"gm100": published["val_gm100"]["mean"]}
    verdicts = {row.label: row.verdict for row in metric_rows(metrics)}
    assert verdicts["Test GM100"] == "better"
    assert verdicts["Stable step"] == "worse"
    assert verdicts["Val GM100"] == "within"
    assert verdicts["nRMSE@100"] == ""


def test_terminal_tables() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    diverged = run_metrics(diverged=2)
    console.print(
        metrics_table({**diverged, "trajectories": 30}), runs_table([run_metrics(), diverged, {"run": "new"}])
    )
    text = console.export_text()
    for expected in ("2 of 30", "∞", "0.153 ± 0.007", "ab12cd", "finished", "2 diverged", "unfinished"):
        assert expected in text


def test_summary_sentence() -> None:
    metrics = {**run_metrics(), "test": {"nrmse@100": 0.031, "diverged": 0}, "trajectories": 30}
    expected = "FNO trained with HERO on Burgers: nRMSE@100 0.0310, paper 0.153; 0 of 30 rollouts diverged."
    assert summary_sentence(metrics, "Burgers") == expected


@pytest.mark.parametrize("diverged", [0, 30])
@pytest.mark.parametrize("strategy", ["hero", "fixed_weight"])
def test_report_of_a_run(tmp_path: Path, diverged: int, strategy: str) -> None:
    (tmp_path / "config.toml").write_text('task = "burgers" # <script>alert(1)</script> & more\n', encoding="utf-8")
    errors, metrics = error_array(diverged), run_metrics(diverged, strategy)
    truth, prediction = trajectory(1)
    if diverged:
        prediction[:, 60:] = math.nan
    page = report_run(tmp_path, metrics, {"nrmse": errors}, records(), truth, prediction, task(1))
    assert page == tmp_path / "report.html"
    parser = parsed(page)
    assert len(parser.alts) == 4
    assert all(parser.alts)
    assert all(resource.startswith("data:image/png;base64,") for resource in parser.resources)
    assert "http://" not in page.read_text(encoding="utf-8")
    assert "https://" not in page.read_text(encoding="utf-8")
    assert "script" not in parser.tags
    assert "<script>alert(1)</script> & more" in parser.text
    assert f"{diverged} of 30 rollouts diverged" in parser.text
    for name, value in metrics["test"].items():
        assert name == "diverged" or format_number(value) in parser.text
    for fact in ("ab12cd", "44801", "9500", "10000", "93.4", "2.9.0"):
        assert fact in parser.text
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "error.png",
        "fields.png",
        "spectrum.png",
        "training.png",
    ]


def test_page_escapes_what_others_named(tmp_path: Path) -> None:
    hostile = {**run_metrics(), "backbone": "<img src=x onerror=1>", "strategy": "a & b", "run": "<b>"}
    parser = parsed(write_report(tmp_path, hostile, "", [], {}, task_title="<i>title</i>"))
    assert "<img src=x onerror=1> trained with a & b on <i>title</i>" in parser.text
    assert not {"img", "b", "i"} & set(parser.tags)


def test_a_failed_write_leaves_the_earlier_report(tmp_path: Path) -> None:
    page = write_report(tmp_path, run_metrics(), "first", [], {})
    before = page.read_bytes()
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path, run_metrics(), "second", [], {"Missing": tmp_path / "missing.png"})
    assert page.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
