"""The page in a real browser: it loads without an error or a request, its controls work, its numbers are the files'."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import colormaps

from conftest import Later, tiny
from hero.evaluation.evaluate import evaluate
from hero.files import write_json
from hero.report.inputs import gather
from hero.report.listing import BASELINE_TITLES
from hero.report.page.page import write_page
from hero.report.page.player import LEVELS
from hero.report.tables import format_number
from hero.report.views import GREY, SIGNED, UNSIGNED, channel_titles
from hero.runs.folder import Run
from hero.runs.records import FIRST_ROLLOUT_FILE, ROLLOUT_FILE, read_rollout, write_arrays
from hero.study.records import ROLLOUT_COLUMNS
from hero.training.loop import train
from test_pictures import errors_of as arrays_of
from test_pictures import rollout_of, weather_run

playwright = Later("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on the PATH to open the page with")

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
HOSTILE = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
METHODS, SEEDS = ("push_forward", "hero"), (0, 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """Two methods with two seeds in 1D, a run in 2D and one in 3D, trained and evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"backbone__width": 2, "backbone__modes": 3, "task__cutoff": 2, "task__warmup": 0, "train__steps": 2}
    rare = {"train__validate_every": 20, "train__checkpoint_every": 20}
    configs = [tiny(strategy=method, seed=seed, **rare) for method in METHODS for seed in SEEDS]
    grids = {"kolmogorov_flow": 16, "swift_hohenberg": 12}
    configs += [tiny(task__name=name, task__resolution=points, **small) for name, points in grids.items()]
    for config in configs:
        evaluate(train(config, folder, data_dir), data_dir)
    hostile = Path(folder / configs[-1].run_id())
    stored = json.loads((hostile / "metrics.json").read_text())
    write_json(hostile / "metrics.json", {**stored, "versions": {"torch": HOSTILE}})
    (hostile / "config.toml").write_text((hostile / "config.toml").read_text() + f"\n# {HOSTILE}\n")
    return folder


def run_name(folder: Path, method: str, seed: int) -> str:
    return next(folder.glob(f"burgers-fno-{method}-s{seed}-*")).name


def errors_of(folder: Path, method: str) -> np.ndarray:
    """nRMSE (seed, trajectory, step)."""
    return np.stack([np.load(folder / run_name(folder, method, seed) / "errors.npz")["nrmse"] for seed in SEEDS])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page that is opened from its file; every complaint and every request beyond the file itself is noted."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def assert_quiet(self) -> None:
        assert self.complaints == []
        own = ("data:image/png;base64,", "blob:")  # pictures in the page, and files that it makes
        assert len([url for url in self.requests if not url.startswith(own)]) == 1


@pytest.fixture(scope="module")
def page_of_runs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(gather([], runs), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def shown(browser: Any, page_of_runs: Path) -> Iterator[Watched]:
    """The page of all runs, shared by the tests that leave it as they found it."""
    watched = Watched(browser, page_of_runs)
    yield watched
    watched.context.close()


@pytest.fixture
def fresh(browser: Any, page_of_runs: Path) -> Iterator[Watched]:
    watched = Watched(browser, page_of_runs)
    yield watched
    watched.assert_quiet()
    watched.context.close()


def table(page: Any, title: str) -> Any:
    return page.locator(f'.scroll[aria-label="{title}"] table')


def test_the_page_loads_nothing_and_complains_about_nothing(shown: Watched) -> None:
    assert shown.page.locator("h1").inner_text() == "6 runs"
    assert shown.page.locator(".lead li").count() == 4
    assert shown.page.locator("#curve-panels svg[role=img]").count() == 3
    assert shown.page.evaluate("window.hacked") is None  # the name of a version is a script
    shown.assert_quiet()


def test_every_number_of_the_table_of_runs_is_that_of_the_metrics(shown: Watched, runs: Path) -> None:
    rows = table(shown.page, "Runs").locator("tbody tr")
    assert rows.count() == 6
    for row in rows.all():
        metrics = json.loads((runs / row.locator("th").inner_text() / "metrics.json").read_text())
        cells = row.locator("td").all()
        numbers = [float(metrics[column.split][column.metric]) for column in ROLLOUT_COLUMNS]
        for cell, number in zip(cells[2:7], numbers, strict=True):
            assert cell.locator("span").inner_text() == format_number(number)
            assert float(cell.get_attribute("data-value")) == number
        assert cells[7].inner_text() == f"{metrics['test']['diverged']:.0f} of {metrics['trajectories']}"
        assert cells[0].inner_text() == str(metrics["seed"])


def test_tables_sort_by_mouse_and_keyboard(fresh: Watched) -> None:
    runs_table = table(fresh.page, "Runs")
    heading = runs_table.locator("th[scope=col]", has_text="nRMSE@100")
    column = runs_table.locator("th[scope=col]").all_inner_texts().index("nRMSE@100 ↓")

    def values() -> list[float]:
        cells = runs_table.locator(f"tbody tr > :nth-child({column + 1})")
        return [float(cell.get_attribute("data-value")) for cell in cells.all()]

    before = values()
    assert heading.get_attribute("aria-sort") == "none"
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(before) != before
    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert values() == sorted(before, reverse=True)


def panel(page: Any, title: str) -> Any:
    return page.locator("#curve-panels .chart", has=page.get_by_role("heading", name=title))


def test_hover_and_keys_read_the_means_of_the_errors(fresh: Watched, runs: Path) -> None:
    chart = panel(fresh.page, "Burgers, FNO")
    plot = chart.locator(".plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    fresh.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])

    def read() -> int:
        step = int(chart.locator(".reading").text_content().removeprefix("step "))
        shown = {name.split("\n")[0]: value for name, value in (button.inner_text().rsplit("\n", 1)
                 for button in chart.locator(".legend button").all())}  # fmt: skip
        for method, label in zip(METHODS, ("Push-forward", "HERO"), strict=True):
            of_seed = errors_of(runs, method).mean(axis=1)[:, step - 1]
            low, high = (format_number(x) for x in (of_seed.min(), of_seed.max()))
            assert shown[label] == f"{format_number(of_seed.mean())} ({low} to {high})"
        return step

    hovered = read()
    assert 20 < hovered < 60
    plot.focus()
    plot.press("ArrowRight")
    assert read() == hovered + 1
    assert f"step {hovered + 1}: Push-forward " in chart.locator("[aria-live]").text_content()
    plot.press("End")
    assert read() == 100
    plot.press("Escape")
    assert chart.locator(".reading").text_content() == ""


def test_the_axis_and_the_legend_switch(fresh: Watched) -> None:
    chart, switch = panel(fresh.page, "Burgers, FNO"), fresh.page.locator("#curve-scale")

    def ticks() -> list[float]:
        return [float(text) for text in chart.locator(".tick.y").all_text_contents()]

    logarithmic, line = ticks(), chart.locator("path.series").first.get_attribute("d")
    assert np.ptp(np.diff(logarithmic)) > 0
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    assert ticks()[0] == 0
    np.testing.assert_allclose(np.diff(ticks()), np.diff(ticks())[0])
    assert chart.locator("path.series").first.get_attribute("d") != line
    assert chart.locator(".threshold").count() == 1
    assert chart.locator("path.series").count() == chart.locator("path.band").count() == 2
    button = chart.locator(".legend button", has_text="HERO")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert set(chart.locator("text.direct").all_text_contents()) == {"Push-forward", *BASELINE_TITLES.values()}
    switch.click()  # what is off stays off
    assert chart.locator("path.series").count() == 1
    button.press("Space")
    assert chart.locator("path.series").count() == 2


def pixels(page: Any, number: int) -> np.ndarray:
    """The colours of a field of the player, row 0 at the bottom: (height, width, 3)."""
    size = page.evaluate(
        """i => { const c = document.querySelectorAll("#player-fields canvas.map")[i];
        const copy = Object.assign(document.createElement("canvas"), { width: c.width, height: c.height });
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(c, 0, 0);
        return [c.height, c.width, [...context.getImageData(0, 0, c.width, c.height).data]]; }""",
        number,
    )
    return np.array(size[2]).reshape(size[0], size[1], 4)[::-1, :, :3]


def test_players_show_the_stored_rollout(fresh: Watched, runs: Path) -> None:
    for task, title in {"burgers": "Burgers", "kolmogorov_flow": "Kolmogorov", "swift_hohenberg": "Swift"}.items():
        assert_player_shows(fresh.page, runs, task, title)


def assert_player_shows(page: Any, runs: Path, task: str, title: str) -> None:
    labels = page.locator("#player-run option").all_text_contents()
    label = next(text for text in labels if text.startswith(title) and "HERO" in text)
    page.select_option("#player-run", label=label)
    run = next(runs.glob(f"{task}-fno-hero-s0-*"))
    # Of several methods the same trajectory is shown.
    shown_file = FIRST_ROLLOUT_FILE if task == "burgers" else ROLLOUT_FILE
    rollout, errors = read_rollout(run, shown_file), np.load(run / "errors.npz")["nrmse"]
    assert page.locator("#player-other").is_disabled() == (task != "burgers")
    first = [pixels(page, number) for number in range(3)]
    page.locator("#player-slider").press("End")
    step = page.locator("#player-step").inner_text()
    assert step.startswith("step 100 of 100")
    assert step.endswith(f"nRMSE {format_number(errors[rollout.trajectory, -1])}")
    assert any(not np.array_equal(pixels(page, number), first[number]) for number in range(3))
    assert page.locator("#player-charts .chart").nth(0).is_visible() == (task == "burgers")
    # Red is positive and blue negative: where the field of the file is large, its sign must be seen.
    field = rollout.truth[0 if task != "burgers" else slice(None), 0]
    page.locator("#player-slider").press("Home")
    shown = pixels(page, 0)[:, 1:] if task == "burgers" else pixels(page, 0)
    field = field[1:].T if task == "burgers" else field.T
    large = np.abs(field) > 0.5 * np.abs(field).max()
    redder = shown[..., 0].astype(int) - shown[..., 2]
    assert shown.shape[:2] == field.shape
    assert (np.sign(redder[large]) == np.sign(field[large])).all()


def test_two_runs_stand_side_by_side_with_the_truth(fresh: Watched, runs: Path) -> None:
    page, fields = fresh.page, fresh.page.locator("#player-fields")
    alone = [pixels(page, number) for number in range(2)]  # truth and prediction of push-forward
    page.select_option("#player-other", label="Burgers, FNO: HERO, seed 0")
    captions = ["truth", "Push-forward", "HERO", "Push-forward − truth", "HERO − truth"]
    assert fields.locator("figcaption").all_inner_texts() == captions
    for number in range(2):
        np.testing.assert_array_equal(pixels(page, number), alone[number])
    fields.press("End")
    fields.press("ArrowLeft")
    errors = [np.load(runs / run_name(runs, method, 0) / "errors.npz")["nrmse"][0, 98] for method in METHODS]
    said = page.locator("#player-step").inner_text()
    assert said.startswith("step 99 of 100")
    assert said.endswith(f"nRMSE Push-forward {format_number(errors[0])}, HERO {format_number(errors[1])}")
    # Both errors have one scale: the stronger colours are those of the larger error.
    rollouts = [read_rollout(runs / run_name(runs, method, 0), FIRST_ROLLOUT_FILE) for method in METHODS]
    sizes = [np.abs(found.prediction - found.truth)[:98].mean() for found in rollouts if found]
    strengths = [float(np.ptp(pixels(page, number)[:, :98].astype(int), axis=2).mean()) for number in (3, 4)]
    assert np.argmax(strengths) == np.argmax(sizes)
    assert fields.locator(".ends").nth(3).inner_text() == fields.locator(".ends").nth(4).inner_text()


def test_every_chart_can_be_saved(fresh: Watched, runs: Path, tmp_path: Path) -> None:
    page = fresh.page
    charts = page.locator(".chart:visible")
    assert charts.count() == charts.get_by_role("button", name="Save as SVG").count() >= 6
    chart = panel(page, "Burgers, FNO")
    line = chart.locator("path.series").first.get_attribute("d")
    files = {}
    for kind in ("SVG", "CSV"):
        with page.expect_download() as download:
            chart.get_by_role("button", name=f"Save as {kind}: Burgers, FNO").click()
        files[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[kind])
    assert [path.name for path in files.values()] == ["burgers-fno-nrmse.svg", "burgers-fno-nrmse.csv"]
    rows = list(csv.DictReader(files["CSV"].open(encoding="utf-8")))
    assert [int(row["rollout step"]) for row in rows] == list(range(1, 101))
    for method, label in zip(METHODS, ("Push-forward", "HERO"), strict=True):
        of_seed = errors_of(runs, method).mean(axis=1)
        columns = {label: of_seed.mean(0), f"{label}, low": of_seed.min(0), f"{label}, high": of_seed.max(0)}
        for name, values in columns.items():
            np.testing.assert_allclose([float(row[name]) for row in rows], values, rtol=1e-8)
    drawing = ElementTree.parse(files["SVG"]).getroot()
    texts = [node.text for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Push-forward", "HERO", "rollout step", "100"} <= set(texts)
    strokes = [
        node.get("stroke") for node in drawing.iter("{http://www.w3.org/2000/svg}path") if node.get("fill") == "none"
    ]
    assert [len(strokes), len(set(strokes))] == [4, 3]  # two methods, and two baselines in grey
    assert all(stroke.startswith("rgb(") for stroke in strokes)
    assert not {"class", "style"} & {name for node in drawing.iter() for name in node.attrib}
    assert chart.locator("path.series").first.get_attribute("d") == line  # the page is as before


def test_play_moves_and_pause_stops(fresh: Watched) -> None:
    page, slider = fresh.page, fresh.page.locator("#player-slider")
    assert slider.input_value() == "0"  # nothing moves by itself
    page.select_option("#player-speed", label="fast")
    button = page.locator("#player-play")
    button.click()
    assert button.inner_text() == "Pause"
    playwright.expect(page.locator("#player-step")).not_to_contain_text("step 1 of")
    button.click()
    assert button.inner_text() == "Play"
    stopped, step = slider.input_value(), page.locator("#player-step").inner_text()
    page.wait_for_timeout(150)
    assert slider.input_value() == stopped
    assert step.startswith(f"step {int(stopped) + 1} of 100")
    slider.press("End")
    button.click()  # from the end it begins again
    assert int(slider.input_value()) < 50


CONTRAST = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const colour = getComputedStyle(up).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  const shown = "p, li, a, td, th, small, button, select, summary, dt, h2, .tick, .direct";
  for (const node of document.querySelectorAll(shown)) {
    const style = getComputedStyle(node);
    const text = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(text), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5 && !node.disabled) found[`${node.tagName}.${node.className.baseVal || node.className}`] = ratio;
  }
  return found;
}"""


def test_colours_follow_the_system_and_the_button_with_the_contrast_of_level_aa(
    browser: Any, page_of_runs: Path
) -> None:
    watched = Watched(browser, page_of_runs, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert watched.page.evaluate(ground) == "rgb(20, 23, 27)"
    assert watched.page.evaluate(CONTRAST) == {}
    watched.page.locator("#theme").click()
    assert watched.page.evaluate(ground) == "rgb(255, 255, 255)"
    assert watched.page.locator("html").get_attribute("data-theme") == "light"
    assert watched.page.evaluate(CONTRAST) == {}
    watched.assert_quiet()
    watched.context.close()


CUT_TEXTS = """() => [...document.querySelectorAll(".plot text")].filter((text) => {
  const [inner, outer] = [text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()];
  return inner.width && (inner.left < outer.left - 0.5 || inner.right > outer.right + 0.5);
}).map((text) => text.textContent)"""


def test_a_small_screen_needs_no_sideways_scrolling(browser: Any, page_of_runs: Path) -> None:
    watched = Watched(browser, page_of_runs, viewport={"width": 360, "height": 740}, has_touch=True)
    for details in watched.page.locator("details").all():
        details.evaluate("node => { node.open = true; }")
    assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert watched.page.evaluate(CUT_TEXTS) == []
    wide = watched.page.locator(".frame.more .scroll").last
    wide.evaluate("node => { node.scrollLeft = node.scrollWidth; }")
    playwright.expect(watched.page.locator(".frame.moved:not(.more) .scroll")).to_have_count(1)
    first = wide.locator("tbody th").last
    assert first.bounding_box()["x"] == pytest.approx(wide.bounding_box()["x"], abs=1)  # it stays in sight
    chart = panel(watched.page, "Burgers, FNO")
    chart.locator(".plot").tap()
    assert chart.locator(".reading").text_content().startswith("step ")
    assert chart.locator(".legend .value").first.inner_text() != ""
    watched.assert_quiet()
    watched.context.close()


def test_tables_and_text_are_there_without_scripts(browser: Any, page_of_runs: Path) -> None:
    watched = Watched(browser, page_of_runs, java_script_enabled=False)
    assert watched.page.locator("noscript").inner_text().startswith("Tables and text are complete")
    assert table(watched.page, "Runs").locator("tbody tr").count() == 6
    watched.context.close()


def test_the_page_of_a_diverged_run(browser: Any, runs: Path, data_dir: Path, tmp_path: Path) -> None:
    """Errors are infinite from some step on: the table says ∞, the curve ends in a cross and the field is grey."""
    run = Path(shutil.copytree(runs / run_name(runs, "hero", 0), tmp_path / "runs" / run_name(runs, "hero", 0)))
    with np.load(run / "errors.npz") as arrays:
        errors = dict(arrays)
    errors["nrmse"][:, 40:] = np.inf
    write_arrays(run / "errors.npz", errors)
    with np.load(run / "rollout.npz") as arrays:
        rollout = dict(arrays)
    rollout["prediction"][40:] = np.nan
    write_arrays(run / "rollout.npz", rollout)
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["test"] |= {"nrmse@100": "inf", "gm100": "inf", "diverged": 2}
    write_json(run / "metrics.json", metrics)
    watched = Watched(browser, write_page(gather([str(run)], run.parent), tmp_path / "report.html"))
    page = watched.page
    assert "nRMSE@100 is infinite" in page.locator(".lead").inner_text()
    assert page.locator("#curve-panels .diverged title").text_content() == (
        "HERO (2 of 2 diverged): diverged from step 41"
    )
    plot = page.locator("#curve-panels .plot")
    plot.focus()
    plot.press("End")
    assert page.locator("#curve-panels .legend .value").first.inner_text() == "∞"
    grey = (pixels(page, 1) == 0xB8).all(axis=(0, 2))
    assert grey.tolist() == [False] * 40 + [True] * 60
    page.locator("#player-slider").press("End")
    assert "nRMSE ∞" in page.locator("#player-step").inner_text()
    watched.assert_quiet()
    watched.context.close()


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weather_run(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def weather_page(browser: Any, weather: Path) -> Iterator[Any]:
    """The page of people's data: north is up, a channel can be chosen, masked points are grey."""
    watched = Watched(browser, write_page(gather([weather.name], weather.parent), weather / "report.html"))
    yield watched.page
    watched.assert_quiet()
    watched.context.close()


def choose(page: Any, channel: int) -> None:
    page.select_option("#player-channel", index=channel)
    page.select_option("#curve-channel", index=channel + 1)


@pytest.mark.parametrize("channel", [0, 1])
def test_a_field_is_drawn_as_its_coordinates_say(weather_page: Any, weather: Path, channel: int) -> None:
    """Pixels are the colours that numpy gives, with the rows from south to north."""
    choose(weather_page, channel)
    stored = rollout_of(weather).truth[:, channel].astype(float)  # (time, latitude from north, longitude)
    low, high = np.nanmin(stored), np.nanmax(stored)
    name = UNSIGNED
    if channel:  # the wind changes its sign
        low, high, name = -max(-low, high), max(-low, high), SIGNED
    shown = np.flipud(stored[0])
    levels = np.rint(LEVELS * (np.nan_to_num(shown, nan=low) - low) / (high - low)) / LEVELS
    expected = np.rint(255 * colormaps[name](levels)[..., :3])
    expected[np.isnan(shown)] = tuple(bytes.fromhex(GREY[1:]))
    np.testing.assert_allclose(pixels(weather_page, 0), expected, atol=1)
    assert np.isnan(shown).any() == (channel == 0)


def test_the_axes_of_a_picture_are_named(weather_page: Any) -> None:
    scales = weather_page.locator("#player-fields figure").first
    assert scales.locator(".up span").all_text_contents() == ["80", "latitude [°N]", "−80"]
    assert scales.locator(".across span").all_text_contents() == ["0", "longitude [°E]", "360"]
    box = scales.locator("canvas.map").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(360 / 160, rel=0.02)


def test_choosing_a_channel_changes_picture_and_title(weather_page: Any, weather: Path) -> None:
    choose(weather_page, 0)
    before = [pixels(weather_page, number) for number in range(3)]
    assert weather_page.locator("#player-channel option").all_text_contents() == channel_titles(
        Run(weather).config.source
    )
    choose(weather_page, 1)
    assert weather_page.locator("#player-title").inner_text() == "u10 [m s-1]"
    assert all((pixels(weather_page, number) != before[number]).any() for number in range(3))
    errors = arrays_of(weather)["channel_vrmse"][rollout_of(weather).trajectory, :, 1]
    assert f"VRMSE {errors[0]:.3g}"[:9] in weather_page.locator("#player-step").inner_text()


def test_curves_are_the_means_of_the_file_for_all_and_for_single_channels(weather_page: Any, weather: Path) -> None:
    arrays = arrays_of(weather)
    chart = weather_page.locator("#curve-panels .chart")

    def read() -> list[float]:
        chart.locator(".plot").press("End")
        return [float(one.get_attribute("data-value")) for one in chart.locator(".legend .value").all()]

    for name in ("vrmse", *range(2)):
        weather_page.select_option("#curve-channel", index=0 if name == "vrmse" else name + 1)
        keys = [prefix + ("vrmse" if name == "vrmse" else "channel_vrmse") for prefix in ("", "persistence_", "mean_")]
        curves = [arrays[key] if name == "vrmse" else arrays[key][..., name] for key in keys]
        assert read() == pytest.approx([float(curve[:, -1].mean()) for curve in curves], rel=1e-8)
        titles = ["weather, FNO", "weather, FNO: t2m", "weather, FNO: u10"]
        assert chart.locator("h3").inner_text() == titles[0 if name == "vrmse" else name + 1]
    assert chart.locator("path.baseline").count() == 2
    assert chart.locator(".threshold").count() == 0
    assert chart.locator(".tick:not(.y)").all_text_contents() == ["1", "2", "3"]  # there is no step 1.5
