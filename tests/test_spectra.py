"""Weights, sensitivity and error by wavenumber: the charts of the page hold the numbers of the log."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import tiny
from hero.evaluation.evaluate import evaluate
from hero.report.figures.charts import Chart
from hero.report.figures.style import save
from hero.report.figures.training import SHOWN, spectra_charts, spectra_figure
from hero.report.inputs import ReportInputs, gather
from hero.report.page.page import payload, write_run_page
from hero.report.panels import studies_of_runs
from hero.runs.log import Log, SpectraRecord
from hero.training.loop import train

TITLES = ["Weight by wavenumber", "Error by wavenumber"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """An evaluated run with weights by wavenumber."""
    steps = {"train__steps": 16, "train__validate_every": 2}
    config = tiny(strategy="push_forward", train__loss="balanced", **steps)
    found = train(config, tmp_path_factory.mktemp("runs"), data_dir)
    evaluate(found, data_dir)
    return found


def record(step: int, **rows: Any) -> SpectraRecord:
    return SpectraRecord.model_validate({"step": step, "spectra": rows})


def values(chart: Chart) -> dict[str, list[float]]:
    return {curve.label: curve.y.tolist() for curve in chart.curves}


def test_the_page_shows_the_numbers_of_the_log(run: Path) -> None:
    found = re.search(r'id="data">(.*?)</script>', write_run_page(run).read_text(encoding="utf-8"))
    assert found
    charts = json.loads(found[1])["training"][0]["spectra"]
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    records = {f"update {line['step']}": line["spectra"] for line in lines if "spectra" in line}
    assert len(records) == 8
    assert [chart["title"] for chart in charts] == TITLES
    for chart, name in zip(charts, ("weights", "error"), strict=True):
        having = [label for label, rows in records.items() if name in rows]
        labels = [line["label"] for line in chart["series"]]
        assert (labels[0], labels[-1]) == (having[0], having[-1])
        assert len(labels) == SHOWN
        for line in chart["series"]:
            assert line["x"] == records[line["label"]]["wavenumber"][0]
            assert line["y"] == pytest.approx(records[line["label"]][name][0], rel=1e-8)
        times = [line["time"] for line in chart["series"]]
        assert times == sorted(times)
        assert (times[0], times[-1]) == (0, 1)
        low, high = chart["range"]
        assert all(low < y < high for line in chart["series"] for y in line["y"])


def test_a_run_of_a_study_shows_none(run: Path) -> None:
    inputs = gather([run.name], run.parent)
    (study,) = studies_of_runs(list(inputs.runs.values()))
    assert payload(ReportInputs(inputs.runs, {run.parent: study}))["training"][0]["spectra"] == []


def test_numbers_that_are_not_finite_leave_a_gap() -> None:
    rows = {"weights": [[math.nan, math.inf, 1, 2, 3]], "error": [[1, 1, 0, 2, 1]]}
    weight, error = spectra_charts(Log(spectra=(record(1, wavenumber=[[0, 1, 2, 3, 4]], **rows),)))
    assert [list(curve.x) for curve in weight.curves] == [[2, 3, 4]]
    assert [list(curve.x) for curve in error.curves] == [[0, 1, 3, 4]]
    assert spectra_charts(Log()) == []


def test_channels_are_apart_and_an_update_logged_twice_counts_once(tmp_path: Path) -> None:
    k = [[0, 1, 2]]
    log = Log(
        spectra=(
            record(20, wavenumber=k, weights=[[9, 9, 9], [9, 9, 9]], error=[[9, 9, 9], [9, 9, 9]]),
            record(10, wavenumber=k, weights=[[1, 2, 3], [4, 5, 6]], error=[[3, 2, 1], [6, 5, 4]]),
            record(20, wavenumber=k, weights=[[1, 1, 2], [1, 1, 4]], error=[[4, 3, 2], [3, 2, 1]]),
        )
    )
    charts = spectra_charts(log)
    assert [chart.title for chart in charts] == [f"{title}, channel {c}" for c in (1, 2) for title in TITLES]
    assert values(charts[2]) == {"update 10": [4, 5, 6], "update 20": [1, 1, 4]}
    assert values(charts[3]) == {"update 10": [6, 5, 4], "update 20": [3, 2, 1]}
    figure = spectra_figure(charts)
    for axes, chart in zip(figure.axes, charts, strict=True):
        assert [list(line.get_ydata()) for line in axes.lines] == list(values(chart).values())
        places = axes.transData.transform([(0, 1), (1, 1), (2, 1)])[:, 0]
        assert places[1] - places[0] == pytest.approx(places[2] - places[1])  # room for the mean mode
    assert save(figure, tmp_path / "weights.png").is_file()
    assert [chart.title for chart in spectra_charts(log, weighs_error=False)] == [charts[0].title, charts[2].title]
    logged = Log(
        spectra=(record(1, wavenumber=k, weights=[[1, 1, 2]], error=[[4, 3, 2]], sensitivity=[[0.5, 2, 0.5]]),)
    )
    _, sensitivity, _ = spectra_charts(logged)  # of a strategy that measures one
    assert values(sensitivity)["update 1"] == [0.5, 2, 0.5]
