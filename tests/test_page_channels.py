"""The page of people's data in a real browser: north is up, a channel can be chosen, masked points are grey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps

from hero.report.inputs import gather
from hero.report.page.page import write_page
from hero.report.page.player import LEVELS
from hero.report.views import GREY, SIGNED, UNSIGNED, channel_titles
from hero.runs.folder import Run
from test_page import Watched, launched, pixels
from test_page import pytestmark as pytestmark
from test_pictures import errors_of, rollout_of, weather_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weather_run(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def page(run: Path) -> Iterator[Any]:
    with launched() as browser:
        watched = Watched(browser, write_page(gather([run.name], run.parent), run / "report.html"))
        yield watched.page
        watched.assert_quiet()


def choose(page: Any, channel: int) -> None:
    page.select_option("#player-channel", index=channel)
    page.select_option("#curve-channel", index=channel + 1)


@pytest.mark.parametrize("channel", [0, 1])
def test_a_field_is_drawn_as_its_coordinates_say(page: Any, run: Path, channel: int) -> None:
    """Pixels are the colours that numpy gives, with the rows from south to north."""
    choose(page, channel)
    stored = rollout_of(run).truth[:, channel].astype(float)  # (time, latitude from north, longitude)
    low, high = np.nanmin(stored), np.nanmax(stored)
    name = UNSIGNED
    if channel:  # the wind changes its sign
        low, high, name = -max(-low, high), max(-low, high), SIGNED
    shown = np.flipud(stored[0])
    levels = np.rint(LEVELS * (np.nan_to_num(shown, nan=low) - low) / (high - low)) / LEVELS
    expected = np.rint(255 * colormaps[name](levels)[..., :3])
    expected[np.isnan(shown)] = tuple(bytes.fromhex(GREY[1:]))
    np.testing.assert_allclose(pixels(page, 0), expected, atol=1)
    assert np.isnan(shown).any() == (channel == 0)


def test_the_axes_of_a_picture_are_named(page: Any) -> None:
    scales = page.locator("#player-fields figure").first
    assert scales.locator(".up span").all_text_contents() == ["80", "latitude [°N]", "−80"]
    assert scales.locator(".across span").all_text_contents() == ["0", "longitude [°E]", "360"]
    box = scales.locator("canvas.map").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(360 / 160, rel=0.02)


def test_choosing_a_channel_changes_picture_and_title(page: Any, run: Path) -> None:
    choose(page, 0)
    before = [pixels(page, number) for number in range(3)]
    assert page.locator("#player-channel option").all_text_contents() == channel_titles(Run(run).config.source)
    choose(page, 1)
    assert page.locator("#player-title").inner_text() == "u10 [m s-1]"
    assert all((pixels(page, number) != before[number]).any() for number in range(3))
    errors = errors_of(run)["channel_vrmse"][rollout_of(run).trajectory, :, 1]
    assert f"VRMSE {errors[0]:.3g}"[:9] in page.locator("#player-step").inner_text()


def test_curves_are_the_means_of_the_file_for_all_and_for_single_channels(page: Any, run: Path) -> None:
    arrays = errors_of(run)
    chart = page.locator("#curve-panels .chart")

    def read() -> list[float]:
        chart.locator(".plot").press("End")
        return [float(one.get_attribute("data-value")) for one in chart.locator(".legend .value").all()]

    for name in ("vrmse", *range(2)):
        page.select_option("#curve-channel", index=0 if name == "vrmse" else name + 1)
        keys = [prefix + ("vrmse" if name == "vrmse" else "channel_vrmse") for prefix in ("", "persistence_", "mean_")]
        curves = [arrays[key] if name == "vrmse" else arrays[key][..., name] for key in keys]
        assert read() == pytest.approx([float(curve[:, -1].mean()) for curve in curves], rel=1e-8)
        titles = ["weather, FNO", "weather, FNO: t2m", "weather, FNO: u10"]
        assert chart.locator("h3").inner_text() == titles[0 if name == "vrmse" else name + 1]
    assert chart.locator("path.baseline").count() == 2
    assert chart.locator(".threshold").count() == 0
    assert chart.locator(".tick:not(.y)").all_text_contents() == ["1", "2", "3"]  # there is no step 1.5
